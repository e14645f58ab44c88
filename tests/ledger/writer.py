"""A broker for tests: wraps commands in entries with rising commit ids, and keeps them as a log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mainstem.ledger.appends import AppendOutcome
from mainstem.ledger.brokers import Boot
from mainstem.ledger.config import TopicConfig
from mainstem.ledger.entry import RECORD, SLICE, SLICE_TRACKED, AppendRun, Entry, Part
from mainstem.ledger.ledger import Ledger
from mainstem.ledger.section import Moment
from mainstem.ledger.topics import CreateTopic, Topic


def moment(time_ms: int = 0, position: int = 0) -> Moment:
    """For a section that a test drives without a ledger."""
    now = Moment()
    now.time_ms, now.position = time_ms, position
    return now


def slice_row(
    stream: int,
    count: int = 1,
    *,
    size: int | None = None,
    time: int = 1_000,
    producer: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    flags: int = 0,
) -> tuple[int, ...]:
    size = 10 * count if size is None else size
    return (stream, count, 61 + size, 0, time, producer, sequence, epoch, flags, size, 1)


def run(*rows: tuple[int, ...], records: Sequence[tuple[int, int]] = ()) -> AppendRun:
    return AppendRun(np.array(list(rows), SLICE), np.array(list(records), RECORD))


class Writer:
    """Applies to a ledger what one broker proposes."""

    def __init__(self, ledger: Ledger | None = None, broker: int = 1, *, jump: bool = False) -> None:
        self.ledger = ledger or Ledger()
        self.broker = broker
        self.epoch = 0
        self.commit_id = 0
        self.time_ms = 1_000
        self.log: list[Entry] = []
        self.boot(jump=jump)

    def boot(self, *, jump: bool = False) -> Any:
        self.epoch = 0
        booted: Any = self.apply(Boot(self.broker, "boot", jump))[0]
        self.epoch = booted.broker_epoch
        self.commit_id = 0
        return booted

    def apply(self, *parts: Part) -> list[Any]:
        self.commit_id += 1
        entry = Entry(self.broker, self.epoch, self.commit_id, self.time_ms, list(parts))
        self.log.append(entry)
        return self.ledger.apply(entry)

    def do(self, part: Part) -> Any:
        return self.apply(part)[0]

    def create(self, name: str = "t", partitions: int = 1, **config: Any) -> Topic:
        topic_id = name.encode().ljust(16, b"\0")
        topic = self.do(CreateTopic(name, topic_id, partitions, TopicConfig(**config)))
        assert isinstance(topic, Topic), topic
        return topic

    def append(self, stream: int, count: int = 1, **fields: Any) -> tuple[int, int]:
        """One slice: (base, code)."""
        outcome: AppendOutcome = self.do(run(slice_row(stream, count, **fields)))
        return int(outcome.base[0]), int(outcome.code[0])

    def append_sizes(self, stream: int, *sizes: int, times: Sequence[int] | None = None) -> tuple[int, int]:
        """One slice of a tracked stream, with the size of each record."""
        times = times or [1_000] * len(sizes)
        row = slice_row(stream, len(sizes), size=sum(sizes), time=max(times), flags=SLICE_TRACKED)
        outcome: AppendOutcome = self.do(run(row, records=list(zip(sizes, times, strict=True))))
        return int(outcome.base[0]), int(outcome.code[0])

    def state(self, stream: int) -> tuple[int, int, int, int]:
        """(start, end, records, bytes)."""
        streams = self.ledger.streams
        return (
            streams.start(stream),
            int(streams.end[stream]),
            int(streams.records[stream]),
            int(streams.bytes[stream]),
        )
