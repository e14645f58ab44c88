"""The Python client: of a server over HTTP, or with the log embedded in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mainstem.api.records import CaughtUp, TopicDeleted, WriteResult
    from mainstem.api.topics import TopicDescription
    from mainstem.client.answers import Gap, Record, Sent
    from mainstem.client.worker import AsyncJob
    from mainstem.client.working import Job

__all__ = [
    "AsyncJob",
    "CaughtUp",
    "Gap",
    "Job",
    "Record",
    "Sent",
    "TopicDeleted",
    "TopicDescription",
    "WriteResult",
]

_HOMES = {
    "AsyncJob": "mainstem.client.worker",
    "CaughtUp": "mainstem.api.records",
    "Gap": "mainstem.client.answers",
    "Job": "mainstem.client.working",
    "Record": "mainstem.client.answers",
    "Sent": "mainstem.client.answers",
    "TopicDeleted": "mainstem.api.records",
    "TopicDescription": "mainstem.api.topics",
    "WriteResult": "mainstem.api.records",
}


def __getattr__(name: str) -> Any:
    # Loaded on first use: the embedded log needs none of it.
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'mainstem.client' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(home), name)
