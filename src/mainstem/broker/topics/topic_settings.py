"""The table of topic settings: Kafka's names, and our own, which start with `mainstem.`.

A row either sets a field of TopicConfig, or it is inert: a Kafka setting without effect here. Inert settings are
validated, stored and shown like the others, so that tools can set them and read them back. Their documentation says
why they have no effect. Unknown names are rejected.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

from mainstem import limits
from mainstem.api.topics import BacklogPolicy, Discard, Durability, TopicType
from mainstem.ledger.config import SchemaValidation, TopicConfig, WalProfile
from mainstem.values import INT64_MAX, one_of, whole

Kind = Literal["boolean", "string", "int", "long", "double", "list"]

_INT32_MAX = 2**31 - 1
_DEFAULTS = TopicConfig()


@dataclass(frozen=True, slots=True)
class TopicSetting:
    name: str
    kind: Kind
    parse: Callable[[str], object]  # raises ValueError with a message that follows the name of the setting
    help: str
    default: str
    field: str = ""  # field of TopicConfig; empty: inert
    server_name: str = ""  # Kafka's name of the broker default, if it has one
    fixed: bool = False  # cannot change after the topic is created

    @property
    def inert(self) -> bool:
        return not self.field


def shown(value: object) -> str:
    """Format a value as in settings."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def items(text: str) -> list[str]:
    """Split a list setting into its items."""
    return [part.strip() for part in text.split(",") if part.strip()]


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(f"takes true or false, not {text!r}")
    return text.lower() == "true"


def _ratio(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"takes a number, not {text!r}") from None
    if not 0 <= value <= 1:  # also rejects NaN
        raise ValueError(f"takes 0 to 1, not {text!r}")
    return value


def _list(text: str) -> str:
    return ",".join(items(text))


def _cleanup_policy(text: str) -> str:
    policies = items(text)
    if not {*policies} <= {"delete", "compact"}:
        raise ValueError(f"takes delete, compact, both or neither; not {text!r}")
    return ",".join(dict.fromkeys(policies))


def _effective(
    name: str, kind: Kind, field: str, parse: Callable[[str], object], help: str, server_name: str = ""
) -> TopicSetting:
    return TopicSetting(name, kind, parse, help, shown(getattr(_DEFAULTS, field)), field, server_name)


def _inert(
    name: str, kind: Kind, default: str, parse: Callable[[str], object], why: str, server_name: str = ""
) -> TopicSetting:
    return TopicSetting(name, kind, parse, f"Stored, but without effect: {why}", default, "", server_name)


_SEGMENTS = "all topics share the files of the log, and the server sets their size."
_SYNCS = "mainstem.durability decides when a record is synced."
_REPLICAS = "the store replicates the data, not the brokers."
_TIERS = "data of every age is in one store."

_KAFKA: tuple[TopicSetting, ...] = (
    _effective(
        "cleanup.policy",
        "list",
        "cleanup_policy",
        _cleanup_policy,
        "Cleanup of old records: delete removes them by retention.ms and retention.bytes; compact keeps the "
        "newest record of each key, and removes older ones in the background.",
        "log.cleanup.policy",
    ),
    _effective(
        "compression.type",
        "string",
        "compression_type",
        one_of("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
        "Codec of stored batches. producer keeps batches as sent; other values recompress batches that differ.",
        "compression.type",
    ),
    _effective(
        "delete.retention.ms",
        "long",
        "delete_retention_ms",
        whole(0),
        "How long compaction keeps the tombstone of a deleted key, after it has removed the older records of the key.",
        "log.cleaner.delete.retention.ms",
    ),
    _effective(
        "max.compaction.lag.ms",
        "long",
        "max_compaction_lag_ms",
        whole(1),
        "Age of a record at which it is compacted, whatever min.cleanable.dirty.ratio says.",
        "log.cleaner.max.compaction.lag.ms",
    ),
    _effective(
        "max.message.bytes",
        "int",
        "max_message_bytes",
        whole(0, limits.BATCH_BYTES_MAX),
        "Maximum size of a record batch, as stored.",
        "message.max.bytes",
    ),
    _effective(
        "message.timestamp.after.max.ms",
        "long",
        "timestamp_after_max_ms",
        whole(0),
        "How far the newest timestamp of a batch may be ahead of the clock of the broker. LogAppendTime ignores it.",
        "log.message.timestamp.after.max.ms",
    ),
    _effective(
        "message.timestamp.before.max.ms",
        "long",
        "timestamp_before_max_ms",
        whole(0),
        "How far the first timestamp of a batch may be behind the clock of the broker. LogAppendTime ignores it.",
        "log.message.timestamp.before.max.ms",
    ),
    _effective(
        "message.timestamp.type",
        "string",
        "timestamp_type",
        one_of("CreateTime", "LogAppendTime"),
        "Source of a record's timestamp: CreateTime is the producer, LogAppendTime the broker.",
        "log.message.timestamp.type",
    ),
    _effective(
        "min.compaction.lag.ms",
        "long",
        "min_compaction_lag_ms",
        whole(0),
        "Age below which compaction neither removes a record nor removes older records of its key.",
        "log.cleaner.min.compaction.lag.ms",
    ),
    _effective(
        "min.cleanable.dirty.ratio",
        "double",
        "min_cleanable_dirty_ratio",
        _ratio,
        "Share of a partition's bytes that were never compacted, at which compaction runs.",
        "log.cleaner.min.cleanable.ratio",
    ),
    _effective(
        "retention.bytes",
        "long",
        "retention_bytes",
        whole(-1),
        "Stored bytes of a partition above which its oldest records are deleted; -1: no limit.",
        "log.retention.bytes",
    ),
    _effective(
        "retention.ms",
        "long",
        "retention_ms",
        whole(-1),
        "Age at which records are deleted; -1: never.",
        "log.retention.ms",
    ),
    _effective(
        "segment.bytes",
        "int",
        "segment_bytes",
        whole(14, _INT32_MAX),
        "New bytes of a partition that become ready for compaction together. Without effect on other topics: all "
        "topics share the files of the log.",
        "log.segment.bytes",
    ),
    _effective(
        "segment.ms",
        "long",
        "segment_ms",
        whole(1),
        "Age at which new records become ready for compaction, even if they are few. Without effect on other "
        "topics: all topics share the files of the log.",
        "log.roll.ms",
    ),
)

_KAFKA_INERT: tuple[TopicSetting, ...] = (
    _inert(
        "compression.gzip.level",
        "int",
        "-1",
        whole(-1, 9),
        "recompression uses the default level of the codec.",
    ),
    _inert(
        "compression.lz4.level",
        "int",
        "9",
        whole(1, 17),
        "recompression uses the default level of the codec.",
    ),
    _inert(
        "compression.zstd.level",
        "int",
        "3",
        whole(-131072, 22),
        "recompression uses the default level of the codec.",
    ),
    _inert("file.delete.delay.ms", "long", "60000", whole(0), _SEGMENTS, "log.segment.delete.delay.ms"),
    _inert("flush.messages", "long", str(INT64_MAX), whole(1), _SYNCS, "log.flush.interval.messages"),
    _inert("flush.ms", "long", str(INT64_MAX), whole(0), _SYNCS, "log.flush.interval.ms"),
    _inert("follower.replication.throttled.replicas", "list", "", _list, _REPLICAS),
    _inert(
        "index.interval.bytes",
        "int",
        "4096",
        whole(0, _INT32_MAX),
        "the index contains every batch.",
        "log.index.interval.bytes",
    ),
    _inert("leader.replication.throttled.replicas", "list", "", _list, _REPLICAS),
    _inert("local.retention.bytes", "long", "-2", whole(-2), _TIERS, "log.local.retention.bytes"),
    _inert("local.retention.ms", "long", "-2", whole(-2), _TIERS, "log.local.retention.ms"),
    _inert(
        "message.downconversion.enable",
        "boolean",
        "true",
        _boolean,
        "batches are stored and served in one format.",
        "log.message.downconversion.enable",
    ),
    _inert(
        "message.timestamp.difference.max.ms",
        "long",
        str(INT64_MAX),
        whole(0),
        "use message.timestamp.before.max.ms and message.timestamp.after.max.ms.",
        "log.message.timestamp.difference.max.ms",
    ),
    _inert("min.insync.replicas", "int", "1", whole(1, _INT32_MAX), _REPLICAS, "min.insync.replicas"),
    _inert(
        "preallocate",
        "boolean",
        "false",
        _boolean,
        "the log preallocates its files for all topics.",
        "log.preallocate",
    ),
    _inert("remote.log.copy.disable", "boolean", "false", _boolean, _TIERS),
    _inert("remote.log.delete.on.disable", "boolean", "false", _boolean, _TIERS),
    _inert("remote.storage.enable", "boolean", "false", _boolean, _TIERS),
    _inert(
        "segment.index.bytes", "int", "10485760", whole(4, _INT32_MAX), _SEGMENTS, "log.index.size.max.bytes"
    ),
    _inert("segment.jitter.ms", "long", "0", whole(0), _SEGMENTS, "log.roll.jitter.ms"),
    _inert(
        "unclean.leader.election.enable",
        "boolean",
        "false",
        _boolean,
        "all brokers share the same data.",
        "unclean.leader.election.enable",
    ),
)

_OWN: tuple[TopicSetting, ...] = (
    _effective(
        "mainstem.backlog.bytes",
        "long",
        "backlog_bytes",
        whole(0),
        "Backlog quota: stored bytes of a partition that its slowest subscription may have left; 0: no limit.",
    ),
    _effective(
        "mainstem.backlog.bytes.policy",
        "string",
        "backlog_bytes_policy",
        one_of(*get_args(BacklogPolicy)),
        "What happens above that quota: producers are refused, as producer_request_hold (Pulsar clients wait) or "
        "producer_exception (they fail), or consumer_backlog_eviction acknowledges the oldest records.",
    ),
    _effective(
        "mainstem.backlog.ms",
        "long",
        "backlog_ms",
        whole(0),
        "Backlog quota: age of the oldest record that a subscription may have left; 0: no limit.",
    ),
    _effective(
        "mainstem.backlog.ms.policy",
        "string",
        "backlog_ms_policy",
        one_of(*get_args(BacklogPolicy)),
        "What happens above that quota.",
    ),
    _effective(
        "mainstem.cap.bytes",
        "long",
        "cap_bytes",
        whole(0),
        "Exact cap in logical bytes per partition; 0: no cap.",
    ),
    _effective(
        "mainstem.cap.records",
        "long",
        "cap_records",
        whole(0),
        "Exact cap in records per partition; 0: no cap.",
    ),
    _effective(
        "mainstem.discard",
        "string",
        "discard",
        one_of(*get_args(Discard)),
        "Behaviour at the cap: old evicts the oldest records, reject rejects new ones.",
    ),
    _effective(
        "mainstem.durability",
        "string",
        "durability",
        one_of(*get_args(Durability)),
        "What an acknowledged write survives: fsync a power cut; disk and memory the end of the process; "
        "ephemeral nothing.",
    ),
    _effective(
        "mainstem.keep.backlog",
        "boolean",
        "keep_backlog",
        _boolean,
        "Retention keeps records that a subscription has not acknowledged.",
    ),
    _effective(
        "mainstem.pulsar.deduplication",
        "boolean",
        "deduplication",
        _boolean,
        "Store a message once that a Pulsar producer sends again: by the name of the producer and its sequence ids.",
    ),
    _effective(
        "mainstem.subscription.ttl.ms",
        "long",
        "subscription_ttl_ms",
        whole(0),
        "Age at which a record counts as acknowledged in every subscription; 0: never.",
    ),
    _effective(
        "mainstem.table",
        "boolean",
        "table",
        _boolean,
        "Publish the topic as an Iceberg table. Takes effect when the lake runs.",
    ),
    _effective(
        "mainstem.key.schema.validation",
        "string",
        "key_schema_validation",
        one_of(*get_args(SchemaValidation)),
        "What an append checks of each key: nothing, that the schema registry has its schema id, or that it also "
        "fits the schema (full). Records without a key pass.",
    ),
    _effective(
        "mainstem.value.schema.validation",
        "string",
        "value_schema_validation",
        one_of(*get_args(SchemaValidation)),
        "The same for values. Records without a value pass.",
    ),
    _effective(
        "mainstem.ttl.ms", "long", "ttl_ms", whole(0), "Exact age at which a record expires; 0: never."
    ),
    TopicSetting(
        "mainstem.type",
        "string",
        one_of(*get_args(TopicType)),
        "A log, or a queue of jobs. Cannot change after the topic is created.",
        default=_DEFAULTS.type,
        field="type",
        fixed=True,
    ),
    _effective(
        "mainstem.validate.records",
        "string",
        "validate_records",
        one_of("header", "full"),
        "What an append checks: header checks lengths, counts and the checksum of each batch; full also decodes "
        "every record, as Kafka does, and rejects a batch that cannot be decoded. Compacted topics always decode "
        "records, and reject those without a key.",
    ),
    _effective(
        "mainstem.wal.profile",
        "string",
        "wal_profile",
        one_of(*get_args(WalProfile)),
        "How brokers that share a log store new records. latency: at once, small ones in etcd if the log is there. "
        "cost: after up to 250 ms, together with others, in the object store. No effect on one broker, or on "
        "workers of one host.",
    ),
)

TOPIC_SETTINGS: tuple[TopicSetting, ...] = tuple(
    sorted((*_KAFKA, *_KAFKA_INERT, *_OWN), key=lambda row: row.name)
)
BY_NAME = {row.name: row for row in TOPIC_SETTINGS}
BY_FIELD = {row.field: row for row in TOPIC_SETTINGS if row.field}
