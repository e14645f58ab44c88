"""Idempotency keys: clients name a write to a stream, so that a retry gets the offsets of the first attempt.

One row per key, oldest first, in arrays. A key is valid for the window of its stream's topic, by ledger time. Rows are
removed from the front when their window is over, or when there are more than IDEMPOTENCY_KEYS_MAX.
"""

from __future__ import annotations

from hashlib import blake2b

import msgspec
import numpy as np
import numpy.typing as npt

from mainstem.errors import invariant
from mainstem.ledger.digest import MASK, hash_columns
from mainstem.ledger.section import Moment, Section, reacts
from mainstem.ledger.topics import TopicDeletedEvent

IDEMPOTENCY_KEYS_MAX = 1_000_000  # of all streams; beyond it, the oldest are dropped

KEY_BITS = 112

_FIRST_ROWS = 64
_EXPIRED_PER_KEY = 2  # expired rows that a new key removes: more than one, so that their number falls

_COLUMNS = ("high", "low", "stream", "base", "count", "time")


class IdempotencyState(msgspec.Struct, frozen=True, array_like=True):
    """Every key, oldest first, in a checkpoint; arrays are little-endian."""

    high: bytes  # i8 per key: its bits 48 to 111
    low: bytes  # i8: bits 0 to 47
    stream: bytes  # i8
    base: bytes  # i8: first offset of the write
    count: bytes  # i8: its records
    time: bytes  # i8: ledger time, ms


def slice_fields(key: bytes) -> tuple[int, int, int]:
    """112 bits of a client's key as the fields (producer, base_sequence, producer_epoch) of a keyed slice."""
    digest = blake2b(key, digest_size=KEY_BITS // 8).digest()
    return (
        int.from_bytes(digest[:8], "little", signed=True),
        int.from_bytes(digest[8:12], "little", signed=True),
        int.from_bytes(digest[12:], "little", signed=True),
    )


def key_number(producer: int, base_sequence: int, producer_epoch: int) -> int:
    """The same bits as one number."""
    return (producer & MASK) << 48 | (base_sequence & 0xFFFF_FFFF) << 16 | (producer_epoch & 0xFFFF)


class IdempotencyKeys(Section[IdempotencyState]):
    def __init__(self) -> None:
        self._rows: dict[int, int] = {}  # stream << 112 | key → row, counted from the first ever
        self._origin = 0  # number of the first row in the arrays
        self._head = 0  # rows before it are removed
        self._tail = 0
        self._hashed = 0  # rows before it are hashed
        self._sum = 0  # of the hashes of live rows
        self._allocate(_FIRST_ROWS)

    def _allocate(self, rows: int) -> None:
        for name in _COLUMNS:
            setattr(self, name, np.zeros(rows, np.int64))
        self.live: npt.NDArray[np.bool_] = np.zeros(rows, np.bool_)
        self.hash: npt.NDArray[np.uint64] = np.zeros(rows, np.uint64)

    high: npt.NDArray[np.int64]
    low: npt.NDArray[np.int64]
    stream: npt.NDArray[np.int64]
    base: npt.NDArray[np.int64]
    count: npt.NDArray[np.int64]
    time: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self._rows)

    def find(self, stream: int, key: int, time_ms: int, window_ms: int) -> tuple[int, int] | None:
        """The write with that key, if its window is not over: (base, count)."""
        number = self._rows.get(stream << KEY_BITS | key)
        if number is None:
            return None
        row = number - self._origin
        if time_ms - int(self.time[row]) > window_ms:
            return None
        return int(self.base[row]), int(self.count[row])

    def count_of(self, stream: int, key: int, base: int) -> int | None:
        """How many records the write with that key at `base` had, even if its window is over."""
        number = self._rows.get(stream << KEY_BITS | key)
        if number is None or self.base[number - self._origin] != base:
            return None
        return int(self.count[number - self._origin])

    def record(
        self, stream: int, key: int, base: int, count: int, time_ms: int, windows_ms: npt.NDArray[np.int64]
    ) -> None:
        """Remember a write. `windows_ms` are the windows of all streams: keys outside them are removed."""
        named = stream << KEY_BITS | key
        older = self._rows.pop(named, None)
        if older is not None:
            self._forget(older - self._origin)
        self._expire(time_ms, windows_ms)
        if self._tail == len(self.high):
            self._make_room()
        row = self._tail
        self.high[row] = _signed(key >> 48)
        self.low[row] = key & 0xFFFF_FFFF_FFFF
        self.stream[row], self.base[row], self.count[row], self.time[row] = stream, base, count, time_ms
        self.live[row] = True
        self._tail = row + 1
        self._rows[named] = row + self._origin

    def _expire(self, time_ms: int, windows_ms: npt.NDArray[np.int64]) -> None:
        budget = _EXPIRED_PER_KEY
        while self._head < self._tail:
            row = self._head
            if self.live[row]:
                over = time_ms - int(self.time[row]) > int(windows_ms[self.stream[row]])
                full = len(self._rows) >= IDEMPOTENCY_KEYS_MAX
                if not full and not (over and budget):
                    break
                budget -= not full
                del self._rows[self._name(row)]
                self._forget(row)
            self._head += 1

    def _name(self, row: int) -> int:
        key = (int(self.high[row]) & MASK) << 48 | int(self.low[row])
        return int(self.stream[row]) << KEY_BITS | key

    def _forget(self, row: int) -> None:
        self.live[row] = False
        if row < self._hashed:
            self._sum = (self._sum - int(self.hash[row])) & MASK

    def _make_room(self) -> None:
        """Move the rows to the front of arrays with room for as many again."""
        rows = slice(self._head, self._tail)
        kept = self._tail - self._head
        old = {name: getattr(self, name)[rows] for name in (*_COLUMNS, "live", "hash")}
        self._allocate(max(_FIRST_ROWS, 2 * kept))
        for name, column in old.items():
            getattr(self, name)[:kept] = column
        self._origin += self._head
        self._hashed = max(0, self._hashed - self._head)
        self._head, self._tail = 0, kept

    @reacts(TopicDeletedEvent)
    def on_topic_deleted(self, event: TopicDeletedEvent, now: Moment) -> None:
        self.forget_streams(event.topic.streams)

    def forget_streams(self, streams: tuple[int, ...]) -> None:
        rows = np.arange(self._head, self._tail)
        found = rows[self.live[rows] & np.isin(self.stream[rows], np.array(streams, np.int64))]
        for row in found.tolist():
            del self._rows[self._name(row)]
            self._forget(row)

    @property
    def digest(self) -> int:
        """The sum of the keys' hashes, without times; only rows that are new since the last call are hashed."""
        first = max(self._hashed, self._head)
        if first < self._tail:
            rows = slice(first, self._tail)
            self.hash[rows] = hash_columns(
                self.high[rows], self.low[rows], self.stream[rows], self.base[rows], self.count[rows]
            )
            new = self.hash[rows][self.live[rows]]
            self._sum = (self._sum + int(new.sum(dtype=np.uint64))) & MASK
        self._hashed = self._tail
        return self._sum

    def encode(self) -> IdempotencyState:
        rows = slice(self._head, self._tail)
        live = self.live[rows]
        return IdempotencyState(*(getattr(self, name)[rows][live].tobytes() for name in _COLUMNS))

    def load(self, state: IdempotencyState) -> None:
        count = len(state.high) // 8
        self._allocate(max(_FIRST_ROWS, count))
        for name in _COLUMNS:
            getattr(self, name)[:count] = np.frombuffer(getattr(state, name), np.int64, count)
        self.live[:count] = True
        self._tail = count
        self._rows = {self._name(row): row for row in range(count)}
        invariant(len(self._rows) == count, "a key occurs once in each stream")


def _signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word
