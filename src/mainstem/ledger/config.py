"""What a topic is configured to be: one typed record whatever door set it."""

from __future__ import annotations

from typing import Literal

import msgspec

Durability = Literal["ephemeral", "memory", "disk", "fsync"]


class TopicConfig(msgspec.Struct, frozen=True, omit_defaults=True):
    """Settings of one topic. 0 and -1 mean off where noted. New fields only at the end, with a default."""

    type: Literal["log", "queue"] = "log"
    durability: Durability = "fsync"
    ttl_ms: int = 0  # exact: a record older than this is expired; 0 = off
    cap_records: int = 0  # exact; 0 = off
    cap_bytes: int = 0  # exact, in logical bytes; 0 = off
    discard: Literal["old", "reject"] = "old"
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

    @property
    def tracked(self) -> bool:
        """Appends must carry a size and a time for each record."""
        return bool(self.ttl_ms or self.cap_bytes) or self.type == "queue"

    @property
    def relaxed(self) -> bool:
        """Acked before it is synced."""
        return self.durability != "fsync"
