"""Cursors of the broker for readers without a group."""

from __future__ import annotations

# One per topic. All readers that use it, through the text door or embedded, share its position.
SHARED_CURSOR = "mainstem:shared"
