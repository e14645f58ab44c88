"""The Python client: for a server over HTTP, or with the log embedded in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mainstem.api.records import CaughtUp, TopicDeleted, WriteResult
    from mainstem.api.topics import TopicDescription
    from mainstem.client.consumer import AsyncConsumer, Consumer, TopicPartition
    from mainstem.client.responses import ConsumerRecord, Gap, RecordMetadata
    from mainstem.client.responses import ConsumerRecord as Record
    from mainstem.client.sync_worker import Job
    from mainstem.client.worker import AsyncJob

__all__ = [
    "AsyncConsumer",
    "AsyncJob",
    "CaughtUp",
    "Consumer",
    "ConsumerRecord",
    "Gap",
    "Job",
    "Record",
    "RecordMetadata",
    "TopicDeleted",
    "TopicDescription",
    "TopicPartition",
    "WriteResult",
]

_HOMES = {
    "AsyncJob": "mainstem.client.worker",
    "AsyncConsumer": "mainstem.client.consumer",
    "CaughtUp": "mainstem.api.records",
    "Consumer": "mainstem.client.consumer",
    "TopicPartition": "mainstem.client.consumer",
    "Gap": "mainstem.client.responses",
    "Job": "mainstem.client.sync_worker",
    "ConsumerRecord": "mainstem.client.responses",
    "RecordMetadata": "mainstem.client.responses",
    "TopicDeleted": "mainstem.api.records",
    "TopicDescription": "mainstem.api.topics",
    "WriteResult": "mainstem.api.records",
}


def __getattr__(name: str) -> Any:
    # Imported on first use: the embedded log does not need it.
    if name == "Record":
        name = "ConsumerRecord"
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'mainstem.client' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(home), name)
