"""The log: one commit log, its ledger, and everything that keeps the two together."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from mainstem import events, limits
from mainstem.errors import (
    InvalidInput,
    MainstemError,
    NoSpace,
    Unavailable,
    invariant,
)
from mainstem.ledger.brokers import Boot, Booted, ExpireBroker, Halt, Heartbeat
from mainstem.ledger.ledger import Ledger
from mainstem.ledger.repacked_objects import FIRST_NUMBER
from mainstem.ledger.section import Command
from mainstem.ledger.streams import MarkLost
from mainstem.log.background import Background
from mainstem.log.objects.checkpointer import store_state
from mainstem.log.objects.checkpoints import Checkpointer, InlineCheckpointer
from mainstem.log.objects.erasure import LogErasure
from mainstem.log.objects.finished_objects import FinishedObjects
from mainstem.log.objects.maintenance import LogMaintenance
from mainstem.log.objects.repack.files import RepackedFiles
from mainstem.log.objects.repack.plan import RepackOptions
from mainstem.log.objects.repack.repacker import Repacker
from mainstem.log.objects.store_copies import StoreCopies
from mainstem.log.objects.stored_objects import StoredObjects, stored_objects
from mainstem.log.objects.tiering import HotRetention, Tiering
from mainstem.log.read.extent_bytes import ExtentBytes
from mainstem.log.read.extent_locations import ExtentLocations, Located, locate, locate_extents
from mainstem.log.read.extents import SealedExtents
from mainstem.log.read.index_lookups import IndexLookups
from mainstem.log.read.losses import Losses
from mainstem.log.read.missing import MissingRecords
from mainstem.log.read.object_reads import ObjectReads
from mainstem.log.read.offset_search import OffsetSearch
from mainstem.log.read.parts import PartReader
from mainstem.log.read.reader import RecordReader
from mainstem.log.read.tail import TailCache
from mainstem.log.read.visibility import Visibility
from mainstem.log.recovery import RecoveredLog, RecoveryProgress, recover
from mainstem.log.streams.ephemeral import EphemeralStreams
from mainstem.log.streams.stores import DurableStreams, LogStreams
from mainstem.log.write.append import AppendRequest
from mainstem.log.write.client_activity import ClientActivity
from mainstem.log.write.commit_metrics import CommitMetrics
from mainstem.log.write.committer import Committer
from mainstem.log.write.sharing import Sharing
from mainstem.log.write.waiting import WaitingAppends
from mainstem.ports.clock import Clock, Random
from mainstem.ports.commitlog.local.log import LocalCommitLog
from mainstem.ports.commitlog.local.tiered import TieredCommitLog
from mainstem.ports.commitlog.port import CommitLog, SharedCommitLog
from mainstem.ports.commitlog.shared.host.log import HostCommitLog
from mainstem.ports.host import machine_of
from mainstem.ports.objectstore.port import ObjectStore

SPACE_PROBED_BYTES_MIN = 1 * limits.MIB  # writes count as accepted again once the disk has room for this much

REFRESH_S_MAX = 2.0  # an answer about what exists now waits this long for the store
FULL_DISK_RETRY_S = 0.5  # retry interval of a start on a full disk

_log = events.named("log")

SaveAt = Callable[[int], Awaitable[None]]
"""Stores a checkpoint of the state at a position, an object boundary."""


@dataclass(frozen=True, slots=True)
class LogOptions:
    broker: int | None = 1  # None: a shared log gives it a number
    node: str = "local"
    boot_id: str = ""
    checkpoint_every_bytes: int = limits.CHECKPOINT_EVERY_BYTES
    tail_cache_bytes: int = limits.TAIL_CACHE_BYTES
    sync_every_ms: int = 0  # sync relaxed streams in the background this often; 0 = left to the kernel
    shared: bool = False  # other brokers write to the same log: its port is a SharedCommitLog
    on_host: bool = False  # … and it is in files of this machine
    trusts_log: bool = False  # open it although digests disagree: to repair it
    accept_missing: bool = False  # record what missing files held as lost, for good
    linger_ms: int = 0  # how long records wait for others to be written together
    repack: RepackOptions = field(default_factory=RepackOptions)
    recovery: RecoveryProgress = field(default_factory=RecoveryProgress)


class Log:
    """Use `Log.open`. Everything runs on the event loop that opened it."""

    def __init__(
        self,
        port: CommitLog,
        recovered: RecoveredLog,
        clock: Clock,
        options: LogOptions,
        checkpoints: Checkpointer,
        objects: ObjectStore | None = None,
        save_at: SaveAt | None = None,
    ) -> None:
        self._port = port
        self.maintains: Callable[[], bool] = lambda: not options.shared  # whether to seal, checkpoint, drop
        self.objects = objects  # where the files of parts are
        self._options = options
        self._save_at = save_at
        self.store_copies = StoreCopies()  # of `objects`, which nothing may be deleted from meanwhile
        self.background = Background()
        self._finished = FinishedObjects(
            self,
            port,
            recovered,
            checkpoints,
            self.background,
            checkpoint_every_bytes=options.checkpoint_every_bytes,
        )
        self._index = recovered.index
        self.ledger: Ledger = recovered.ledger
        self.visibility = Visibility(durable=options.shared)
        self.visibility.grow(self.ledger)
        self._tail = tail = TailCache(options.tail_cache_bytes)
        self._committer = Committer(
            port,
            self.ledger,
            self._index,
            tail,
            self.visibility,
            clock,
            1 if options.broker is None else options.broker,
            (lambda _: None) if options.shared else self._finished.add,  # see maintenance.py
            options.linger_ms / 1000,
        )
        self._committer.on_shortage = lambda: self.background.start(self._until_shortage_ends())
        self.parts = PartReader(objects)
        self._repacked = RepackedFiles(self.ledger.repacked, objects)
        self._finished.repacker = None if objects is None else self._repack(objects, clock)
        self.sharing = self._share(clock) if options.shared else None  # with other brokers
        self._object_reads = ObjectReads(port)
        self._lookups = lookups = IndexLookups(self._index, port, self._repacked, self._object_reads)
        extent_bytes = ExtentBytes(port, tail, self._repacked, self._object_reads)
        self.missing = MissingRecords(self.ledger, self._index, lookups)
        if self._finished.repacker is not None:
            self._finished.repacker.waits = lambda: bool(self.missing.ranges)
        self._reader = RecordReader(
            self.ledger,
            self._index,
            lookups,
            extent_bytes,
            Losses(self.ledger, lookups, extent_bytes, self._committer),
            self.parts,
            self.visibility,
            self.missing,
            self.barrier,
        )
        self._searching = OffsetSearch(self.ledger, self._index, lookups, self._reader)
        self.ephemeral = EphemeralStreams(self.ledger, self._committer, self.visibility, clock)
        durable = DurableStreams(self.ledger, self._committer, self._reader, self._searching, self.missing)
        self.streams = LogStreams(self.ledger, self.visibility, durable, self.ephemeral)

    @classmethod
    async def open(
        cls,
        port: CommitLog,
        clock: Clock,
        options: LogOptions | None = None,
        checkpoints: Checkpointer | None = None,
        objects: ObjectStore | None = None,
        save_at: SaveAt | None = None,
    ) -> Log:
        """Recover the state from the commit log, then take it over as a new epoch of this broker.

        `save_at` stores checkpoints of a shared log, which has no use for `checkpoints`."""
        options = options or LogOptions()
        recovered = await recover(
            port,
            cast(SharedCommitLog, port) if options.shared else None,
            trust=options.trusts_log,
            progress=options.recovery,
        )
        # What another process wrote may still be in the kernel's memory only; from here on it counts as seen.
        await port.sync()
        log = cls(port, recovered, clock, options, checkpoints or InlineCheckpointer(port), objects, save_at)
        try:
            await log._take_over(recovered)
        except BaseException:
            await log._stop_tasks()
            raise
        return log

    async def _take_over(self, recovered: RecoveredLog) -> None:
        brokers = self.ledger.brokers
        if self.sharing is not None:
            self._committer.start()
            await self._booted(await self.sharing.boot(), recovered)
            return
        broker = self.broker
        before = brokers.get(broker)
        here = self._options.boot_id
        same_boot = before is not None and machine_of(before.boot_id) == machine_of(here) != ""
        jump = self._port.suspect or not (brokers.clean(broker) or same_boot)
        self._committer.start()
        boot = Boot(broker, self._options.boot_id, jump, self._options.node)
        try:
            booted: Booted = await self._committer.propose(boot)
        except NoSpace as full:
            # What is there can be read all the same; nothing is written before this broker has its epoch.
            _log.error("disk full at start", message="nothing is written until there is space")
            self._committer.hold(full)
            self.visibility.resume(self.ledger)
            self.background.start(self._boot_when_space_returns(boot, recovered))
            return
        await self._booted(booted, recovered)

    def _share(self, clock: Clock) -> Sharing:
        options = self._options
        return Sharing(
            cast(SharedCommitLog, self._port),
            self._committer,
            self.ledger,
            clock,
            asked=options.broker,
            boot_id=options.boot_id,
            node=options.node,
            on_host=options.on_host,
        )

    def _repack(self, objects: ObjectStore, clock: Clock) -> Repacker:
        return Repacker(self, self._port, self.ledger, self._index, objects, clock, self._options.repack)

    @property
    def repacker(self) -> Repacker | None:
        return self._finished.repacker

    @property
    def tiering(self) -> Tiering | None:
        """Moves older objects of a local log to an object store; None if it has none."""
        return self._finished.tiering

    @property
    def shared(self) -> bool:
        """Whether other brokers may write to the same log."""
        return self.sharing is not None

    @property
    def broker(self) -> int:
        """The number of this broker."""
        if self.sharing is not None:
            return self.sharing.broker
        return 1 if self._options.broker is None else self._options.broker

    @property
    def epoch(self) -> int:
        """The epoch of this broker; 0 before it has one."""
        return self._committer.epoch

    @property
    def written_bytes(self) -> int:
        """Bytes written to the log since it was opened."""
        return self._committer.written_bytes

    @property
    def replayable_from(self) -> int:
        """Where the oldest checkpoint stands that a replay may have to start from."""
        return self._finished.replayable_from

    def hold_back(self, seconds: float) -> None:
        """Delay every group of commits by this long: repacking does not keep up."""
        self._committer.hold_back(seconds)

    @property
    def held_back_s(self) -> float:
        return self._committer.held_back_s

    def tier(self, store: ObjectStore, clock: Clock, random: Random, retention: HotRetention) -> None:
        """Have older objects go to an object store from now on."""
        port = self._port
        invariant(isinstance(port, TieredCommitLog), "only a tiered log has somewhere to put them")
        tiering = self._finished.tiering = Tiering(
            self, cast(TieredCommitLog, port), store, self.ledger, clock, random, retention
        )
        if self.repacker is not None:
            self.repacker.behind = tiering.repackable
        self._start_repacking()
        self.background.start(tiering.run())

    def _start_repacking(self) -> None:
        if self.repacker is not None and self._options.repack.on:
            self.background.start(self.repacker.run())

    async def rewrite_shared_checkpoint(self) -> int:
        """Store the state of a shared log at the end of the object that is open now. Returns its position.

        For a log that this broker trusts although digests disagree: none before the new checkpoint is met again."""
        port = cast(SharedCommitLog, self._port)
        await port.roll()
        await self.propose(Heartbeat(self.broker, self.epoch))  # a commit of the next object ends this one
        for extents in self._index.unsealed():
            await port.seal(extents.number, await asyncio.to_thread(extents.encode))
            self._index.mark_sealed(extents.number)
        await port.refresh()
        position = max(one.end_position for one in port.objects() if one.sealed)
        await store_state(port, position, trust=True)
        return position

    def upkeep(self) -> LogMaintenance:
        """What keeps a shared log in order, a round at a time."""
        return LogMaintenance(
            self,
            cast(SharedCommitLog, self._port),
            self._index,
            self._finished,
            self._save_at,
            checkpoint_every_bytes=self._options.checkpoint_every_bytes,
        )

    async def _boot_when_space_returns(self, boot: Boot, recovered: RecoveredLog) -> None:
        while True:
            await asyncio.sleep(FULL_DISK_RETRY_S)
            try:
                booted: Booted = await self._committer.propose_held(boot)
            except NoSpace:
                continue
            await self._booted(booted, recovered)
            _log.info("writes accepted again")
            return

    async def _booted(self, booted: Booted, recovered: RecoveredLog) -> None:
        self._committer.take_epoch(booted.broker_epoch)
        if self.sharing is not None:
            self.background.start(self.sharing.follow())
            self.background.start(self.upkeep().run())
        else:
            await self._expire_others()
        if self._port.suspect:
            await self._port.clear_suspicion()
        self.visibility.resume(self.ledger)
        for extents in (
            recovered.unsealed if not self.shared else ()
        ):  # else the broker that maintains the log does
            self._finished.seal(extents)
        for stream, start, end in recovered.damaged:
            if self.ledger.streams.exists(stream):  # else its topic was deleted later in the log
                _log.error("records lost", stream=stream, start=start, end=end)
                await self.propose(MarkLost(stream, start, end))
        if not isinstance(
            self._port, TieredCommitLog
        ):  # else its notes are complete only when `tier` is called
            await self.find_missing()
            self._start_repacking()
        if self._options.sync_every_ms:
            self.background.start(self._sync_often(self._options.sync_every_ms / 1000))

    async def _expire_others(self) -> None:
        """End the epochs of workers that once shared these files, and were killed: they hold locks of share groups."""
        for other in [one for one in self.ledger.brokers if one.broker != self.broker and not one.halted]:
            await self.propose(ExpireBroker(other.broker, other.epoch, other.last_commit_id))

    async def find_missing(self) -> None:
        """Report records that no file holds; with `accept_missing`, record them as lost."""
        await self.missing.survey()
        if self._options.accept_missing:
            await self.missing.accept(self.propose)
        if self.objects is not None:
            self.background.start(self.missing.survey_store(self.objects))

    # Writing

    async def propose(self, command: Command) -> Any:
        """Commit one command; returns its result once durable, raises what the ledger refused it with."""
        return await self._committer.propose(command)

    async def append_then(self, request: AppendRequest, command: Command) -> Any:
        """Append and commit a command that builds on it, both or neither. Returns the command's result."""
        return await self._committer.append_then(request, command)

    @property
    def identity(self) -> bytes:
        """Identifies this log among all others."""
        return self._port.identity

    @property
    def refusal(self) -> MainstemError | None:
        """Why nothing is written any more, if so."""
        return self._committer.refusal

    def now_ms(self) -> int:
        """Ledger time now: compare deadlines and times in the ledger with it, and record times with a clock."""
        return self._committer.now_ms()

    @property
    def ledger_ahead_ms(self) -> int:
        """How far ledger time is ahead of the clock."""
        return self._committer.ledger_time.ahead_ms

    @property
    def unwritable(self) -> MainstemError | None:
        """Why writes are refused, for good or for now: a full disk, no free file descriptor."""
        failed = self._port.failure if isinstance(self._port, LocalCommitLog) else None
        return self.refusal or failed or self._committer.shortage

    @property
    def write_refusals(self) -> int:
        """Groups of writes that were rejected because space or file descriptors ran out."""
        return self._committer.write_refusals

    async def _until_shortage_ends(self) -> None:
        """Look for space by itself: while the server is not ready, perhaps nobody sends a write that would."""
        port, committer = self._port, self._committer
        _log.error("writes refused", reason=str(committer.shortage))
        while committer.shortage is not None:
            await asyncio.sleep(FULL_DISK_RETRY_S)
            if isinstance(port, LocalCommitLog):
                try:
                    await port.probe(max(committer.short_of_bytes, SPACE_PROBED_BYTES_MIN))
                except (MainstemError, OSError):
                    continue
                committer.shortage_over()
        _log.warning("writes accepted again")

    def order_appends(
        self, priority_of: Callable[[int], int], saves_cost: Callable[[int], bool] = lambda stream: False
    ) -> None:
        """While the commit path is saturated, streams of high priority append first. In a shared log, those that save
        cost wait for each other and are stored by reference."""
        self._committer.priority_of = priority_of
        self._committer.saves_cost = saves_cost

    @property
    def direct(self) -> Committer:
        """The commit path, for a caller that keeps the event loop from running: `append_now` and what follows it."""
        return self._committer

    @property
    def client_activity(self) -> ClientActivity:
        """Which client sent something last: the doors note it."""
        return self._committer.client_activity

    @property
    def waiting_appends(self) -> WaitingAppends:
        """Those that wait while the commit path is saturated."""
        return self._committer.waiting

    @property
    def commit_metrics(self) -> CommitMetrics:
        """How long commits and syncs take, and how large they are."""
        return self._committer.commit_metrics

    async def sync(self) -> None:
        """Make everything appended so far durable, whatever its class."""
        await self._committer.sync()

    async def link_files(self, into: Path) -> tuple[int, list[tuple[Path, int]]]:
        """Link the log's files as of now into another folder. Returns the position they reach, and how much of each.

        Raises InvalidInput if the log is not in files of its own."""
        if not isinstance(self._port, LocalCommitLog):
            raise InvalidInput(
                "brokers share this log: copy it from where it is, with `mainstem backup --store URL` and --etcd if it "
                "has one"
            )
        await self.sync()
        return self._port.end, self._port.link_files(into)

    async def barrier(self) -> None:
        """Know all that any broker had committed when this was called, and show it to readers."""
        if self.sharing is not None:
            await self.sharing.barrier()

    async def catch_up(self) -> None:
        """As `barrier`, where other workers of this machine share the log: clients take all of them for one server.

        It costs nothing if this worker is up to date."""
        port = self._port
        if isinstance(port, HostCommitLog) and not port.shows(self.ledger.position):
            await self.barrier()

    async def refresh(self) -> None:
        """As `barrier`, if the store answers soon; else what is known so far stays."""
        if isinstance(self._port, HostCommitLog):
            await self.catch_up()
        elif self.sharing is not None:
            with contextlib.suppress(Unavailable, TimeoutError):
                async with asyncio.timeout(REFRESH_S_MAX):
                    await self.sharing.barrier()

    # Reading

    def stored_objects(self, *, spans: bool = False) -> StoredObjects:
        """Which files there are, and with `spans` what is in each."""
        return stored_objects(self._port, self._index if spans else None, self._tail.held_bytes)

    async def repacked_extents(self, number: int) -> SealedExtents | None:
        """What a repacked file holds; None if another one has replaced it. Raises LogDamaged, Unavailable."""
        try:
            found = await self._lookups.resolve(lambda: self._index.extents_of(number))
        except FileNotFoundError:
            return None
        return cast(SealedExtents, found)

    async def retention_floor(self, stream: int, *, keep_after_ms: int | None, keep_bytes: int | None) -> int:
        """The offset below which time and size retention delete records."""
        floor = await self._searching.retention_floor(
            stream, keep_after_ms=keep_after_ms, keep_bytes=keep_bytes
        )
        missing = self.missing.next(stream, self.ledger.streams.start(stream))
        return (
            floor if missing is None else min(floor, missing[0])
        )  # how old the missing records are is unknown

    async def locate(
        self, stream: int, base: int, end: int, *, max_bytes: int, max_extents: int
    ) -> tuple[Located, dict[int, ExtentLocations]]:
        """Where the log's own bytes of [base, end) are, and where each object is found."""
        while True:
            changes = self._index.changes
            try:
                located = await locate(
                    self._index,
                    self._lookups.resolve,
                    stream,
                    base,
                    end,
                    max_bytes=max_bytes,
                    max_extents=max_extents,
                )
                return located, {
                    number: self._repacked.pieces(number)
                    if number >= FIRST_NUMBER
                    else await locate_extents(self._port, number, rows)
                    for number, rows in located.objects
                }
            except FileNotFoundError:
                if self._index.changes == changes:
                    raise

    # Behind the head

    @property
    def settled(self) -> bool:
        """Whether every object that ended is sealed, and no checkpoint is pending."""
        return not self._index.unsealed() and not self._finished.checkpoint_pending

    async def collect(self) -> int:
        """Delete log objects that nothing needs: every record trimmed, and not needed for replay."""
        return await self._finished.collect()

    @property
    def newest_object(self) -> int:
        """The number of the log's object that takes commits now, or of the last one."""
        return max((one.number for one in self._port.objects()), default=0)

    def erasure(self, streams: Sequence[int], through: int) -> LogErasure:
        """Remove the bytes of deleted records of these streams, in the log's objects up to this one."""
        return LogErasure(self, self._port, self.ledger, self._finished, self._tail, streams, through)

    async def _sync_often(self, every_s: float) -> None:
        while True:
            await asyncio.sleep(every_s)
            await self.sync()

    # Ending

    async def close(self) -> None:
        """Write and sync what was proposed, leave a checkpoint, release the port."""
        try:
            if self._committer.refusal is None:
                await (self._leave_cleanly() if self.sharing is None else self._leave_shared())
        finally:
            await self._stop_tasks()
            self.parts.close()
            self._reader.close()
            self._object_reads.close()
            await self._port.close()

    async def _stop_tasks(self) -> None:
        await self.background.stop()
        self.visibility.close()
        await self._committer.stop()

    async def _leave_shared(self) -> None:
        """The others go on: nothing is finished here but what this broker proposed."""
        halted = asyncio.ensure_future(self._committer.propose(Halt(self.broker)))
        await asyncio.sleep(0)  # let it be proposed before new proposals are refused
        await self._committer.drain()
        await halted

    async def _leave_cleanly(self) -> None:
        halted = asyncio.ensure_future(self._committer.propose(Halt(self.broker)))
        await asyncio.sleep(0)  # let it be proposed before new proposals are refused
        for outcome in await asyncio.gather(halted, self._committer.drain(), return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome
        await self.background.give_up_chores()
        await self._port.roll()
        self._committer.finish_object()
        await self.background.finish()
        await self._finished.leave_checkpoint()
