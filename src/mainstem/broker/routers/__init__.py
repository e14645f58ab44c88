"""Routers: copies of records from topic to topic. `service.py` is the entry point."""
