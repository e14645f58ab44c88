"""Readers see the same records before, during and after records move from the log to parts."""

from __future__ import annotations

import pytest

from mainstem.api.lake import Publication
from mainstem.broker.broker import Broker
from mainstem.broker.read import Record
from mainstem.broker.routers.service import RouterSettings
from mainstem.errors import InvalidInput, OffsetOutOfRange, RecordsLost, StalePlan
from mainstem.ledger.config import TopicConfig
from tests.support.lake import Worker
from tests.support.machine import Machine

DAY_MS = 86_400_000


async def fill(broker: Broker, name: str = "t", batches: int = 12, **config: object) -> None:
    if name not in [info.name for info in broker.topics()]:
        await broker.create_topic(name, config=TopicConfig(**config))  # type: ignore[arg-type]
    for number in range(batches):
        await broker.append_values(
            name,
            [f"{name}-{number}-{i}".encode() * (1 + i) for i in range(4)] + [None, b""],
            keys=[None, b"", b"k", f"k{number}".encode(), b"\xff\x00", b"k"],
            headers=[(), (("h", b"v"),), (("h", None), ("h", b"")), (), (("é", b"\x80"),), ()],
            timestamps_ms=[1_700_000_000_000 + number * 1000 + i for i in range(6)],
        )


async def all_records(broker: Broker, name: str = "t", start: int = 0) -> list[Record]:
    found: list[Record] = []
    at = start
    while True:
        fetched = await broker.read(name, at, max_records=10_000, max_bytes=2_000)
        if not fetched:
            return found
        found += fetched
        at = fetched[-1].offset + 1


async def from_every_offset(broker: Broker, name: str = "t") -> list[list[Record]]:
    state = broker.partition(name)
    return [
        await broker.read(name, offset, max_records=1, max_bytes=1)
        for offset in range(state.start, state.end)
    ]


def worker(machine: Machine) -> Worker:
    assert machine.broker is not None
    assert machine.port is not None
    return Worker(machine.broker, machine.port)


async def drop_log(machine: Machine) -> int:
    """Delete the log's own bytes as far as possible."""
    assert machine.broker is not None
    for _ in range(12):  # checkpoints need complete objects
        await machine.broker.append_values("filler", [b"x" * 900] * 4)
    await machine.restart()
    await machine.restart()
    return (await machine.broker.lake.collect()).wal_objects


async def test_every_offset_reads_the_same_from_parts_as_from_the_log(machine: Machine) -> None:
    broker = await machine.open()
    await fill(broker)
    before, each = await all_records(broker), await from_every_offset(broker)
    assert len(before) == 72
    await worker(machine).run()
    assert broker.lake.progress(broker.streams.topic("t")).lag_records == 0
    assert await all_records(broker) == before
    assert await from_every_offset(broker) == each
    broker = await machine.restart()  # nothing is left in memory
    assert await all_records(broker) == before
    assert await from_every_offset(broker) == each


async def test_readers_do_not_notice_when_the_log_deletes_its_bytes(machine: Machine) -> None:
    broker = await machine.open()
    await broker.create_topic("filler")
    await fill(broker, batches=40)
    before, each = await all_records(broker), await from_every_offset(broker)
    await worker(machine).run()
    objects = len(machine.port.objects()) if machine.port else 0
    await drop_log(machine)
    broker = machine.broker or broker
    await worker(machine).run()
    await drop_log(machine)
    broker = machine.broker or broker
    assert machine.port is not None
    assert machine.port.objects()[0].number > 1
    assert len(machine.port.objects()) < objects + 20
    assert await all_records(broker) == before
    assert await from_every_offset(broker) == each


async def test_records_of_several_days_are_in_several_files_and_read_in_order(machine: Machine) -> None:
    broker = await machine.open()
    await broker.create_topic("t")
    day = 1_700_000_000_000
    for number in range(30):
        times = [day + ((number + i) % 3) * DAY_MS for i in range(5)]
        await broker.append_values("t", [b"%d" % number] * 5, timestamps_ms=times)
    before, each = await all_records(broker), await from_every_offset(broker)
    await worker(machine).run()
    (part,) = broker.log.ledger.generations.parts(0)
    assert len(part.files) == 3
    broker = await machine.restart()
    assert await all_records(broker) == before
    assert await from_every_offset(broker) == each


async def test_deleted_records_stay_deleted_and_a_rewrite_removes_them_from_files(
    machine: Machine,
) -> None:
    broker = await machine.open()
    await fill(broker)
    await broker.log.streams.of(0).delete(0, ((3, 5), (70, 72)), 0)
    await worker(machine).run("materialise")
    assert broker.log.ledger.generations.parts(0)[0].records == 68
    await broker.log.streams.of(0).delete(0, ((10, 20), (30, 31)), 0)
    before, each = await all_records(broker), await from_every_offset(broker)
    assert [record.offset for record in before if 8 <= record.offset < 22] == [8, 9, 20, 21]
    machine_again = await machine.restart()
    assert await all_records(machine_again) == before
    assert machine_again.log.ledger.generations.stale(0)
    done = await worker(machine).run()
    assert [task.kind for task in done] == ["rewrite"]
    assert machine_again.log.ledger.generations.parts(0)[0].records == 57
    assert not machine_again.log.ledger.generations.stale(0)
    broker = await machine.restart()
    assert await all_records(broker) == before
    assert await from_every_offset(broker) == each


async def test_a_delete_during_a_task_makes_its_parts_stale(machine: Machine) -> None:
    broker = await machine.open()
    await fill(broker)
    work = worker(machine)
    (task,) = await work.plan()
    publication = await work.work(task)
    await broker.log.streams.of(0).delete(0, ((7, 9),), 0)
    await broker.lake.publish(publication)
    assert len(broker.log.ledger.generations.stale(0)) == 1
    assert [record.offset for record in await all_records(broker) if record.offset < 11] == [
        *range(7),
        9,
        10,
    ]
    assert [task.kind for task in await work.run()] == ["rewrite"]
    assert broker.log.ledger.generations.parts(0)[0].records == 70


async def test_many_small_parts_are_merged_and_read_the_same(machine: Machine) -> None:
    broker = await machine.open()
    work = worker(machine)
    for _ in range(9):
        await fill(broker, batches=1)
        await work.run("materialise")
    before, each = await all_records(broker), await from_every_offset(broker)
    assert len(broker.log.ledger.generations.parts(0)) == 9
    done = await work.run("merge")
    assert [task.kind for task in done] == ["merge"]
    (part,) = broker.log.ledger.generations.parts(0)
    assert (part.base, part.end, part.generation, part.records) == (0, 54, 2, 54)
    broker = await machine.restart()
    assert await all_records(broker) == before
    assert await from_every_offset(broker) == each


async def test_compaction_keeps_the_newest_of_each_key_and_counts_stay_right(machine: Machine) -> None:
    broker = await machine.open()
    await fill(broker)  # with records that have no key, which a compacted topic no longer takes
    await broker.alter_topic("t", TopicConfig(cleanup_policy="compact"))
    work = worker(machine)
    await work.run("materialise")
    machine.clock.advance(100_000)
    done = await work.run("compact")
    assert [task.kind for task in done] == ["compact"]
    left = await all_records(broker)
    keyed = [record.key for record in left if record.key is not None]
    assert len(keyed) == len(set(keyed)) == 15
    assert len(left) == 15 + 12
    assert broker.partition("t").records == len(left)
    assert not await work.run("compact")
    await broker.trim("t", 60)
    assert (
        abs(broker.partition("t").records - len(await all_records(broker, start=60))) <= 8
    )  # of a truncated part
    await broker.trim("t", 72)
    assert broker.partition("t").records == 0


async def test_a_missing_file_loses_its_range_and_nothing_else(machine: Machine) -> None:
    broker = await machine.open()
    await fill(broker, batches=6)
    await fill(broker, "other", batches=3)
    work = worker(machine)
    (task,) = await work.plan(topics=("t",))
    await broker.lake.publish(await work.work(task, split_at=[12, 24]))
    await work.run()
    everything, others = await all_records(broker), await all_records(broker, "other")
    key = broker.log.ledger.generations.parts(0)[1].files[0].key
    saved = await broker.objects.get(key)
    await broker.objects.delete(key)
    broker = await machine.restart()
    with pytest.raises(RecordsLost) as lost:
        await broker.read("t", 15)
    assert (lost.value.start, lost.value.end, lost.value.reason) == (15, 24, "missing")
    assert await broker.read("t", 0, max_records=100) == everything[:12]
    assert await all_records(broker, start=24) == everything[24:]
    assert await all_records(broker, "other") == others
    assert await broker.offset_at("t", everything[30].timestamp_ms) == everything[30].offset
    await broker.objects.put(key, saved)
    assert await all_records(broker) == everything


async def test_a_damaged_file_loses_its_range_and_nothing_else(machine: Machine) -> None:
    broker = await machine.open()
    await fill(broker, batches=6)
    work = worker(machine)
    (task,) = await work.plan()
    await broker.lake.publish(await work.work(task, split_at=[12, 24]))
    everything = await all_records(broker)
    key = broker.log.ledger.generations.parts(0)[1].files[0].key
    saved = bytearray(await broker.objects.get(key))
    for damaged in (saved[:50], bytes(len(saved)), saved[: len(saved) // 3] + bytes(len(saved))):
        await broker.objects.put(key, bytes(damaged))
        broker = await machine.restart()
        with pytest.raises(RecordsLost) as lost:
            await broker.read("t", 12)
        assert (lost.value.start, lost.value.end, lost.value.reason) == (12, 24, "damaged")
        assert await all_records(broker, start=24) == everything[24:]


async def test_only_the_records_of_a_missing_day_are_lost(machine: Machine) -> None:
    broker = await machine.open()
    await broker.create_topic("t")
    day = 1_700_000_000_000
    days = [0, 0, 1, 1, 1, 0, 1, 0, 0, 2]
    await broker.append_values(
        "t", [b"%d" % i for i in range(10)], timestamps_ms=[day + one * DAY_MS for one in days]
    )
    await worker(machine).run()
    (part,) = broker.log.ledger.generations.parts(0)
    second = next(file for file in part.files if file.records == 4)
    await broker.objects.delete(second.key)
    broker = await machine.restart()
    seen: list[int] = []
    lost: list[tuple[int, int]] = []
    at = 0
    while at < 10:
        try:
            records = await broker.read("t", at)
        except RecordsLost as loss:
            lost.append((loss.start, loss.end))
            at = loss.end
            continue
        seen += [record.offset for record in records]
        at = records[-1].offset + 1
    assert (seen, lost) == ([0, 1, 5, 7, 8, 9], [(2, 5), (6, 7)])


async def test_times_are_found_in_parts_as_in_the_log(machine: Machine) -> None:
    broker = await machine.open()
    await fill(broker)
    records = await all_records(broker)
    times = [1_700_000_000_000 + ms for ms in (-5, 0, 3, 999, 4002, 11_005, 11_006)]
    before = [await broker.offset_at("t", time) for time in times]
    latest = await broker.log.streams.of(0).latest_time(0)
    work = worker(machine)
    (task,) = await work.plan()
    await broker.lake.publish(await work.work(task, split_at=[20, 40]))
    assert [await broker.offset_at("t", time) for time in times] == before
    await fill(broker, batches=2)
    assert await broker.log.streams.of(0).latest_time(0) == latest == records[-1].timestamp_ms
    assert await broker.offset_at("t", records[-1].timestamp_ms) == records[-1].offset


async def test_retention_deletes_whole_parts_where_only_parts_are_left(machine: Machine) -> None:
    broker = await machine.open()
    await fill(broker)
    work = worker(machine)
    (task,) = await work.plan()
    await broker.lake.publish(await work.work(task, split_at=[24, 48]))
    parts = broker.log.ledger.generations.parts(0)
    floor = broker.log.retention_floor
    assert await floor(0, keep_after_ms=1_700_000_000_000 + 4_000, keep_bytes=None) == 24
    assert await floor(0, keep_after_ms=1_700_000_000_000 + 99_000, keep_bytes=None) == 72
    assert await floor(0, keep_after_ms=0, keep_bytes=None) == 0
    assert await floor(0, keep_after_ms=None, keep_bytes=parts[2].bytes + parts[1].bytes) == 24
    assert await floor(0, keep_after_ms=None, keep_bytes=parts[2].bytes) == 48
    assert await floor(0, keep_after_ms=None, keep_bytes=0) == 72
    assert await floor(0, keep_after_ms=None, keep_bytes=10**9) == 0
    await broker.trim("t", 30)
    with pytest.raises(OffsetOutOfRange):
        await broker.read("t", 29)
    assert (await broker.read("t", 30))[0].offset == 30
    await broker.lake.collect()
    assert [part.base for part in broker.log.ledger.generations.parts(0)] == [24, 48]
    assert len(broker.log.ledger.generations.garbage()) == 1


async def test_a_publication_that_lacks_records_is_refused(machine: Machine) -> None:
    broker = await machine.open()
    await fill(broker)
    work = worker(machine)
    (task,) = await work.plan()
    good = await work.work(task)
    (part,) = good.parts
    with pytest.raises(InvalidInput):
        await broker.lake.publish(
            Publication(task.stream, task.token, (), (type(part)(part.base, part.end, 1, (), 0),))
        )
    with pytest.raises(StalePlan):
        await broker.lake.publish(Publication(task.stream, task.token + 1, (), good.parts))
    frontier = await broker.lake.publish(good)
    assert frontier == 72
    assert await broker.lake.publish(good) == 72  # a retry
    assert broker.log.ledger.tasks.get("parts/0") is None


async def test_copies_of_another_topic_get_their_own_parts(machine: Machine) -> None:
    broker = await machine.open()
    await broker.create_topic("a")
    await broker.create_topic("b")
    await broker.create_topic("filler")
    await broker.routers.put("r", RouterSettings("a", "b"))
    await fill(broker, "a", batches=5)
    await broker.append_values("b", [b"its own"] * 3)
    await broker.log.streams.of(0).delete(
        0, ((13, 14),), 0
    )  # before it is copied: so a slice is copied in part
    await fill(broker, "a", batches=5)
    await broker.routers.drain("b")
    originals, copies = await all_records(broker, "a"), await all_records(broker, "b")
    assert len(originals) == 59
    assert len(copies) == 62
    await worker(machine).run()
    ledger = broker.log.ledger
    assert ledger.generations.frontier(1) == broker.partition("b").end
    assert ledger.generations.parts(1)[0].records == 62
    machine.clock.advance(1_000)
    await broker.append_values("a", [b"last"])  # copies of one time are recorded together
    await broker.routers.drain("b")
    await worker(machine).run()
    originals, copies = await all_records(broker, "a"), await all_records(broker, "b")
    for _ in range(2):
        assert await all_records(broker, "a") == originals
        assert await all_records(broker, "b") == copies
        await drop_log(machine)
        broker = machine.broker or broker
    assert machine.port is not None
    assert machine.port.objects()[0].number > 1
    assert await all_records(broker, "b") == copies
    await fill(broker, "a", batches=1)
    await broker.routers.drain("b")
    assert len(await all_records(broker, "b")) == 69


async def test_copies_survive_the_deletion_of_the_original(machine: Machine) -> None:
    broker = await machine.open()
    await broker.create_topic("a")
    await broker.create_topic("b")
    await broker.create_topic("filler")
    await broker.routers.put("r", RouterSettings("a", "b"))
    await fill(broker, "a", batches=6)
    await broker.routers.drain("b")
    copies = await all_records(broker, "b")
    await worker(machine).run(topics=("a",))
    await broker.trim("a", 36)
    await drop_log(machine)
    broker = machine.broker or broker
    assert await all_records(broker, "b") == copies
    await worker(machine).run()
    await drop_log(machine)
    broker = machine.broker or broker
    assert await all_records(broker, "b") == copies
