"""Other systems under the same load as Mainstem, one after the other on one machine: `make bench-peers`."""
