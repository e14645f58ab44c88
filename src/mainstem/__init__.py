"""Mainstem: one durable log, many doors, and every topic is a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mainstem.client.embedded import EmbeddedLog, open

__version__ = "0.1.0"
__all__ = ["EmbeddedLog", "__version__", "open"]


def __getattr__(name: str) -> Any:
    # Loaded on first use, so that `import mainstem` and `mainstem --help` stay quick.
    if name in ("open", "EmbeddedLog"):
        from mainstem.client import embedded

        return getattr(embedded, name)
    raise AttributeError(f"module 'mainstem' has no attribute {name!r}")
