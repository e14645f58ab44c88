"""Checking a data directory as it lies on disk, without changing a byte of it."""
