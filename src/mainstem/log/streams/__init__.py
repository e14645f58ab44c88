"""Durable and ephemeral streams behind one interface; aliases of copied records."""
