"""Records with times of their own: jobs that are not handed out before a delay is over, and records that expire.

`TimeRecords` stands right after the append of its records in the same entry, because the ledger assigns their offsets
there. Delays become part of the leases of the queue. Expiries wait here: the broker proposes `ExpireRecords` when one
is due, and the records are deleted as if by request.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import msgspec

from mainstem import limits
from mainstem.errors import InvalidInput, LimitReached, MainstemError, Rejected
from mainstem.ledger.appends import AppendCode, AppendOutcome
from mainstem.ledger.intervals import DELETED
from mainstem.ledger.keyed import Keyed, fields_hash
from mainstem.ledger.queues import Queues
from mainstem.ledger.section import Command, Moment, Section, admits_append, applies, reacts
from mainstem.ledger.streams import Streams
from mainstem.ledger.topics import TopicDeletedEvent

EXPIRIES_MAX = 1_000_000  # ranges of records with the same expiry, of all streams
DELAYED_JOBS_MAX = 1_000_000  # of one queue


class TimeRecords(Command, frozen=True, tag=370):
    """The append right before this one has records with times of their own.

    Each row covers records [first, last) of the append: (first, last, delay ms, ttl ms), where 0 means none."""

    stream: int
    rows: tuple[tuple[int, int, int, int], ...]


class ExpireRecords(Command, frozen=True, tag=371):
    """Delete the records of a stream whose own time to live is over."""

    stream: int


class Expiry(msgspec.Struct, frozen=True, array_like=True):
    """Records [first, last) of a stream live up to and including a time; also the form in a checkpoint."""

    stream: int
    first: int
    last: int
    expires_ms: int


@dataclass(frozen=True, slots=True)
class RecordsTimed:
    base: int  # offset of the first record
    duplicate: bool  # of an earlier append, which keeps the times it got then


@dataclass(frozen=True, slots=True)
class RecordsExpired:
    records: int


class RecordTimes(Section[list[Expiry]]):
    """Expiries by stream and first offset."""

    requires = (Streams, Queues)

    def __init__(self, streams: Streams, queues: Queues) -> None:
        self._streams = streams
        self._queues = queues
        self._expiries: Keyed[tuple[int, int], Expiry] = Keyed(fields_hash("expiry"))
        self._next: dict[int, list[tuple[int, int]]] = {}  # by stream: a heap of (expires ms, first offset)

    def due(self, stream: int, now_ms: int) -> bool:
        """Whether records of the stream have expired and are not deleted yet."""
        waiting = self._next.get(stream)
        return waiting is not None and waiting[0][0] < now_ms

    def due_streams(self, now_ms: int) -> list[int]:
        return [stream for stream in self._next if self.due(stream, now_ms)]

    @admits_append(TimeRecords)
    def admits(self, command: TimeRecords) -> bool:
        return self._refusal(command) is None

    @applies(TimeRecords)
    def time(self, command: TimeRecords, now: Moment) -> RecordsTimed | MainstemError:
        before = now.before
        if wrong := self._refusal(command):
            return wrong
        if not isinstance(before, AppendOutcome) or len(before.code) != 1:
            return InvalidInput("records get their times in the entry that appends them")
        code, base = int(before.code[0]), int(before.base[0])
        if code == AppendCode.DUPLICATE:
            return RecordsTimed(base, True)
        if code != AppendCode.OK:
            return Rejected("the records were not appended")
        for first, last, delay_ms, ttl_ms in command.rows:
            if delay_ms:
                offsets = list(range(base + first, base + last))
                self._queues.delay(command.stream, offsets, now.time_ms, delay_ms)
            if ttl_ms:
                self._put(Expiry(command.stream, base + first, base + last, now.time_ms + ttl_ms))
        return RecordsTimed(base, False)

    @applies(ExpireRecords)
    def expire(self, command: ExpireRecords, now: Moment) -> RecordsExpired:
        ranges = []
        while self.due(command.stream, now.time_ms):
            _, first = heapq.heappop(self._next[command.stream])
            expired = self._expiries.pop((command.stream, first))
            if expired is not None:
                ranges.append((expired.first, expired.last))
            if not self._next[command.stream]:
                del self._next[command.stream]
        if not ranges:
            return RecordsExpired(0)
        return RecordsExpired(self._streams.punch(command.stream, tuple(sorted(ranges)), DELETED, 0)[0])

    def _refusal(self, command: TimeRecords) -> MainstemError | None:
        delayed = expiring = 0
        for first, last, delay_ms, ttl_ms in command.rows:
            if not 0 <= first < last or not all(
                0 <= time <= limits.NACK_DELAY_MS_MAX for time in (delay_ms, ttl_ms)
            ):
                return InvalidInput(f"a delay or ttl has up to {limits.NACK_DELAY_MS_MAX} ms")
            delayed += last - first if delay_ms else 0
            expiring += bool(ttl_ms)
        if expiring and len(self._expiries) + expiring > EXPIRIES_MAX:
            return LimitReached(f"{EXPIRIES_MAX} writes with their own ttl_ms have not expired: write fewer")
        if delayed:
            return self._queues.delay_refusal(command.stream, delayed, DELAYED_JOBS_MAX)
        return None

    @reacts(TopicDeletedEvent)
    def on_topic_deleted(self, event: TopicDeletedEvent, now: Moment) -> None:
        for stream in event.topic.streams:
            for _, first in self._next.pop(stream, ()):
                self._expiries.pop((stream, first))

    def _put(self, expiry: Expiry) -> None:
        self._expiries.put((expiry.stream, expiry.first), expiry)
        heapq.heappush(self._next.setdefault(expiry.stream, []), (expiry.expires_ms, expiry.first))

    @property
    def digest(self) -> int:
        return self._expiries.digest

    def encode(self) -> list[Expiry]:
        return list(self._expiries)

    def load(self, state: list[Expiry]) -> None:
        for expiry in state:
            self._put(expiry)
