"""Records: writing, reading, deleting, and watching them arrive.

The HTTP door assembles most of these responses as bytes; these structs say what it may write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Raw, UnsetType, field

from mainstem import limits
from mainstem.api.base import U64, Performance
from mainstem.api.topics import TopicConfigBody


class RecordBody(msgspec.Struct, frozen=True, gc=False):
    """One record to write. The server stores `data` byte for byte."""

    data: Raw
    tag: str | None = None
    node: str | None = None
    meta: Raw | UnsetType = UNSET
    delay_ms: U64 = 0  # of a job: it is not handed out before
    ttl_ms: U64 = 0  # the record is deleted after


class WriteBody(msgspec.Struct, frozen=True):
    records: list[RecordBody]
    node: str | None = None
    idempotency_key: str | None = None
    create: bool | None = None
    config: TopicConfigBody | None = None


class WriteResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a write went. `deduped`: an earlier attempt with the same idempotency key wrote it.

    `partition` is present if the topic has several: that of the first record. If the records went to several,
    `partitions` and `seqs` name the place of each; `first_seq` and `last_seq` are those of the first and the last."""

    topic: str
    first_seq: int
    last_seq: int
    head_seq: int
    count: int
    created: bool
    deduped: bool
    performance: Performance
    seqs: list[int] | None = None  # unless return_seqs is false
    partition: int | None = None
    partitions: list[int] | None = None


# Reading


class DiffBody(msgspec.Struct, frozen=True):
    from_seq: U64 = 0
    limit: U64 = 0
    node: str | list[str] | None = None
    include_tags: bool = False
    include_meta: bool = True
    wait_ms: U64 = 0
    max_batch_bytes: U64 = 0
    include_trace: bool = False
    include_headers: bool = False
    # Of a topic with several partitions: partition → sequence number, 0 for those that are left out.
    from_: dict[str, U64] | None = field(name="from", default=None)
    partitions: list[U64] | None = None  # read these only


class FetchedRecord(msgspec.Struct, omit_defaults=True):
    """One record. `$seq` is its offset + 1."""

    seq: int = field(name="$seq")
    timestamp_ms: int = field(name="$ts")
    data: Raw | UnsetType = UNSET  # JSON, byte for byte as it is stored
    key: str | None = field(name="$tag", default=None)
    node: str | None = field(name="$node", default=None)
    meta_json: Raw | UnsetType = field(name="meta", default=UNSET)
    packed: str | None = field(name="$raw", default=None)  # base64 of a value that is not JSON
    trace: str | None = field(name="$trace", default=None)  # header traceparent, if asked for
    partition: int | None = field(name="$partition", default=None)  # if the topic has several
    header_pairs: list[tuple[str, str | None]] = field(
        name="$headers", default_factory=list
    )  # in base64, if asked for


class ReadGap(msgspec.Struct, frozen=True):
    """Records that a reader missed: retention, a crash or damage removed them, not a delete."""

    gap_from: int
    gap_to: int
    reason: str
    missed_estimate: int
    earliest_seq: int
    head_seq: int


class PartitionGap(ReadGap, frozen=True):
    """A gap in one of several partitions."""

    partition: int = field(name="$partition")


class PartitionedDiffResult(msgspec.Struct):
    """Records of several partitions, in order within each. Send `next` as the next `from`."""

    topic: str
    records: Sequence[FetchedRecord]
    next: dict[str, int]
    head: dict[str, int]
    earliest: dict[str, int]
    caught_up: bool
    tombstones: list[PartitionGap]
    lag: int
    performance: Performance


class DiffResult(msgspec.Struct):
    """Records after `from_seq`. Send `next_from_seq` as the next `from_seq`."""

    topic: str
    records: Sequence[FetchedRecord]
    next_from_seq: int
    head_seq: int
    earliest_seq: int
    caught_up: bool
    tombstone: ReadGap | None
    lag: int
    performance: Performance


# Deleting


class DeleteBody(msgspec.Struct, frozen=True):
    """Records to delete: those before `before_seq`, those whose tag matches, or both."""

    before_seq: U64 | None = None
    match: Any = None


class DeleteResult(msgspec.Struct, frozen=True):
    """What a deletion of records left behind."""

    topic: str
    deleted: int
    earliest_seq: int
    head_seq: int
    count: int
    bytes: int
    performance: Performance


# Watching


class StartPosition(msgspec.Struct, frozen=True):
    """Where to start in one topic. `from` is for a topic with several partitions: partition → sequence number."""

    from_seq: U64 = 0
    tail: bool = False
    partition: U64 | None = None  # all of them unless given
    from_: dict[str, U64] | None = field(name="from", default=None)


class WatchBody(msgspec.Struct, frozen=True):
    topics: dict[str, StartPosition]
    node: str | list[str] | None = None
    limit: U64 = limits.WATCH_RECORDS_DEFAULT
    max_batch_bytes: U64 = limits.WATCH_BYTES_DEFAULT
    heartbeat_ms: int = limits.WATCH_HEARTBEAT_MS_DEFAULT
    include_meta: bool = True
    include_tags: bool = False
    include_data: bool = True
    include_trace: bool = False
    include_headers: bool = False


class WatchedPartition(msgspec.Struct, frozen=True):
    from_seq: int
    head_seq: int
    earliest_seq: int


class WatchedTopic(WatchedPartition, frozen=True, omit_defaults=True):
    """`partitions` is present if several are watched; the other fields are then those of partition 0."""

    partitions: dict[str, WatchedPartition] | None = None


class WatchStarted(msgspec.Struct, frozen=True):
    wid: str
    stream_url: str
    session_ttl_ms: int
    topics: dict[str, WatchedTopic]
    performance: Performance


class RecordsEvent(msgspec.Struct, omit_defaults=True):
    topic: str
    from_seq: int
    head_seq: int
    records: Sequence[FetchedRecord]
    to_seq: int
    partition: int | None = field(name="$partition", default=None)


class GapEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    topic: str
    reason: str
    gap_from: int
    gap_to: int
    earliest_seq: int
    head_seq: int
    partition: int | None = field(name="$partition", default=None)


class CaughtUp(msgspec.Struct, frozen=True, omit_defaults=True):
    """A watch has delivered all stored records of a topic; what follows is new."""

    topic: str
    head_seq: int
    partition: int | None = field(name="$partition", default=None)


class TopicDeleted(msgspec.Struct, frozen=True):
    """A watched topic was deleted."""

    topic: str
    head_seq: int = 0
    reason: Literal["deleted"] = "deleted"


WATCH_EVENTS: Mapping[str, type[Any]] = {
    "record": RecordsEvent,
    "tombstone": GapEvent,
    "caught-up": CaughtUp,
    "topic-deleted": TopicDeleted,
}


# Commands of the web socket


class CommandHead(msgspec.Struct, frozen=True):
    """Fields of every command. The server echoes `request_id` byte for byte."""

    op: str
    request_id: Raw = Raw()


class Subscribe(msgspec.Struct, frozen=True):
    topic: str | None = None
    topics: list[str] | dict[str, StartPosition] | None = None
    from_seq: U64 = 0
    tail: bool = False
    partition: U64 | None = None  # all of them unless given
    node: str | list[str] | None = None
    limit: U64 = limits.WATCH_RECORDS_DEFAULT
    max_batch_bytes: U64 = limits.WATCH_BYTES_DEFAULT
    include_meta: bool = True
    include_tags: bool = False
    include_data: bool = True
    include_trace: bool = False
    include_headers: bool = False
    lenient: bool = False


class Unsubscribe(msgspec.Struct, frozen=True):
    topic: str | None = None
    topics: list[str] | dict[str, Raw] | None = None


class Publish(msgspec.Struct, frozen=True):
    """A write. The records and the rest are those of a POST."""

    topic: str
    config: Raw = Raw()
    return_seqs: bool = True
    partition: U64 | None = None  # by key unless given
