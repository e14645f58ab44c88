"""The Python client: of a server over HTTP, or with the log embedded in this process."""
