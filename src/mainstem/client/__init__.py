"""The Python client: of a server over HTTP, or with the log embedded in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mainstem.client.responses import (
        CaughtUp,
        ConsumerRecord,
        Gap,
        RecordMetadata,
        TopicDeleted,
        TopicDescription,
        WriteResult,
    )
    from mainstem.client.sync_worker import Job
    from mainstem.client.worker import AsyncJob

__all__ = [
    "AsyncJob",
    "CaughtUp",
    "ConsumerRecord",
    "Gap",
    "Job",
    "RecordMetadata",
    "TopicDeleted",
    "TopicDescription",
    "WriteResult",
]

_HOMES = {"AsyncJob": "mainstem.client.worker", "Job": "mainstem.client.sync_worker"}


def __getattr__(name: str) -> Any:
    # Loaded on first use: the embedded log needs none of it.
    if name not in __all__:
        raise AttributeError(f"module 'mainstem.client' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES.get(name, "mainstem.client.responses")), name)
