"""The commit path: write groups of commands, apply them in log order, and complete them by durability class.

Self-clocking: while one group is written, the next one fills, so there is no linger at low load and groups are
large at high load. Writing never waits for a running sync. A group whose write fails publishes nothing.

Where a group is written:

| group                          | written                       | synced                             |
|--------------------------------|-------------------------------|------------------------------------|
| small, on a fast disk          | on the loop: `_write_now`     | by `Syncs.run`                     |
| one command, nothing in flight | on the loop: `_write_now`     | on the loop, before it is applied  |
| large, or the disk is slow     | on the write thread: `_commit` | with the write, or by `Syncs.run` |
| one append or command, embedded | in the caller's thread: `append_now`, `propose_now` | in the caller's thread |

A log that other brokers share is written by `SharedWrites`, over the network.

The last one needs no event loop. Its caller keeps the loop from running meanwhile (client/gate.py).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from mainstem import limits
from mainstem.errors import (
    Closed,
    MainstemError,
    NoSpace,
    ReadOnly,
    Stale,
    TooLarge,
    Unavailable,
)
from mainstem.ledger.entry import (
    SLICE_PACK,
    AppendRun,
    Entry,
    encode_lone,
)
from mainstem.ledger.ledger import Ledger
from mainstem.ledger.section import Command
from mainstem.ledger.streams import RaiseCeilings
from mainstem.log.read.extents import SealedExtents
from mainstem.log.read.index import ExtentIndex
from mainstem.log.read.tail import TailCache
from mainstem.log.read.visibility import Visibility
from mainstem.log.write.append import AppendRequest, FollowedAppend, Placed, Waiter
from mainstem.log.write.client_activity import LONE_QUIET_S, ClientActivity
from mainstem.log.write.commit_metrics import CommitMetrics
from mainstem.log.write.delivery import Delivery, refusal_of
from mainstem.log.write.follower import Follower
from mainstem.log.write.group import CommitGroup, PendingAppends, row_fields
from mainstem.log.write.shared_writes import UPLOADS_IN_FLIGHT_MAX, SharedWrites
from mainstem.log.write.syncs import Syncs
from mainstem.log.write.waiting import WaitingAppends
from mainstem.ports.clock import Clock, LedgerClock
from mainstem.ports.commitlog.port import CommitLog, Placement, SharedCommitLog
from mainstem.records.header import Slice, slice_crc

PENDING_BYTES_MAX = 64 * limits.MIB  # proposed but not yet written; above it, callers wait
OPEN_EXTENTS_MAX = 512 * limits.KIB  # slices in one object, which bounds the memory for an open one
_LONE_ENTRY_BYTES = 128  # approximate size of one slice


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
        linger_s: float = 0.0,
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

        self._linger_s = linger_s
        self.held_back_s = 0.0
        self._filling_since = 0.0  # when the group being filled got its first record
        self._ripe = asyncio.Event()  # write it without waiting for more
        self.clock_trusted = True  # otherwise commits repeat the time of the previous one
        self.ledger_time = LedgerClock(clock, ledger)
        self.stale = False  # the port no longer knows the log's tail: rejoin
        self.committed_at = clock.monotonic()  # when a commit of this broker was last applied
        self._filling = CommitGroup()
        self._full: deque[CommitGroup] = deque()
        self._writing: CommitGroup | None = None
        self._pending_bytes = 0
        self._room_bytes = limits.SATURATED_BYTES_MAX  # pending; above it, the path is saturated
        self.waiting = WaitingAppends()  # while it is saturated
        self.priority_of: Callable[[int], int] = lambda stream: 0  # of a stream's topic
        self.saves_cost: Callable[[int], bool] = lambda stream: False  # the profile of a stream's topic
        self._refusal: MainstemError | None = None  # permanently
        self._held: MainstemError | None = None  # until there is an epoch
        # Why writes of `short_of_bytes` are refused for now: no space, or no file descriptor.
        self.shortage: NoSpace | None = None
        self.short_of_bytes = 0
        self.write_refusals = 0  # groups refused for that reason
        self.on_shortage: Callable[[], None] = lambda: None

        self.commit_metrics = CommitMetrics()
        self._syncs = Syncs(port, self._stop_writing, clock, self.commit_metrics)
        self._delivery = Delivery(ledger, index, tail, visibility, self._syncs, self._raise_ceilings)
        self._on_fatal: Callable[[Exception], None] = lambda _: None
        self._shared: SharedWrites | None = None
        self._work = asyncio.Event()
        self._roll_due = False  # the current object has reached its limit of slices
        self._direct = False  # small groups are written on the loop, without a task
        self._called = False  # `_write_now` is about to run
        self.client_activity = ClientActivity(self._write_due)
        self._tasks: list[asyncio.Task[None]] = []
        self._digest_sent = 0
        self.written_bytes = 0

    def share(
        self,
        port: SharedCommitLog,
        on_fatal: Callable[[Exception], None],
        uploads: int = UPLOADS_IN_FLIGHT_MAX,
    ) -> Follower:
        """Other brokers write to the log, too. Before `start`. `on_fatal`: this broker no longer knows the state.
        `uploads`: groups whose payloads are uploaded at once; where there is nothing to upload, one, so that the next
        group fills meanwhile."""
        self._on_fatal = on_fatal
        self._room_bytes = PENDING_BYTES_MAX  # several groups are uploaded concurrently
        follower = Follower(port, self._ledger, self._index, self._delivery, self.finish_object)
        self._shared = SharedWrites(self, follower, uploads)
        return follower

    def start(self) -> None:
        if self._shared is None:
            self._direct = not self._linger_s
            writing = [self._write_groups()]
        else:
            writing = [self._shared.upload(), self._shared.commit()]
        self._tasks = [self._loop.create_task(work, name="mainstem-write") for work in writing]
        self._tasks.append(self._loop.create_task(self._syncs.run(), name="mainstem-sync"))

    def take_epoch(self, epoch: int) -> None:
        """The ledger accepted this broker: later commits carry its epoch."""
        self._epoch = epoch
        self._held = None
        self.stale = False

    @property
    def epoch(self) -> int:
        """This broker's epoch; 0 before it has one."""
        return self._epoch

    def take_number(self, broker: int) -> None:
        """Commit as this broker from now on. Before the first epoch."""
        self._broker = broker

    def hold(self, why: MainstemError) -> None:
        """Refuse everything but `propose_held` until there is an epoch."""
        self._held = why

    def hold_back(self, seconds: float) -> None:
        """Delay every group of records by this time before it is written: later stages do not keep up."""
        self.held_back_s = seconds

    @property
    def refusal(self) -> MainstemError | None:
        """Why the log accepts no more writes; None if it does."""
        return self._refusal or self._held

    # Proposing

    def append(self, request: AppendRequest, waiter: Waiter) -> None:
        """Append batches to a stream of the log.

        Raises the reason if the log accepts no more writes; the waiter is then not called."""
        pending = self._pending_bytes
        if pending >= self._room_bytes or pending >= PENDING_BYTES_MAX or self.waiting.count:
            self._wait(request, partial(self._append_in_turn, request, waiter))
        else:
            self._add_slice(request, waiter)
            self._proposed(self._filling)

    def _wait(self, request: AppendRequest, start: Callable[[], None]) -> None:
        stream, now = request.stream, self._loop.time()
        self.waiting.add(stream, self.priority_of(stream), start, now, len(request.batches))

    def _append_in_turn(self, request: AppendRequest, waiter: Waiter) -> None:
        try:
            if not waiter.done():
                self._add_slice(request, waiter)
                self._proposed(self._filling)
        except MainstemError as error:
            waiter.set_exception(error)

    async def append_then(self, request: AppendRequest, command: Command) -> Any:
        """Append and commit a command right after it, in one entry. Returns the command's result."""
        full = self._pending_bytes >= min(self._room_bytes, PENDING_BYTES_MAX)
        if (full or self.waiting.count) and self._refusal is None:
            await self._wait_for_room(request)
        # A separate run: the command must not cover appends of others.
        appended: asyncio.Future[Placed] = self._loop.create_future()
        appended.add_done_callback(_seen)
        self._add_slice(request, appended, apart=True)
        outcome = await self._enqueue(command)
        if isinstance(outcome, MainstemError):
            raise outcome
        return outcome

    async def _wait_for_room(self, request: AppendRequest) -> None:
        turn: asyncio.Future[None] = self._loop.create_future()
        self._wait(request, lambda: None if turn.done() else turn.set_result(None))
        await turn

    def _add_slice(self, request: AppendRequest, waiter: Waiter, *, apart: bool = False) -> None:
        """Add to the group. The caller then calls `_proposed`."""
        if self._refusal is not None or self._held is not None:
            raise self._refusal or self._held  # type: ignore[misc]  # one of them is there
        if request.then is not None and not apart:
            both = FollowedAppend(waiter)
            self._add_slice(request, both, apart=True)
            self._enqueue(request.then).add_done_callback(both.followed)
            return
        slice, records = request.batches, request.records
        length = len(slice)
        row = SLICE_PACK.pack(*row_fields(request))
        if self._shared is not None and not apart and self._shared.saves(request.stream):
            self._shared.save(row, records, slice, waiter)
            self._pending_bytes += length
            return
        if not self._filling.takes(length):
            self._complete_filling()
        if self._linger_s and not self._filling.payload_bytes:
            self._filling_since = self._loop.time()
        self._filling.add_slice(row, records, slice, waiter, apart=apart)
        self._pending_bytes += length

    def append_now(
        self, stream: int, batch: bytearray, count: int, size: int, now_ms: int
    ) -> tuple[int, int | None] | None:
        """Append a batch of `count` records, built here and now, in the calling thread, without the event loop, which
        must not run meanwhile. Returns the base offset and, if the durability class needs a sync, the position to pass
        to `sync_now`. None: use `append`. `size`: its logical bytes. `now_ms`: the current time.

        Raises the error of the write, or the ledger's refusal."""
        length = len(batch)
        if not self._callers_may_write(length + _LONE_ENTRY_BYTES):
            return None
        began = self._clock.monotonic()
        self._syncs.deferred = True  # the caller syncs
        try:
            fields = (stream, count, length, slice_crc(batch, 1), now_ms, -1, -1, -1, 0, size, 1)
            base, code, unsynced = self._commit_lone(fields, batch, None, began, wall=now_ms)
        except Exception as error:
            self._failed(error, length)
            raise
        finally:
            self._syncs.deferred = False
        if code:
            raise refusal_of(code)
        return base, unsynced

    def propose_now(self, command: Command) -> tuple[asyncio.Future[Any], int] | None:
        """Commit one command as `append_now` does an append. Returns the future of its result, which is done once the
        position has been passed to `sync_now` and that was published. None: use `propose`.

        Raises the error of the write."""
        group = CommitGroup()
        waiter: asyncio.Future[Any] = self._loop.create_future()
        group.add_command(command, waiter)
        if not self._callers_may_write(group.entry_bytes + _LONE_ENTRY_BYTES):
            return None
        group.began = self._clock.monotonic()
        self._syncs.deferred = True
        try:
            entry = self.entry(group)
            encoded = entry.encode(group.bodies())
            placement = self._port.append_now(encoded, (), group.payload_crc(entry))
            self._written(group, entry, encoded, placement, None)
        except Exception as error:
            self._failed(error, 0)
            raise
        finally:
            self._syncs.deferred = False
        return waiter, placement.position

    def _callers_may_write(self, size: int) -> bool:
        """Whether nothing is in flight that a commit written by another thread would overtake, and nothing is due that
        needs the loop."""
        return not (
            self._writing is not None
            or self._filling.parts
            or self._full
            or self.waiting.count
            or self._refusal is not None
            or self._held is not None
            or self.held_back_s
            or not self._direct
            or self._roll_due
            or not self._port.writes_now(size, may_block=True)
            or self._digest_due
        )

    def sync_now(self, position: int) -> float | None:
        """Sync the commit at `position` in the calling thread; the loop may run. The caller then passes the result to
        `publish_synced`, or the error to `abandon_sync`."""
        return self._port.sync_now(position)

    def publish_synced(self, seconds: float | None) -> None:
        """Complete and publish everything that is durable. The loop must not run meanwhile."""
        if seconds is not None:
            self.commit_metrics.synced(seconds)
        self._syncs.publish()

    def abandon_sync(self, error: BaseException) -> None:
        """`sync_now` failed, which is final; if its caller was only interrupted, the loop syncs and publishes. The loop
        must not run meanwhile."""
        if isinstance(error, Exception):
            self._syncs.failed(error)
        else:
            self._syncs.want()

    async def propose(self, command: Command) -> Any:
        """Commit one command. Returns its result once durable; raises the ledger's refusal."""
        if self.refusal is not None:
            raise self.refusal
        return await self.propose_held(command)

    async def propose_held(self, command: Command) -> Any:
        """As `propose`, even while proposals are held back."""
        outcome = await self._enqueue(command)
        if isinstance(outcome, MainstemError):
            raise outcome
        return outcome

    async def propose_alone(self, command: Command) -> Any:
        """As `propose_held`, in a separate entry: the ledger accepts the start of a broker only that way."""
        if self._filling.parts:
            self._full.append(self._filling)
        self._filling = CommitGroup()
        outcome = self._enqueue(command)
        self._full.append(self._filling)
        self._filling = CommitGroup()
        settled = await outcome
        if isinstance(settled, MainstemError):
            raise settled
        return settled

    def _enqueue(self, command: Command) -> asyncio.Future[Any]:
        waiter: asyncio.Future[Any] = self._loop.create_future()
        self._filling.add_command(command, waiter)
        self._ripe.set()  # a command does not wait for others to share its commit
        self._proposed(self._filling)
        return waiter

    def _raise_ceilings(self, command: RaiseCeilings) -> None:
        # Not awaited; if it fails, the appends that need it fail with the same error.
        self._enqueue(command).add_done_callback(_seen)

    def _proposed(self, group: CommitGroup) -> None:
        if group.full:
            self._complete_filling()
        if self._direct:
            if not self._called:  # once for all proposals of one turn of the loop
                self._called = True
                if self.client_activity.reading:
                    self.client_activity.due = True
                else:
                    self._loop.call_soon(self._write_now)
            return
        if not self._work.is_set():
            self._work.set()
        if self._shared is not None:
            self._shared.proposed(group.payload_bytes, full=bool(self._full))

    def _complete_filling(self) -> None:
        """Close the group being filled: later proposals go into the next one."""
        self._full.append(self._filling)
        self._filling = CommitGroup()
        self._ripe.set()

    def add_group(self, group: CommitGroup) -> None:
        """Write a group that was filled elsewhere."""
        self._full.append(group)
        self._ripe.set()
        self._proposed(self._filling)

    def _admit(self) -> None:
        """Start waiting appends while there is room."""
        bound = min(self._room_bytes, PENDING_BYTES_MAX)
        while self.waiting.count and self._pending_bytes < bound:
            self.waiting.pop(self._loop.time())()

    def _measure_room(self, group: CommitGroup, took: float) -> None:
        """How many bytes may be pending before the path is saturated: those it writes in `SATURATED_S`."""
        if self._shared is None and took > 0:
            fits = group.payload_bytes / took * limits.SATURATED_S
            bound = min(max(fits, limits.SATURATED_BYTES_MIN), limits.SATURATED_BYTES_MAX)
            self._room_bytes += int(bound - self._room_bytes) // 4  # a single slow write is an outlier

    # Writing

    async def _write_groups(self) -> None:
        while True:
            group = await self.take_group()
            self._writing = group
            await self.settle(group, self._commit(group))

    async def take_group(self) -> CommitGroup:
        while True:
            await self._work.wait()
            if self._linger_s:
                await self._linger()
            if self.held_back_s and self._pending_bytes:
                await asyncio.sleep(self.held_back_s)
            group = self._next_group()
            if group is not None:
                group.began = self._clock.monotonic()
                return group
            self._work.clear()

    def write_lone(self) -> None:
        """Write now what was proposed, if the task that calls this serves the only request."""
        activity = self.client_activity
        if self._called and activity.tasks == 1 and self._loop.time() - activity.changed_at >= LONE_QUIET_S:
            self._write_now()

    def _write_due(self) -> None:
        self.client_activity.due = False
        if self._called:
            self._write_now()

    def _write_now(self) -> None:
        """Write what was proposed, in group order. Slow writes are left to the task."""
        self._called = False
        syncs = self._syncs
        syncs.held = True
        try:
            if self._write_groups_now():
                return
        finally:
            syncs.held = False
            if syncs.waiting:
                syncs.release()
        if not self._work.is_set():
            self._work.set()

    def _write_groups_now(self) -> bool:
        """Returns whether nothing is left."""
        while self._writing is None:
            group = self._full[0] if self._full else self._filling
            if not group.parts:
                return True
            if self._roll_due or (self.held_back_s and self._pending_bytes):
                break
            if not self._port.writes_now(group.payload_bytes + group.entry_bytes):
                break
            self._next_group()
            group.began = began = self._clock.monotonic()
            self._writing = group
            try:
                self._commit_now(group)
            except Exception as error:  # noqa: BLE001 - `_failed` distinguishes them
                group.fail(self._failed(error, group.payload_bytes))
            finally:
                self._finished(group, began)
        return False

    async def settle(self, group: CommitGroup, writing: Awaitable[None]) -> None:
        """Write a group; if that fails, fail its callers."""
        began = self._clock.monotonic()
        try:
            await writing
        except asyncio.CancelledError:
            # Cancelled: whether it was written is unknown, but its callers must not wait for ever.
            group.fail(Closed("the log was closed while this was being written"))
            raise
        except Exception as error:  # noqa: BLE001 - `_failed` distinguishes them
            group.fail(self._failed(error, group.payload_bytes))
        finally:
            self._finished(group, began)

    def _failed(self, error: Exception, size: int) -> Exception:
        """A commit of `size` bytes was not written, or its outcome is unknown. Returns the error for its callers."""
        if isinstance(error, Stale):
            self.stale = True
        elif isinstance(error, (Unavailable, TooLarge)):
            # Refused as a whole: a full disk may have room for the next group. A failed fsync is final.
            if isinstance(error, ReadOnly):
                self._stop_writing(error)
            elif isinstance(error, NoSpace):
                self._refused(error, size)
        else:  # the outcome is unknown: publish nothing
            self._stop_writing(ReadOnly(f"the commit path failed, so nothing more is written: {error!r}"))
            self._on_fatal(error)
        return error

    def _finished(self, group: CommitGroup, began: float) -> None:
        """The write of a group is over, failed or not."""
        self._writing = None
        if group.written:
            for waiter in group.written:
                if not waiter.done():
                    waiter.set_result(None)
        self._pending_bytes -= group.payload_bytes
        if group.payload_bytes >= limits.SATURATION_SAMPLE_BYTES_MIN:
            self._measure_room(group, self._clock.monotonic() - began)
        if self.waiting.count:
            self._admit()

    def _refused(self, error: NoSpace, size: int) -> None:
        """Writes are still attempted, so that they resume by themselves; the server reports that it is not writable."""
        self.write_refusals += 1
        self.short_of_bytes = max(size, self.short_of_bytes)
        before, self.shortage = self.shortage, error
        if before is None:
            self.on_shortage()

    def shortage_over(self) -> None:
        """Writes of the size that was refused succeed again."""
        self.shortage = None
        self.short_of_bytes = 0

    async def _linger(self) -> None:
        """Wait for more records, unless a command or a full group is pending."""
        self._ripe.clear()
        if self._full or self._filling.singles:
            return
        left = self._filling_since + self._linger_s - self._loop.time()
        if self._filling.parts and left > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._ripe.wait()

    def _next_group(self) -> CommitGroup | None:
        if self._full:
            return self._full.popleft()
        if not self._filling.parts:
            return None
        group = self._filling
        self._filling = CommitGroup()
        return group

    def check_writable(self) -> None:
        if self._refusal is not None and not isinstance(self._refusal, Closed):
            raise self._refusal

    async def _commit(self, group: CommitGroup) -> None:
        self.check_writable()
        entry = self.entry(group)
        encoded = entry.encode(group.bodies())
        payload, crc = group.slices(), group.payload_crc(entry)
        if self._waits_for_sync(entry):
            placement, sync_s = await self._port.append_synced(encoded, payload, crc)
        else:
            placement, sync_s = await self._port.append(encoded, payload, crc), None
        self._written(group, entry, encoded, placement, sync_s)
        if self._roll_due:
            self._roll_due = False
            await self._port.roll()

    def _commit_now(self, group: CommitGroup) -> None:
        """As `_commit`, on the calling thread, with the sync if that delays no other request."""
        self.check_writable()
        part = group.parts[0]
        if group.commands == 1 and type(part) is PendingAppends and not part.records and not self._digest_due:
            fields = SLICE_PACK.unpack(part.rows)
            self._commit_lone(fields, part.slices[0], part.waiters[0], group.began, may_sync=True)
            return
        entry = self.entry(group)
        encoded = entry.encode(group.bodies())
        placement = self._port.append_now(encoded, group.slices(), group.payload_crc(entry))
        sync_s = None
        if group.commands == 1 and self._waits_for_sync(entry) and self._alone():
            sync_s = self._port.sync_now(placement.position)
        self._written(group, entry, encoded, placement, sync_s)

    def _alone(self) -> bool:
        """Whether only the group being written is in flight, and a sync would be short."""
        return (
            not self._filling.parts
            and not self._full
            and not self.waiting.count
            and not self._syncs.waiting
            and self.client_activity.alone(self._loop.time())
            and self._port.syncs_now()
        )

    def _commit_lone(
        self,
        fields: tuple[int, ...],
        batches: Slice,
        waiter: Waiter | None,
        began: float,
        *,
        wall: int | None = None,
        may_sync: bool = False,
    ) -> tuple[int, int, int | None]:
        """Commit one slice without record rows. `fields`: its row, unpacked. `may_sync`: sync it too, if its stream
        needs that and it is alone.

        Returns the base offset, an AppendCode, and the position if readers see it only after a sync of that."""
        time_ms, commit_id, broker, epoch = self.now_ms(wall), self._commit_id, self._broker, self._epoch
        encoded = encode_lone(fields, broker=broker, broker_epoch=epoch, commit_id=commit_id, time_ms=time_ms)
        placement = self._port.append_now(encoded, (batches,), fields[3])
        if may_sync and not self._visibility.relaxed[fields[0]] and self._alone():
            sync_s = self._port.sync_now(placement.position)
            if sync_s is not None:
                self.commit_metrics.synced(sync_s)
                began += sync_s
        self._commit_id = commit_id + 1
        size = fields[2]
        self.written_bytes += size + 2 * len(encoded)
        if self.shortage is not None and size >= max(self.short_of_bytes, 1):
            self.shortage_over()
        if self._index.open_number != placement.object:
            self._enter_object(placement.object)
        base, code = self._ledger.apply_lone(
            fields, broker=broker, broker_epoch=epoch, commit_id=commit_id, time_ms=time_ms
        )
        shown = self._delivery.deliver_lone(fields, batches, waiter, placement, base, code)
        self.committed_at = now = self._clock.monotonic()
        self.commit_metrics.committed_lone(now - began, size)
        self._roll_due = self._index.open_extents >= OPEN_EXTENTS_MAX
        return base, code, None if shown else placement.position

    def _written(
        self, group: CommitGroup, entry: Entry, encoded: bytes, placement: Placement, sync_s: float | None
    ) -> None:
        if sync_s is not None:
            self.commit_metrics.synced(sync_s)
            group.began += sync_s
        self._commit_id += 1
        self.written_bytes += group.payload_bytes + 2 * len(encoded)
        if self.shortage is not None and group.payload_bytes >= max(self.short_of_bytes, 1):
            self.shortage_over()
        self.apply(group, entry, placement)

    def _waits_for_sync(self, entry: Entry) -> bool:
        """Whether a caller waits for this entry to be durable."""
        relaxed = self._visibility.relaxed
        for part in entry.parts:
            if not isinstance(part, AppendRun):
                return True
            for stream in set(part.slices["stream"].tolist()):
                if not relaxed[stream]:
                    return True
        return False

    def entry(self, group: CommitGroup) -> Entry:
        return Entry(
            broker=self._broker,
            broker_epoch=self._epoch,
            commit_id=self._commit_id,
            time_ms=self.now_ms(),
            parts=[part.part() if type(part) is PendingAppends else part.command for part in group.parts],  # type: ignore[union-attr]
            digest=self._digest_to_send(),
        )

    def take_entry(self, group: CommitGroup) -> Entry:
        """The entry of a group of a shared log. Its number is used up even on failure: a write without a response may
        appear later."""
        entry = self.entry(group)
        self._commit_id += 1
        self.written_bytes += group.payload_bytes
        return entry

    def fills_up_to(self, size: int) -> bool:
        """Whether no group is full, and the one being filled has no more than `size` bytes of payload."""
        return not self._full and self._filling.payload_bytes <= size

    def now_ms(self, wall: int | None = None) -> int:
        """Ledger time of the next commit. `wall`: the current time, if the caller just read the clock."""
        return self.ledger_time.now_ms(wall) if self.clock_trusted else self._ledger.time_ms

    def apply(self, group: CommitGroup, entry: Entry, placement: Placement) -> None:
        self._enter_object(placement.object)
        self._delivery.deliver(group, placement, self._ledger.apply(entry))
        self.committed_at = now = self._clock.monotonic()
        self.commit_metrics.committed(now - group.began, group.payload_bytes, group.commands)
        self._roll_due = self._shared is None and self._index.open_extents >= OPEN_EXTENTS_MAX

    def _enter_object(self, number: int) -> None:
        if self._index.open_number != number:
            # Before applying: the ledger is now exactly at the end of the finished object.
            self.finish_object()
            self._index.open_object(number)

    def finish_object(self) -> None:
        """Close the index of the finished object."""
        finished = self._index.finish()
        if finished is not None:
            self._on_object_finished(finished)

    @property
    def _digest_due(self) -> bool:
        """Whether the next commit carries the digest of the state."""
        digest = self._ledger.last_digest
        return digest is not None and digest[0] != self._digest_sent

    def _digest_to_send(self) -> tuple[int, int] | None:
        digest = self._ledger.last_digest
        if digest is None or digest[0] == self._digest_sent:
            return None
        self._digest_sent = digest[0]
        return digest

    def refuse(self, error: MainstemError) -> None:
        """Stop writing, for this reason."""
        self._stop_writing(error)

    def _stop_writing(self, error: MainstemError) -> None:
        self._refusal = error
        if self._shared is not None:
            self._shared.release_saved()
        for group in (*self._full, self._filling):
            group.fail(error)
            self._pending_bytes -= group.payload_bytes
            for waiter in group.written:
                if not waiter.done():
                    waiter.set_result(None)
        self._full.clear()
        self._filling = CommitGroup()
        while self.waiting.count:
            self.waiting.pop(self._loop.time())()  # to learn that writing stopped

    async def sync(self) -> None:
        """Wait until everything proposed so far is durable."""
        if self._shared is not None:
            self._shared.release_saved()
        last = self._filling if self._filling.parts else self._full[-1] if self._full else self._writing
        if last is None and self._shared is not None:
            last = self._shared.last
        if last is not None:
            written: asyncio.Future[None] = self._loop.create_future()
            last.written.append(written)
            await written
        await self._syncs.all_written()

    async def shown(self) -> None:
        """Wait until readers see what was applied so far."""
        await self._syncs.all_written()

    # Closing

    async def drain(self) -> None:
        """Refuse new proposals, write and sync what was proposed before."""
        if self._refusal is None:
            self._refusal = Closed("the log is closing")
        await self.sync()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._shared is not None:
            self._shared.stop()
        closed = Closed("the log is closed")
        self._stop_writing(self._refusal or closed)
        self._syncs.fail(closed)


def _seen(done: asyncio.Future[Any]) -> None:
    if not done.cancelled():
        done.exception()
