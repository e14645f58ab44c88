from __future__ import annotations

import asyncio

import pytest

from mainstem.broker.broker import Broker
from mainstem.errors import (
    InvalidConfig,
    InvalidInput,
    InvalidName,
    NotFound,
    PartitionNotFound,
    TooLarge,
    TopicExists,
    TopicNotFound,
)
from mainstem.ledger.config import TopicConfig
from tests.support.batches import batches
from tests.support.history import scan
from tests.support.machine import Machine
from tests.support.waiting import settle, until


async def test_a_recreated_topic_is_a_different_topic(machine: Machine) -> None:
    broker = await machine.open()
    first = await broker.create_topic("t")
    await broker.append_values("t", [b"old"])
    await broker.commit_offset("g", "t", 1)
    await broker.delete_topic("t")
    with pytest.raises(TopicNotFound):
        await broker.read("t", 0)
    second = await broker.create_topic("t")
    assert second.topic_id != first.topic_id
    assert second.streams != first.streams
    for _ in range(2):
        assert broker.partition("t").end == 0
        assert broker.committed("g", "t") is None
        broker = await machine.restart()
    assert (await broker.append_values("t", [b"new"])).base_offset == 0
    assert await scan(broker, "t") == ({0: b"new"}, [])


async def test_one_of_many_concurrent_creations_succeeds(machine: Machine) -> None:
    broker = await machine.open()
    done = await asyncio.gather(*(broker.create_topic("t") for _ in range(10)), return_exceptions=True)
    assert sum(isinstance(one, TopicExists) for one in done) == 9
    same = await asyncio.gather(*(broker.create_topic("u", exist_ok=True) for _ in range(10)))
    assert len({info.topic_id for info in same}) == 1


async def test_partitions_are_added_empty_and_never_removed(machine: Machine) -> None:
    broker = await machine.open()
    await broker.create_topic("t", partitions=2)
    await broker.append_values("t", [b"1"], partition=1)
    with pytest.raises(PartitionNotFound):
        await broker.append_values("t", [b"3"], partition=3)
    assert (await broker.add_partitions("t", 4)).partitions == 4
    assert (await broker.append_values("t", [b"3"], partition=3)).base_offset == 0
    with pytest.raises(InvalidConfig):
        await broker.add_partitions("t", 3)
    for how in (machine.restart, None):
        assert [broker.partition("t", number).end for number in range(4)] == [0, 1, 0, 1]
        if how is not None:
            broker = await how()
    with pytest.raises(PartitionNotFound):
        broker.partition("t", -1)


@pytest.mark.parametrize("name", ["", "..", "a//b", "a b", "é", "x" * 256, "a\n"])
async def test_names_outside_the_alphabet_are_refused(machine: Machine, name: str) -> None:
    broker = await machine.open()
    with pytest.raises(InvalidName):
        await broker.create_topic(name)
    assert broker.topics() == []


async def test_an_append_that_races_with_a_delete_is_acked_before_it_or_refused(machine: Machine) -> None:
    broker = await machine.open()
    port = machine.port
    assert port is not None
    for number in range(20):
        await broker.create_topic("t")
        port.append_gate.clear()
        tasks: list[asyncio.Future[object]] = []
        for step in range(6):
            tasks.append(asyncio.ensure_future(broker.append_values("t", [b"x"])))
            if step == number % 6:
                deleting = asyncio.ensure_future(broker.delete_topic("t"))
        await settle()
        port.append_gate.set()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        await deleting
        refused = [isinstance(one, NotFound) for one in done]
        assert refused == [False] * (number % 6 + 1) + [True] * (5 - number % 6)


async def test_empty_and_oversized_appends_are_refused_before_anything_changes(machine: Machine) -> None:
    broker = await machine.open()
    await broker.create_topic("t", config=TopicConfig(max_message_bytes=500))
    with pytest.raises(InvalidInput):
        await broker.append_values("t", [])
    with pytest.raises(TooLarge):
        await broker.append_values("t", [b"." * 600])
    with pytest.raises(TooLarge):
        await broker.append("t", batches([b"." * 600])[0])
    with pytest.raises(InvalidInput):
        await broker.append("t", bytearray())
    assert broker.partition("t").end == 0


async def test_the_broker_sets_timestamps_with_log_append_time(machine: Machine) -> None:
    broker = await machine.open()
    await broker.create_topic("t", config=TopicConfig(timestamp_type="LogAppendTime"))
    now = machine.clock.now_ms()
    slice, _ = batches([b"a", b"b"], [b"c"], times=5)
    appended = await broker.append("t", slice)
    assert appended.timestamp_ms == now
    machine.clock.advance(1000)
    await broker.append_values("t", [b"d"], timestamps_ms=[5])
    for _ in range(2):
        records = await broker.read("t", 0, max_bytes=1 << 20)
        assert [(record.offset, record.timestamp_ms, record.value) for record in records] == [
            (0, now, b"a"),
            (1, now, b"b"),
            (2, now, b"c"),
            (3, now + 1000, b"d"),
        ]
        assert await broker.offset_at("t", now + 1) == 3
        broker = await machine.restart()


async def _takers(broker: Broker, count: int) -> list[int]:
    taken: list[int] = []

    async def take() -> None:
        while records := await broker.take("t", "g", limit=3):
            taken.extend(record.offset for record in records)

    await asyncio.gather(*(take() for _ in range(count)))
    return taken


async def test_no_two_takers_get_the_same_record_and_none_is_left(machine: Machine) -> None:
    broker = await machine.open()
    await broker.create_topic("t")
    for _ in range(30):
        await broker.append_values("t", [b"x"] * 3)
    assert sorted(await _takers(broker, 5)) == list(range(90))
    await machine.kill()
    broker = await machine.open()
    assert await broker.take("t", "g") == []
    assert [record.offset for record in await broker.take("t", "other")] == [0]


async def test_takers_skip_records_lost_in_a_power_loss(machine: Machine) -> None:
    broker = await machine.open()
    await broker.create_topic("t", config=TopicConfig(durability="disk"))
    await broker.append_values("t", [b"kept"])
    await broker.log.sync()
    assert machine.port is not None
    await machine.port.hold_syncs()
    await broker.append_values("t", [b"lost"])
    await machine.lose_power("lost")
    broker = await machine.open()
    after = (await broker.append_values("t", [b"after"])).base_offset
    taken = [(record.offset, record.value) for record in await broker.take("t", "g", limit=10)]
    assert taken == [(0, b"kept"), (after, b"after")]


async def test_a_topic_that_exists_already_is_answered_once_its_creation_is_durable(machine: Machine) -> None:
    broker = await machine.open()
    assert machine.port is not None
    await machine.port.hold_syncs()
    first = asyncio.ensure_future(broker.create_topic("t"))
    second = asyncio.ensure_future(broker.create_topic("t", exist_ok=True))
    await until(lambda: "t" in broker.log.ledger.topics)
    third = asyncio.ensure_future(broker.create_topic("t", exist_ok=True))
    await settle()
    assert not any(creation.done() for creation in (first, second, third))
    machine.port.sync_gate.set()
    assert (await first).topic_id == (await second).topic_id == (await third).topic_id
