"""Tiering: copy sealed objects of a local log to an object store, and keep only the newest on disk.

Each step is committed to the ledger before it takes effect, so a crash leaves nothing unknown:

1. `PlanTier`, then the file is uploaded part by part; after a crash the upload restarts.
2. `SettleTier`: the whole file is durable in the store.
3. The disk is over its limit and every kept checkpoint covers the object: the file is deleted, a note of it stays.
4. Nothing needs the object any more (`Log.collect`): `SettleTier(leaving)`, and only then its file or note is deleted.
5. After a grace period, for readers that read the store without the broker, the store's copy is deleted, then
   `ForgetTier`.

An unreachable store delays steps 1, 2 and 5: the disk fills meanwhile, and nothing else changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mainstem import events, limits
from mainstem.errors import (
    Closed,
    InvalidConfig,
    MainstemError,
    NotFound,
    ObjectMissing,
    StalePlan,
    StoreUnreachable,
    Unavailable,
)
from mainstem.ledger.ledger import Ledger
from mainstem.ledger.repacked_objects import REPACKED
from mainstem.ledger.tiers import TOKEN_BYTES, ForgetTier, PlanTier, SettleTier, Tier
from mainstem.log.host import LogHost
from mainstem.metrics import Metric, one
from mainstem.ports.clock import Clock, Random
from mainstem.ports.commitlog.local.cold import TIERS
from mainstem.ports.commitlog.local.tiered import TieredCommitLog
from mainstem.ports.commitlog.port import CommitLog, LogObject
from mainstem.ports.commitlog.shared.bucket.keys import LOG_FOLDER, BucketKeys
from mainstem.ports.objectstore.port import ObjectStore

TIER_BYTES_PER_S = 64 * limits.MIB  # upload rate, which leaves bandwidth for readers and writers

TIER_EVERY_S = 10.0  # interval of checks for objects to copy to the store or to delete, unless woken
TIER_PAUSE_MAX_S = 300.0  # between two attempts while the store does not respond
TIER_PUTS_MAX = 4  # concurrent uploads of parts of an object
TIER_GRACE_MS = 600_000  # an unneeded copy stays this long for readers that have its location

_log = events.named("tiers")


@dataclass(frozen=True, slots=True)
class HotRetention:
    """How much of the log stays on disk at least: the newest sealed objects. 0: no bound of this kind."""

    retain_bytes: int = limits.HOT_RETAIN_BYTES
    retain_segments: int = 0

    def cold(self, sealed: list[LogObject]) -> list[LogObject]:
        """The sealed objects that the disk may drop, oldest first."""
        kept_bytes = 0
        for kept, newest in enumerate(reversed(sealed)):
            kept_bytes += newest.size_bytes
            full = self.retain_bytes and kept_bytes > self.retain_bytes
            if full or (self.retain_segments and kept >= self.retain_segments):
                return sealed[: len(sealed) - kept]
        return []


@dataclass(slots=True)
class TierCounts:
    """Totals since the start."""

    put_objects: int = 0
    put_bytes: int = 0
    demoted: int = 0
    deleted: int = 0
    failures: int = 0  # rounds that ended early


class Tiering:
    """Runs beside the log of one broker."""

    def __init__(
        self,
        host: LogHost,
        port: TieredCommitLog,
        store: ObjectStore,
        ledger: Ledger,
        clock: Clock,
        random: Random,
        retention: HotRetention,
    ) -> None:
        self._host = host
        self._port = port
        self._store = store
        self._ledger = ledger
        self._clock = clock
        self._random = random
        self.retention = retention
        self.counts = TierCounts()
        self.failing = ""  # error of the last round, if it ended early
        self._wake = asyncio.Event()
        self._owned = False  # whether the store has this log's owner note
        # Tokens of objects that this process uploaded, or found complete in the store.
        self._seen: set[bytes] = set()

    def wake(self) -> None:
        """Look for work: an object was sealed, or a checkpoint made."""
        self._wake.set()

    async def run(self) -> None:
        """Run until cancelled or the log is closed."""
        pause_s = TIER_EVERY_S
        while True:
            self._wake.clear()
            try:
                await self.round()
                self.failing, pause_s = "", TIER_EVERY_S
            except Closed:
                return
            except (MainstemError, FileNotFoundError) as error:
                self.counts.failures += 1
                if not self.failing:
                    _log.warning("tiering failed", error=str(error))
                self.failing, pause_s = str(error), min(2 * pause_s, TIER_PAUSE_MAX_S)
                await asyncio.sleep(pause_s)  # back off, even if something sets `_wake`
                continue
            try:
                async with asyncio.timeout(pause_s):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def round(self) -> None:
        """Do all work that is due. Raises the store's errors."""
        await self._demote()  # first: the disk may be full
        await self._leave_dropped()
        for due in self._due():
            await self._upload(due)
            await self._demote()
        await self._delete()

    def repackable(self, objects: Sequence[LogObject]) -> list[LogObject]:
        """The log's objects that may be repacked, because the disk may drop them and the store has them.

        Repacking goes in order, so the list ends at the first other object. A store outage causes no repack debt."""
        found: list[LogObject] = []
        for held in self.retention.cold([held for held in objects if held.sealed]):
            repacked = held.number < self._ledger.repacked.frontier
            stored = self._ledger.tiers.stored(held.number) is not None
            if not repacked and (not stored or held.number in self._port.cold.missing):
                break
            found.append(held)
        return found

    # Upload

    def _due(self) -> list[LogObject]:
        """Sealed objects that are not in the store, oldest first."""
        frontier = self._ledger.repacked.frontier
        return [
            one
            for one in self._port.local_objects()
            if one.sealed and one.number >= frontier and self._ledger.tiers.stored(one.number) is None
        ]

    async def _upload(self, one: LogObject) -> None:
        await self._own()
        tier = self._ledger.tiers.of(one.number)
        token = self._random.token(TOKEN_BYTES) if tier is None else tier.token
        try:
            await self._host.propose(PlanTier(one.number, token, one.size_bytes))
            await self._put(one, token)
            await self._host.propose(SettleTier(one.number, token))
        except (StalePlan, FileNotFoundError):
            return  # collected meanwhile
        self._seen.add(token)
        self.counts.put_objects += 1
        self.counts.put_bytes += one.size_bytes

    async def _put(self, one: LogObject, token: bytes) -> None:
        """Upload part by part, a few at once, at no more than `TIER_BYTES_PER_S`."""
        began, sent = self._clock.monotonic(), 0
        under_way: set[asyncio.Task[bool]] = set()
        try:
            async for part, content in self._port.content(one.number):
                if len(under_way) >= TIER_PUTS_MAX:
                    done, under_way = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
                    for task in done:
                        task.result()
                key = self._port.cold.key(one.number, token, part)
                under_way.add(asyncio.create_task(self._store.put(key, content)))
                sent += len(content)
                ahead_s = sent / TIER_BYTES_PER_S - (self._clock.monotonic() - began)
                if ahead_s > 0:
                    await asyncio.sleep(ahead_s)
            await asyncio.gather(*under_way)
        finally:
            for left in under_way:
                left.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)

    async def _own(self) -> None:
        """Put a note into the store that this log has objects there."""
        if not self._owned:
            await self._store.put(self._port.cold.owner_key, self._port.identity)
            self._owned = True

    # Delete from disk

    async def _demote(self) -> None:
        sealed = [one for one in self._port.local_objects() if one.sealed]
        covered = self._host.replayable_from
        away: StoreUnreachable | None = None
        for oldest in self.retention.cold(sealed):
            tier = self._ledger.tiers.stored(oldest.number)
            if tier is None or oldest.end_position > covered or (away and tier.token not in self._seen):
                continue
            try:
                await self._verify_stored(oldest, tier)
                await self._port.demote(oldest.number, tier.token)
            except FileNotFoundError:
                continue  # collected meanwhile
            except StoreUnreachable as error:
                away = error  # objects that were seen in the store may still be deleted
                continue
            self._seen.discard(tier.token)
            self.counts.demoted += 1
        if away is not None:
            raise away

    async def _verify_stored(self, one: LogObject, tier: Tier) -> None:
        """Check that the store has an object before the disk's copy is deleted. An earlier process uploaded it, and a
        restored log may have another store since."""
        if tier.token in self._seen:
            return
        prefix = self._port.cold.key(tier.object, tier.token, 0)[:-1]
        there = [found.size_bytes async for found in self._store.list(prefix)]
        if len(there) != _parts(tier) or sum(there) != tier.size_bytes:
            _log.warning("object missing in store", number=tier.object)
            await self._own()
            await self._put(one, tier.token)
        self._seen.add(tier.token)

    # Delete from the store

    async def leave(self, numbers: Iterable[int]) -> list[int]:
        """Mark the store's copies of objects that are about to be dropped. Returns the objects that may be dropped now.

        While nothing can be committed, as on a full disk or at shutdown, objects with a copy in the store must wait."""
        free: list[int] = []
        for number in numbers:
            tier = self._ledger.tiers.of(number)
            try:
                if tier is not None:
                    await self._host.propose(SettleTier(number, tier.token, leaving=True))
            except Unavailable:
                continue
            free.append(number)
        return free

    async def _leave_dropped(self) -> None:
        """Mark copies of objects that were collected during their upload: nothing uses them."""
        known = {held.number for held in self._port.objects()}
        await self.leave({tier.object for tier in self._ledger.tiers} - known)

    async def _delete(self) -> None:
        before_ms = self._clock.now_ms() - TIER_GRACE_MS
        for tier in self._ledger.tiers.leaving():
            if self._host.store_copies:
                return
            if tier.since_ms <= before_ms:
                for part in range(_parts(tier)):
                    await self._store.delete(self._port.cold.key(tier.object, tier.token, part))
                    await self._port.cold.forget(tier.object, tier.token, part)
                await self._host.propose(ForgetTier(tier.object, tier.token))
                self.counts.deleted += 1

    # Metrics

    def pending_bytes(self) -> int:
        """Size of the sealed objects that are not in the store yet."""
        return sum(one.size_bytes for one in self._due())

    def metrics(self) -> list[Metric]:
        """What is where, what was moved, and how much the disk holds once uploads have caught up."""
        local = self._port.local_objects()
        cold = self._port.cold.described()
        held = (
            ((("tier", "disk"),), float(sum(one.size_bytes for one in local))),
            ((("tier", "store"),), float(sum(one.size_bytes for one in cold))),
        )
        counted = (((("tier", "disk"),), float(len(local))), ((("tier", "store"),), float(len(cold))))
        counts, pending = self.counts, self.pending_bytes()
        hot = self.retention.retain_bytes
        return [
            Metric(
                "mainstem_tier_bytes", "gauge", "Bytes of the log on the disk, and only in the store.", held
            ),
            Metric(
                "mainstem_tier_objects",
                "gauge",
                "Objects of the log on the disk, and only in the store.",
                counted,
            ),
            one(
                "mainstem_tier_hot_retain_bytes",
                "gauge",
                "Maximum bytes of sealed objects on the disk; 0: unlimited.",
                hot,
            ),
            one(
                "mainstem_tier_pending_bytes",
                "gauge",
                "Bytes of sealed objects not in the store yet.",
                pending,
            ),
            one("mainstem_tier_put_bytes_total", "counter", "Bytes uploaded to the store.", counts.put_bytes),
            one(
                "mainstem_tier_put_objects_total",
                "counter",
                "Objects uploaded to the store.",
                counts.put_objects,
            ),
            one(
                "mainstem_tier_demoted_total",
                "counter",
                "Objects deleted from the disk that remain in the store.",
                counts.demoted,
            ),
            one("mainstem_tier_deleted_total", "counter", "Objects deleted from the store.", counts.deleted),
            one("mainstem_tier_failures_total", "counter", "Rounds that failed.", counts.failures),
            *self._port.cold.metrics(),
        ]


def _parts(tier: Tier) -> int:
    return -(-tier.size_bytes // limits.STORE_OBJECT_BYTES_MAX)


async def check_owned(port: TieredCommitLog, store: ObjectStore, ledger: Ledger) -> None:
    """Check that the store holds this log's files. Raises InvalidConfig if it certainly does not."""
    tiered = any(one.cold for one in port.objects()) or bool(absent_tiers(port, ledger))
    try:
        if (tiered and not await _any(store, f"{TIERS}/{port.identity.hex()}/")) or await absent_repacked(
            store, ledger
        ):
            raise InvalidConfig(
                "older files of this log are in another object store than the one that --objects names: "
                "name the store that holds them"
            )
    except StoreUnreachable as error:
        _log.warning("object store unreachable", error=str(error))


async def _any(store: ObjectStore, prefix: str) -> bool:
    async for _ in store.list(prefix):
        return True
    return False


async def check_alone(port: TieredCommitLog, store: ObjectStore) -> None:
    """Check that no other log has files in the store: each would delete the other's. Raises InvalidConfig.

    The first key decides: no log puts files into a store that has another log's."""
    try:
        async for found in store.list(f"{TIERS}/"):
            if found.key.split("/")[1] != port.identity.hex():
                raise InvalidConfig(
                    f"the object store has files of another log ({found.key}): give each log its own prefix"
                )
            return
        await store.get_ranges(BucketKeys(LOG_FOLDER).id, [(0, 1)])
        raise InvalidConfig("the object store has a log that brokers share: give each log its own prefix")
    except NotFound:
        return
    except StoreUnreachable as error:
        _log.warning("owner of object store not checked", error=str(error))


def absent_tiers(port: CommitLog, ledger: Ledger) -> list[Tier]:
    """Stored tiers of objects that the port does not list."""
    known = {one.number for one in port.objects()}
    return [
        tier for tier in ledger.tiers if tier.object not in known and ledger.tiers.stored(tier.object) == tier
    ]


async def absent_repacked(store: ObjectStore, ledger: Ledger) -> int:
    """The number of repacked files that the ledger names if the store has none of them: it is another store. Else 0."""
    named = sum(len(one.files) for one in ledger.repacked.rounds)
    return 0 if named and await _any(store, REPACKED) else named


async def missing_notes(port: TieredCommitLog, ledger: Ledger) -> bool:
    """Fetch lost notes again. True if any came back: the recovered state lacks their objects."""
    fetched = False
    for tier in absent_tiers(port, ledger):
        _log.warning("note of cold object lost", number=tier.object)
        try:
            await asyncio.to_thread(port.cold.fetch, tier.object, tier.token, tier.size_bytes)
        except ObjectMissing as error:  # its records are missing, which the log reports
            _log.error("cold object lost", number=tier.object, error=str(error))
        else:
            fetched = True
    return fetched
