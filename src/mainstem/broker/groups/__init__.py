"""Consumer groups: both protocols, members, assignments, offsets, lag. `service.py` is the entry point."""
