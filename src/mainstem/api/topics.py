"""Topics: configuration, state, settings, offsets, messages and consumers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from mainstem import limits
from mainstem.api.base import I32, U64, UNTIMED, Performance

TopicType = Literal["log", "queue"]
Durability = Literal["ephemeral", "memory", "disk", "fsync"]
BacklogPolicy = Literal["producer_request_hold", "producer_exception", "consumer_backlog_eviction"]
InactiveMode = Literal["delete_when_no_subscriptions", "delete_when_subscriptions_caught_up"]
Discard = Literal["old", "reject"]
PartitionCount = Annotated[int, Meta(ge=1, le=limits.PARTITIONS_PER_TOPIC_MAX)]

# Bounds that the server clamps a setting to; other numbers end at the largest offset.
CONFIG_BOUNDS: Mapping[str, tuple[int, int]] = {"lease_ms": (100, 86_400_000), "claim_jitter_ms": (0, 5_000)}


class TopicConfigBody(msgspec.Struct, frozen=True):
    """A topic's configuration in a request. Fields that are left out have these defaults."""

    type: TopicType = "log"
    ttl_ms: U64 = 0
    cap_records: U64 = 0
    cap_bytes: U64 = 0
    discard: Discard = "old"
    durable: bool | None = None  # short for durability fsync (true) or disk (false)
    durability: Durability | None = None
    priority: I32 | None = None
    auto_priority: bool = True
    auto_create: bool = True
    idempotency_window_ms: U64 = 120_000
    dedupe_node: bool = True
    lease_ms: U64 = 30_000
    claim_jitter_ms: U64 = 0
    max_deliveries: U64 = 0
    dead_letter: str | None = None
    leases_durable: bool = False


class TopicConfigResponse(TopicConfigBody, frozen=True):
    """A topic's configuration in a response: always all 17 keys."""

    durable: bool = False
    durability: Durability = "disk"


class TopicConfigured(msgspec.Struct, frozen=True):
    topic: str
    created: bool
    config: TopicConfigResponse
    performance: Performance


class QueueStats(msgspec.Struct, frozen=True):
    ready: int
    in_flight: int
    dead_lettered: int


class PartitionCounts(msgspec.Struct, frozen=True):
    """The state of one partition of a topic that has several."""

    partition: int
    head_seq: int
    earliest_seq: int
    count: int
    bytes: int


class TopicDescription(msgspec.Struct, frozen=True, omit_defaults=True):
    """A topic's state and configuration. `queue` is present for queues only.

    `partitions` is present for topics with several: `count` and `bytes` are their sums, the sequence numbers those of
    partition 0."""

    topic: str
    type: TopicType
    head_seq: int
    earliest_seq: int
    next_seq: int
    count: int
    bytes: int
    config: TopicConfigResponse
    effective_priority: int
    last_write_ts: int | None
    last_read_ts: int | None
    performance: Performance
    queue: QueueStats | None = None
    partitions: list[PartitionCounts] | None = None


class TopicListing(msgspec.Struct, frozen=True):
    """A topic in a list."""

    topic: str
    head_seq: int
    earliest_seq: int
    count: int
    bytes: int
    durable: bool
    effective_priority: int


class TopicList(msgspec.Struct, frozen=True, omit_defaults=True):
    """A page of topics. `next_cursor` is present if more follow."""

    topics: list[TopicListing]
    performance: Performance
    next_cursor: str | None = None


class TopicDeletion(msgspec.Struct, frozen=True):
    topic: str
    deleted: bool
    routers_removed: list[str]
    performance: Performance


class TopicSummary(msgspec.Struct, frozen=True):
    """A topic in the overview, all its partitions together."""

    topic: str
    type: TopicType
    durability: Durability
    partitions: int
    records: int
    bytes: int
    end: int  # the sum of the partitions' ends: appends show as a difference
    last_write_ms: int | None
    table: bool
    recent: list[float]  # records per second in the samples of the last two minutes; empty without writes


class TopicSummaries(msgspec.Struct, frozen=True):
    topics: list[TopicSummary]
    total: int  # topics that match
    performance: Performance = UNTIMED


# Settings


class SettingsBody(msgspec.Struct, frozen=True):
    """Settings to change. `create` creates the topic, with `config` if it is given."""

    create: bool = False
    partitions: PartitionCount | None = None
    config: TopicConfigBody | None = None
    settings: dict[str, str] = {}


class PartitionDescription(msgspec.Struct, frozen=True):
    partition: int
    start: int
    end: int
    records: int
    bytes: int
    max_timestamp_ms: int


class TopicSettings(msgspec.Struct, frozen=True):
    """A topic's partitions, and its settings by the names that Kafka's tools use."""

    topic: str
    id: str
    partitions: list[PartitionDescription]
    settings: dict[str, str]
    performance: Performance


class SettingDescription(msgspec.Struct, frozen=True):
    """A topic setting: what it changes, and its default. `inert` ones are stored, but have no effect."""

    name: str
    kind: str
    default: str
    help: str
    inert: bool
    fixed: bool  # cannot change after the topic is created


class SettingDescriptions(msgspec.Struct, frozen=True):
    settings: list[SettingDescription]
    performance: Performance


# Offsets


class PartitionPosition(msgspec.Struct, frozen=True):
    """One partition. `offset` is the position asked for, None if no record is that recent."""

    partition: int
    start: int
    end: int
    offset: int | None


class TopicPositions(msgspec.Struct, frozen=True):
    topic: str
    id: str
    type: TopicType
    timestamp_type: Literal["CreateTime", "LogAppendTime"]
    max_batch_bytes: int
    partitions_total: int
    partitions: tuple[PartitionPosition, ...]


# Messages


class MessageContent(msgspec.Struct, frozen=True, omit_defaults=True):
    """A key, value or header: as text if it is UTF-8, else as base64."""

    text: str | None = None
    base64: str | None = None


class MessageHeader(msgspec.Struct, frozen=True):
    name: str
    content: MessageContent | None


class DecodedContent(msgspec.Struct, frozen=True):
    """A key or value by its schema of the registry, as JSON; `json_bytes` is its whole length."""

    schema_id: int
    schema_type: str
    json: str
    json_bytes: int


class Message(msgspec.Struct, frozen=True):
    """A record with its key, value and headers, for people. `value_bytes` is -1 for a null value."""

    offset: int
    timestamp_ms: int
    key: MessageContent | None
    value: MessageContent | None
    value_bytes: int
    headers: list[MessageHeader]
    key_decoded: DecodedContent | None
    value_decoded: DecodedContent | None


class LostOffsets(msgspec.Struct, frozen=True):
    """Offsets [start, end) whose records are lost."""

    start: int
    end: int
    reason: str


class MessageList(msgspec.Struct, frozen=True):
    topic: str
    partition: int
    start: int
    end: int
    next_from: int
    next_before: int
    messages: list[Message]
    lost: list[LostOffsets]
    performance: Performance


# Consumers


class ConsumerPartition(msgspec.Struct, frozen=True):
    partition: int
    offset: int | None  # null: the group has committed in other partitions only
    lag: int


class TopicConsumer(msgspec.Struct, frozen=True):
    """A consumer group, share group or subscription that reads the topic."""

    group: str
    state: str
    kind: str
    lag: int
    partitions: list[ConsumerPartition]


class TopicConsumers(msgspec.Struct, frozen=True):
    topic: str
    consumers: list[TopicConsumer]
    performance: Performance
