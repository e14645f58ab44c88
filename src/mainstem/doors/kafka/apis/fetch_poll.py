"""One Fetch in progress: collects available records, and waits for more until the client's deadline.

Records in memory are collected at once; records in files in one task for the whole request. While it waits, it is
one watcher of all its streams and one timer. Collecting continues where it stopped, so a wake-up is cheap.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

from mainstem import limits
from mainstem.broker.rates import CONSUMER_BYTE_RATE, RateLimiter
from mainstem.broker.streams import ReadChunk
from mainstem.doors.kafka.transport.api import Call, Part, Reply
from mainstem.doors.kafka.transport.context import KafkaContext
from mainstem.doors.kafka.transport.errors import code_of
from mainstem.errors import MainstemError, OffsetOutOfRange, RecordsLost
from mainstem.records.header import record_count, walk


class FetchPart:
    """One partition: its request, and the records found."""

    __slots__ = (
        "aborted",
        "at",
        "batches",
        "code",
        "elsewhere",
        "end",
        "full",
        "index",
        "key",
        "max_bytes",
        "offset",
        "size",
        "stable_end",
        "start",
        "stored_from",
        "stream",
        "topic",
    )

    def __init__(self, key: bytes, topic: str, index: int, stream: int, offset: int, max_bytes: int) -> None:
        self.key = key  # name or id of the topic, as the response repeats it
        self.topic = topic  # its name; "" if it does not exist
        self.index = index
        self.stream = stream
        self.offset = offset
        self.max_bytes = max_bytes
        self.code = 0
        self.elsewhere = -1  # the preferred read replica: a broker in the client's zone; -1: none
        self.begin()

    def begin(self) -> None:
        """Reset to the state before anything was found."""
        self.at = self.offset  # the next offset to gather
        self.batches: list[memoryview] = []
        self.size = 0
        self.full = False  # the rest must go into another response
        self.stored_from = -1  # from this offset on, batches are as written, with transaction markers
        self.start = -1
        self.end = -1
        self.stable_end = -1
        self.aborted: Sequence[tuple[int, int]] | None = None


class FetchLimits(NamedTuple):
    """The sizes that a client asks for, and how long it waits."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    committed_only: bool


class FetchPoll:
    """Responds to one Fetch. If no records came, it keeps watching: an idle client repeats its request, which then
    needs no parsing and no lookups."""

    def __init__(
        self,
        call: Call,
        parts: list[FetchPart],
        write: Callable[[FetchPoll], list[Part]],
        wanted: FetchLimits,
    ) -> None:
        self.parts = parts  # in the order of the request
        self.throttle_ms = 0  # in the response
        self.rules = call.context.access.state  # the access rules that allowed these reads
        self._call = call
        self._streams = call.context.broker.streams
        self._write = write
        self._max_wait_s = min(wanted.max_wait_ms, limits.READ_WAIT_MS_MAX) / 1000
        self._max_bytes = min(wanted.max_bytes, limits.KAFKA_FETCH_BYTES_MAX)
        self._scope = call.context.broker.rates.scope
        self._rates = call.context.broker.rates.stored
        self._limiters: dict[str, RateLimiter] = {}  # by scope, for the current request
        self._min_bytes = min(wanted.min_bytes, self._max_bytes)
        self._committed_only = wanted.committed_only
        self._parts = _rotated(call.context, parts)
        self._total = 0
        self._loop = asyncio.get_running_loop()
        self._asked = b""
        self._reply: Reply | None = None  # None: the response was sent
        self._empty: list[Part] | None = None  # the response without records, valid until something changes
        self._watched: list[int] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._looking = False  # a poll is scheduled, or one is reading files
        self._news = False
        self._late = self._max_wait_s <= 0

    def start(self, asked: bytes, reply: Reply) -> None:
        """`asked` is the request's body, which identifies a repeated request."""
        self._asked = asked
        self._reply = reply
        if self._rates.active and self._in_debt(reply):
            self._answer()
        else:
            self._poll()

    def again(self, asked: bytes, reply: Reply) -> bool:
        """Serve a repeated request. False: the request differs, or the state changed too much."""
        if self._empty is None or self._reply is not None or asked != self._asked:
            return False
        if self._rates.active and (self._in_debt(reply) or self._limiters):
            return False
        self._reply = reply
        self._late = False
        if self._news:
            self._poll()
        else:
            self._wait()
        return True

    def forget(self) -> None:
        """Stop watching: the client will not repeat the request."""
        self._reply = None
        if self._timer is not None:
            self._timer.cancel()
        if self._watched is not None:
            self._streams.unwatch(self._watched, self)
            self._watched = None

    def _in_debt(self, reply: Reply) -> bool:
        """Find the client's rate limits. True: the client is over its limit, so this response has no records."""
        group = self._call.context.group_names.group_of(self._call, reply.connection)
        for scope in self._scopes():
            limiter = self._call.consuming(scope, group)
            if limiter is not None:
                self._limiters[scope] = limiter
        for limiter in self._limiters.values():
            # A response far over the limit would throttle the client for hours.
            self._max_bytes = min(self._max_bytes, limiter.burst_bytes)
            self.throttle_ms = max(self.throttle_ms, limiter.debt_ms())
        self._min_bytes = min(self._min_bytes, self._max_bytes)
        return self.throttle_ms > 0

    def _scopes(self) -> set[str]:
        return {self._scope(part.topic) for part in self._parts}

    def _pay(self) -> int:
        """Count the response against the limits. Returns how long to throttle the client."""
        held_ms = self.throttle_ms
        by_scope: dict[str, list[FetchPart]] = {}
        for part in self._parts:
            if part.size:
                by_scope.setdefault(self._scope(part.topic), []).append(part)
        for scope, served in by_scope.items():
            limiter = self._limiters.get(scope)
            if limiter is not None:
                slices = (slice for part in served for slice in part.batches)
                records = sum(map(record_count, slices)) if limiter.counts_records else 0
                held_ms = max(held_ms, limiter.take(sum(part.size for part in served), records))
        return held_ms

    # Collecting

    def _poll(self) -> None:
        """Collect what is available now, then respond or wait."""
        self._looking = self._news = False
        self._empty = None
        reply = self._reply
        if reply is None:
            return
        cold = [
            part for part in self._parts if not part.code and part.elsewhere < 0 and not self._gather(part)
        ]
        if cold:
            self._looking = True
            reply.run(self._gather_cold(cold))
        else:
            self._answer_or_wait()

    async def _gather_cold(self, parts: list[FetchPart]) -> None:
        for part in parts:
            if self._reply is None:
                return
            await self._gather_from_file(part)
        self._looking = False
        if self._news and not self._is_complete():
            self._poll()
        else:
            self._answer_or_wait()

    def _gather(self, part: FetchPart) -> bool:
        """Collect a partition's records from memory. False: a file must be read."""
        while (room := self._room(part)) > 0:
            try:
                chunk = self._streams.read_cached(part.stream, part.at, room)
            except MainstemError as error:
                if not self._passed(part, error):
                    return True
                continue
            if chunk is None:
                return False
            if not self._take(part, chunk, room):
                return True
        return True

    async def _gather_from_file(self, part: FetchPart) -> None:
        while (room := self._room(part)) > 0:
            if part.batches and room < len(part.batches[-1]):
                part.full = True  # the next batch is likely no smaller, and would be read only to be dropped
                return
            try:
                chunk = await self._streams.read(part.stream, part.at, room)
            except MainstemError as error:
                if not self._passed(part, error):
                    return
                continue
            if not self._take(part, chunk, room):
                return

    def _room(self, part: FetchPart) -> int:
        """Bytes the partition may still add. The first batch is returned whatever its size."""
        if part.full:
            return 0
        room = min(part.max_bytes - part.size, self._max_bytes - self._total)
        return max(room, 1) if not self._total else room

    def _take(self, part: FetchPart, chunk: ReadChunk, room: int) -> bool:
        """Add a chunk. False: no more is available now."""
        batches: Sequence[memoryview] = chunk.batches
        next_offset = chunk.next_offset
        if part.size and batches and next(walk(batches[0])).base_offset < part.at:
            # The batch was built from a part for a reader that began at another offset. Clients skip records before the
            # offset they asked for, so the batch can start the next response.
            part.full = True
            return False
        if chunk.of_part and self._aborted(part):
            part.full = True  # the part has no markers
            return False
        if self._committed_only:
            batches, next_offset = _below(batches, next_offset, self._stable_end(part))
        size = sum(map(len, batches))
        if size > room:
            batches, size, next_offset = _within(batches, room, at_least_one=not self._total)
        moved = next_offset > part.at
        if size:
            if not chunk.of_part and part.stored_from < 0:
                part.stored_from = part.at
            part.batches += batches
            part.size += size
            self._total += size
        if moved:
            part.at = next_offset
        return moved

    def _aborted(self, part: FetchPart) -> Sequence[tuple[int, int]]:
        """The aborted transactions among the collected records: the client skips a producer's records from the first
        offset up to its marker, so the marker must be in the same response."""
        if part.stored_from < 0 or not self._committed_only:
            return ()
        return self._streams.aborted(part.stream, part.stored_from, part.at)

    def _stable_end(self, part: FetchPart) -> int:
        return self._streams.stable_end(part.stream, self._streams.bounds(part.stream)[1])

    def _passed(self, part: FetchPart, error: MainstemError) -> bool:
        """Whether collecting continues after an error. Lost records are skipped and counted."""
        if isinstance(error, RecordsLost):
            if self._aborted(part):
                part.full = True  # a marker may be among the lost records
                return False
            part.stored_from = -1
            self._call.context.metrics.lost(part.stream, error)
            part.at = error.end
            return True
        if part.size or (isinstance(error, OffsetOutOfRange) and part.at != part.offset):
            return False  # respond with what was found; the next fetch gets the error
        part.code = code_of(error)
        return False

    # Waiting

    def _is_complete(self) -> bool:
        return (
            self._late
            or self._total >= self._min_bytes
            or any(part.code or part.full or part.elsewhere >= 0 for part in self._parts)
        )

    def _answer_or_wait(self) -> None:
        if self._is_complete():
            self._answer()
        elif self._watched is None:
            self._watch()
            self._wait()
        elif self._timer is None:
            self._wait()

    def _watch(self) -> None:
        self._watched = [part.stream for part in self._parts]
        self._streams.watch(self._watched, self)

    def _wait(self) -> None:
        self._timer = self._loop.call_later(self._max_wait_s, self._hurry)
        if self._reply is not None:
            self._reply.on_hurry(self._hurry)

    def changed(self) -> None:
        """Something became visible in one of the streams."""
        self._news = True
        if not self._looking and self._reply is not None:
            self._looking = True
            self._loop.call_soon(self._poll_again)

    def _poll_again(self) -> None:
        reply = self._reply
        if reply is None:
            self._poll()  # clears the flags: no request waits
            return
        try:
            reply.step(self._poll)
        except Exception as error:  # noqa: BLE001  # nobody else would see it
            reply.fail(error)

    def _hurry(self) -> None:
        """The client's wait is over."""
        self._late = True
        if not self._looking and self._reply is not None:
            self._answer()

    def _answer(self) -> None:
        reply, self._reply = self._reply, None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if reply is None:
            return
        if self._empty is not None:
            reply.send(self._empty)
            return
        for part in self._parts:
            self._bound(part)
        failed = any(part.code for part in self._parts)
        if self._limiters:
            self.throttle_ms = self._call.throttle(CONSUMER_BYTE_RATE, self._pay(), reply)
        answer = self._write(self)
        self._answered(answer, failed=failed)
        reply.send(answer, failed=failed)

    def _answered(self, answer: list[Part], *, failed: bool) -> None:
        if self._total or failed or not self._watched or self._limiters:
            self.forget()
        else:
            self._empty = answer
            self._call.memory = self

    def _bound(self, part: FetchPart) -> None:
        if part.stream < 0 or part.code:
            return
        try:
            part.start, part.end = self._streams.bounds(part.stream)
        except MainstemError as gone:
            part.code = code_of(gone)
            part.batches, part.size = [], 0
            return
        part.stable_end = self._streams.stable_end(part.stream, part.end)
        if self._committed_only:
            part.aborted = self._aborted(part)


def _rotated(context: KafkaContext, parts: list[FetchPart]) -> list[FetchPart]:
    """Start each fetch at another partition, so that a busy one does not starve the rest."""
    context.fetches += 1
    first = context.fetches % len(parts) if parts else 0
    return parts[first:] + parts[:first]


def _below(batches: Sequence[memoryview], next_offset: int, end: int) -> tuple[list[memoryview], int]:
    """The batches below `end`."""
    if next_offset <= end:
        return list(batches), next_offset
    kept: list[memoryview] = []
    reached = -1
    for slice in batches:
        for header in walk(slice):
            if header.next_offset > end:
                if header.position:
                    kept.append(slice[: header.position])
                return kept, reached
            reached = header.next_offset
        kept.append(slice)
    return kept, end


def _within(
    batches: Sequence[memoryview], room: int, *, at_least_one: bool
) -> tuple[list[memoryview], int, int]:
    """As many whole batches as fit, their size, and the offset after them (-1: none fits)."""
    kept: list[memoryview] = []
    size, reached = 0, -1
    for slice in batches:
        for header in walk(slice):
            if size + header.end > room and not (at_least_one and reached < 0):
                if header.position:
                    kept.append(slice[: header.position])
                    size += header.position
                return kept, size, reached
            reached = header.next_offset
        kept.append(slice)
        size += len(slice)
    return kept, size, reached
