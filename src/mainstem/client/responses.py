"""Records, jobs and gaps as readers get them. All other results are structs of `mainstem.api`."""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec
from msgspec import Raw, field

from mainstem.api.queues import ClaimResponse, JobDelivery
from mainstem.api.records import DiffResult, FetchedRecord, GapEvent, PartitionGap, ReadGap, RecordsEvent

_NULL = Raw(b"null")
_REPR_CHARS_MAX = 200

OnGap = Literal["yield", "raise", "skip"]
Deserializer = Callable[[bytes], Any]


class ConsumerRecord(FetchedRecord):
    """One record. `seq` is its offset + 1."""

    data: Raw = _NULL
    meta_json: Raw = field(name="meta", default=_NULL)
    partition: int = field(name="$partition", default=0)
    topic: str = ""
    deserializer: Any = field(name="$deserializer", default=None)  # the reader's own: the server sends none

    def __repr__(self) -> str:
        shown = repr(self.value)
        if len(shown) > _REPR_CHARS_MAX:
            shown = shown[:_REPR_CHARS_MAX] + "…"
        parts = [f"{self.topic}[{self.partition}]@{self.offset}", f"key={self.key!r}", f"value={shown}"]
        if self.header_pairs:
            parts.append(f"headers={self.headers!r}")
        return f"<Record {' '.join(parts)} {self.timestamp:%Y-%m-%dT%H:%M:%S.%f}Z>"

    @property
    def timestamp(self) -> datetime:
        """When it was written, in UTC; `timestamp_ms` has the same as a number."""
        return datetime.fromtimestamp(self.timestamp_ms / 1000, UTC)

    @property
    def headers(self) -> list[tuple[str, bytes | None]]:
        """Its headers, in the order in which they were written."""
        return [
            (name, None if content is None else base64.b64decode(content))
            for name, content in self.header_pairs
        ]

    def header(self, name: str) -> bytes | None:
        """The content of the last header with this name; None if there is none."""
        return dict(self.headers).get(name)

    @property
    def offset(self) -> int:
        """Its position in the partition, as Kafka clients count."""
        return self.seq - 1

    @property
    def bytes(self) -> bytes | None:
        """The value as it is stored; None for a null."""
        return _stored(self.data, self.packed)

    @property
    def value(self) -> Any:
        """The value as the reader's deserializer made it; else decoded from JSON, or its bytes if it is not JSON."""
        if self.deserializer is not None:
            stored = self.bytes
            return None if stored is None else self.deserializer(stored)
        return _decoded_data(self.data, self.packed)

    @property
    def meta(self) -> Any:
        return msgspec.json.decode(self.meta_json)


class RecordPage(DiffResult):
    """One page of a read. Send `next_from_seq` as the next `from_seq`."""

    records: list[ConsumerRecord]


class AnyPage(msgspec.Struct):
    """A page of a topic: with `next` if it has several partitions, else with `next_from_seq`."""

    records: list[ConsumerRecord]
    caught_up: bool
    next_from_seq: int = 0
    tombstone: ReadGap | None = None
    next: dict[str, int] | None = None
    head: dict[str, int] | None = None
    tombstones: list[PartitionGap] = []


class RecordsFrame(RecordsEvent):
    """Records of one event of a watch."""

    records: list[ConsumerRecord]


class JobBody(JobDelivery):
    """A job as a claim or a work stream delivers it."""

    data: Raw = _NULL
    meta_json: Raw = field(name="meta", default=_NULL)

    @property
    def bytes(self) -> bytes | None:
        return _stored(self.data, self.packed)

    @property
    def value(self) -> Any:
        return _decoded_data(self.data, self.packed)

    @property
    def meta(self) -> Any:
        return msgspec.json.decode(self.meta_json)


class ClaimedJobs(ClaimResponse):
    claimed: list[JobBody]


class Gap(msgspec.Struct, frozen=True):
    """Records that cannot be read any more: retention, a crash or damage removed them, not a delete."""

    topic: str
    first_seq: int
    last_seq: int
    reason: str
    earliest_seq: int
    head_seq: int
    partition: int = 0


def gap_of(topic: str, gap: ReadGap | GapEvent, partition: int = 0) -> Gap:
    return Gap(topic, gap.gap_from, gap.gap_to, gap.reason, gap.earliest_seq, gap.head_seq, partition)


class RecordMetadata(msgspec.Struct, frozen=True):
    """The position of a record that a batching producer sent."""

    topic: str
    seq: int
    partition: int = 0

    @property
    def offset(self) -> int:
        return self.seq - 1


def _stored(data: Raw, packed: str | None) -> bytes | None:
    if packed is not None:
        return base64.b64decode(packed)
    raw = bytes(data)
    return None if raw == b"null" else raw


def _decoded_data(data: Raw, packed: str | None) -> Any:
    return base64.b64decode(packed) if packed is not None else msgspec.json.decode(data)
