"""The Python client: of a server over HTTP, or with the log embedded in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mainstem.client.answers import CaughtUp, Gap, Record, Sent, Topic, TopicDeleted, Written
    from mainstem.client.worker import AsyncJob
    from mainstem.client.working import Job

__all__ = ["AsyncJob", "CaughtUp", "Gap", "Job", "Record", "Sent", "Topic", "TopicDeleted", "Written"]

_HOMES = {"AsyncJob": "mainstem.client.worker", "Job": "mainstem.client.working"}


def __getattr__(name: str) -> Any:
    # Loaded on first use: the embedded log needs none of it.
    if name not in __all__:
        raise AttributeError(f"module 'mainstem.client' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES.get(name, "mainstem.client.answers")), name)
