"""The storage map: parts by generation, and messages across parts and log."""

from __future__ import annotations

from itertools import pairwise

from mainstem.broker.broker import Broker
from mainstem.broker.messages import MessageFilter, Messages
from mainstem.broker.overview import Overview
from mainstem.ledger.config import TopicConfig
from mainstem.ledger.streams import MarkLost
from mainstem.log.objects.repack.plan import RepackOptions
from tests.support.lake import Worker
from tests.support.machine import Machine
from tests.support.waiting import finished


def everyone(name: str) -> bool:
    return True


async def filled(broker: Broker, count: int = 60) -> None:
    await broker.create_topic("t", config=TopicConfig(table=True))
    for first in range(0, count, 20):
        numbers = range(first, first + 20)
        await broker.append_values("t", [b"v%d" % n for n in numbers], keys=[b"k%d" % n for n in numbers])


async def materialised(machine: Machine, broker: Broker) -> None:
    assert machine.port is not None
    await Worker(broker, machine.port).run("materialise")


async def test_parts_and_the_replaced_ranges_of_the_log_are_distinguished(machine: Machine) -> None:
    broker = await machine.open()
    await filled(broker)
    await materialised(machine, broker)
    await broker.append_values("t", [b"after"])
    found = await broker.storage_maps.map(everyone)
    assert [(part.topic, part.base, part.end, part.generation, part.records) for part in found.parts] == [
        ("t", 0, 60, 1, 60)
    ]
    assert found.parts[0].files
    assert found.parts[0].bytes > 0
    assert (await broker.storage_maps.map(lambda name: False)).parts == []
    tiers = Overview(broker).glance().tiers
    assert (tiers.parquet_records, tiers.parquet_files) == (60, len(found.parts[0].files))
    ranges = [one for held in found.objects for one in held.ranges]
    assert max(one.end for one in ranges if one.live) == 61


async def test_repacked_files_are_shown_with_what_they_hold() -> None:
    now = RepackOptions(on=False, after_objects=1, least_bytes=0, bytes_per_s=0, file_bytes=4000)
    machine = Machine(repack=now)
    broker = await machine.open()
    for topic in ("t", "u"):
        await broker.create_topic(topic)
    for number in range(80):
        await broker.append_values("tu"[number % 2], [b"%d" % number + b"." * 100])
    await finished(broker)
    assert (await broker.storage_maps.map(everyone)).repacked == []
    assert broker.log.repacker is not None
    assert await broker.log.repacker.step()
    found = await broker.storage_maps.map(everyone)
    assert found.repacked_total == len(found.repacked) > 1
    (made,) = broker.log.ledger.repacked.rounds
    assert sorted(row.key for row in found.repacked) == sorted(made.keys)
    assert {(row.generation, row.first, row.end) for row in found.repacked} == {(1, made.first, made.end)}
    ranges = [held for row in found.repacked for held in row.ranges]
    for topic in ("t", "u"):
        own = sorted((held.base, held.end) for held in ranges if held.topic == topic)
        assert own[0][0] == 0
        assert all(before[1] == after[0] for before, after in pairwise(own))
    of_t = await broker.storage_maps.map(everyone, broker.streams.topic("t"))
    assert {held.topic for row in of_t.repacked for held in row.ranges} == {"t"}
    hidden = await broker.storage_maps.map(lambda name: False)
    assert not any(row.ranges for row in hidden.repacked)
    tiers = Overview(broker).glance().tiers
    assert (tiers.repacked_files, tiers.repacked_bytes) == (len(made.files), made.bytes)
    await machine.kill()


async def test_messages_read_the_same_from_parquet_and_the_log(machine: Machine) -> None:
    broker = await machine.open()
    await filled(broker)
    topic = broker.streams.topic("t")
    messages = Messages(broker)
    before = await messages.before(topic, 0, 1 << 40, 25, MessageFilter())
    found = await messages.after(topic, 0, 0, 25, MessageFilter(value=b"V1"))
    await materialised(machine, broker)
    broker = await machine.restart()
    topic, messages = broker.streams.topic("t"), Messages(broker)
    assert (await messages.before(topic, 0, 1 << 40, 25, MessageFilter())).records == before.records
    assert (await messages.after(topic, 0, 0, 25, MessageFilter(value=b"V1"))).records == found.records
    assert [record.offset for record in found.records] == [1, *range(10, 20)]


async def test_lost_records_are_named_and_the_records_around_them_shown(machine: Machine) -> None:
    broker = await machine.open()
    await filled(broker)
    topic = broker.streams.topic("t")
    await broker.log.propose(MarkLost(topic.streams[0], 20, 40))
    forwards = await Messages(broker).after(topic, 0, 0, 100, MessageFilter())
    assert [record.offset for record in forwards.records] == [*range(20), *range(40, 60)]
    assert forwards.lost == [(20, 40, "damaged")]
    backwards = await Messages(broker).before(topic, 0, 60, 100, MessageFilter())
    assert [record.offset for record in backwards.records] == [*range(20), *range(40, 60)]
    assert backwards.lost == [(20, 40, "damaged")]
