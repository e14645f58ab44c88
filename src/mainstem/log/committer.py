"""The commit path: groups of commands are written, applied in log order, and answered by durability class.

Self-clocking: while one group is written the next one fills, so there is no linger at low load and groups are
large at high load. Writing never waits for a running sync. A group that fails to be written publishes nothing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from crc32c import crc32c

from mainstem import limits
from mainstem.errors import (
    BrokerFenced,
    Closed,
    MainstemError,
    NotFound,
    OutOfOrderSequence,
    ProducerFenced,
    ReadOnly,
    TopicFull,
    Unavailable,
)
from mainstem.ledger.appends import SLICE_PACK, SLICE_TRACKED, SLICE_TRANSACTIONAL, AppendCode, AppendOutcome
from mainstem.ledger.commands import (
    AddPartitions,
    AlterTopic,
    Command,
    CreateTopic,
    DeleteTopic,
    RaiseCeilings,
)
from mainstem.ledger.entry import Entry
from mainstem.ledger.ledger import Ledger
from mainstem.log.extents import SealedExtents
from mainstem.log.group import Group, Placed, Run, Single
from mainstem.log.index import ExtentIndex
from mainstem.log.tail import TailCache
from mainstem.log.visibility import Visibility
from mainstem.ports.clock import Clock
from mainstem.ports.commitlog.port import CommitLog, Placement
from mainstem.records.header import SliceFacts, stamp

# Kafka's leader epoch tells a client that a log was truncated. This log never is, so one epoch serves for all.
LEADER_EPOCH = 0

_REFUSALS: dict[int, Callable[[], MainstemError]] = {
    AppendCode.NO_STREAM: lambda: NotFound("the topic was deleted meanwhile"),
    AppendCode.FULL: lambda: TopicFull("the topic's cap is reached and it rejects what exceeds it"),
    AppendCode.OUT_OF_ORDER: lambda: OutOfOrderSequence("the batch does not continue its producer's sequence"),
    AppendCode.PRODUCER_FENCED: lambda: ProducerFenced("a newer epoch of this producer has taken over"),
    AppendCode.BROKER_FENCED: lambda: BrokerFenced("this broker was replaced: it must rejoin before it writes"),
    AppendCode.PRODUCER_UNKNOWN: lambda: OutOfOrderSequence(
        "nothing is known of this producer here, so its first batch must have sequence 0"
    ),
}


class Committer:
    """One writer of one commit log."""

    def __init__(
        self,
        port: CommitLog,
        ledger: Ledger,
        index: ExtentIndex,
        tail: TailCache,
        visibility: Visibility,
        clock: Clock,
        broker: int,
        on_object_finished: Callable[[SealedExtents], None],
    ) -> None:
        self._port = port
        self._ledger = ledger
        self._index = index
        self._tail = tail
        self._visibility = visibility
        self._clock = clock
        self._broker = broker
        self._epoch = 0
        self._commit_id = 0
        self._on_object_finished = on_object_finished
        self._loop = asyncio.get_running_loop()

        self._filling = Group()
        self._full: deque[Group] = deque()
        self._pending_bytes = 0
        self._room: deque[asyncio.Future[None]] = deque()
        self._refusal: MainstemError | None = None

        self._unsynced: deque[tuple[int, Callable[[], None]]] = deque()
        self._sync_wanted = asyncio.Event()
        self._work = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._tasks: list[asyncio.Task[None]] = []
        self._digest_sent = 0
        self.written_bytes = 0

    def start(self) -> None:
        self._tasks = [
            self._loop.create_task(self._write_groups(), name="mainstem-write"),
            self._loop.create_task(self._sync_groups(), name="mainstem-sync"),
        ]

    def take_epoch(self, epoch: int) -> None:
        """The ledger accepted this broker: later commits carry its epoch."""
        self._epoch = epoch

    @property
    def refusal(self) -> MainstemError | None:
        """Why nothing more is written, if so."""
        return self._refusal

    # Proposing

    async def append(
        self, stream: int, slice: bytearray, facts: SliceFacts, size: int, records: bytes = b""
    ) -> Placed:
        """Append checked batches to a stream. Takes ownership of the buffer and stamps it with its offsets.

        `records` are packed RECORD rows, for streams whose records the ledger tracks one by one."""
        if self._pending_bytes >= limits.PENDING_BYTES_MAX:
            await self._wait_for_room()
        if self._refusal is not None:
            raise self._refusal
        waiter: asyncio.Future[Placed] = self._loop.create_future()
        flags = (SLICE_TRACKED if records else 0) | (SLICE_TRANSACTIONAL if facts.transactional else 0)
        group = self._filling
        group.add_slice(
            (
                stream,
                facts.count,
                len(slice),
                crc32c(slice),
                facts.max_timestamp,
                facts.producer,
                facts.base_sequence,
                facts.producer_epoch,
                flags,
                size,
                facts.batches,
            ),
            records,
            slice,
            waiter,
        )
        self._pending_bytes += len(slice)
        self._proposed(group)
        return await waiter

    async def propose(self, command: Command) -> Any:
        """Commit one command. Returns its result once durable; raises what the ledger refused it with."""
        if self._refusal is not None:
            raise self._refusal
        outcome = await self._enqueue(command)
        if isinstance(outcome, MainstemError):
            raise outcome
        return outcome

    def _enqueue(self, command: Command) -> asyncio.Future[Any]:
        waiter: asyncio.Future[Any] = self._loop.create_future()
        self._filling.add_command(command, waiter)
        self._proposed(self._filling)
        return waiter

    def _proposed(self, group: Group) -> None:
        if group.full:
            self._full.append(group)
            self._filling = Group()
        if not self._work.is_set():
            self._work.set()
            self._idle.clear()

    async def _wait_for_room(self) -> None:
        while self._pending_bytes >= limits.PENDING_BYTES_MAX and self._refusal is None:
            turn: asyncio.Future[None] = self._loop.create_future()
            self._room.append(turn)
            await turn

    # Writing

    async def _write_groups(self) -> None:
        while True:
            await self._work.wait()
            group = self._next_group()
            if group is None:
                self._work.clear()
                self._idle.set()
                continue
            try:
                await self._commit(group)
            except Unavailable as error:
                # Refused whole: a full disk may have room for the next group, a failed fsync never will.
                group.fail(error)
                if isinstance(error, ReadOnly):
                    self._stop_writing(error)
            except Exception as error:  # noqa: BLE001 - whatever it was, the outcome is unknown: publish nothing
                group.fail(error)
                self._stop_writing(ReadOnly(f"the commit path failed, so nothing more is written: {error!r}"))
            finally:
                self._release(group.payload_bytes)

    def _next_group(self) -> Group | None:
        if self._full:
            return self._full.popleft()
        if not self._filling.parts:
            return None
        group = self._filling
        self._filling = Group()
        return group

    async def _commit(self, group: Group) -> None:
        if self._refusal is not None and not isinstance(self._refusal, Closed):
            raise self._refusal
        entry = Entry(
            broker=self._broker,
            broker_epoch=self._epoch,
            commit_id=self._commit_id,
            time_ms=self._clock.now_ms(),
            parts=[part.part() if type(part) is Run else part.command for part in group.parts],  # type: ignore[union-attr]
            digest=self._digest_to_send(),
        )
        placement = await self._port.append(entry.encode(), group.slices())
        self._commit_id += 1
        self.written_bytes += group.payload_bytes
        if self._index.open_number not in (None, placement.object):
            # Before the apply: now the ledger stands exactly at the end of the finished object.
            self.finish_object()
        self._index.open_object(placement.object)
        self._deliver(group, placement, self._ledger.apply(entry))

    def finish_object(self) -> None:
        """Close the index of the object that took commits so far."""
        finished = self._index.finish()
        if finished is not None:
            self._on_object_finished(finished)

    def _digest_to_send(self) -> tuple[int, int] | None:
        digest = self._ledger.last_digest
        if digest is None or digest[0] == self._digest_sent:
            return None
        self._digest_sent = digest[0]
        return digest

    def _release(self, size: int) -> None:
        self._pending_bytes -= size
        while self._room and self._pending_bytes < limits.PENDING_BYTES_MAX:
            turn = self._room.popleft()
            if not turn.done():
                turn.set_result(None)
                break  # one at a time: whoever is let in makes the next one wait or lets it in
        if self._room and self._pending_bytes < limits.PENDING_BYTES_MAX:
            self._loop.call_soon(self._release, 0)

    def _stop_writing(self, error: MainstemError) -> None:
        self._refusal = error
        for group in (*self._full, self._filling):
            group.fail(error)
            self._pending_bytes -= group.payload_bytes
        self._full.clear()
        self._filling = Group()
        for turn in self._room:
            if not turn.done():
                turn.set_result(None)
        self._room.clear()

    # Delivering

    def _deliver(self, group: Group, placement: Placement, outcomes: list[Any]) -> None:
        start = placement.start
        for part, outcome in zip(group.parts, outcomes, strict=True):
            if type(part) is Run:
                start = self._deliver_run(part, outcome, placement, start)
            else:
                self._deliver_command(part, outcome, placement.position)  # type: ignore[arg-type]

    def _deliver_run(self, run: Run, outcome: AppendOutcome, placement: Placement, start: int) -> int:
        visibility = self._visibility
        extents = self._index.open_object(placement.object)
        object = placement.object
        ceilings: list[tuple[int, int]] = []
        rows = SLICE_PACK.iter_unpack(run.rows)
        for row, base, code, slice, waiter in zip(
            rows, outcome.base.tolist(), outcome.code.tolist(), run.slices, run.waiters, strict=True
        ):
            stream, count, length, crc, time = row[0], row[1], row[2], row[3], row[4]
            if code == 0:
                end = base + count
                extents.add(stream, count, base, start, length, crc, time)
                stamp(slice, base, LEADER_EPOCH)
                self._tail.put(object, start, slice)
                relaxed = visibility.relaxed[stream]
                if relaxed:
                    ceiling = visibility.next_ceiling(stream, end)
                    if ceiling is not None:
                        ceilings.append((stream, ceiling))
                if relaxed and visibility.below_ceiling(stream, end):
                    visibility.publish(stream, end)
                    if not waiter.done():
                        waiter.set_result((base, False))
                else:
                    self._when_synced(placement.position, _Publication(visibility, stream, end, base, waiter))
            elif code == AppendCode.DUPLICATE:
                # The original may itself be waiting for its sync, so the retry waits for one as well.
                self._when_synced(placement.position, _Answer(waiter, (base, True)))
            elif not waiter.done():
                waiter.set_exception(_REFUSALS[code]())
            start += length
        if ceilings:
            # Nobody awaits it; if it fails, the appends that need it fail with the same error.
            self._enqueue(RaiseCeilings(tuple(ceilings))).add_done_callback(_seen)
        return start

    def _deliver_command(self, single: Single, outcome: Any, position: int) -> None:
        command = single.command
        if isinstance(outcome, MainstemError):
            self._when_synced(position, _Answer(single.waiter, outcome))
            return
        if isinstance(command, (CreateTopic, AddPartitions)):
            self._visibility.grow(self._ledger)
        elif isinstance(command, AlterTopic):
            self._visibility.reclassify(self._ledger, outcome.streams)
        elif isinstance(command, DeleteTopic):
            for stream in outcome.streams:
                self._visibility.wake(stream)
        elif isinstance(command, RaiseCeilings):
            self._when_synced(position, _RaisedCeilings(self._visibility, command))
        self._when_synced(position, _Answer(single.waiter, outcome))

    # Syncing

    def _when_synced(self, position: int, action: Callable[[], None]) -> None:
        self._unsynced.append((position, action))
        self._sync_wanted.set()

    async def sync(self) -> None:
        """Wait until everything proposed so far is durable."""
        await self._idle.wait()
        if self._port.end == self._port.synced and not self._unsynced:
            return
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._when_synced(self._port.end - 1, _Answer(waiter, None))
        await waiter

    async def _sync_groups(self) -> None:
        while True:
            await self._sync_wanted.wait()
            self._sync_wanted.clear()
            try:
                synced = await self._port.sync()
            except Exception as error:  # noqa: BLE001 - a failed fsync is final, whatever its kind
                refusal = error if isinstance(error, ReadOnly) else ReadOnly(f"fsync failed: {error!r}")
                self._stop_writing(refusal)
                self._fail_unsynced(refusal)
                continue
            while self._unsynced and self._unsynced[0][0] < synced:
                self._unsynced.popleft()[1]()
            if self._unsynced:
                self._sync_wanted.set()

    def _fail_unsynced(self, error: MainstemError) -> None:
        while self._unsynced:
            action = self._unsynced.popleft()[1]
            waiter = getattr(action, "waiter", None)
            if waiter is not None and not waiter.done():
                waiter.set_exception(error)

    # Ending

    async def drain(self) -> None:
        """Refuse new proposals, write and sync what was proposed before."""
        if self._refusal is None:
            self._refusal = Closed("the log is closing")
        await self.sync()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        closed = Closed("the log is closed")
        self._stop_writing(self._refusal or closed)
        self._fail_unsynced(closed)


def _seen(done: asyncio.Future[Any]) -> None:
    if not done.cancelled():
        done.exception()


class _Answer:
    """Answer a caller."""

    __slots__ = ("value", "waiter")

    def __init__(self, waiter: asyncio.Future[Any], value: Any) -> None:
        self.waiter = waiter
        self.value = value

    def __call__(self) -> None:
        if not self.waiter.done():
            self.waiter.set_result(self.value)


class _Publication:
    """Let readers see an append, and answer its caller."""

    __slots__ = ("base", "end", "stream", "visibility", "waiter")

    def __init__(
        self, visibility: Visibility, stream: int, end: int, base: int, waiter: asyncio.Future[Placed]
    ) -> None:
        self.visibility = visibility
        self.stream = stream
        self.end = end
        self.base = base
        self.waiter = waiter

    def __call__(self) -> None:
        self.visibility.publish(self.stream, self.end)
        if not self.waiter.done():
            self.waiter.set_result((self.base, False))


class _RaisedCeilings:
    __slots__ = ("command", "visibility")

    def __init__(self, visibility: Visibility, command: RaiseCeilings) -> None:
        self.visibility = visibility
        self.command = command

    def __call__(self) -> None:
        for stream, ceiling in self.command.ceilings:
            self.visibility.raise_ceiling(stream, ceiling)
