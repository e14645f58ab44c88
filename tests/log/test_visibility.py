"""What readers may see, when, and which offsets a crash may never reuse."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from mainstem.broker.append import Appended
from mainstem.broker.broker import Broker
from mainstem.errors import OffsetOutOfRange, RecordsLost
from mainstem.ledger.config import Durability, TopicConfig
from tests.support.commitlogs import GatedCommitLog
from tests.support.history import scan
from tests.support.machine import Machine
from tests.support.waiting import settle, until

RELAXED: tuple[Durability, ...] = ("disk", "memory")


async def _opened(machine: Machine, durability: Durability) -> tuple[Broker, GatedCommitLog]:
    broker = await machine.open()
    await broker.create_topic("t", config=TopicConfig(durability=durability))
    assert machine.port is not None
    return broker, machine.port


def _start(broker: Broker, value: bytes, topic: str = "t") -> asyncio.Task[Appended]:
    return asyncio.ensure_future(broker.append_values(topic, [value]))


async def _hold_syncs(broker: Broker, port: GatedCommitLog) -> None:
    """From here on nothing more becomes durable."""
    await broker.log.sync()
    await port.hold_syncs()


def _ceiling(broker: Broker) -> int:
    return int(broker.log.ledger.streams.ceiling[broker.topic("t").streams[0]])


async def test_an_fsync_append_is_neither_acknowledged_nor_visible_before_the_sync(machine: Machine) -> None:
    broker, port = await _opened(machine, "fsync")
    await broker.append_values("t", [b"before"])
    await _hold_syncs(broker, port)
    waiting = _start(broker, b"waiting")
    await until(lambda: port.end > port.synced and broker.log.ledger.streams.end[0] == 2)
    await settle()
    assert not waiting.done()
    assert broker.partition("t").end == 1
    with pytest.raises(OffsetOutOfRange):
        await broker.read("t", 2)
    assert [record.value for record in await broker.read("t", 0)] == [b"before"]
    port.sync_gate.set()
    assert (await waiting).base_offset == 1
    assert [record.value for record in await broker.read("t", 1)] == [b"waiting"]


async def test_a_reader_at_the_end_is_woken_by_the_sync_and_not_by_the_write(machine: Machine) -> None:
    broker, port = await _opened(machine, "fsync")
    await _hold_syncs(broker, port)
    reading = asyncio.ensure_future(broker.read("t", 0, max_wait_ms=60_000))
    waiting = _start(broker, b"x")
    await until(lambda: broker.log.ledger.streams.end[0] == 1)
    await settle()
    assert not reading.done()
    port.sync_gate.set()
    assert [record.value for record in await reading] == [b"x"]
    await waiting


@pytest.mark.parametrize("durability", RELAXED)
async def test_a_relaxed_append_is_acked_and_visible_while_the_sync_runs(
    machine: Machine, durability: Durability
) -> None:
    broker, port = await _opened(machine, durability)
    await broker.append_values("t", [b"first"])  # the first append waits for the ceiling
    await _hold_syncs(broker, port)
    appended = await asyncio.wait_for(broker.append_values("t", [b"second"]), 30)
    assert appended.base_offset == 1
    assert [record.value for record in await broker.read("t", 0)] == [b"first", b"second"]
    port.sync_gate.set()


async def test_writes_continue_while_a_sync_runs(machine: Machine) -> None:
    broker, port = await _opened(machine, "fsync")
    await _hold_syncs(broker, port)
    first = _start(broker, b"1")
    await until(lambda: broker.log.ledger.streams.end[0] == 1)
    second = _start(broker, b"2")
    await until(lambda: broker.log.ledger.streams.end[0] == 2)
    assert not first.done()
    port.sync_gate.set()
    assert [(await first).base_offset, (await second).base_offset] == [0, 1]


async def test_a_sync_that_began_before_a_write_does_not_ack_it(machine: Machine) -> None:
    broker, port = await _opened(machine, "fsync")
    await _hold_syncs(broker, port)
    port.one_sync_at_a_time = True
    syncs = port.syncs
    first = _start(broker, b"1")
    await until(lambda: port.syncs == syncs + 1)  # it covers the first append and nothing after it
    second = _start(broker, b"2")
    await until(lambda: broker.log.ledger.streams.end[0] == 2)
    port.sync_gate.set()
    await first
    await settle()
    assert not second.done()
    assert broker.partition("t").end == 1
    port.sync_gate.set()
    assert (await second).base_offset == 1


async def test_offsets_follow_log_order_in_every_durability_class(machine: Machine) -> None:
    """An fsync stream and a relaxed one in one group: acks differ in time, the log's order does not."""
    broker, port = await _opened(machine, "fsync")
    await broker.create_topic("relaxed", config=TopicConfig(durability="disk"))
    await broker.append_values("relaxed", [b"0"])
    await _hold_syncs(broker, port)
    strict = [_start(broker, b"s%d" % number) for number in range(3)]
    relaxed = [_start(broker, b"r%d" % number, "relaxed") for number in range(3)]
    assert [one.base_offset for one in await asyncio.gather(*relaxed)] == [1, 2, 3]
    assert not any(task.done() for task in strict)
    port.sync_gate.set()
    assert [one.base_offset for one in await asyncio.gather(*strict)] == [0, 1, 2]


async def test_relaxed_appends_past_the_synced_ceiling_wait_for_a_sync(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainstem.log.read.visibility.CEILING_STEP_RECORDS", 8)
    broker, port = await _opened(machine, "disk")
    await broker.append_values("t", [b"0"])
    await until(lambda: port.end == port.synced)
    assert _ceiling(broker) == 9
    await _hold_syncs(broker, port)
    for number in range(1, 9):
        assert (await asyncio.wait_for(broker.append_values("t", [b"x"]), 30)).base_offset == number
    past = _start(broker, b"past")
    await until(lambda: broker.log.ledger.streams.end[0] == 10)
    await settle()
    assert not past.done()
    assert broker.partition("t").end == 9
    port.sync_gate.set()
    assert (await past).base_offset == 9
    assert broker.partition("t").end == 10


async def test_ceilings_are_raised_before_they_are_reached_and_double(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainstem.log.read.visibility.CEILING_STEP_RECORDS", 8)
    broker, _ = await _opened(machine, "disk")
    seen = []
    for _ in range(60):
        await broker.append_values("t", [b"x"])
        await broker.log.sync()
        if not seen or _ceiling(broker) != seen[-1]:
            seen.append(_ceiling(broker))
        assert _ceiling(broker) >= broker.partition("t").end
    assert [later - earlier for earlier, later in pairwise(seen)] == [12, 24, 48]


@pytest.mark.parametrize("durability", RELAXED)
async def test_after_a_power_cut_the_end_moves_to_the_ceiling_and_the_gap_is_reported(
    machine: Machine, durability: Durability
) -> None:
    broker, port = await _opened(machine, durability)
    await broker.append_values("t", [b"synced"])
    await broker.log.sync()
    await _hold_syncs(broker, port)
    seen = [(await broker.append_values("t", [b"lost"])).base_offset for _ in range(5)]
    assert seen == [1, 2, 3, 4, 5]
    ceiling = _ceiling(broker)
    await machine.lose_power("lost")
    broker = await machine.open()
    assert broker.partition("t").end == ceiling > 5
    with pytest.raises(RecordsLost) as loss:
        await broker.read("t", 1)
    assert (loss.value.start, loss.value.end) == (1, ceiling)
    with pytest.raises(RecordsLost) as loss:
        await broker.read("t", 3)
    assert (loss.value.start, loss.value.end) == (3, ceiling)
    assert (await broker.append_values("t", [b"after"])).base_offset == ceiling
    assert await scan(broker, "t") == ({0: b"synced", ceiling: b"after"}, [(1, ceiling)])


async def test_a_second_power_cut_never_reuses_the_offsets_of_the_first_gap(machine: Machine) -> None:
    broker, _ = await _opened(machine, "disk")
    used: set[int] = set()
    for _ in range(4):
        for _ in range(3):
            offset = (await broker.append_values("t", [b"x"])).base_offset
            assert offset not in used
            used.add(offset)
        await machine.lose_power("lost")
        broker = await machine.open()


@pytest.mark.parametrize("durability", RELAXED)
async def test_a_killed_process_loses_nothing_and_no_offset_is_skipped(
    machine: Machine, durability: Durability
) -> None:
    broker, port = await _opened(machine, durability)
    port.sync_gate.set()
    await broker.append_values("t", [b"0"])
    await _hold_syncs(broker, port)
    for number in range(1, 6):
        await broker.append_values("t", [b"%d" % number])
    await machine.kill()
    broker = await machine.open()
    assert await scan(broker, "t") == ({number: b"%d" % number for number in range(6)}, [])
    assert (await broker.append_values("t", [b"6"])).base_offset == 6


@pytest.mark.parametrize("durability", RELAXED)
async def test_a_clean_stop_skips_no_offset_even_on_another_boot(
    machine: Machine, durability: Durability
) -> None:
    broker, _ = await _opened(machine, durability)
    await broker.append_values("t", [b"0", b"1"])
    await machine.close()
    await machine.lose_power("lost")
    broker = await machine.open()
    assert await scan(broker, "t") == ({0: b"0", 1: b"1"}, [])
    assert (await broker.append_values("t", [b"2"])).base_offset == 2


async def test_an_fsync_topic_never_jumps(machine: Machine) -> None:
    broker, _ = await _opened(machine, "fsync")
    await broker.append_values("t", [b"0"])
    await machine.lose_power("lost")
    broker = await machine.open()
    assert (await broker.append_values("t", [b"1"])).base_offset == 1


async def test_a_topic_made_stricter_is_synced_before_it_acks_again(machine: Machine) -> None:
    broker, port = await _opened(machine, "disk")
    await broker.append_values("t", [b"0"])
    await broker.alter_topic("t", TopicConfig(durability="fsync"))
    await _hold_syncs(broker, port)
    waiting = _start(broker, b"1")
    await until(lambda: broker.log.ledger.streams.end[0] == 2)
    await settle()
    assert not waiting.done()
    port.sync_gate.set()
    await waiting
    await machine.lose_power("lost")
    broker = await machine.open()
    assert await scan(broker, "t") == ({0: b"0", 1: b"1"}, [])


async def test_a_topic_made_laxer_does_not_reuse_read_offsets_after_a_loss(machine: Machine) -> None:
    broker, port = await _opened(machine, "fsync")
    await broker.append_values("t", [b"0"])
    await broker.alter_topic("t", TopicConfig(durability="disk"))
    await broker.append_values("t", [b"1"])
    await _hold_syncs(broker, port)
    assert (await broker.append_values("t", [b"2"])).base_offset == 2
    await machine.lose_power("lost")
    broker = await machine.open()
    assert (await broker.append_values("t", [b"other"])).base_offset > 2
    values, lost = await scan(broker, "t")
    assert values[0] == b"0"
    assert values[1] == b"1"
    assert lost[0][0] == 2
