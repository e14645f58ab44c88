"""Queues: claims, leases, dead letters. `service.py` is the entry point."""
