"""The configuration of a topic: one typed record, whichever door set it."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from mainstem.api.topics import BacklogPolicy, Discard, Durability, TopicType

__all__ = ["BacklogPolicy", "Durability", "SchemaValidation", "TopicConfig", "WalProfile"]

SchemaValidation = Literal["none", "id", "full"]
WalProfile = Literal["latency", "cost"]


class TopicConfig(msgspec.Struct, frozen=True, omit_defaults=True):
    """Settings of one topic. 0 and -1 mean off where noted.

    Logs hold only what differs from a default: new fields need one, and no default may ever change."""

    type: TopicType = "log"
    durability: Durability = "fsync"
    ttl_ms: int = 0  # exact: a record older than this is expired; 0 = off
    cap_records: int = 0  # exact; 0 = off
    cap_bytes: int = 0  # exact, in logical bytes; 0 = off
    discard: Discard = "old"
    retention_ms: int = -1  # by slice, as Kafka does by segment; -1 = off
    retention_bytes: int = -1  # stored bytes a partition; -1 = off
    cleanup_policy: str = "delete"
    max_message_bytes: int = 1_048_588
    timestamp_type: Literal["CreateTime", "LogAppendTime"] = "CreateTime"
    compression_type: str = "producer"
    min_compaction_lag_ms: int = 0  # a record younger than this is not compacted away
    max_compaction_lag_ms: int = 2**63 - 1  # a record older than this is due for compaction
    delete_retention_ms: int = 86_400_000  # how long compaction keeps a tombstone
    table: bool = False  # the topic is also published as a table
    inert: tuple[tuple[str, str], ...] = ()  # settings without effect, by name: kept so that they read back
    named: tuple[str, ...] = ()  # settings given by name, sorted; the others follow the server's default
    priority: int | None = None  # set by an operator; None = by how recently the topic was read
    auto_priority: bool = True
    auto_create: bool = True  # a write may create the topic again
    idempotency_window_ms: int = 120_000  # how long a write's idempotency key is remembered; 0 = not at all
    dedupe_node: bool = True  # readers may leave out records of their own node
    lease_ms: int = 30_000  # of a claimed job, unless the claim says otherwise
    claim_jitter_ms: int = 0  # how long claims are collected, to serve them together
    max_deliveries: int = 0  # a job leased this often goes to `dead_letter`; 0 = never
    dead_letter: str | None = None  # the topic for those jobs
    leases_durable: bool = False  # leases survive a restart
    validate_records: Literal["header", "full"] = "header"  # what an append checks of the batches
    min_cleanable_dirty_ratio: float = 0.5  # share of bytes never compacted at which compaction is due
    segment_bytes: int = 2**30  # of a compacted topic: repacked when a partition has this many new bytes …
    segment_ms: int = 604_800_000  # … or when the first of them is this old
    key_schema_validation: SchemaValidation = "none"  # what an append checks of keys, by the schema registry
    value_schema_validation: SchemaValidation = "none"  # and of values
    timestamp_before_max_ms: int = 2**63 - 1  # how much older than the append a record's time may be
    timestamp_after_max_ms: int = 2**63 - 1  # and how much newer
    deduplication: bool = False  # messages of Pulsar producers are stored once, by their sequence numbers
    keep_backlog: bool = False  # retention keeps what a subscription has not acknowledged
    subscription_ttl_ms: int = (
        0  # a record older than this counts as acknowledged in every subscription; 0 = off
    )
    backlog_bytes: int = 0  # of the slowest subscription of a partition; 0 = no limit
    backlog_bytes_policy: BacklogPolicy = "producer_request_hold"  # what happens above it
    backlog_ms: int = 0  # age of the oldest record that a subscription has not acknowledged; 0 = no limit
    backlog_ms_policy: BacklogPolicy = "producer_request_hold"
    terminated: bool = False  # takes no more records, for good
    wal_profile: WalProfile = "latency"  # where a shared log first stores small payloads
    properties: tuple[tuple[str, str], ...] = ()  # of the topic, as clients set them; sorted
    validates: bool = (
        False  # derived: appends decode every record, for one of these or because compaction needs keys
    )

    limits_times: bool = False  # derived: appends compare times of records with the clock

    def __post_init__(self) -> None:
        validates = (
            self.validate_records == "full"
            or "compact" in self.cleanup_policy
            or self.key_schema_validation != "none"
            or self.value_schema_validation != "none"
        )
        msgspec.structs.force_setattr(self, "validates", validates)
        bounds = min(self.timestamp_before_max_ms, self.timestamp_after_max_ms)
        limits_times = bounds < 2**63 - 1 and self.timestamp_type == "CreateTime"
        msgspec.structs.force_setattr(self, "limits_times", limits_times)
        # `omit_defaults` compares identities: a field that equals its default must be that very object, so that equal
        # settings are stored, and digested, as the same bytes.
        for name, default in _DEFAULTS:
            if getattr(self, name) == default:
                msgspec.structs.force_setattr(self, name, default)

    @property
    def changed(self) -> dict[str, Any]:
        """The fields that differ from their defaults, in order of declaration, whatever fields a later version adds."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found

    @property
    def tracked(self) -> bool:
        """Appends must carry a size and a time for each record."""
        return bool(self.ttl_ms or self.cap_bytes or self.cap_records) or self.type == "queue"

    @property
    def relaxed(self) -> bool:
        """Whether appends are acknowledged before they are synced."""
        return self.durability != "fsync"


_DEFAULTS: tuple[tuple[str, Any], ...] = tuple(
    (field.name, field.default) for field in msgspec.structs.fields(TopicConfig)
)
