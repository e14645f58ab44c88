"""Routers of a broker: copies through every way of reading, and through crashes."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator

import pytest

from mainstem.broker.broker import Broker
from mainstem.broker.diff import DiffQuery
from mainstem.broker.read import Record
from mainstem.broker.routers.service import RouterSettings
from mainstem.broker.routers.tag_matching import Match
from mainstem.errors import MainstemError, OffsetOutOfRange, RecordsLost
from mainstem.ledger.config import TopicConfig
from mainstem.ledger.intervals import SOURCE_TRIM
from tests.support.files import SimulatedCrash
from tests.support.machine import Machine

SYNCED = TopicConfig(durability="fsync")


async def route(broker: Broker, source: str, dest: str, **settings: object) -> None:
    await broker.routers.put(f"{source}>{dest}", RouterSettings(source, dest, **settings))  # type: ignore[arg-type]


async def topics(broker: Broker, names: str, config: TopicConfig = SYNCED) -> None:
    for name in names:
        await broker.create_topic(name, config=config)


async def all_of(broker: Broker, name: str) -> list[Record]:
    """Every record, once all is forwarded; losses are left out."""
    await broker.routers.drain(name)
    found: list[Record] = []
    offset, end = broker.partition(name).start, broker.partition(name).end
    while offset < end:
        try:
            records = await broker.read(name, offset, max_records=1000)
        except RecordsLost as loss:
            offset = loss.end
            continue
        if not records:
            break
        found += records
        offset = records[-1].offset + 1
    return found


def values(records: list[Record]) -> list[bytes | None]:
    return [record.value for record in records]


async def test_a_copy_equals_its_original_except_for_offset_and_time(machine: Machine) -> None:
    broker = await machine.open()
    await topics(broker, "ab")
    await broker.append_values("a", [b"before"])
    await route(broker, "a", "b")
    await broker.append_values(
        "a",
        [b"one", None],
        keys=[b"k", None],
        headers=[(("node", b"n"), ("x", None)), ()],
        timestamps_ms=[1, 2],
    )
    machine.clock.advance(10)
    await broker.append_values("b", [b"own"])
    copies = await all_of(broker, "b")
    now = machine.clock.now_ms()
    assert [tuple(vars_of(record)) for record in copies[1:]] == [
        (1, now, b"k", b"one", (("node", b"n"), ("x", None))),
        (2, now, None, None, ()),
    ]
    assert copies[0].value == b"own"


def vars_of(record: Record) -> tuple[object, ...]:
    return record.offset, record.timestamp_ms, record.key, record.value, record.headers


@pytest.mark.parametrize("tail_cache_bytes", [0, 1 << 20])
async def test_copies_are_found_by_offset_and_by_time(tail_cache_bytes: int) -> None:
    machine = Machine(tail_cache_bytes=tail_cache_bytes)
    broker = await machine.open()
    await topics(broker, "ab")
    await route(broker, "a", "b")
    times = []
    for at in range(12):
        await broker.append_values("a", [b"%d" % at, b"x"])
        await broker.routers.drain("b")
        times.append(machine.clock.now_ms())
        if at % 3 == 0:
            await broker.append_values("b", [b"own"], timestamps_ms=[times[-1]])
        machine.clock.advance(5)
    copies = await all_of(broker, "b")
    assert [record.offset for record in copies] == list(range(28))
    assert [v for v in values(copies) if v not in (b"x", b"own")] == [b"%d" % at for at in range(12)]
    for time_ms in times:
        expected = next(record.offset for record in copies if record.timestamp_ms >= time_ms)
        assert await broker.offset_at("b", time_ms) == expected
    assert await broker.offset_at("b", times[-1] + 1) == 28
    assert await broker.streams.of_latest_time(broker.streams.of("b", 0)) == (26, times[-1])
    for offset in range(28):
        (record,) = await broker.read("b", offset, max_records=1)
        assert record == copies[offset]
    await machine.kill()


async def test_a_copy_outlives_its_original_and_the_objects_it_was_in(machine: Machine) -> None:
    broker = await machine.open()
    await topics(broker, "ab")
    await route(broker, "a", "b")
    for at in range(40):
        await broker.append_values("a", [b"%d" % at * 50])
    expected = values(await all_of(broker, "b"))
    assert len(expected) == 40
    await broker.trim("a", 40)
    await broker.delete_topic("a")
    for _ in range(3):
        broker = await machine.restart()
        await broker.log.collect()
        assert values(await all_of(broker, "b")) == expected
    objects = len(machine.port.objects())  # type: ignore[union-attr]
    await broker.trim("b", 40)
    for _ in range(3):
        broker = await machine.restart()
    await broker.log.collect()
    assert len(machine.port.objects()) < objects  # type: ignore[union-attr]


async def test_only_records_deleted_before_copying_are_not_copied(machine: Machine) -> None:
    broker = await machine.open()
    await topics(broker, "ab")
    await route(broker, "a", "b")
    await broker.append_values(
        "a", [b"%d" % at for at in range(10)], keys=[b"%d" % (at % 3) for at in range(10)]
    )
    await broker.deletes.delete(broker.streams.topic("a"), match=Match(b"1"))
    left = [b"0", b"2", b"3", b"5", b"6", b"8", b"9"]
    copies = await all_of(broker, "b")
    assert values(copies) == left
    assert [record.offset for record in copies] == list(range(7))
    await broker.deletes.delete(broker.streams.topic("a"), match=Match(b"2"))
    assert values(await all_of(broker, "b")) == left
    await broker.deletes.delete(broker.streams.topic("b"), match=Match(b"0"))
    copies = await all_of(broker, "b")
    assert [(record.offset, record.value) for record in copies] == [(1, b"2"), (3, b"5"), (5, b"8")]
    broker = await machine.restart()
    assert await all_of(broker, "b") == copies


async def test_records_lost_before_they_were_copied_are_a_gap_in_the_destination(machine: Machine) -> None:
    broker = await machine.open()
    await broker.create_topic("a", config=TopicConfig(cap_records=4))
    await topics(broker, "b")
    await broker.create_topic("c", config=TopicConfig(cap_records=1_000))
    await route(broker, "a", "b")
    await route(broker, "a", "c")
    await broker.append_values("b", [b"own"])
    await broker.append_values("c", [b"own"])
    for at in range(10):
        await broker.append_values("a", [b"%d" % at])
    for name in "bc":
        assert values(await all_of(broker, name)) == [b"own", b"6", b"7", b"8", b"9"]
        with pytest.raises(RecordsLost) as loss:
            await broker.read(name, 1)
        assert (loss.value.start, loss.value.end, loss.value.reason) == (1, 7, SOURCE_TRIM)
        page = await broker.diffs.read(broker.streams.topic(name), DiffQuery(1))
        assert page.tombstone is not None
        assert (page.tombstone.reason, page.tombstone.gap_from, page.tombstone.gap_to) == (SOURCE_TRIM, 2, 7)
        assert broker.routers.info(f"a>{name}").forwarded_total == 4


async def test_a_gap_right_at_the_start_moves_the_earliest_record(machine: Machine) -> None:
    broker = await machine.open()
    await broker.create_topic("a", config=TopicConfig(cap_records=2))
    await topics(broker, "b")
    await route(broker, "a", "b")
    await broker.append_values("a", [b"%d" % at for at in range(5)])
    await broker.routers.drain("b")
    page = await broker.diffs.read(broker.streams.topic("b"), DiffQuery())
    assert page.tombstone is not None
    assert (page.tombstone.reason, page.tombstone.gap_from, page.tombstone.gap_to) == (SOURCE_TRIM, 1, 3)
    assert (page.earliest_seq, page.count, page.next_from_seq) == (4, 2, 5)


async def test_filters_and_settings_determine_the_copies(machine: Machine) -> None:
    broker = await machine.open()
    await topics(broker, "abcd")
    await route(broker, "a", "b", match=Match(b"x", prefix=True))
    await route(broker, "a", "c", preserve_node=False, preserve_tag=False)
    await route(broker, "a", "d", match=Match(b"x1"), guarantee="exactly_once")
    many = [b"%d" % at for at in range(200)]
    keys = [(b"x%d" % (at % 3) if at % 2 else None) for at in range(200)]
    await broker.append_values(
        "a", many, keys=keys, headers=[(("node", b"n"), ("y", b"%d" % at)) for at in range(200)]
    )
    tagged = [value for value, key in zip(many, keys, strict=True) if key]
    assert values(await all_of(broker, "b")) == tagged
    plain = await all_of(broker, "c")
    assert values(plain) == many
    assert {record.key for record in plain} == {None}
    assert [record.headers for record in plain] == [(("y", value),) for value in many]
    exact = await all_of(broker, "d")
    assert {record.key for record in exact} == {b"x1"}
    assert all(record.headers[0] == ("node", b"n") for record in exact)
    assert len({dict(record.headers)["meta"] for record in exact}) == len(exact) > 20


async def test_a_full_destination_is_filled_and_retried(machine: Machine) -> None:
    broker = await machine.open()
    await topics(broker, "a")
    await broker.create_topic("b", config=TopicConfig(cap_records=3, discard="reject"))
    await route(broker, "a", "b")
    await broker.append_values("a", [b"%d" % at for at in range(5)])
    assert values(await all_of(broker, "b")) == [b"0", b"1", b"2"]
    await broker.trim("b", 2)
    assert values(await all_of(broker, "b")) == [b"2", b"3", b"4"]
    assert broker.routers.info("a>b").forwarded_total == 5


async def test_a_record_that_can_never_fit_does_not_hold_up_the_others(machine: Machine) -> None:
    broker = await machine.open()
    await topics(broker, "a")
    await broker.create_topic("b", config=TopicConfig(cap_bytes=10, discard="reject"))
    await route(broker, "a", "b")
    await broker.append_values("a", [b"1", b"x" * 11, b"3"])
    assert values(await all_of(broker, "b")) == [b"1", b"3"]
    assert broker.log.ledger.streams.lost(broker.streams.of("b", 0)) == [(1, 2, SOURCE_TRIM)]


async def test_a_chain_is_drained_upstream_first(machine: Machine) -> None:
    broker = await machine.open()
    await topics(broker, "abcd")
    for source, dest in ("cd", "ab", "bc"):
        await route(broker, source, dest)
    await broker.append_values("a", [b"1"])
    assert values(await all_of(broker, "d")) == [b"1"]


async def test_a_cycle_terminates(machine: Machine) -> None:
    broker = await machine.open()
    await topics(broker, "a")
    await broker.create_topic("b", config=TopicConfig(durability="ephemeral"))
    await route(broker, "a", "b")
    await route(broker, "b", "a", allow_cycle=True)
    await broker.append_values("a", [b"1"])
    assert len(await all_of(broker, "a")) + len(await all_of(broker, "b")) == 8


async def test_ephemeral_topics_may_be_source_or_destination(machine: Machine) -> None:
    broker = await machine.open()
    memory = TopicConfig(durability="ephemeral")
    await topics(broker, "ab", memory)
    await topics(broker, "c")
    await broker.append_values("a", [b"before"])
    await route(broker, "a", "b")
    await route(broker, "a", "c")
    await broker.append_values("a", [b"1", b"2"])
    assert values(await all_of(broker, "b")) == [b"1", b"2"]
    assert values(await all_of(broker, "c")) == [b"1", b"2"]
    await broker.append_values("a", [b"3"])
    broker = await machine.restart()
    await broker.append_values("a", [b"4"])
    assert values(await all_of(broker, "c")) == [b"1", b"2", b"3", b"4"]
    assert values(await all_of(broker, "b")) == [b"4"]


async def test_a_gap_of_an_ephemeral_source_shows_in_an_ephemeral_copy(machine: Machine) -> None:
    broker = await machine.open()
    await broker.create_topic("a", config=TopicConfig(durability="ephemeral", cap_records=2))
    await broker.create_topic("b", config=TopicConfig(durability="ephemeral"))
    await route(broker, "a", "b")
    await broker.append_values("b", [b"own"])
    await broker.append_values("a", [b"%d" % at for at in range(5)])
    assert values(await all_of(broker, "b")) == [b"own", b"3", b"4"]
    with pytest.raises(RecordsLost) as loss:
        await broker.read("b", 1)
    assert (loss.value.start, loss.value.end) == (1, 4)


async def test_damage_to_the_original_is_a_loss_of_the_copy_too() -> None:
    machine = Machine(segment_bytes=1 << 20, tail_cache_bytes=0)
    broker = await machine.open()
    await topics(broker, "ab")
    await route(broker, "a", "b")
    for at in range(4):
        await broker.append_values("a", [b"value-%d" % at])
    await broker.routers.drain("b")
    stored = machine.port
    assert stored is not None
    whole = stored.read

    def damaged(object: int, start: int, length: int) -> bytearray:
        data = bytearray(whole(object, start, length))
        at = data.find(b"value-2")
        if at >= 0:
            data[at] ^= 1
        return data

    stored.read = damaged  # type: ignore[method-assign]
    assert values(await all_of(broker, "b")) == [b"value-0", b"value-1", b"value-3"]
    assert broker.log.ledger.streams.lost(broker.streams.of("b", 0)) == [(2, 3, "damaged")]
    await machine.kill()


async def test_reading_a_truncated_copy_is_out_of_range(machine: Machine) -> None:
    broker = await machine.open()
    await topics(broker, "ab")
    await route(broker, "a", "b")
    await broker.append_values("a", [b"1", b"2"])
    await broker.routers.drain("b")
    await broker.trim("b", 1)
    with pytest.raises(OffsetOutOfRange):
        await broker.read("b", 0)
    assert values(await all_of(broker, "b")) == [b"2"]


async def test_size_retention_applies_to_copies(machine: Machine) -> None:
    broker = await machine.open()
    await topics(broker, "a")
    await broker.create_topic("b", config=TopicConfig(retention_bytes=500))
    await route(broker, "a", "b")
    for _ in range(10):
        await broker.append_values("a", [b"x" * 100])
        await broker.routers.drain("b")
    await broker.enforce_retention()
    assert [record.offset for record in await all_of(broker, "b")] == [5, 6, 7, 8, 9]


async def test_time_retention_uses_the_time_of_the_copies(machine: Machine) -> None:
    broker = await machine.open()
    await topics(broker, "a")
    await broker.create_topic("b", config=TopicConfig(retention_ms=1_000))
    await route(broker, "a", "b")
    for _ in range(4):
        await broker.append_values("a", [b"x"], timestamps_ms=[1])
        await broker.routers.drain("b")
        machine.clock.advance(400)
    await broker.enforce_retention()
    assert [record.offset for record in await all_of(broker, "b")] == [2, 3]


async def test_recreated_topics_are_not_routed(machine: Machine) -> None:
    broker = await machine.open()
    await topics(broker, "abc")
    await route(broker, "a", "b")
    await route(broker, "b", "c")
    assert await broker.routers.forget("b") == ["a>b", "b>c"]
    await broker.delete_topic("b")
    assert broker.routers.all() == []
    await topics(broker, "b")
    await broker.append_values("a", [b"1"])
    assert await all_of(broker, "b") == []


async def test_rounds_forward_without_readers(tmp_path: object) -> None:
    from pathlib import Path

    from mainstem.broker.broker import BrokerOptions

    assert isinstance(tmp_path, Path)
    broker = await Broker.open(BrokerOptions(tmp_path / "data"))
    try:
        await route(broker, "a", "b")
        await broker.append_values("a", [b"1"])
        stream = broker.streams.of("b", 0)
        while broker.partition("b").end < 1:
            assert await broker.log.visibility.changed(stream, 10), "nothing was forwarded"
        assert values(await broker.read("b", 0)) == [b"1"]
    finally:
        await broker.close()


class Traffic:
    """Writers at one end of some routers, while the machine fails again and again."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.machine = Machine.of_any_kind(self.random)
        self.written = 0
        self.seen: dict[tuple[str, int], bytes | None] = {}  # what readers saw, by topic and offset

    async def run(self) -> None:
        broker = await self.machine.open()
        await topics(broker, "abcd")
        await broker.create_topic("e", config=TopicConfig(cap_records=1 << 20, durability="fsync"))
        await route(broker, "a", "b")
        await route(broker, "b", "c")
        await route(broker, "a", "d", match=Match(b"k"))
        await route(broker, "a", "e")
        for _ in range(6):
            work = [asyncio.create_task(self._write(broker)), asyncio.create_task(self._read(broker))]
            for _ in range(self.random.randrange(20, 500)):
                await asyncio.sleep(0)
            await self.machine.crash_somehow(self.random)
            await asyncio.gather(*work)
            broker = await self.machine.open()
            await self._look(broker)
        originals = values(await all_of(broker, "a"))
        assert len(originals) == len(set(originals))
        for name in "bce":
            assert values(await all_of(broker, name)) == originals, name
        assert values(await all_of(broker, "d")) == [
            value for value in originals if value and value[-1:] in b"02468"
        ]
        await self.machine.close()

    async def _write(self, broker: Broker) -> None:
        with contextlib.suppress(MainstemError, SimulatedCrash):
            while True:
                self.written += 1
                value = b"%d" % self.written
                await broker.append_values("a", [value], keys=[b"k" if self.written % 2 == 0 else None])

    async def _read(self, broker: Broker) -> None:
        with contextlib.suppress(MainstemError, SimulatedCrash):
            while self.machine.broker is broker:  # reads may continue forever where writes do not
                await self._look(broker)
                await asyncio.sleep(0)

    async def _look(self, broker: Broker) -> None:
        """Everything at an offset stays what it was when it was first read."""
        for name in "bcde":
            for record in await all_of(broker, name):
                assert self.seen.setdefault((name, record.offset), record.value) == record.value


@pytest.fixture
async def forwarding(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Broker]:
    """A broker that forwards from `a` to `b` in the background, where a pause lasts longer than the test."""
    monkeypatch.setattr("mainstem.broker.routers.service.ROUTER_PAUSE_S_MIN", 3_600.0)
    broker = await machine.open()
    await topics(broker, "ab")
    await route(broker, "a", "b")
    broker.routers.start()
    await _settled(broker)
    yield broker
    await machine.close()


async def _settled(broker: Broker) -> int:
    """The number of copies once no round is under way."""
    for _ in range(300):
        await asyncio.sleep(0)
    return broker.partition("b").end


async def _copied(broker: Broker, count: int) -> None:
    """Wait for copies that nobody asked for, and for the end of their round."""
    await broker.streams.read(broker.stream("b"), count - 1, 1_000, max_wait_ms=30_000)
    assert broker.partition("b").end >= count
    await broker.routers.drain("b")
    await _settled(broker)


async def test_the_record_of_the_only_client_is_forwarded_at_once(forwarding: Broker) -> None:
    for copies in (1, 2, 3):
        await forwarding.append_values("a", [b"1"])
        await _copied(forwarding, copies)


async def test_records_of_several_clients_are_forwarded_together(forwarding: Broker) -> None:
    activity = forwarding.streams.client_activity
    activity.tasks, activity.changed_at = 2, asyncio.get_running_loop().time() + 3_600
    await forwarding.append_values("a", [b"1"])
    assert await _settled(forwarding) == 0


async def test_records_that_arrive_during_a_round_wait_for_the_next_one_together(forwarding: Broker) -> None:
    await asyncio.gather(*(_write_often(forwarding) for _ in range(3)))
    await forwarding.streams.read(forwarding.stream("b"), 0, 1_000, max_wait_ms=30_000)
    assert 0 < await _settled(forwarding) < 30


async def _write_often(broker: Broker) -> None:
    for _ in range(10):
        await broker.append_values("a", [b"1"])


@pytest.mark.parametrize("seed", range(8))
async def test_crashes_neither_lose_duplicate_nor_move_a_copy(seed: int) -> None:
    await Traffic(seed).run()
