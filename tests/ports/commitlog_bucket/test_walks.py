"""Brokers that write, seal, save, truncate, sleep and start again in random order: the log stays one log."""

from __future__ import annotations

import random

import pytest

from mainstem.errors import BehindCheckpoint, Stale
from mainstem.ports.commitlog.port import Checkpoint, Committed, LogObject, Overtaken
from mainstem.ports.commitlog.shared.bucket.log import BucketCommitLog
from tests.support.clock import ManualClock
from tests.support.memory_store import MemoryObjectStore

from .logs import check_nothing_stray, open_bucket_log, refer_to_all_over

MINUTE_MS = 60_000


def payload_of(entry: bytes) -> bytes:
    return entry * (1 + entry[-1] % 40)


class World:
    """One store, several brokers, and what anybody ever saw at each position."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.store_clock = ManualClock()
        self.store = MemoryObjectStore(self.store_clock)
        self.order: dict[int, bytes] = {}
        self.acked: set[bytes] = set()
        self.floor = 0
        self.dropped: set[int] = set()  # positions whose payload nobody needs any more

    def see(self, position: int, entry: bytes) -> None:
        assert self.order.setdefault(position, entry) == entry

    async def check(self) -> None:
        """A broker that knows nothing finds all of it: what is truncated in a checkpoint and sealed objects."""
        log = await open_bucket_log(self.store)
        saved = log.load_checkpoint()
        start = saved.position if saved is not None else 0
        assert start >= self.floor
        assert saved is None or saved.state == b"%d" % start
        async for chunk in log.follow(start):
            for commit in chunk:
                self.see(commit.placement.position, bytes(commit.entry))
        assert sorted(self.order) == list(range(log.end))
        assert self.acked <= set(self.order.values())
        assert len(set(self.order.values())) == len(self.order)
        at = 0
        for one in log.objects():
            assert self.dropped.issuperset(range(at, one.first_position))
            self._check_payload(log, one)
            at = one.end_position
            assert not one.sealed or log.read_index(one.number) == b"up to %d" % at
        assert self.dropped.issuperset(range(at, log.end))
        await log.close()

    def _check_payload(self, log: BucketCommitLog, one: LogObject) -> None:
        start = 0
        for position in range(one.first_position, one.end_position):
            expected = payload_of(self.order[position])
            if position not in self.dropped:
                assert log.read(one.number, start, len(expected)) == expected
            start += len(expected)
        assert start == one.size_bytes
        if self.dropped.isdisjoint(range(one.first_position, one.end_position)):
            assert len(log.read(one.number, 0, one.size_bytes)) == one.size_bytes


class Broker:
    def __init__(self, world: World, name: int) -> None:
        self._world = world
        self._name = name
        self._count = 0
        self.clock = ManualClock()
        self._log: BucketCommitLog | None = None

    async def log(self) -> BucketCommitLog:
        if self._log is None:
            self._log = await open_bucket_log(self._world.store, clock=self.clock, object_bytes=1500)
        return self._log

    async def stop(self) -> None:
        if self._log is not None:
            await self._log.close()
            self._log = None

    async def write(self) -> None:
        entry = b"%d/%d" % (self._name, self._count)
        self._count += 1
        while entry not in self._world.acked:
            log = await self.log()
            try:
                place = await log.append(entry, [payload_of(entry)])
            except Overtaken as overtaken:
                self._take(overtaken.commits)
            except Stale:
                await self._rejoin()
            else:
                self._world.see(place.position, entry)
                self._world.acked.add(entry)

    async def _rejoin(self) -> None:
        try:
            await (await self.log()).rejoin()
        except BehindCheckpoint:
            await self.stop()

    def _take(self, commits: list[Committed]) -> None:
        for commit in commits:
            self._world.see(commit.placement.position, bytes(commit.entry))

    async def follow(self) -> None:
        log = await self.log()
        try:
            async for chunk in log.follow(log.end):
                self._take(chunk)
        except BehindCheckpoint:
            await self.stop()

    async def seal(self) -> None:
        """Some objects that look finished from here."""
        log = await self.log()
        if self._world.chance.random() < 0.3:
            await log.roll()
        for one in log.objects():
            current = log._table.current
            finished = current is None or current.number != one.number
            if finished and not one.sealed and self._world.chance.random() < 0.8:
                await log.seal(one.number, b"up to %d" % one.end_position)

    async def save(self) -> None:
        """A checkpoint at the end of what is sealed from the start on."""
        log = await self.log()
        end = 0
        for one in log.objects():
            if not one.sealed:
                break
            end = one.end_position
        await log.sync()
        if end:
            await log.save_checkpoint(Checkpoint(end, b"%d" % end))

    async def drop(self) -> None:
        """Something that every checkpoint holds, as far as is known here."""
        log = await self.log()
        kept = await log.checkpoints()
        held = [one for one in log.objects() if one.sealed and len(kept) == 2 and one.end_position <= kept[0]]
        if held:
            one = self._world.chance.choice(held)
            self._world.dropped.update(range(one.first_position, one.end_position))
            await log.drop(one.number)

    async def refresh(self) -> None:
        await (await self.log()).refresh()

    async def collect_orphans(self) -> None:
        try:
            await (await self.log()).collect_orphans()
        except BehindCheckpoint:
            await self.stop()

    async def truncate(self) -> None:
        floor = await (await self.log()).truncate()
        self._world.floor = max(self._world.floor, floor)

    async def sleep(self) -> None:
        """By its own clock alone."""
        minutes = self._world.chance.choice([0, 1, 30, 90])
        self.clock.advance(minutes * MINUTE_MS)


@pytest.mark.parametrize("kind", ["packed", "referring"])
async def test_random_walks_of_three_brokers(
    walk_seed: int, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "referring":
        refer_to_all_over(monkeypatch, 50)
    world = World(walk_seed)
    brokers = [Broker(world, name) for name in range(3)]
    for step in range(250):
        broker = world.chance.choice(brokers)
        act = world.chance.choices(
            [
                broker.write,
                broker.follow,
                broker.seal,
                broker.save,
                broker.truncate,
                broker.drop,
                broker.refresh,
                broker.collect_orphans,
                broker.sleep,
                broker.stop,
            ],
            [60, 12, 12, 6, 5, 2, 2, 2, 3, 2],
        )[0]
        await act()
        if world.chance.random() < 0.03:
            # Time passes for all: the store's clock is what truncation goes by.
            world.store_clock.advance(70 * MINUTE_MS)
            for one in brokers:
                one.clock.advance(70 * MINUTE_MS)
        if step % 50 == 49:
            await world.check()
    await world.check()
    for broker in brokers:
        await broker.stop()
    await check_nothing_stray(world.store, world.store_clock)
    await world.check()
