"""Share groups through the broker: whatever members do and however often it is restarted or killed, each record is
accepted once, never delivered again after that, and none is forgotten."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.broker.share.shares import Acquired, AcquireLimits
from mainstem.errors import InvalidConfig, RecordNotHeld, RecordsLost
from mainstem.ledger.config import TopicConfig
from mainstem.ledger.shares import Verdict
from mainstem.log.read.extents import ReadChunk
from tests.support.clock import ManualClock

from .test_transactions import abandon

_WANTED = AcquireLimits(5, 1 << 20, exact=True)
_LOCK_MS = 30_000


def _options(path: Path) -> BrokerOptions:
    return BrokerOptions(path / "data", default_config=TopicConfig(durability="disk"), segment_bytes=1 << 16)


async def _open(path: Path, clock: ManualClock) -> Broker:
    return await Broker.open(_options(path), clock)


def _offsets(acquired: Acquired | None) -> dict[int, int]:
    runs = acquired.runs if acquired is not None else ()
    return {offset: deliveries for first, end, deliveries in runs for offset in range(first, end)}


class _Walk:
    """Members that acquire, acknowledge, die and wait, in an order that a seed decides; and the results they got."""

    def __init__(self, path: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.clock = ManualClock()
        self.path = path
        self.held: dict[str, set[int]] = {"a": set(), "b": set(), "c": set()}
        self.accepted: set[int] = set()
        self.rejected: set[int] = set()
        self.deliveries: dict[int, int] = {}
        self.written = 0

    async def run(self, steps: int) -> None:
        self.broker = await _open(self.path, self.clock)
        await self.broker.create_topic("t")
        await self.broker.shares.change_settings("g", [("share.auto.offset.reset", "earliest")], [])
        self.stream = self.broker.streams.of("t", 0)
        for _ in range(steps):
            step = self.chance.choices(
                [self.write, self.take, self.settle, self.wait, self.restart], [3, 8, 8, 1, 1]
            )[0]
            await step()
        await self.drain()
        await self.broker.close()

    async def write(self) -> None:
        count = self.chance.randint(1, 12)
        await self.broker.append_values("t", [b"%d" % (self.written + number) for number in range(count)])
        self.written += count

    async def take(self) -> None:
        member = self.chance.choice(list(self.held))
        for offset, deliveries in _offsets(
            await self.broker.shares.acquire("g", member, self.stream, _WANTED)
        ).items():
            assert offset not in self.accepted | self.rejected, "handed out after it was settled for good"
            assert not any(offset in held for held in self.held.values()), "handed out to two"
            assert deliveries <= 5
            self.held[member].add(offset)
            self.deliveries[offset] = self.deliveries.get(offset, 0) + 1

    async def settle(self) -> None:
        member = self.chance.choice(list(self.held))
        if not self.held[member]:
            return
        offset = self.chance.choice(sorted(self.held[member]))
        verdict = self.chance.choices(
            [Verdict.ACCEPT, Verdict.RELEASE, Verdict.REJECT, Verdict.RENEW], [6, 3, 1, 1]
        )[0]
        await self.broker.shares.settle("g", member, self.stream, [(offset, offset + 1, int(verdict))])
        if verdict is Verdict.RENEW:
            return
        self.held[member].remove(offset)
        if verdict is Verdict.ACCEPT:
            self.accepted.add(offset)
        elif verdict is Verdict.REJECT:
            self.rejected.add(offset)

    async def wait(self) -> None:
        """Every acquisition lock expires."""
        self.clock.advance(_LOCK_MS + 1)
        await self._nobody_holds()

    async def restart(self) -> None:
        if self.chance.random() < 0.5:
            await self.broker.close()
        else:
            await abandon(self.broker)
        self.broker = await _open(self.path, self.clock)
        await self._nobody_holds()

    async def _nobody_holds(self) -> None:
        for member, held in self.held.items():
            for offset in held:
                with pytest.raises(RecordNotHeld):
                    await self.broker.shares.settle("g", member, self.stream, [(offset, offset + 1, 1)])
            held.clear()

    async def drain(self) -> None:
        """Accept all that is left: then every record was accepted, rejected, or delivered as often as allowed."""
        await self.wait()
        while got := _offsets(await self.broker.shares.acquire("g", "a", self.stream, _WANTED)):
            assert not got.keys() & (self.accepted | self.rejected)
            await self.broker.shares.settle("g", "a", self.stream, [(at, at + 1, 1) for at in got])
            self.accepted |= got.keys()
        given_up = set(range(self.written)) - self.accepted - self.rejected
        assert all(self.deliveries[offset] >= 5 for offset in given_up)
        share = self.broker.shares.of_group("g").get(self.stream)
        assert share is None or (share.start, share.in_flight) == (self.written, 0)


@pytest.mark.slow
async def test_a_random_walk_with_restarts_and_kills(tmp_path: Path, share_seed: int, chaos: bool) -> None:
    await _Walk(tmp_path, share_seed).run(1_000 if chaos else 120)


async def test_delivery_counts_and_settings_survive_a_kill(tmp_path: Path) -> None:
    clock = ManualClock()
    broker = await _open(tmp_path, clock)
    await broker.create_topic("t")
    await broker.append_values("t", [b"a", b"b"])
    stream = broker.streams.of("t", 0)
    settings = [("share.auto.offset.reset", "earliest"), ("share.delivery.count.limit", "3")]
    await broker.shares.change_settings("g", settings, [])
    for deliveries in (1, 2, 3):
        got = _offsets(await broker.shares.acquire("g", "m", stream, _WANTED))
        assert got == {0: deliveries, 1: deliveries}
        await abandon(broker)
        broker = await _open(tmp_path, clock)
    assert await broker.shares.acquire("g", "m", stream, _WANTED) is None
    assert broker.shares.of_group("g")[stream].archived == 2
    await broker.close()


async def test_a_group_may_start_at_an_earlier_time(tmp_path: Path) -> None:
    clock = ManualClock()
    broker = await _open(tmp_path, clock)
    await broker.create_topic("t")
    for _ in range(4):
        await broker.append_values("t", [b"x"])
        clock.advance(60_000)
    stream = broker.streams.of("t", 0)
    for duration, begins in (("PT0S", 4), ("pt1m", 3), ("PT2M30S", 2), ("P1DT12H", 0)):
        await broker.shares.change_settings(
            duration, [("share.auto.offset.reset", f"By_Duration:{duration}")], []
        )
        await broker.shares.acquire(duration, "m", stream, _WANTED)
        assert broker.shares.of_group(duration)[stream].start == begins
        assert broker.shares.own_settings(duration) == {
            "share.auto.offset.reset": f"by_duration:{duration.upper()}"
        }
    for wrong in ("", "1h", "-PT1H", "P1Y", "PT", f"P{'9' * 400}D"):
        with pytest.raises(InvalidConfig):
            await broker.shares.change_settings(
                "g", [("share.auto.offset.reset", f"by_duration:{wrong}")], []
            )
    await broker.close()


async def test_concurrent_members_get_each_record_once(tmp_path: Path) -> None:
    broker = await _open(tmp_path, ManualClock())
    await broker.create_topic("t")
    for _ in range(20):
        await broker.append_values("t", [b"x"] * 10)
    await broker.shares.change_settings("g", [("share.auto.offset.reset", "earliest")], [])
    stream = broker.streams.of("t", 0)
    names = [f"m{number}" for number in range(50)]
    found = await asyncio.gather(*(broker.shares.acquire("g", name, stream, _WANTED) for name in names))
    offsets = [offset for one in found for offset in _offsets(one)]
    assert sorted(offsets) == list(range(200))
    await broker.close()


async def test_unreadable_records_are_skipped(tmp_path: Path) -> None:
    broker = await _open(tmp_path, ManualClock())
    await broker.create_topic("t")
    await broker.append_values("t", [b"x"] * 10)
    await broker.shares.change_settings("g", [("share.auto.offset.reset", "earliest")], [])
    stream = broker.streams.of("t", 0)
    assert _offsets(await broker.shares.acquire("g", "m", stream, _WANTED)).keys() == set(range(5))
    await broker.trim("t", 7)
    assert _offsets(await broker.shares.acquire("g", "m", stream, _WANTED)).keys() == {7, 8, 9}
    with pytest.raises(RecordNotHeld):
        await broker.shares.settle("g", "m", stream, [(0, 1, 1)])
    await broker.close()


async def test_records_found_damaged_are_archived_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await _open(tmp_path, ManualClock())
    await broker.create_topic("t")
    await broker.append_values("t", [b"x"] * 10)
    await broker.shares.change_settings("g", [("share.auto.offset.reset", "earliest")], [])
    read = broker.streams.read_cached

    def damaged(stream: int, offset: int, max_bytes: int) -> ReadChunk | None:
        if offset < 6:
            raise RecordsLost(0, 6, "damage")
        return read(stream, offset, max_bytes)

    monkeypatch.setattr(broker.streams, "read_cached", damaged)
    stream = broker.streams.of("t", 0)
    got = _offsets(await broker.shares.acquire("g", "m", stream, _WANTED))
    assert got == {6: 1, 7: 1, 8: 1, 9: 1}
    assert broker.shares.of_group("g")[stream].start == 6
    await broker.close()
