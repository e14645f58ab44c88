"""The HTTP door: JSON over HTTP/1.1 and HTTP/2, as the /v0 contract has it."""
