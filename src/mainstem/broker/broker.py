"""The broker: what the doors' calls mean. Doors and the embedded client use this class and nothing below it.

Every method that changes something returns once the change is durable to the class of its topic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mainstem import limits
from mainstem.ledger.config import TopicConfig
from mainstem.ports.clock import Clock, SystemClock


@dataclass(frozen=True, slots=True)
class BrokerOptions:
    data_dir: Path
    broker_id: int = 1
    node: str = "local"
    default_config: TopicConfig = field(default_factory=TopicConfig)  # of topics made without a word
    segment_bytes: int = limits.SEGMENT_BYTES
    checkpoint_every_bytes: int = limits.CHECKPOINT_EVERY_BYTES
    tail_cache_bytes: int = limits.TAIL_CACHE_BYTES
    sync_every_ms: int = 0  # relaxed topics are synced in the background this often; 0 = left to the kernel


@dataclass(frozen=True, slots=True)
class Record:
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True, slots=True)
class TopicInfo:
    name: str
    topic_id: bytes
    config: TopicConfig
    streams: tuple[int, ...]  # stream number by partition

    @property
    def partitions(self) -> int:
        return len(self.streams)


@dataclass(frozen=True, slots=True)
class PartitionState:
    partition: int
    start: int  # first offset still there
    end: int  # next offset a reader will see appended
    records: int
    bytes: int  # logical bytes of the live records
    max_timestamp_ms: int  # -1 = never written


@dataclass(frozen=True, slots=True)
class Appended:
    base_offset: int
    count: int
    timestamp_ms: int
    duplicate: bool = False  # an idempotent retry; the offset is the original one


@dataclass(frozen=True, slots=True)
class Fetched:
    """Whole batches, stamped with offset and epoch. May begin before the offset asked for."""

    batches: tuple[memoryview, ...]
    next_offset: int  # where to read on
    start: int
    end: int


class Broker:
    @classmethod
    async def open(cls, options: BrokerOptions, clock: Clock | None = None) -> Broker:
        """Take the data directory, recover it and be ready to serve."""
        raise NotImplementedError(clock or SystemClock())

    async def close(self) -> None:
        """Drain, sync, checkpoint and release the directory."""
        raise NotImplementedError

    async def create_topic(
        self, name: str, *, partitions: int = 1, config: TopicConfig | None = None, exist_ok: bool = False
    ) -> TopicInfo:
        """Raises InvalidName, InvalidConfig, TopicExists (unless `exist_ok`)."""
        raise NotImplementedError

    async def delete_topic(self, name: str) -> TopicInfo:
        """Raises TopicNotFound."""
        raise NotImplementedError

    async def alter_topic(self, name: str, config: TopicConfig) -> TopicInfo:
        """Replace the config. Raises TopicNotFound, InvalidConfig."""
        raise NotImplementedError

    async def add_partitions(self, name: str, total: int) -> TopicInfo:
        raise NotImplementedError

    def topic(self, name: str) -> TopicInfo:
        """Raises TopicNotFound."""
        raise NotImplementedError

    def topics(self, prefix: str = "") -> list[TopicInfo]:
        """By name bytes."""
        raise NotImplementedError

    def partition(self, name: str, partition: int = 0) -> PartitionState:
        """Raises TopicNotFound, PartitionNotFound."""
        raise NotImplementedError

    async def append(self, name: str, batches: bytearray, partition: int = 0) -> Appended:
        """Append record batches as they came off the wire. Takes ownership of the buffer and stamps it."""
        raise NotImplementedError

    async def append_values(
        self,
        name: str,
        values: Sequence[bytes | None],
        *,
        keys: Sequence[bytes | None] | None = None,
        headers: Sequence[Sequence[tuple[str, bytes | None]]] | None = None,
        timestamps_ms: Sequence[int] | None = None,
        partition: int = 0,
    ) -> Appended:
        """Append records given as Python values, all or nothing, as one batch."""
        raise NotImplementedError

    async def fetch(
        self,
        name: str,
        offset: int,
        *,
        partition: int = 0,
        max_bytes: int = limits.READ_BYTES_DEFAULT,
        max_wait_ms: int = 0,
    ) -> Fetched:
        """Batches from `offset` on; at least one if there is any, whatever its size.

        At the end it waits up to `max_wait_ms` for an append. Raises OffsetOutOfRange, RecordsLost."""
        raise NotImplementedError

    async def read(
        self,
        name: str,
        offset: int,
        *,
        partition: int = 0,
        max_records: int = 256,
        max_bytes: int = limits.READ_BYTES_DEFAULT,
        max_wait_ms: int = 0,
    ) -> list[Record]:
        """Decoded records from `offset` on."""
        raise NotImplementedError

    async def offset_at(self, name: str, timestamp_ms: int, partition: int = 0) -> int:
        """The first offset whose record time is at or after `timestamp_ms`; the end if none is."""
        raise NotImplementedError

    async def trim(self, name: str, offset: int, partition: int = 0) -> int:
        """Delete the records below `offset`. Returns the new start."""
        raise NotImplementedError

    async def take(self, name: str, group: str, *, partition: int = 0, limit: int = 1) -> list[Record]:
        """Consume the next records of a group's shared cursor: nobody else gets them. Empty at the end."""
        raise NotImplementedError

    async def commit_offset(
        self, group: str, name: str, offset: int, partition: int = 0, metadata: str = ""
    ) -> None:
        raise NotImplementedError

    def committed(self, group: str, name: str, partition: int = 0) -> int | None:
        """The group's next offset to read, None if it never committed."""
        raise NotImplementedError
