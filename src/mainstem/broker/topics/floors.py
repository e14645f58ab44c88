"""Where a stream's readable records begin, and why: the floors, with expiry exact to the millisecond.

The ledger's expiry floor moves only when retention runs. A reader must not see an expired record, so the floor is
computed here for the moment of the call.
"""

from __future__ import annotations

from typing import NamedTuple

from mainstem.ledger.config import TopicConfig
from mainstem.ledger.intervals import DELETED, SOURCE_TRIM
from mainstem.ledger.record_times import ExpireRecords
from mainstem.ledger.streams import Streams
from mainstem.ledger.topics import Topic
from mainstem.log.log import Log


class Floors(NamedTuple):
    """Offsets: records below each were removed for that reason. None is past `end`."""

    deleted: int
    evicted: int
    expired: int
    trimmed: int  # deleted by a router's source before they were copied
    damaged: int  # damaged or never synced, below a start that deletes have moved
    start: int  # the first offset that may hold a readable record
    end: int  # the high watermark, or the last stable offset
    expires_before_ms: int | None  # records older than this are expired, at any offset

    @property
    def lost(self) -> int:
        """Records below it are lost, not deleted on request."""
        return max(self.evicted, self.expired, self.trimmed, self.damaged)


def floors_of(log: Log, stream: int, config: TopicConfig, now_ms: int) -> Floors:
    """Raises NotFound if the stream's topic was deleted."""
    store = log.streams.of(stream)
    streams, number = store.state(stream)
    passed = streams.passed
    start, end = store.bounds(stream)[0], store.stable_end(stream)
    deleted, evicted, expired = streams.floors(number)
    before_ms = None
    if config.ttl_ms:
        before_ms = now_ms - config.ttl_ms
        reached = expired_to(streams, number, before_ms)
        if reached > start:
            expired = start = min(reached, end)
    trimmed = min(max(_trimmed_to(streams, number, start, end), passed.reach(number, uncopied=True)), end)
    damaged = min(passed.reach(number, uncopied=False), end)
    start = max(start, trimmed)
    return Floors(
        min(deleted, end), min(evicted, end), min(expired, end), trimmed, damaged, start, end, before_ms
    )


def _trimmed_to(streams: Streams, stream: int, start: int, end: int) -> int:
    """The end of what a router's source deleted before it was copied, if that is right at the start; else 0.

    Deleted records may come before it, if the records before them are expired and not trimmed yet."""
    reached, at = 0, start
    for first, last, reason in streams.holes(stream).overlapping(start, end):
        if first > at or (reason != SOURCE_TRIM and (reached or reason != DELETED)):
            break
        if reason == SOURCE_TRIM:
            reached = last
        at = last
    return reached


def expired_to(streams: Streams, stream: int, before_ms: int) -> int:
    """The end of the expired records before the first live one."""
    start = streams.start(stream)
    columns = streams.tracked(stream)
    if columns is None or not len(columns):
        return start
    first = int(columns.offsets[0])
    if streams.holes(stream).covered(start, first) < first - start:
        return start  # the first record is older than tracking
    return max(start, columns.expired_prefix(before_ms) or 0)


async def expire(log: Log, topic: Topic, stream: int, now_ms: int) -> None:
    """Apply the topic's ttl to one stream now."""
    await expire_untracked(log, stream, topic.config, now_ms)
    store = log.streams.of(stream)
    streams, number = store.state(stream)
    floor = expired_to(streams, number, now_ms - topic.config.ttl_ms)
    if floor > streams.start(number):
        await store.trim(stream, floor, "ttl")


async def expire_due(log: Log, stream: int) -> None:
    """Delete records whose own time to live is over."""
    if log.ledger.record_times.due(stream, log.now_ms()):
        await log.propose(ExpireRecords(stream))


async def expire_untracked(log: Log, stream: int, config: TopicConfig, now_ms: int) -> None:
    """Records from before the topic had a ttl are tracked by slice only: trim slices that are too old."""
    store = log.streams.of(stream)
    streams, number = store.state(stream)
    columns = streams.tracked(number)
    if columns is None or streams.start(number) >= columns.since:
        return
    floor = min(await store.offset_at(stream, now_ms - config.ttl_ms), columns.since)
    floor = _behind_records(streams, number, floor)
    if floor > streams.start(number):
        await store.trim(stream, floor, "ttl")


def _behind_records(streams: Streams, stream: int, floor: int) -> int:
    """The offset after the last record below the floor: deleted and lost records there did not expire."""
    start, holes = streams.start(stream), streams.holes(stream)
    while floor > start:
        below = next(iter(holes.overlapping(floor - 1, floor)), None)
        if below is None:
            break
        floor = below[0]
    return floor


def expired_records(streams: Streams, stream: int, before_ms: int) -> tuple[int, int]:
    """The number and bytes of live records that are expired now."""
    columns = streams.tracked(stream)
    if columns is None:
        return 0, 0
    old = columns.times < before_ms
    return int(old.sum()), int(columns.sizes[old].sum(dtype="int64"))
