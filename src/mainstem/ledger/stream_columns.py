"""The columns of the streams: one array per attribute, indexed by stream number."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from mainstem import limits
from mainstem.ledger.config import TopicConfig

DURABILITY_CODES = {"ephemeral": 0, "memory": 1, "disk": 2, "fsync": 3}
EPHEMERAL = DURABILITY_CODES["ephemeral"]
FSYNC = DURABILITY_CODES["fsync"]

_FIRST_STREAMS = 64

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

# What a checkpoint and the digest hold, in this order. The rest follows from the topics' configs.
STATE_COLUMNS = (
    "end",
    "delete_floor",
    "evict_floor",
    "expiry_floor",
    "records",
    "bytes",
    "max_timestamp",
    "ceiling",
    "durability",
    "alive",
)
_CONFIG_COLUMNS = ("cap_records", "cap_bytes", "key_window_ms", "rejects", "terminated", "plain", "compacts")


class StreamColumns:
    """Columns of every stream ever opened; only the first `count` rows are in use."""

    def __init__(self) -> None:
        self.count = 0
        self.end: Int64s = np.zeros(_FIRST_STREAMS, np.int64)  # the next offset
        self.delete_floor: Int64s = np.zeros(_FIRST_STREAMS, np.int64)  # removed on request
        self.evict_floor: Int64s = np.zeros(_FIRST_STREAMS, np.int64)  # evicted by a cap
        self.expiry_floor: Int64s = np.zeros(_FIRST_STREAMS, np.int64)  # older than their ttl
        self.records: Int64s = np.zeros(_FIRST_STREAMS, np.int64)  # live records
        self.bytes: Int64s = np.zeros(_FIRST_STREAMS, np.int64)  # logical bytes of the live records
        self.max_timestamp: Int64s = np.full(_FIRST_STREAMS, -1, np.int64)  # -1 = never written
        self.ceiling: Int64s = np.zeros(_FIRST_STREAMS, np.int64)  # a relaxed stream publishes below it
        self.durability: npt.NDArray[np.uint8] = np.zeros(_FIRST_STREAMS, np.uint8)  # DURABILITY_CODES
        self.alive: Bools = np.zeros(_FIRST_STREAMS, np.bool_)
        self.cap_records: Int64s = np.zeros(_FIRST_STREAMS, np.int64)  # 0 = off
        self.cap_bytes: Int64s = np.zeros(_FIRST_STREAMS, np.int64)  # 0 = off
        self.key_window_ms: Int64s = np.zeros(_FIRST_STREAMS, np.int64)  # of idempotency keys
        self.rejects: Bools = np.zeros(_FIRST_STREAMS, np.bool_)  # a full stream rejects records
        self.terminated: Bools = np.zeros(_FIRST_STREAMS, np.bool_)  # the stream takes no more records
        self.plain: Bools = np.zeros(
            _FIRST_STREAMS, np.bool_
        )  # alive, in the log, no cap, not tracked, not terminated
        self.compacts: Bools = np.zeros(_FIRST_STREAMS, np.bool_)  # the log compacts it
        self._bind()

    def _bind(self) -> None:
        # Access to one item costs a third through a memoryview, which matters for single appends.
        self._end = memoryview(self.end)  # type: ignore[arg-type]
        self._records = memoryview(self.records)  # type: ignore[arg-type]
        self._bytes = memoryview(self.bytes)  # type: ignore[arg-type]
        self._max_timestamp = memoryview(self.max_timestamp)  # type: ignore[arg-type]
        self.plain_view = memoryview(self.plain)  # type: ignore[arg-type]
        floors = (self.delete_floor, self.evict_floor, self.expiry_floor)
        self._floors: list[memoryview[int]] = [memoryview(floor) for floor in floors]  # type: ignore[arg-type]

    def room(self, streams: int) -> bool:
        return self.count + streams <= limits.STREAMS_MAX

    def _grow(self, streams: int) -> None:
        capacity = len(self.end)
        if streams <= capacity:
            return
        more = max(streams, 2 * capacity) - capacity
        for name in STATE_COLUMNS + _CONFIG_COLUMNS:
            old = getattr(self, name)
            fill = -1 if name == "max_timestamp" else 0
            setattr(self, name, np.concatenate((old, np.full(more, fill, old.dtype))))
        self._bind()

    def adopt(self, stream: int, config: TopicConfig) -> None:
        """Set the columns that are derived from the config."""
        self.durability[stream] = DURABILITY_CODES[config.durability]
        self.cap_records[stream] = config.cap_records
        self.cap_bytes[stream] = config.cap_bytes
        self.key_window_ms[stream] = config.idempotency_window_ms
        self.rejects[stream] = config.discard == "reject"
        self.terminated[stream] = config.terminated
        capped = config.cap_records or config.cap_bytes or config.tracked
        uncapped = not capped and config.durability != "ephemeral"
        self.plain[stream] = uncapped and not config.terminated
        self.compacts[stream] = uncapped and "compact" in config.cleanup_policy

    def columns_digest(self) -> int:
        """The hash of the columns that a checkpoint holds."""
        hasher = blake2b(digest_size=8)
        for name in STATE_COLUMNS:
            hasher.update(np.ascontiguousarray(getattr(self, name)[: self.count]).data)
        return int.from_bytes(hasher.digest(), "little")

    def encode_columns(self) -> list[bytes]:
        return [getattr(self, name)[: self.count].tobytes() for name in STATE_COLUMNS]

    def load_columns(self, count: int, columns: list[bytes]) -> None:
        self._grow(count)
        self.count = count
        for name, body in zip(STATE_COLUMNS, columns, strict=True):
            column = getattr(self, name)
            column[:count] = np.frombuffer(body, column.dtype, count)
