"""The version, where the lowest layer can ask for it."""

VERSION = "0.1.0"
