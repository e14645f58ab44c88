"""Brokers that share a log: membership, placement, clocks."""
