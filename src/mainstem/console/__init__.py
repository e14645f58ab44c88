"""The web console as it is served: `static/` is built from console/ at the root of the repository."""
