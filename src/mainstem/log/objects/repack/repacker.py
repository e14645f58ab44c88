"""The repacker: runs one step after another in the background, at a limited rate.

A step reads objects, stores new files, and publishes them in the ledger only when they are durable. A crash before that
leaves files that nothing refers to, which the next process deletes; a crash after it leaves objects that nobody reads,
which are collected as usual. If two brokers do the same step, the ledger accepts the first.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass

from mainstem import events, limits
from mainstem.errors import Closed, LogDamaged, MainstemError, StalePlan
from mainstem.ledger.compactions import FinishCompaction
from mainstem.ledger.ledger import Ledger
from mainstem.ledger.repacked_objects import (
    FIRST_NUMBER,
    REPACKED,
    ForgetRepacked,
    PublishRepack,
    Repacked,
    RepackedFile,
    RepackRound,
)
from mainstem.ledger.streams import MarkLost
from mainstem.log.host import LogHost
from mainstem.log.objects.repack.compaction import Compactor
from mainstem.log.objects.repack.compaction_plan import COMPACTION_BACKLOG_BYTES_MAX
from mainstem.log.objects.repack.copying import CopiedFile, Read, copied_files
from mainstem.log.objects.repack.erasing import held_records, leave_out, unreadable_records
from mainstem.log.objects.repack.files import RepackedFiles
from mainstem.log.objects.repack.layout import Origin
from mainstem.log.objects.repack.liveness import dead_bytes, liveness
from mainstem.log.objects.repack.plan import (
    RepackOptions,
    RepackPlan,
    ends_of_log_objects,
    ends_of_rounds,
    may_wait,
    plan_log_objects,
    plan_merge,
    plan_objects,
    plan_rounds,
    waiting,
)
from mainstem.log.objects.repack.shrinking import RemovedRange, ShrunkObjects
from mainstem.log.read.extents import SealedExtents
from mainstem.log.read.index import ExtentIndex
from mainstem.metrics import Metric, one
from mainstem.ports.clock import Clock
from mainstem.ports.commitlog.port import Buffer, CommitLog, LogObject
from mainstem.ports.objectstore.port import ObjectStore, StoredObject, store_now_ms
from mainstem.records.compacting import StreamCompaction

# above this write rate repacking pauses, unless much is waiting …
REPACK_GIVES_WAY_BYTES_PER_S = 32 * limits.MIB
REPACK_GIVES_WAY_S = 0.2  # … for this long at a time

REPACK_DEAD_RATIO = 0.5  # share of deleted bytes at which a round is rewritten
REPACK_SCAN_FILES = 64  # files checked at a time to find such a round …
REPACK_SCAN_EVERY_S = 60.0  # … at most this often
REPACK_EVERY_S = 5.0  # interval of checks for work
REPACK_ORPHANS_EVERY_S = 3_600.0
REPACK_ORPHAN_GRACE_MS = 3_600_000  # an unpublished file of another broker is deleted after this
REPACK_DEBT_OBJECTS_MAX = 64  # sealed objects that wait; above it, writes are slowed down
REPACK_HELD_BACK_S = 0.002  # delay of a commit group for each object above it …
REPACK_HELD_BACK_S_MAX = 0.1  # … up to this
COMPACTION_AFTER_ROUNDS = 8  # rounds of the log's objects, after which compaction takes its turn
COMPACTION_ROLL_EVERY_S = 10.0  # least time between two objects that are finished early, to compact them


class ReplacedObjects:
    """Files that others replaced: since when, and which leases of the lake's jobs may still name them."""

    def __init__(self, ledger: Ledger, clock: Clock, grace_s: float) -> None:
        self._ledger = ledger
        self._clock = clock
        self._grace_s = grace_s
        self._since: dict[Hashable, tuple[float, frozenset[int]]] = {}

    def over(self, what: Hashable) -> bool:
        """Whether no reader can still use it. The time runs from the first call."""
        now = self._clock.monotonic()
        leases = frozenset(lease.token for lease in self._ledger.tasks)
        since, named_by = self._since.setdefault(what, (now, leases))
        return now - since >= self._grace_s and named_by.isdisjoint(leases)

    def keep(self, there: Collection[Hashable]) -> None:
        """Forget all but these."""
        self._since = {what: seen for what, seen in self._since.items() if what in there}


_log = events.named("repack")


@dataclass(slots=True)
class RepackCounts:
    """Totals of this process."""

    rounds: int = 0
    copied_bytes: int = 0
    files: int = 0
    deleted_files: int = 0


@dataclass(frozen=True, slots=True)
class RepackerIdentity:
    """The broker and its epoch: no two of them store files under the same name."""

    broker: int
    epoch: int


class Repacker:
    def __init__(
        self,
        host: LogHost,
        port: CommitLog,
        ledger: Ledger,
        index: ExtentIndex,
        store: ObjectStore,
        clock: Clock,
        options: RepackOptions,
    ) -> None:
        self._host = host
        self._port = port
        self._ledger = ledger
        self._index = index
        self._store = store
        self._clock = clock
        self._options = options
        self._files = RepackedFiles(ledger.repacked, store)
        self._replaced = ReplacedObjects(ledger, clock, options.grace_s)
        self._wake = asyncio.Event()
        self._stepping = asyncio.Lock()
        self._scanned = 0  # number of the log's object up to which rounds were scanned for dead bytes
        self._scanned_at: float | None = None
        self.files_stored = 0  # makes each name unique
        self._orphans_at: float | None = None
        self._paced_from = 0.0
        self._looked = (
            clock.monotonic(),
            host.written_bytes,
        )  # time of the last check, and bytes written by then
        self._busy = False
        self._rolled_at: float | None = None
        self._repacked_in_a_row = 0  # rounds since the last compaction: it must not wait forever
        self.counts = RepackCounts()
        self.compactor = Compactor(
            host,
            ledger,
            index,
            self,
            clock,
            log=int.from_bytes(port.identity[:8], "little"),
            file_bytes=options.file_bytes,
        )
        # Selects the objects that are old enough.
        # Whether files of the log are missing: a round stands for them too, so they could not come back after it.
        self.waits: Callable[[], bool] = lambda: False
        self.behind: Callable[[Sequence[LogObject]], Sequence[LogObject]] = list

    def wake(self) -> None:
        """Look for work."""
        self._host.hold_back(self.held_back_s())
        self._wake.set()

    @property
    def debt_objects(self) -> int:
        """Sealed objects of the log, beyond those that may wait."""
        sealed = waiting(self.behind(self._port.objects()), self._ledger.repacked.frontier)
        return max(0, len(sealed) - may_wait(sealed, self._options))

    def held_back_s(self) -> float:
        """How long to delay each commit group because repacking does not keep up."""
        on = self._options.on and not self.waits()
        beyond = self.debt_objects - REPACK_DEBT_OBJECTS_MAX if on else 0
        return min(max(0, beyond) * REPACK_HELD_BACK_S, REPACK_HELD_BACK_S_MAX)

    async def run(self) -> None:
        """Run until cancelled or the log is closed."""
        while True:
            try:
                if self._host.maintains():
                    cleaned_at = self._clock.monotonic()
                    while await self.step():
                        if self._clock.monotonic() - cleaned_at >= REPACK_EVERY_S:
                            cleaned_at = self._clock.monotonic()
                            await self._drop_replaced()
                    await self._drop_replaced()
            except Closed:
                return
            except (MainstemError, OSError) as error:
                _log.warning("repack failed", error=str(error))
            self._wake.clear()
            try:
                async with asyncio.timeout(REPACK_EVERY_S):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def _drop_replaced(self) -> None:
        await self.clean()
        if any(held.number < self._ledger.repacked.frontier for held in self._port.objects()[:1]):
            await self._host.collect()

    async def step(self) -> bool:
        """Do the most urgent work. False if there is none."""
        async with self._stepping:
            repacked = self._ledger.repacked
            plan = None
            if not self.waits():
                early = await self._ready_for_compaction()
                if self._repacked_in_a_row >= COMPACTION_AFTER_ROUNDS:
                    self._repacked_in_a_row = 0
                    if await self._compact():
                        return True
                plan = plan_log_objects(
                    self.behind(self._port.objects()), repacked.frontier, self._options, early=early
                )
                self._repacked_in_a_row += plan is not None
            # An unreadable file stays where it is, so that an operator can restore it.
            plan = plan or plan_merge(repacked.rounds, self._options, self._index.unreadable)
            plan = plan or await self._plan_dead_round()
            if plan is None:
                return not self.waits() and await self._compact()
            try:
                await self._execute(plan)
            except FileNotFoundError:
                if all(map(self._index.holds, plan.numbers)):
                    raise
                # Nothing needs them any more, so they were dropped meanwhile: plan again.
            self._host.hold_back(self.held_back_s())
            return True

    def metrics(self) -> list[Metric]:
        """What was repacked and compacted, and what waits."""
        rounds = self._ledger.repacked.rounds
        return [
            *self.compactor.metrics(),
            one("mainstem_repack_rounds", "gauge", "Rounds of repacked files.", len(rounds)),
            one("mainstem_repack_files", "gauge", "Repacked files.", sum(len(r.files) for r in rounds)),
            one("mainstem_repack_bytes", "gauge", "Bytes of repacked files.", sum(r.bytes for r in rounds)),
            one(
                "mainstem_repack_debt_objects",
                "gauge",
                "Sealed log files that wait for repacking, beyond the threshold.",
                self.debt_objects,
            ),
            one(
                "mainstem_repack_held_back_seconds",
                "gauge",
                "Delay of each group of writes while repacking lags.",
                self.held_back_s(),
            ),
            one(
                "mainstem_repack_rounds_total", "counter", "Finished rounds of repacking.", self.counts.rounds
            ),
            one(
                "mainstem_repack_copied_bytes_total",
                "counter",
                "Bytes copied by repacking.",
                self.counts.copied_bytes,
            ),
            one(
                "mainstem_repack_deleted_files_total",
                "counter",
                "Repacked files deleted.",
                self.counts.deleted_files,
            ),
        ]

    # Compaction

    async def _compact(self) -> bool:
        self._paced_from = self._clock.monotonic()
        try:
            return await self.compactor.step()
        except FileNotFoundError:
            return False  # a file was replaced meanwhile: the next look finds others

    async def _ready_for_compaction(self) -> bool:
        """Whether to repack sealed objects early. Finishes the open object if it holds records that are due."""
        early, roll = self.compactor.planner.wants_repack()
        now = self._clock.monotonic()
        if roll and (self._rolled_at is None or now - self._rolled_at >= COMPACTION_ROLL_EVERY_S):
            self._rolled_at = now
            await self._port.roll()
            await self._host.propose(FinishCompaction(0, ()))  # a commit of the next object ends this one
        return early

    # Erasing

    async def erase(self, streams: Sequence[int], through: int, clean: dict[int, int]) -> bool:
        """Rewrite some files without records of these streams that nobody can read. False if no file holds any: neither
        a repacked file, nor, up to the number `through`, an object of the log that serves reads.

        `clean` collects the repacked files that hold none, each with the number of slices that cannot be decoded."""
        async with self._stepping:
            targets = unreadable_records(self._ledger, streams)
            frontier = self._ledger.repacked.frontier
            sealed = [one for one in waiting(self._port.objects(), frontier) if one.number <= through]
            plan = plan_objects(sealed, frontier, self._options) if sealed else None
            plan = plan or await self._plan_erasing(targets, clean)
            if plan is None:
                return False
            try:
                await self._execute(plan, targets)
            except FileNotFoundError:
                if all(map(self._index.holds, plan.numbers)):
                    raise
            return True

    async def _plan_erasing(
        self, targets: Sequence[StreamCompaction], clean: dict[int, int]
    ) -> RepackPlan | None:
        """A round with records to leave out."""
        for made in list(self._ledger.repacked.rounds):
            for number in range(made.number, made.number + len(made.files)):
                if number not in clean:
                    held = await held_records(await self.read_index(number), targets, self.read)
                    if held.any:
                        return plan_rounds([made])
                    clean[number] = held.opaque
        return None

    # A step

    async def _execute(self, plan: RepackPlan, erased: Sequence[StreamCompaction] = ()) -> None:
        self._paced_from = self._clock.monotonic()
        indexes = [await self.read_index(number) for number in plan.numbers]
        read: Read = self.read
        shrunk: ShrunkObjects | None = None
        if plan.sources:
            ends = await ends_of_rounds(self._ledger, indexes)
        else:
            ends = await ends_of_log_objects(self._ledger, self._index, plan)
            shrunk = None if erased else await self.compactor.shrink(indexes)
        if erased:
            shrunk = await leave_out(indexes, erased, self.read)
        if shrunk is not None:
            indexes, read = shrunk.indexes, shrunk.reading(self.read)
        live = await liveness(self._ledger, indexes)
        identity = int.from_bytes(self._port.identity[:8], "little")
        files: list[RepackedFile] = []
        try:
            async for copied in copied_files(
                indexes,
                live,
                ends,
                read,
                Origin(identity, plan.first, plan.end),
                file_bytes=self._options.file_bytes,
            ):
                files.append(await self.store_file(plan.first, plan.end, copied))
                await self._mark_lost(copied)
        except Exception:
            # The retry writes other files: on a full disk, these would keep it full.
            with contextlib.suppress(MainstemError, OSError):
                await self.drop_files(files)
            raise
        published = await self._publish(plan, files, () if shrunk is None else shrunk.removed)
        if published and shrunk is not None and not erased:
            self.compactor.shrunk(shrunk)

    async def store_file(self, first: int, end: int, copied: CopiedFile) -> RepackedFile:
        """Store a file of a round that replaces the log's objects [first, end)."""
        life = RepackerIdentity(self._host.broker, self._host.epoch)
        self.files_stored += 1
        key = f"{REPACKED}{first:012d}-{end:012d}-{life.broker}-{life.epoch}-{self.files_stored}"
        size = copied.bytes
        await self._store.put(key, copied.buffers)
        self.counts.files += 1
        self.counts.copied_bytes += size
        return RepackedFile(key, size, copied.stream, copied.offset)

    async def _mark_lost(self, copied: CopiedFile) -> None:
        """Record losses before the files serve reads: from then on the damaged slices are in no file."""
        for stream, base, end in copied.damaged:
            if self._ledger.streams.exists(stream):
                _log.error("records lost", stream=stream, start=base, end=end)
                await self._host.propose(MarkLost(stream, base, end))

    async def _publish(
        self, plan: RepackPlan, files: Sequence[RepackedFile], removed: tuple[RemovedRange, ...]
    ) -> bool:
        command = PublishRepack(plan.first, plan.end, plan.sources, tuple(files), removed)
        try:
            published = await self._host.propose(command)
        except StalePlan as stale:
            _log.info("repack discarded", reason=str(stale))
            await self.drop_files(files)
            return False
        if isinstance(published, Repacked):
            self.counts.rounds += 1
            _log.info(
                "repacked", objects=len(plan.numbers), files=len(files), bytes=sum(f.bytes for f in files)
            )
        return True

    async def drop_files(self, files: Sequence[RepackedFile]) -> None:
        """Delete files that the ledger does not refer to."""
        for file in files:
            if not self._ledger.repacked.knows(file.key):
                await self._store.delete(file.key)

    async def read_index(self, number: int) -> SealedExtents:
        """The index of an object or a repacked file."""
        if number >= FIRST_NUMBER:
            try:
                return await self._files.read_index(number)
            except LogDamaged:
                self._index.cannot_load(number)
                raise
        return SealedExtents.decode(number, await asyncio.to_thread(self._port.read_index, number))

    async def read(self, number: int, start: int, length: int, again: bool) -> Buffer:
        """Bytes of an object or a repacked file, at a limited rate. `again`: the previous read was damaged."""
        await self._pace(length)
        if again and number < FIRST_NUMBER:
            await self._port.distrust(number, start, length)
        if number >= FIRST_NUMBER:
            return (await self._files.read(number, [(start, length)]))[0]
        return await asyncio.to_thread(self._port.read, number, start, length)

    async def _pace(self, size: int) -> None:
        """Wait until `size` more bytes may be read."""
        if not self._options.bytes_per_s:
            return
        while self._should_yield():  # noqa: ASYNC110 - no event signals the end of heavy writes
            await asyncio.sleep(REPACK_GIVES_WAY_S)
        now = self._clock.monotonic()
        wait = self._paced_from - now
        self._paced_from = max(self._paced_from, now) + size / self._options.bytes_per_s
        if wait > 0:
            await asyncio.sleep(wait)

    def _should_yield(self) -> bool:
        behind = self.compactor.planner.backlog_bytes >= COMPACTION_BACKLOG_BYTES_MAX
        return self._writers_are_busy() and not behind and self.debt_objects < REPACK_DEBT_OBJECTS_MAX // 2

    def _writers_are_busy(self) -> bool:
        """Whether the log had heavy writes since the last check; it checks at most every `REPACK_GIVES_WAY_S`."""
        now, (looked_at, before) = self._clock.monotonic(), self._looked
        if now - looked_at >= REPACK_GIVES_WAY_S:
            written = self._host.written_bytes
            self._looked = now, written
            self._busy = written - before > (now - looked_at) * REPACK_GIVES_WAY_BYTES_PER_S
        return self._busy

    # Dead bytes

    async def _plan_dead_round(self) -> RepackPlan | None:
        """A round with many dead bytes; scans a few rounds each time."""
        rounds, now = self._ledger.repacked.rounds, self._clock.monotonic()
        if self._scanned_at is not None and now - self._scanned_at < REPACK_SCAN_EVERY_S:
            return None
        looked_at = 0
        for made in [*rounds[:1], *(later for later in rounds[1:] if later.first >= self._scanned)]:
            if self._index.unreadable(made):
                continue
            if looked_at >= REPACK_SCAN_FILES:
                self._scanned_at = now
                return None
            looked_at += len(made.files)
            self._scanned = max(self._scanned, made.end)
            if await self._dead_ratio(made) >= REPACK_DEAD_RATIO and made in rounds:
                return plan_rounds([made])
        self._scanned, self._scanned_at = 0, now
        return None

    async def _dead_ratio(self, made: RepackRound) -> float:
        dead = total = 0
        for number in range(made.number, made.number + len(made.files)):
            some, all_of_it = await dead_bytes(self._ledger, await self.read_index(number))
            dead, total = dead + some, total + all_of_it
        return dead / total if total else 1.0

    # Garbage

    def may_go(self, numbers: Sequence[int]) -> list[int]:
        """The repacked objects of the log that have no readers."""
        return [number for number in numbers if self._replaced.over(number)]

    async def clean(self) -> int:
        """Delete files that no round names any more, and orphans that none ever did. Returns how many."""
        if self._host.store_copies:
            return 0
        due = [key for key in self._ledger.repacked.garbage() if self._replaced.over(key)]
        deleted = 0
        while deleted < len(due) and not self._host.store_copies:
            keys = []
            for key in due[deleted : deleted + limits.LAKE_DELETED_AT_ONCE]:
                if self._host.store_copies:  # a copy began meanwhile
                    break
                await self._store.delete(key)
                keys.append(key)
            await self._host.propose(ForgetRepacked(tuple(keys)))
            deleted += len(keys)
        self._replaced.keep(
            {*self._ledger.repacked.garbage(), *(held.number for held in self._port.objects())}
        )
        deleted += await self._delete_orphans()
        self.counts.deleted_files += deleted
        return deleted

    async def has_orphans(self) -> bool:
        """Whether there are files that no round ever named. A round that is being made has some, too."""
        async with self._stepping:
            async for one in self._store.list(REPACKED):
                if not self._ledger.repacked.knows(one.key):
                    return True
        return False

    async def _delete_orphans(self) -> int:
        now = self._clock.monotonic()
        if self._orphans_at is not None and now - self._orphans_at < REPACK_ORPHANS_EVERY_S:
            return 0
        self._orphans_at = now
        unknown = [
            one async for one in self._store.list(REPACKED) if not self._ledger.repacked.knows(one.key)
        ]
        if not unknown:
            return 0
        life = RepackerIdentity(self._host.broker, self._host.epoch)
        # Ages are by the store's clock, which set the modification times: with a wrong clock of its own, a broker
        # would delete files that another broker is about to publish.
        now_ms = await store_now_ms(self._store, f"clock/repacked-{life.broker}-{life.epoch}")
        deleted = 0
        for found in unknown:
            if self._host.store_copies:
                break
            known = self._ledger.repacked.knows(found.key)  # it may have been published since
            if not known and self._is_orphan(found, now_ms):
                await self._store.delete(found.key)
                deleted += 1
        return deleted

    def _is_orphan(self, found: StoredObject, now_ms: int) -> bool:
        """A file of an earlier epoch of this broker cannot be published any more; age decides about others' files."""
        life = RepackerIdentity(self._host.broker, self._host.epoch)
        named = found.key.removeprefix(REPACKED).split("-")
        if len(named) == _PARTS_OF_A_NAME and named[2] == str(life.broker) and named[3].isdigit():
            return int(named[3]) < life.epoch
        return found.modified_ms < now_ms - REPACK_ORPHAN_GRACE_MS


_PARTS_OF_A_NAME = 5
