"""What the tests and the benchmarks share: real servers, simulated disks and networks, histories to check."""
