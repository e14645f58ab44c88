from __future__ import annotations

import asyncio

import pytest

from mainstem.broker.broker import Broker
from mainstem.errors import NoSpace, NotFound, OffsetOutOfRange
from mainstem.ledger.config import TopicConfig
from tests.support.batches import TIME_MS
from tests.support.history import scan
from tests.support.machine import Machine
from tests.support.waiting import settle

EPHEMERAL = TopicConfig(durability="ephemeral")


async def _opened(machine: Machine) -> Broker:
    broker = await machine.open()
    await broker.create_topic("t", config=EPHEMERAL)
    return broker


async def test_records_of_an_ephemeral_topic_never_reach_the_disk(machine: Machine) -> None:
    broker = await _opened(machine)
    await broker.append_values("t", [b"first"])
    assert machine.port is not None
    calls = len(machine.port.appends)
    for number in range(100):
        assert (await broker.append_values("t", [b"x"])).base_offset == number + 1
    assert len(machine.port.appends) == calls
    assert len((await scan(broker, "t"))[0]) == 101
    assert broker.partition("t").records == 101


@pytest.mark.parametrize("how", ["clean", "kill", "power"])
async def test_after_a_restart_records_are_gone_and_no_offset_is_reused(machine: Machine, how: str) -> None:
    broker = await _opened(machine)
    used: set[int] = set()
    for _ in range(3):
        for _ in range(5):
            offset = (await broker.append_values("t", [b"x"])).base_offset
            assert offset not in used
            used.add(offset)
        if how == "clean":
            broker = await machine.restart()
        else:
            await (machine.kill() if how == "kill" else machine.lose_power("lost"))
            broker = await machine.open()
        state = broker.partition("t")
        assert state.records == 0
        assert state.start == state.end > max(used)
        with pytest.raises(OffsetOutOfRange):
            await broker.read("t", 0)


async def test_concurrent_appends_get_distinct_offsets(machine: Machine) -> None:
    broker = await _opened(machine)
    tasks = [broker.append_values("t", [b"%d" % number, b"+"]) for number in range(200)]
    bases = [one.base_offset for one in await asyncio.gather(*tasks)]
    assert sorted(bases) == list(range(0, 400, 2))
    values = (await scan(broker, "t"))[0]
    assert [values[base] for base in bases] == [b"%d" % number for number in range(200)]


async def test_past_the_limit_the_oldest_records_are_evicted(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainstem.log.streams.ephemeral.EPHEMERAL_STREAM_BYTES_MAX", 4000)
    broker = await _opened(machine)
    for number in range(200):
        await broker.append_values("t", [b"%03d" % number + b"." * 100])
        state = broker.partition("t")
        assert state.bytes <= 4000
        assert state.end == number + 1
        assert [record.offset for record in await broker.read("t", number)] == [number]
    values, lost = await scan(broker, "t")
    assert list(values) == list(range(broker.partition("t").start, 200))
    assert lost == []
    with pytest.raises(OffsetOutOfRange):
        await broker.read("t", 0)
    await broker.append_values("t", [b"." * 10_000])
    assert [len(record.value or b"") for record in await broker.read("t", 200)] == [10_000]


async def test_a_long_poll_of_an_ephemeral_topic_is_woken(machine: Machine) -> None:
    broker = await _opened(machine)
    reading = asyncio.ensure_future(broker.read("t", 0, max_wait_ms=60_000))
    await settle()
    await broker.append_values("t", [b"x"])
    assert [record.value for record in await reading] == [b"x"]
    reading = asyncio.ensure_future(broker.read("t", 1, max_wait_ms=60_000))
    await settle()
    await broker.delete_topic("t")
    with pytest.raises(NotFound):
        await reading


async def test_truncating_an_ephemeral_topic_frees_memory(machine: Machine) -> None:
    broker = await _opened(machine)
    for _ in range(10):
        await broker.append_values("t", [b"x"] * 3)
    before = broker.partition("t").bytes
    assert await broker.trim("t", 16) == 16
    assert list((await scan(broker, "t"))[0]) == list(range(16, 30))
    assert broker.partition("t").bytes == before // 2
    assert await broker.trim("t", 99) == 30
    assert (broker.partition("t").bytes, broker.partition("t").records) == (0, 0)
    assert (await broker.append_values("t", [b"y"])).base_offset == 30


async def test_offsets_of_an_ephemeral_topic_are_found_by_time(machine: Machine) -> None:
    broker = await _opened(machine)
    for number in range(5):
        await broker.append_values("t", [b"x"] * 2, timestamps_ms=[TIME_MS + number] * 2)
    for number in range(5):
        assert await broker.offset_at("t", TIME_MS + number) == 2 * number
    assert await broker.offset_at("t", TIME_MS + 5) == 10


async def test_an_append_is_refused_if_its_ceiling_cannot_be_written_and_uses_no_offset(
    machine: Machine,
) -> None:
    broker = await _opened(machine)
    machine.files.no_space_after(0)
    with pytest.raises(NoSpace):
        await broker.append_values("t", [b"x"])
    machine.files.space_returns()
    assert (await broker.append_values("t", [b"x"])).base_offset == 0
    ceiling = int(broker.log.ledger.streams.ceiling[broker.topic("t").streams[0]])
    assert ceiling >= 1


async def test_deleting_an_ephemeral_topic_frees_its_memory(machine: Machine) -> None:
    broker = await _opened(machine)
    await broker.append_values("t", [b"x"])
    stream = broker.topic("t").streams[0]
    await broker.delete_topic("t")
    with pytest.raises(NotFound):
        await broker.read("t", 0)
    with pytest.raises(NotFound):
        await broker.log.streams.of(stream).read(stream, 0, 100)
    assert stream not in broker.log.ephemeral
    again = await broker.create_topic("t", config=EPHEMERAL)
    assert again.streams[0] != stream
