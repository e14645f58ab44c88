"""Cursors the broker keeps for readers that have no group of their own."""

from __future__ import annotations

# One a topic. Whoever reads through it, by the text door or embedded, takes turns with the others.
SHARED_CURSOR = "mainstem:shared"
