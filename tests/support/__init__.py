"""Shared by tests and benchmarks: real servers, simulated disks and networks, checked histories."""
