"""What the server answers, as typed values."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from msgspec import Raw, field

_NULL = Raw(b"null")

OnGap = Literal["yield", "raise", "skip"]


class ConsumerRecord(msgspec.Struct):
    """One record as the HTTP door tells it. `seq` is its offset + 1."""

    seq: int = field(name="$seq")
    timestamp_ms: int = field(name="$ts")
    data: Raw = _NULL  # JSON, byte for byte as it is stored
    key: str | None = field(name="$tag", default=None)
    node: str | None = field(name="$node", default=None)
    meta_json: Raw = field(name="meta", default=_NULL)
    packed: str | None = field(name="$raw", default=None)  # base64 of a value that is no JSON
    topic: str = ""
    partition: int = 0
    trace: str | None = field(name="$trace", default=None)  # its header traceparent, read while tracing is on

    @property
    def offset(self) -> int:
        """Where it stands in its stream, as Kafka clients count."""
        return self.seq - 1

    @property
    def bytes(self) -> bytes | None:
        """The value as it is stored; None for none."""
        return _stored(self.data, self.packed)

    @property
    def value(self) -> Any:
        """The value as Python knows it: what JSON says, or bytes that are no JSON."""
        return _decoded_data(self.data, self.packed)

    @property
    def meta(self) -> Any:
        return msgspec.json.decode(self.meta_json)


class Gap(msgspec.Struct, frozen=True):
    """Records nobody can read any more: retention, a crash or damage took them, not a delete."""

    topic: str
    first_seq: int
    last_seq: int
    reason: str
    earliest_seq: int
    head_seq: int


class CaughtUp(msgspec.Struct, frozen=True):
    """A watch has given all there was; what follows is new."""

    topic: str
    head_seq: int


class TopicDeleted(msgspec.Struct, frozen=True):
    """A topic that was watched is gone."""

    topic: str


class DeletedRecord(msgspec.Struct, frozen=True):
    gap_from: int
    gap_to: int
    reason: str
    earliest_seq: int
    head_seq: int
    topic: str = ""

    def gap(self, topic: str) -> Gap:
        return Gap(topic, self.gap_from, self.gap_to, self.reason, self.earliest_seq, self.head_seq)


class RecordPage(msgspec.Struct):
    """One answer of a diff. Send `next_from_seq` as the next `from_seq`."""

    topic: str
    records: list[ConsumerRecord]
    next_from_seq: int
    head_seq: int
    earliest_seq: int
    caught_up: bool
    lag: int
    tombstone: DeletedRecord | None = None


class WriteResult(msgspec.Struct, frozen=True):
    """Where a write went. `deduped`: an earlier attempt with the same key had written it already."""

    topic: str
    first_seq: int
    last_seq: int
    created: bool = False
    deduped: bool = False


class RecordMetadata(msgspec.Struct, frozen=True):
    """Where one record of a batching producer went."""

    topic: str
    seq: int

    @property
    def offset(self) -> int:
        return self.seq - 1


class TopicConfigResponse(msgspec.Struct, frozen=True):
    """A topic's config, the keys that the HTTP door knows."""

    type: str
    ttl_ms: int
    cap_records: int
    cap_bytes: int
    discard: str
    durable: bool
    durability: str
    priority: int | None
    auto_priority: bool
    auto_create: bool
    idempotency_window_ms: int
    dedupe_node: bool
    lease_ms: int
    claim_jitter_ms: int
    max_deliveries: int
    dead_letter: str | None
    leases_durable: bool


class QueueStats(msgspec.Struct, frozen=True):
    ready: int
    in_flight: int
    dead_lettered: int


class TopicDescription(msgspec.Struct, frozen=True):
    """A topic's state."""

    topic: str
    type: str
    head_seq: int
    earliest_seq: int
    next_seq: int
    count: int
    bytes: int
    config: TopicConfigResponse
    effective_priority: int
    last_write_ts: int | None = None
    last_read_ts: int | None = None
    queue: QueueStats | None = None


class TopicListing(msgspec.Struct, frozen=True):
    """A topic in a list."""

    topic: str
    head_seq: int
    earliest_seq: int
    count: int
    bytes: int
    durable: bool
    effective_priority: int


class TopicSize(msgspec.Struct, frozen=True):
    """A topic in a list, all its partitions together."""

    topic: str
    type: str
    durability: str
    partitions: int
    records: int
    bytes: int
    table: bool


class Partition(msgspec.Struct, frozen=True):
    partition: int
    start: int
    end: int
    records: int
    bytes: int
    max_timestamp_ms: int


class TopicSettings(msgspec.Struct, frozen=True):
    """A topic's partitions, and its settings by the names Kafka's tools use."""

    topic: str
    id: str
    partitions: list[Partition]
    settings: dict[str, str]


class DeleteResult(msgspec.Struct, frozen=True):
    """What a deletion of records left behind."""

    topic: str
    deleted: int
    earliest_seq: int
    head_seq: int
    count: int
    bytes: int


class JobBody(msgspec.Struct):
    """A job as a claim or a work stream gives it."""

    seq: int = field(name="$seq")
    lease_id: str
    deadline_ms: int = field(name="deadline")
    timestamp_ms: int = field(name="$ts")
    deliveries: int
    data: Raw = _NULL
    key: str | None = field(name="$tag", default=None)
    meta_json: Raw = field(name="meta", default=_NULL)
    packed: str | None = field(name="$raw", default=None)
    trace: str | None = field(name="$trace", default=None)  # its header traceparent

    @property
    def bytes(self) -> bytes | None:
        return _stored(self.data, self.packed)

    @property
    def value(self) -> Any:
        return _decoded_data(self.data, self.packed)

    @property
    def meta(self) -> Any:
        return msgspec.json.decode(self.meta_json)


class ClaimResult(msgspec.Struct):
    topic: str
    claimed: list[JobBody]
    ready: int


class SettleResult(msgspec.Struct, frozen=True):
    """What became of the jobs named; `skipped` are those the node holds no lease on."""

    topic: str
    skipped: list[int]
    acked: int = 0
    nacked: int = 0
    extended: int = 0
    ready: int = 0
    in_flight: int = 0
    deadlines: Mapping[str, int] = {}


class RouterDescription(msgspec.Struct, frozen=True):
    """A router; `forwarded_total` and the settings come where the server tells them."""

    router: str
    source: str
    dest: str
    guarantee: str
    forwarded_total: int = 0
    preserve_node: bool = True
    preserve_tag: bool = True
    filter: list[str] | None = None
    allow_cycle: bool = False
    created: bool = False


class GroupListing(msgspec.Struct, frozen=True):
    """A consumer group in a list."""

    group: str
    state: str
    kind: str
    protocol_type: str


class MemberDescription(msgspec.Struct, frozen=True):
    member_id: str
    client_id: str
    client_host: str
    instance_id: str | None = None


class GroupOffset(msgspec.Struct, frozen=True):
    """How far a group is in one partition. `lag` is what it has left to read."""

    topic: str
    partition: int
    offset: int
    start: int
    end: int
    lag: int
    metadata: str = ""


class GroupDescription(msgspec.Struct, frozen=True):
    group: str
    state: str
    kind: str
    protocol_type: str
    members: list[MemberDescription]
    offsets: list[GroupOffset]
    lag: int


class OffsetReset(msgspec.Struct, frozen=True):
    """One partition of a group's reset; `before` is None where it stood nowhere."""

    topic: str
    partition: int
    before: int | None
    after: int


class Health(msgspec.Struct, frozen=True):
    status: str
    version: str
    uptime_ms: int


def _stored(data: Raw, packed: str | None) -> bytes | None:
    if packed is not None:
        return base64.b64decode(packed)
    raw = bytes(data)
    return None if raw == b"null" else raw


def _decoded_data(data: Raw, packed: str | None) -> Any:
    return base64.b64decode(packed) if packed is not None else msgspec.json.decode(data)
