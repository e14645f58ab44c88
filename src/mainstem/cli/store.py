"""What the commands on topics and records need of a log, whoever has it: a server, or this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from mainstem.cli.records import InputRecord


@dataclass(frozen=True, slots=True)
class TopicLine:
    """A topic in a list. Its fields are the columns."""

    name: str
    partitions: int
    records: int
    bytes: int
    type: str
    durability: str


@dataclass(frozen=True, slots=True)
class PartitionLine:
    """A partition of a topic. Its fields are the columns."""

    partition: int
    start: int
    end: int
    records: int
    bytes: int
    max_timestamp_ms: int


@dataclass(frozen=True, slots=True)
class TopicDetails:
    name: str
    id: str
    partitions: Sequence[PartitionLine]
    settings: Mapping[str, str]

    @property
    def batch_bytes_max(self) -> int:
        return int(self.settings["max.message.bytes"])

    @property
    def line(self) -> TopicLine:
        return TopicLine(
            self.name,
            len(self.partitions),
            sum(partition.records for partition in self.partitions),
            sum(partition.bytes for partition in self.partitions),
            self.settings["mainstem.type"],
            self.settings["mainstem.durability"],
        )


class ReadRecord(Protocol):
    """A record as it is printed."""

    @property
    def offset(self) -> int: ...
    @property
    def timestamp_ms(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> tuple[tuple[str, bytes | None], ...]: ...


class Store(Protocol):
    """Errors are those of errors.py, the same from a server and from a directory."""

    async def create(
        self, name: str, partitions: int, settings: Mapping[str, str], exist_ok: bool
    ) -> None: ...

    async def topics(self, prefix: str) -> list[TopicLine]: ...

    async def describe(self, name: str) -> TopicDetails: ...

    async def alter(self, name: str, settings: Mapping[str, str], partitions: int | None) -> None: ...

    async def delete(self, name: str) -> None: ...

    async def append(self, name: str, partition: int, records: Sequence[InputRecord]) -> None: ...

    async def read(self, name: str, partition: int, offset: int) -> tuple[Sequence[ReadRecord], int]:
        """Records from an offset on, and where to read on: no further than `offset` at the end.

        Raises OffsetOutOfRange, RecordsLost."""
        ...

    async def offset_at(self, name: str, partition: int, timestamp_ms: int) -> int: ...

    async def committed(self, group: str, name: str) -> Mapping[int, int]: ...

    async def commit(self, group: str, name: str, partition: int, offset: int) -> None: ...
