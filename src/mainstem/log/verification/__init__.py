"""Check a data directory on disk without changing it."""
