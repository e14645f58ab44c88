"""The Python client: the log embedded in a process."""
