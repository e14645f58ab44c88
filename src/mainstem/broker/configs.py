"""Topic settings as text, under the names Kafka clients know, and back.

One table maps each name to a field of TopicConfig; names of our own start with `mainstem.`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec

from mainstem import limits
from mainstem.errors import InvalidConfig
from mainstem.ledger.config import TopicConfig
from mainstem.values import did_you_mean, one_of, whole


@dataclass(frozen=True, slots=True)
class TopicSetting:
    name: str
    field: str
    parse: Callable[[str], object]  # raises ValueError with what is wrong, as the end of a sentence
    help: str


def _cleanup_policy(text: str) -> str:
    policies = {part.strip() for part in text.split(",")}
    if not policies <= {"delete", "compact"}:
        raise ValueError(f"takes delete, compact or compact,delete; not {text!r}")
    return ",".join(sorted(policies))


TOPIC_SETTINGS: tuple[TopicSetting, ...] = (
    TopicSetting(
        "cleanup.policy", "cleanup_policy", _cleanup_policy, "delete old records, or keep one a key"
    ),
    TopicSetting(
        "compression.type",
        "compression_type",
        one_of("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
        "how batches are stored; producer = as they came",
    ),
    TopicSetting(
        "max.message.bytes", "max_message_bytes", whole(0, limits.BATCH_BYTES_MAX), "largest record batch"
    ),
    TopicSetting(
        "message.timestamp.type",
        "timestamp_type",
        one_of("CreateTime", "LogAppendTime"),
        "whose clock dates a record",
    ),
    TopicSetting("retention.bytes", "retention_bytes", whole(-1), "stored bytes a partition keeps; -1 = all"),
    TopicSetting("retention.ms", "retention_ms", whole(-1), "how long records are kept; -1 = for ever"),
    TopicSetting("mainstem.cap.bytes", "cap_bytes", whole(0), "exact cap in logical bytes; 0 = off"),
    TopicSetting("mainstem.cap.records", "cap_records", whole(0), "exact cap in records; 0 = off"),
    TopicSetting(
        "mainstem.discard", "discard", one_of("old", "reject"), "what a full topic does: evict, or refuse"
    ),
    TopicSetting(
        "mainstem.durability",
        "durability",
        one_of("ephemeral", "memory", "disk", "fsync"),
        "what holds when a write is acknowledged",
    ),
    TopicSetting("mainstem.ttl.ms", "ttl_ms", whole(0), "exact age at which a record expires; 0 = off"),
    TopicSetting("mainstem.type", "type", one_of("log", "queue"), "a log, or a queue of jobs"),
)

_BY_NAME = {row.name: row for row in TOPIC_SETTINGS}


def parse(settings: Mapping[str, str], base: TopicConfig | None = None) -> TopicConfig:
    """`base` with these settings changed. Raises InvalidConfig for a name or a value it does not know."""
    changes: dict[str, object] = {}
    for name, text in settings.items():
        row = _BY_NAME.get(name)
        if row is None:
            raise InvalidConfig(f"unknown topic setting {name!r}{did_you_mean(name, _BY_NAME)}")
        try:
            changes[row.field] = row.parse(text)
        except ValueError as wrong:
            raise InvalidConfig(f"{name} {wrong}") from None
    return msgspec.structs.replace(base or TopicConfig(), **changes)


def describe(config: TopicConfig) -> dict[str, str]:
    """Every setting of a topic by name, as `parse` takes it."""
    return {row.name: str(getattr(config, row.field)) for row in TOPIC_SETTINGS}
