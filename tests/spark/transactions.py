"""Transactions that stay open while a test looks."""

from __future__ import annotations

import uuid
from types import TracebackType

from mainstem.records.building import build_batch
from mainstem.records.header import TRANSACTIONAL, seal, walk

from .conftest import OCTETS, TIME_MS, Broker


class OpenTransaction:
    """Writes that nobody commits: aborted on leaving."""

    def __init__(self, broker: Broker, topic: str) -> None:
        self._broker = broker
        self._topic = topic
        self._sequence = 0
        self._run = {"query": uuid.uuid4().hex, "run": "r"}
        self._begun = broker.ask("POST", "/v0/sinks/tasks", {**self._run, "batch": 0, "attempt": "0"})

    def __enter__(self) -> OpenTransaction:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._broker.ask("POST", "/v0/sinks/abort", self._run)

    def write(self, *values: bytes) -> None:
        batch = build_batch(list(values), timestamps_ms=TIME_MS)
        header = next(walk(batch))
        seal(
            batch,
            attributes=TRANSACTIONAL,
            last_offset_delta=header.last_offset_delta,
            base_timestamp=TIME_MS,
            max_timestamp=TIME_MS,
            producer=self._begun["producer"],
            producer_epoch=self._begun["epoch"],
            base_sequence=self._sequence,
            count=header.count,
        )
        self._sequence += header.count
        path = f"/v0/topics/{self._topic}/batches"
        answer = self._broker.client.post(path, content=bytes(batch), headers=OCTETS)
        assert answer.status_code == 200, answer.text
