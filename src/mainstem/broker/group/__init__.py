"""Consumer groups: one file a noun. `broker/groups.py` is the way in."""
