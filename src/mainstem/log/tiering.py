"""Tiering: sealed objects of a local log are put into an object store, and the disk keeps the newest of them.

Every step is said to the ledger before what it allows is done, so a crash leaves nothing that is not known:

1. `PlanTier`, then the file is put into the store, part by part; begun again from the start after a crash.
2. `SettleTier`: all of it is durable there.
3. More is on the disk than shall be, and every checkpoint kept covers the object: the file goes, a note of it stays.
4. Nothing needs the object any more (`Log.collect`): `SettleTier(leaving)`, and only then its file or note goes.
5. After a while, for readers without the broker that were sent there, the store's copy is deleted, then `ForgetTier`.

A store that does not answer holds up steps 1, 2 and 5: the disk fills meanwhile, and nothing else changes.
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
    StalePlan,
    StoreUnreachable,
    Unavailable,
)
from mainstem.ledger.ledger import Ledger
from mainstem.ledger.repacked_objects import REPACKED
from mainstem.ledger.tier_commands import ForgetTier, PlanTier, SettleTier
from mainstem.ledger.tiers import TOKEN_BYTES, Tier
from mainstem.log.host import LogHost
from mainstem.metrics import Metric, one
from mainstem.ports.clock import Clock, Random
from mainstem.ports.commitlog.bucket.keys import LOG_FOLDER, Keys
from mainstem.ports.commitlog.cold import TIERS
from mainstem.ports.commitlog.port import CommitLog, LogObject
from mainstem.ports.commitlog.tiered import TieredCommitLog
from mainstem.ports.objectstore.port import ObjectStore

_log = events.named("tiers")


@dataclass(frozen=True, slots=True)
class HotRetention:
    """How much of the log stays on the disk, at the least; of sealed objects, the newest ones. 0: not bounded so."""

    retain_bytes: int = limits.HOT_RETAIN_BYTES
    retain_segments: int = 0

    def cold(self, sealed: list[LogObject]) -> list[LogObject]:
        """Of the sealed objects, oldest first: those that the disk need not keep."""
        kept_bytes = 0
        for kept, newest in enumerate(reversed(sealed)):
            kept_bytes += newest.size_bytes
            full = self.retain_bytes and kept_bytes > self.retain_bytes
            if full or (self.retain_segments and kept >= self.retain_segments):
                return sealed[: len(sealed) - kept]
        return []


@dataclass(slots=True)
class TierCounts:
    """What was done since the start."""

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
        self.failing = ""  # why the last round ended early
        self._wake = asyncio.Event()
        self._owned = False  # the store says that objects of this log are there
        self._seen: set[bytes] = set()  # tokens of objects that this process put, or found there whole

    def wake(self) -> None:
        """There may be something to do: an object was sealed, or a checkpoint made."""
        self._wake.set()

    async def run(self) -> None:
        """Until cancelled, or the log is closed."""
        pause_s = limits.TIER_EVERY_S
        while True:
            self._wake.clear()
            try:
                await self.round()
                self.failing, pause_s = "", limits.TIER_EVERY_S
            except Closed:
                return
            except (MainstemError, FileNotFoundError) as error:
                self.counts.failures += 1
                if not self.failing:
                    _log.warning("tiering is held up", error=str(error))
                self.failing, pause_s = str(error), min(2 * pause_s, limits.TIER_PAUSE_MAX_S)
                await asyncio.sleep(pause_s)  # whatever wakes it, the store wants a rest
                continue
            try:
                async with asyncio.timeout(pause_s):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def round(self) -> None:
        """Do all that is due. Raises what the store does."""
        await self._demote()  # first: it may be the disk that is short
        await self._leave_dropped()
        for due in self._due():
            await self._upload(due)
            await self._demote()
        await self._delete()

    def repackable(self, objects: Sequence[LogObject]) -> list[LogObject]:
        """Of the log's objects: those that the disk need not keep and the store has, which may be repacked.

        Up to the first of which that is not so, for repacking goes in order; it is no debt while the store is away."""
        found: list[LogObject] = []
        for held in self.retention.cold([held for held in objects if held.sealed]):
            repacked = held.number < self._ledger.repacked.frontier
            stored = self._ledger.tiers.stored(held.number) is not None
            if not repacked and (not stored or held.number in self._port.cold.missing):
                break
            found.append(held)
        return found

    # Into the store

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
            return  # it was collected meanwhile
        self._seen.add(token)
        self.counts.put_objects += 1
        self.counts.put_bytes += one.size_bytes

    async def _put(self, one: LogObject, token: bytes) -> None:
        """Part by part, a few at once, no faster than the pace."""
        began, sent = self._clock.monotonic(), 0
        under_way: set[asyncio.Task[bool]] = set()
        try:
            async for part, content in self._port.content(one.number):
                if len(under_way) >= limits.TIER_PUTS_MAX:
                    done, under_way = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
                    for task in done:
                        task.result()
                key = self._port.cold.key(one.number, token, part)
                under_way.add(asyncio.create_task(self._store.put(key, content)))
                sent += len(content)
                ahead_s = sent / limits.TIER_BYTES_PER_S - (self._clock.monotonic() - began)
                if ahead_s > 0:
                    await asyncio.sleep(ahead_s)
            await asyncio.gather(*under_way)
        finally:
            for left in under_way:
                left.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)

    async def _own(self) -> None:
        """Leave a word in the store that objects of this log are there."""
        if not self._owned:
            await self._store.put(self._port.cold.owner_key, self._port.identity)
            self._owned = True

    # Off the disk

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
                away = error  # those that were seen there may go all the same
                continue
            self._seen.discard(tier.token)
            self.counts.demoted += 1
        if away is not None:
            raise away

    async def _verify_stored(self, one: LogObject, tier: Tier) -> None:
        """Look that the store has an object before the disk's copy goes. It was put in an earlier life, and a log that
        was restored may have another store since."""
        if tier.token in self._seen:
            return
        prefix = self._port.cold.key(tier.object, tier.token, 0)[:-1]
        there = [found.size_bytes async for found in self._store.list(prefix)]
        if len(there) != _parts(tier) or sum(there) != tier.size_bytes:
            _log.warning("putting an object into the store again, which lacks it", number=tier.object)
            await self._own()
            await self._put(one, tier.token)
        self._seen.add(tier.token)

    # Out of the store

    async def leave(self, numbers: Iterable[int]) -> list[int]:
        """These objects are about to be dropped: say so of what the store has of them. Returns those that may be.

        Where nothing can be written, as on a full disk or at the end, those that the store has have to wait."""
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
        """An object may be collected just when it is put: the store's copy is then of no use."""
        known = {held.number for held in self._port.objects()}
        await self.leave({tier.object for tier in self._ledger.tiers} - known)

    async def _delete(self) -> None:
        before_ms = self._clock.now_ms() - limits.TIER_GRACE_MS
        for tier in self._ledger.tiers.leaving():
            if self._host.store_copies:
                return
            if tier.since_ms <= before_ms:
                for part in range(_parts(tier)):
                    await self._store.delete(self._port.cold.key(tier.object, tier.token, part))
                await self._host.propose(ForgetTier(tier.object, tier.token))
                self.counts.deleted += 1

    # Looking

    def pending_bytes(self) -> int:
        """Of sealed objects that are not in the store yet."""
        return sum(one.size_bytes for one in self._due())

    def metrics(self) -> list[Metric]:
        """What is where, what was moved, and what the disk holds at the most once the store keeps up."""
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
                "mainstem_tier_bytes", "gauge", "Bytes of the log on the disk, and in the store alone.", held
            ),
            Metric("mainstem_tier_objects", "gauge", "Objects of the log there.", counted),
            one(
                "mainstem_tier_hot_retain_bytes",
                "gauge",
                "Bytes of sealed objects the disk keeps; 0: any.",
                hot,
            ),
            one(
                "mainstem_tier_pending_bytes",
                "gauge",
                "Bytes of sealed objects not in the store yet.",
                pending,
            ),
            one("mainstem_tier_put_bytes_total", "counter", "Bytes put into the store.", counts.put_bytes),
            one(
                "mainstem_tier_put_objects_total",
                "counter",
                "Objects put into the store.",
                counts.put_objects,
            ),
            one(
                "mainstem_tier_demoted_total",
                "counter",
                "Objects the disk left to the store.",
                counts.demoted,
            ),
            one("mainstem_tier_deleted_total", "counter", "Objects deleted from the store.", counts.deleted),
            one("mainstem_tier_failures_total", "counter", "Rounds that were held up.", counts.failures),
            *self._port.cold.metrics(),
        ]


def _parts(tier: Tier) -> int:
    return -(-tier.size_bytes // limits.STORE_OBJECT_BYTES_MAX)


async def check_owned(port: TieredCommitLog, store: ObjectStore, ledger: Ledger) -> None:
    """That the store is the one that files of this log are in. Raises InvalidConfig if it surely is not."""
    needed = [file.key for one in ledger.repacked.rounds[-1:] for file in one.files[:1]]
    if any(one.cold for one in port.objects()) or absent_tiers(port, ledger):
        needed.append(port.cold.owner_key)
    try:
        for key in needed:
            await store.get_ranges(key, [(0, 1)])
    except NotFound:
        raise InvalidConfig(
            "older files of this log are in an object store, and not in the one that --objects names: "
            "name the same one as before"
        ) from None
    except StoreUnreachable as error:
        _log.warning(
            "the object store does not answer: what is in it alone cannot be read now", error=str(error)
        )


async def check_alone(port: TieredCommitLog, store: ObjectStore) -> None:
    """That no other log has files there: each would delete the other's. Raises InvalidConfig.

    The first key tells, as none is put into a store that has another log's."""
    try:
        async for found in store.list(f"{TIERS}/"):
            if found.key.split("/")[1] != port.identity.hex():
                raise InvalidConfig(
                    f"the object store has files of another log ({found.key}): each log needs a prefix of its own"
                )
            return
        await store.get_ranges(Keys(LOG_FOLDER).id, [(0, 1)])
        raise InvalidConfig(
            "the object store has a log of brokers that share it: each needs a prefix of its own"
        )
    except NotFound:
        return
    except StoreUnreachable as error:
        _log.warning("the object store does not answer: whose it is cannot be told now", error=str(error))


def absent_tiers(port: CommitLog, ledger: Ledger) -> list[Tier]:
    """Those that are stored, of objects that the port knows nothing of."""
    known = {one.number for one in port.objects()}
    return [
        tier for tier in ledger.tiers if tier.object not in known and ledger.tiers.stored(tier.object) == tier
    ]


async def absent_repacked(store: ObjectStore, ledger: Ledger) -> int:
    """How many repacked files there are, if the store has none of them: it is another one, then."""
    named = sum(len(one.files) for one in ledger.repacked.rounds)
    if named:
        async for _ in store.list(REPACKED):
            return 0
    return named


async def missing_notes(port: TieredCommitLog, ledger: Ledger) -> bool:
    """Make notes again that were lost. True if there were any: what was recovered without them lacks objects."""
    lost = absent_tiers(port, ledger)
    for tier in lost:
        _log.warning("fetching the lost note of a cold object", number=tier.object)
        await asyncio.to_thread(port.cold.fetch, tier.object, tier.token, tier.size_bytes)
    return bool(lost)
