"""The table of topic settings: the names Kafka clients know, and our own, which start with `mainstem.`.

A row either belongs to a field of TopicConfig, or it is inert: a setting of Kafka's that has nothing to act
on here. Inert ones are checked, kept and shown like the others, so that tools which set them and read them
back just work, and their documentation says why they change nothing. Names that are in no row are refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

from mainstem import limits
from mainstem.api.topics import Discard, Durability, TopicType
from mainstem.ledger.config import TopicConfig
from mainstem.values import INT64_MAX, one_of, whole

Kind = Literal["boolean", "string", "int", "long", "double", "list"]

_INT32_MAX = 2**31 - 1
_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS
_DEFAULTS = TopicConfig()


@dataclass(frozen=True, slots=True)
class TopicSetting:
    name: str
    kind: Kind
    parse: Callable[[str], object]  # raises ValueError with what is wrong, as the end of a sentence
    help: str
    default: str
    field: str = ""  # of TopicConfig; none = inert
    server_name: str = ""  # what Kafka calls the server's default for it, if there is one
    fixed: bool = False  # once the topic exists

    @property
    def inert(self) -> bool:
        return not self.field


def shown(value: object) -> str:
    """A value as the settings are written."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def items(text: str) -> list[str]:
    """A list setting's items."""
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
    if not 0 <= value <= 1:  # so is NaN
        raise ValueError(f"takes 0 to 1, not {text!r}")
    return value


def _list(text: str) -> str:
    return ",".join(items(text))


def _cleanup_policy(text: str) -> str:
    policies = set(items(text))
    if not policies or not policies <= {"delete", "compact"}:
        raise ValueError(f"takes delete, compact or compact,delete; not {text!r}")
    return ",".join(sorted(policies))


def _effective(
    name: str, kind: Kind, field: str, parse: Callable[[str], object], help: str, server_name: str = ""
) -> TopicSetting:
    return TopicSetting(name, kind, parse, help, shown(getattr(_DEFAULTS, field)), field, server_name)


def _inert(
    name: str, kind: Kind, default: str, parse: Callable[[str], object], why: str, server_name: str = ""
) -> TopicSetting:
    return TopicSetting(name, kind, parse, f"Kept, but without effect: {why}", default, "", server_name)


_SEGMENTS = "the log's files are shared by all topics and sized by the server."
_SYNCS = "mainstem.durability decides when a record is synced."
_REPLICAS = "copies of the data are the store's, not the brokers'."
_TIERS = "all data lives in one store whatever its age."
_TIMES = "a record's own time is never refused."

_KAFKA: tuple[TopicSetting, ...] = (
    _effective(
        "cleanup.policy",
        "list",
        "cleanup_policy",
        _cleanup_policy,
        "What becomes of old records: delete drops them by retention.ms and retention.bytes; compact keeps "
        "the newest of each key. Compaction runs with the lake's maintenance; until then all records stay.",
        "log.cleanup.policy",
    ),
    _effective(
        "compression.type",
        "string",
        "compression_type",
        one_of("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
        "How batches are stored. producer keeps them as they came; anything else recompresses those that differ.",
        "compression.type",
    ),
    _effective(
        "delete.retention.ms",
        "long",
        "delete_retention_ms",
        whole(0),
        "How long compaction keeps the marker of a deleted key. Takes effect when compaction runs.",
        "log.cleaner.delete.retention.ms",
    ),
    _effective(
        "max.compaction.lag.ms",
        "long",
        "max_compaction_lag_ms",
        whole(1),
        "The longest a record waits for compaction. Takes effect when compaction runs.",
        "log.cleaner.max.compaction.lag.ms",
    ),
    _effective(
        "max.message.bytes",
        "int",
        "max_message_bytes",
        whole(0, limits.BATCH_BYTES_MAX),
        "The largest record batch the topic takes, as stored.",
        "message.max.bytes",
    ),
    _effective(
        "message.timestamp.type",
        "string",
        "timestamp_type",
        one_of("CreateTime", "LogAppendTime"),
        "Whose clock dates a record: the producer's, or the broker's as it appends.",
        "log.message.timestamp.type",
    ),
    _effective(
        "min.compaction.lag.ms",
        "long",
        "min_compaction_lag_ms",
        whole(0),
        "How long a record is safe from compaction. Takes effect when compaction runs.",
        "log.cleaner.min.compaction.lag.ms",
    ),
    _effective(
        "retention.bytes",
        "long",
        "retention_bytes",
        whole(-1),
        "Stored bytes a partition keeps before its oldest records are deleted; -1 keeps all.",
        "log.retention.bytes",
    ),
    _effective(
        "retention.ms",
        "long",
        "retention_ms",
        whole(-1),
        "How long records are kept before they are deleted; -1 keeps them for ever.",
        "log.retention.ms",
    ),
)

_KAFKA_INERT: tuple[TopicSetting, ...] = (
    _inert(
        "compression.gzip.level", "int", "-1", whole(-1, 9), "recompression uses the codec's usual level."
    ),
    _inert("compression.lz4.level", "int", "9", whole(1, 17), "recompression uses the codec's usual level."),
    _inert(
        "compression.zstd.level",
        "int",
        "3",
        whole(-131072, 22),
        "recompression uses the codec's usual level.",
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
        "the index knows every batch.",
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
        "batches are served in the one format they are stored in.",
        "log.message.downconversion.enable",
    ),
    _inert(
        "message.timestamp.after.max.ms",
        "long",
        str(_HOUR_MS),
        whole(0),
        _TIMES,
        "log.message.timestamp.after.max.ms",
    ),
    _inert(
        "message.timestamp.before.max.ms",
        "long",
        str(INT64_MAX),
        whole(0),
        _TIMES,
        "log.message.timestamp.before.max.ms",
    ),
    _inert(
        "message.timestamp.difference.max.ms",
        "long",
        str(INT64_MAX),
        whole(0),
        _TIMES,
        "log.message.timestamp.difference.max.ms",
    ),
    _inert(
        "min.cleanable.dirty.ratio",
        "double",
        "0.5",
        _ratio,
        "the lake's maintenance decides what is worth compacting.",
        "log.cleaner.min.cleanable.ratio",
    ),
    _inert("min.insync.replicas", "int", "1", whole(1, _INT32_MAX), _REPLICAS, "min.insync.replicas"),
    _inert(
        "preallocate",
        "boolean",
        "false",
        _boolean,
        "the log prepares its files ahead of time for all topics.",
        "log.preallocate",
    ),
    _inert("remote.log.copy.disable", "boolean", "false", _boolean, _TIERS),
    _inert("remote.log.delete.on.disable", "boolean", "false", _boolean, _TIERS),
    _inert("remote.storage.enable", "boolean", "false", _boolean, _TIERS),
    _inert("segment.bytes", "int", "1073741824", whole(14, _INT32_MAX), _SEGMENTS, "log.segment.bytes"),
    _inert(
        "segment.index.bytes", "int", "10485760", whole(4, _INT32_MAX), _SEGMENTS, "log.index.size.max.bytes"
    ),
    _inert("segment.jitter.ms", "long", "0", whole(0), _SEGMENTS, "log.roll.jitter.ms"),
    _inert("segment.ms", "long", str(7 * _DAY_MS), whole(1), _SEGMENTS, "log.roll.ms"),
    _inert(
        "unclean.leader.election.enable",
        "boolean",
        "false",
        _boolean,
        "a broker holds no data that another one would lack.",
        "unclean.leader.election.enable",
    ),
)

_OWN: tuple[TopicSetting, ...] = (
    _effective(
        "mainstem.cap.bytes",
        "long",
        "cap_bytes",
        whole(0),
        "Exact cap in logical bytes a partition; 0 = off.",
    ),
    _effective(
        "mainstem.cap.records", "long", "cap_records", whole(0), "Exact cap in records a partition; 0 = off."
    ),
    _effective(
        "mainstem.discard",
        "string",
        "discard",
        one_of(*get_args(Discard)),
        "What a topic at its cap does: evict the oldest records, or refuse new ones.",
    ),
    _effective(
        "mainstem.durability",
        "string",
        "durability",
        one_of(*get_args(Durability)),
        "What an acknowledged write survives: fsync a power cut, disk and memory the end of the process, "
        "ephemeral nothing.",
    ),
    _effective(
        "mainstem.table",
        "boolean",
        "table",
        _boolean,
        "Whether the topic is also an Iceberg table. Takes effect when the lake runs.",
    ),
    _effective(
        "mainstem.ttl.ms", "long", "ttl_ms", whole(0), "Exact age at which a record expires; 0 = off."
    ),
    TopicSetting(
        "mainstem.type",
        "string",
        one_of(*get_args(TopicType)),
        "A log, or a queue of jobs. Fixed once the topic exists.",
        default=_DEFAULTS.type,
        field="type",
        fixed=True,
    ),
)

TOPIC_SETTINGS: tuple[TopicSetting, ...] = tuple(
    sorted((*_KAFKA, *_KAFKA_INERT, *_OWN), key=lambda row: row.name)
)
BY_NAME = {row.name: row for row in TOPIC_SETTINGS}
