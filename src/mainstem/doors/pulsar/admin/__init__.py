"""Pulsar's admin API on the HTTP door: /admin/v2 and /lookup/v2. One module a noun; `routes.py` has the paths."""
