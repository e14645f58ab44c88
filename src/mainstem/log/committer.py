"""The commit path: groups of commands are written, applied in log order, and answered by durability class.

Self-clocking: while one group is written the next one fills, so there is no linger at low load and groups are
large at high load. Writing never waits for a running sync. A group that fails to be written publishes nothing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from crc32c import crc32c

from mainstem import limits
from mainstem.errors import (
    BrokerFenced,
    Closed,
    InvalidTransaction,
    MainstemError,
    NotFound,
    OutOfOrderSequence,
    ProducerFenced,
    ReadOnly,
    TooLarge,
    TopicFull,
    Unavailable,
)
from mainstem.ledger.appends import (
    SLICE_KEYED,
    SLICE_PACK,
    SLICE_TRACKED,
    SLICE_TRANSACTIONAL,
    AppendCode,
    AppendOutcome,
)
from mainstem.ledger.commands import (
    AddPartitions,
    AlterTopic,
    Command,
    CreateTopic,
    DeleteTopic,
    RaiseCeilings,
    Trim,
)
from mainstem.ledger.entry import Entry
from mainstem.ledger.ledger import Ledger
from mainstem.ledger.results import (
    Claimed,
    JobsChanged,
    LeasesExpired,
    Marked,
    ProducerInitialised,
    TransactionEnded,
    TransactionsExpired,
)
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
    AppendCode.OUT_OF_ORDER: lambda: OutOfOrderSequence(
        "the batch does not continue its producer's sequence"
    ),
    AppendCode.PRODUCER_FENCED: lambda: ProducerFenced("a newer epoch of this producer has taken over"),
    AppendCode.INVALID_TRANSACTION: lambda: InvalidTransaction(
        "the batch is no part of an open transaction of its producer, or ought to be"
    ),
    AppendCode.BROKER_FENCED: lambda: BrokerFenced(
        "this broker was replaced: it must rejoin before it writes"
    ),
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
        self._writing: Group | None = None
        self._pending_bytes = 0
        self._room: deque[asyncio.Future[None]] = deque()
        self._refusal: MainstemError | None = None

        self._unsynced: deque[tuple[int, _WhenSynced]] = deque()
        self._sync_wanted = asyncio.Event()
        self._work = asyncio.Event()
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

    def append(
        self, stream: int, slice: bytearray, facts: SliceFacts, size: int, records: bytes = b""
    ) -> Awaitable[Placed]:
        """Append checked batches to a stream. Takes ownership of the buffer and stamps it with its offsets.

        `records` are packed RECORD rows, for streams whose records the ledger tracks one by one."""
        if self._pending_bytes >= limits.PENDING_BYTES_MAX or self._room:
            return self._append_later(stream, slice, facts, size, records)
        return self._append_now(stream, slice, facts, size, records)

    def _append_now(
        self, stream: int, slice: bytearray, facts: SliceFacts, size: int, records: bytes
    ) -> asyncio.Future[Placed]:
        waiter = self._add_slice(stream, slice, facts, size, records)
        self._proposed(self._filling)
        return waiter

    async def append_then(
        self,
        stream: int,
        slice: bytearray,
        facts: SliceFacts,
        size: int,
        records: bytes,
        command: Command,
    ) -> Any:
        """Append and commit a command right after it, in one entry. Returns the command's result."""
        while self._pending_bytes >= limits.PENDING_BYTES_MAX and self._refusal is None:
            await self._wait_for_room()
        self._add_slice(stream, slice, facts, size, records).add_done_callback(_seen)
        outcome = await self._enqueue(command)
        if isinstance(outcome, MainstemError):
            raise outcome
        return outcome

    async def _wait_for_room(self) -> None:
        turn: asyncio.Future[None] = self._loop.create_future()
        self._room.append(turn)
        try:
            await turn
        finally:
            if turn in self._room:
                self._room.remove(turn)
            self._admit()

    def _add_slice(
        self, stream: int, slice: bytearray, facts: SliceFacts, size: int, records: bytes
    ) -> asyncio.Future[Placed]:
        """The caller says when the group is complete, by `_proposed`."""
        if self._refusal is not None:
            raise self._refusal
        waiter: asyncio.Future[Placed] = self._loop.create_future()
        flags = (SLICE_TRACKED if records else 0) | (SLICE_TRANSACTIONAL if facts.transactional else 0)
        if facts.keyed:
            flags |= SLICE_KEYED
        length = len(slice)
        row = SLICE_PACK.pack(
            stream,
            facts.count,
            length,
            crc32c(slice),
            facts.max_timestamp,
            facts.producer,
            facts.base_sequence,
            facts.producer_epoch,
            flags,
            size,
            facts.batches,
        )
        self._filling.add_slice(row, records, slice, waiter)
        self._pending_bytes += length
        return waiter

    async def _append_later(
        self, stream: int, slice: bytearray, facts: SliceFacts, size: int, records: bytes
    ) -> Placed:
        turn: asyncio.Future[None] = self._loop.create_future()
        self._room.append(turn)
        try:
            await turn
            placed = self._append_now(stream, slice, facts, size, records)
        finally:
            # Only now: as long as it stands in the line, nobody who comes later gets in before it.
            if turn in self._room:
                self._room.remove(turn)
            self._admit()
        return await placed

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

    def _admit(self) -> None:
        """Tell the first in the line that there is room."""
        if self._room and self._pending_bytes < limits.PENDING_BYTES_MAX and not self._room[0].done():
            self._room[0].set_result(None)

    # Writing

    async def _write_groups(self) -> None:
        while True:
            await self._work.wait()
            group = self._next_group()
            if group is None:
                self._work.clear()
                continue
            self._writing = group
            try:
                await self._commit(group)
            except (Unavailable, TooLarge) as error:
                # Refused whole: a full disk may have room for the next group, a failed fsync never will.
                group.fail(error)
                if isinstance(error, ReadOnly):
                    self._stop_writing(error)
            except Exception as error:  # noqa: BLE001 - whatever it was, the outcome is unknown: publish nothing
                group.fail(error)
                self._stop_writing(ReadOnly(f"the commit path failed, so nothing more is written: {error!r}"))
            finally:
                self._writing = None
                for waiter in group.written:
                    if not waiter.done():
                        waiter.set_result(None)
                self._pending_bytes -= group.payload_bytes
                self._admit()

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
        encoded = entry.encode()
        placement = await self._port.append(encoded, group.slices())
        self._commit_id += 1
        self.written_bytes += group.payload_bytes + 2 * len(encoded)
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

    def _stop_writing(self, error: MainstemError) -> None:
        self._refusal = error
        for group in (*self._full, self._filling):
            group.fail(error)
            self._pending_bytes -= group.payload_bytes
            for waiter in group.written:
                if not waiter.done():
                    waiter.set_result(None)
        self._full.clear()
        self._filling = Group()
        for turn in self._room:
            if not turn.done():
                turn.set_result(None)
        self._room.clear()

    # Delivering

    def _deliver(self, group: Group, placement: Placement, outcomes: list[Any]) -> None:
        start = placement.start
        if group.payload_bytes:
            self._tail.put(placement.object, start, group.slices(), group.payload_bytes)
        for part, outcome in zip(group.parts, outcomes, strict=True):
            if type(part) is Run:
                start = self._deliver_run(part, outcome, placement, start)
            else:
                self._deliver_command(part, outcome, placement.position)  # type: ignore[arg-type]

    def _deliver_run(self, run: Run, outcome: AppendOutcome, placement: Placement, start: int) -> int:
        """Index and stamp the slices, publish what may be seen now, leave the rest to the next sync."""
        add_extent = self._index.open_object(placement.object).add
        ends: dict[int, int] = {}
        for row, base, code, slice in zip(
            SLICE_PACK.iter_unpack(run.rows),
            outcome.base.tolist(),
            outcome.code.tolist(),
            run.slices,
            strict=True,
        ):
            stream, count, length = row[0], row[1], row[2]
            if not code:
                add_extent(stream, count, base, start, length, row[3], row[4])
                stamp(slice, base, LEADER_EPOCH)
                ends[stream] = base + count
            start += length
        late = self._publish_relaxed(ends)
        if not late and not outcome.code.any():
            for waiter, base in zip(run.waiters, outcome.base.tolist(), strict=True):
                if not waiter.done():
                    waiter.set_result((base, False))
        else:
            self._answer_each(run, outcome, placement.position, late)
        return start

    def _publish_relaxed(self, ends: dict[int, int]) -> dict[int, int]:
        """Show what needs no sync. Returns the ends of the other streams."""
        visibility = self._visibility
        late: dict[int, int] = {}
        ceilings: list[tuple[int, int]] = []
        for stream, end in ends.items():
            if not visibility.relaxed[stream]:
                late[stream] = end
                continue
            ceiling = visibility.next_ceiling(stream, end)
            if ceiling is not None:
                ceilings.append((stream, ceiling))
            if visibility.below_ceiling(stream, end):
                visibility.publish(stream, end)
            else:
                late[stream] = end
        if ceilings:
            # Nobody awaits it; if it fails, the appends that need it fail with the same error.
            self._enqueue(RaiseCeilings(tuple(ceilings))).add_done_callback(_seen)
        return late

    def _answer_each(self, run: Run, outcome: AppendOutcome, position: int, late: dict[int, int]) -> None:
        answers: list[tuple[asyncio.Future[Placed], Placed]] = []
        for row, base, code, waiter in zip(
            SLICE_PACK.iter_unpack(run.rows),
            outcome.base.tolist(),
            outcome.code.tolist(),
            run.waiters,
            strict=True,
        ):
            if code == AppendCode.DUPLICATE:
                # The original may itself be waiting for its sync, so the retry waits for one as well.
                answers.append((waiter, (base, True)))
            elif not code and row[0] in late:
                answers.append((waiter, (base, False)))
            elif waiter.done():
                continue
            elif code:
                waiter.set_exception(_REFUSALS[code]())
            else:
                waiter.set_result((base, False))
        if answers:
            self._when_synced(position, _Publication(self._visibility, late, answers))

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
        elif isinstance(command, Trim):
            self._visibility.wake(command.stream)
        elif isinstance(command, RaiseCeilings):
            self._when_synced(position, _RaisedCeilings(self._visibility, command))
        elif isinstance(outcome, (ProducerInitialised, TransactionEnded, TransactionsExpired)):
            self._when_synced(position, _Marked(self._visibility, outcome.marked))
        answer = _Answer(single.waiter, outcome)
        if isinstance(outcome, (Claimed, JobsChanged, LeasesExpired)) and self._needs_no_sync(
            command, outcome
        ):
            answer()
        else:
            self._when_synced(position, answer)

    def _needs_no_sync(self, command: Any, outcome: Claimed | JobsChanged | LeasesExpired) -> bool:
        """Leases that are not durable anyway are answered once written, if readers can see the jobs."""
        visible = not isinstance(outcome, Claimed) or outcome.reach <= self._visibility.ends[command.stream]
        return outcome.relaxed and visible

    # Syncing

    def _when_synced(self, position: int, action: _WhenSynced) -> None:
        self._unsynced.append((position, action))
        self._sync_wanted.set()

    async def sync(self) -> None:
        """Wait until everything proposed so far is durable."""
        last = self._filling if self._filling.parts else self._full[-1] if self._full else self._writing
        if last is not None:
            written: asyncio.Future[None] = self._loop.create_future()
            last.written.append(written)
            await written
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
            self._unsynced.popleft()[1].fail(error)

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


class _WhenSynced(Protocol):
    """What is left to do for a commit once it is durable."""

    def __call__(self) -> None: ...

    def fail(self, error: MainstemError) -> None:
        """The sync failed, so it never will be."""
        ...


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

    def fail(self, error: MainstemError) -> None:
        if not self.waiter.done():
            self.waiter.set_exception(error)


class _Publication:
    """Let readers see appends, and answer their callers."""

    __slots__ = ("_answers", "_ends", "_visibility")

    def __init__(
        self,
        visibility: Visibility,
        ends: dict[int, int],
        answers: list[tuple[asyncio.Future[Placed], Placed]],
    ) -> None:
        self._visibility = visibility
        self._ends = ends
        self._answers = answers

    def __call__(self) -> None:
        for stream, end in self._ends.items():
            self._visibility.publish(stream, end)
        for waiter, placed in self._answers:
            if not waiter.done():
                waiter.set_result(placed)

    def fail(self, error: MainstemError) -> None:
        for waiter, _ in self._answers:
            if not waiter.done():
                waiter.set_exception(error)


class _Marked:
    """Let readers pass the ends of transactions."""

    __slots__ = ("_marked", "_visibility")

    def __init__(self, visibility: Visibility, marked: tuple[Marked, ...]) -> None:
        self._visibility = visibility
        self._marked = marked
        for stream, first, _ in marked:
            if first >= 0:
                visibility.ending(stream, first)

    def __call__(self) -> None:
        for stream, first, marker in self._marked:
            self._visibility.ended(stream, first, marker + 1)

    def fail(self, error: MainstemError) -> None:
        """What they ended stays open to readers: it may be lost."""


class _RaisedCeilings:
    __slots__ = ("command", "visibility")

    def __init__(self, visibility: Visibility, command: RaiseCeilings) -> None:
        self.visibility = visibility
        self.command = command

    def __call__(self) -> None:
        for stream, ceiling in self.command.ceilings:
            self.visibility.raise_ceiling(stream, ceiling)

    def fail(self, error: MainstemError) -> None:
        """Nothing waits for a ceiling itself."""
