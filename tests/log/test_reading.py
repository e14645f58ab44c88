from __future__ import annotations

import asyncio

import pytest

from mainstem.broker.broker import Broker
from mainstem.errors import NotFound, OffsetOutOfRange
from mainstem.ledger.streams import DeleteRecords
from mainstem.records.header import walk
from tests.support.batches import TIME_MS, batches, records_of
from tests.support.commitlogs import GatedCommitLog
from tests.support.history import scan
from tests.support.machine import Machine
from tests.support.waiting import finished, settle

Values = dict[int, bytes]


async def _opened(machine: Machine) -> tuple[Broker, GatedCommitLog]:
    broker = await machine.open()
    await broker.create_topic("t")
    await broker.create_topic("other")
    assert machine.port is not None
    return broker, machine.port


async def _fill(broker: Broker, slices: int) -> Values:
    """Slices of one to three records, of several batches each, interleaved with another topic."""
    written: Values = {}
    for number in range(slices):
        groups = [[b"%d.%d.%d" % (number, i, j) + b"." * 60 for j in range(2)] for i in range(1 + number % 3)]
        slice, facts = batches(*groups)
        appended = await broker.append("t", slice)
        assert appended.base_offset == len(written)
        for value in (value for group in groups for value in group):
            written[len(written)] = value
        assert facts.count == sum(map(len, groups))
        await broker.append_values("other", [b"between"])
        await finished(broker)
    return written


async def _check_every_start(broker: Broker, written: Values) -> None:
    end = len(written)
    for start in range(end):
        at, found = start, {}
        while at < end:
            fetched = await broker.fetch("t", at, max_bytes=700)
            headers = [header for batch in fetched.batches for header in walk(batch)]
            assert headers[0].base_offset <= at < headers[0].next_offset  # no extra batch
            assert all(header.leader_epoch == 0 for header in headers)
            found.update(records_of(fetched.batches, at))
            assert fetched.next_offset == headers[-1].next_offset > at
            at = fetched.next_offset
        assert found == {offset: written[offset] for offset in range(start, end)}
    assert (await broker.fetch("t", end)).batches == ()


async def test_a_read_can_start_at_every_offset_across_many_objects(machine: Machine) -> None:
    broker, port = await _opened(machine)
    written = await _fill(broker, 40)
    assert len(port.objects()) > 3
    await _check_every_start(broker, written)


async def test_a_read_can_start_at_every_offset_after_a_restart(machine: Machine) -> None:
    broker, _ = await _opened(machine)
    written = await _fill(broker, 40)
    await _check_every_start(await machine.restart(), written)
    await machine.kill()
    await _check_every_start(await machine.open(), written)


async def test_new_records_are_read_from_memory(machine: Machine) -> None:
    broker, port = await _opened(machine)
    await broker.append_values("t", [b"x"])
    port.reads.clear()
    assert [record.value for record in await broker.read("t", 0)] == [b"x"]
    assert port.reads == []


async def test_records_evicted_from_the_tail_cache_are_read_from_the_file(machine: Machine) -> None:
    broker, port = await _opened(machine)
    written = await _fill(broker, 40)
    port.reads.clear()
    fetched = await broker.fetch("t", 0, max_bytes=1)
    assert records_of(fetched.batches) == [(0, written[0]), (1, written[1])]
    assert len(port.reads) == 1


async def test_indexes_of_old_objects_are_read_on_demand_and_few_are_cached(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainstem.log.read.index.INDEX_MEMORY_BYTES", 1)
    monkeypatch.setattr("mainstem.log.read.index.INDEX_MEMORY_OBJECTS_MIN", 2)
    broker, port = await _opened(machine)
    written = await _fill(broker, 60)
    sealed = [object.number for object in port.objects() if object.sealed]
    assert len(sealed) > 4
    port.index_reads.clear()
    await _check_every_start(broker, written)
    assert set(port.index_reads) >= set(sealed[:-3])
    port.index_reads.clear()
    await broker.fetch("t", len(written) - 1)
    assert port.index_reads == []


async def test_max_bytes_limits_a_read_to_at_least_one_batch(machine: Machine) -> None:
    broker, _ = await _opened(machine)
    sizes = [len((await broker.fetch("t", await _append_one(broker))).batches[0]) for _ in range(6)]
    assert len(set(sizes)) == 1
    for fit in range(1, 6):
        for max_bytes in (fit * sizes[0], (fit + 1) * sizes[0] - 1):
            assert len((await broker.fetch("t", 0, max_bytes=max_bytes)).batches) == fit
    assert len((await broker.fetch("t", 0, max_bytes=1)).batches) == 1
    assert len((await broker.fetch("t", 0, max_bytes=0)).batches) == 1


async def _append_one(broker: Broker) -> int:
    return (await broker.append_values("t", [b"0123456789"])).base_offset


async def test_a_long_poll_is_woken_only_by_the_append_it_waits_for(machine: Machine) -> None:
    broker, _ = await _opened(machine)
    reading = asyncio.ensure_future(broker.read("t", 0, max_wait_ms=60_000))
    await settle()
    await broker.append_values("other", [b"not yours"])
    await settle()
    assert not reading.done()
    await broker.append_values("t", [b"yours"])
    assert [record.value for record in await reading] == [b"yours"]


async def test_a_long_poll_without_new_records_returns_empty(machine: Machine) -> None:
    broker, _ = await _opened(machine)
    fetched = await broker.fetch("t", 0, max_wait_ms=1)
    assert (fetched.batches, fetched.next_offset) == ((), 0)


async def test_a_long_poll_below_the_end_does_not_wait(machine: Machine) -> None:
    broker, _ = await _opened(machine)
    await _append_one(broker)
    assert (await asyncio.wait_for(broker.fetch("t", 0, max_wait_ms=60_000), 30)).batches


async def test_a_thousand_long_polls_are_all_woken_by_one_append(machine: Machine) -> None:
    broker, _ = await _opened(machine)
    reading = [asyncio.ensure_future(broker.read("t", 0, max_wait_ms=60_000)) for _ in range(1000)]
    await settle()
    await _append_one(broker)
    assert all(len(records) == 1 for records in await asyncio.gather(*reading))


async def test_a_cancelled_long_poll_leaves_nothing_behind(machine: Machine) -> None:
    broker, _ = await _opened(machine)
    reading = asyncio.ensure_future(broker.read("t", 0, max_wait_ms=60_000))
    await settle()
    reading.cancel()
    await settle()
    assert not broker.log.visibility.waiting


async def test_deleting_the_topic_ends_a_long_poll(machine: Machine) -> None:
    broker, _ = await _opened(machine)
    reading = asyncio.ensure_future(broker.read("t", 0, max_wait_ms=60_000))
    await settle()
    await broker.delete_topic("t")
    with pytest.raises(NotFound):
        await reading


async def test_closing_the_broker_ends_a_long_poll(machine: Machine) -> None:
    broker, _ = await _opened(machine)
    reading = asyncio.ensure_future(broker.fetch("t", 0, max_wait_ms=60_000))
    await settle()
    await machine.close()
    assert (await asyncio.wait_for(reading, 30)).batches == ()


@pytest.mark.parametrize("offset", [-1, 7, 1 << 62])
async def test_an_offset_outside_the_stream_is_refused_with_its_bounds(machine: Machine, offset: int) -> None:
    broker, _ = await _opened(machine)
    await broker.append_values("t", [b"x"] * 6)
    with pytest.raises(OffsetOutOfRange) as refused:
        await broker.read("t", offset)
    assert (refused.value.start, refused.value.end) == (0, 6)


async def test_truncation_inside_a_batch_hides_the_records_below(machine: Machine) -> None:
    broker, _ = await _opened(machine)
    await broker.append_values("t", [b"%d" % number for number in range(10)])
    assert await broker.trim("t", 4) == 4
    with pytest.raises(OffsetOutOfRange):
        await broker.read("t", 3)
    assert [record.offset for record in await broker.read("t", 4)] == list(range(4, 10))
    broker = await machine.restart()
    assert broker.partition("t").start == 4
    assert [record.offset for record in await broker.read("t", 4)] == list(range(4, 10))


async def test_truncation_never_passes_the_end_or_moves_back(machine: Machine) -> None:
    broker, _ = await _opened(machine)
    await broker.append_values("t", [b"x"] * 5)
    assert await broker.trim("t", 99) == 5
    assert await broker.trim("t", 2) == 5
    assert (await broker.append_values("t", [b"y"])).base_offset == 5


@pytest.mark.parametrize("cached", [True, False])
async def test_deleted_records_are_left_out_and_the_others_keep_their_bytes(cached: bool) -> None:
    machine = Machine(tail_cache_bytes=1 << 20 if cached else 0)
    broker, _ = await _opened(machine)
    written = await _fill(broker, 12)
    stream = broker.topic("t").streams[0]
    ranges = ((1, 3), (5, 6), (10, 17), (20, 21))
    await broker.log.propose(DeleteRecords(stream, ranges))
    deleted = {offset for first, last in ranges for offset in range(first, last)}
    kept = {offset: value for offset, value in written.items() if offset not in deleted}
    for _ in range(2):
        assert await scan(broker, "t") == (kept, [])
        for start in range(len(written)):
            found = await broker.read("t", start, max_bytes=1)
            assert found[0].offset == min(offset for offset in kept if offset >= start)
        broker = await machine.restart()
    await machine.close()


async def test_a_read_at_deleted_records_returns_the_next_live_ones(machine: Machine) -> None:
    broker, _ = await _opened(machine)
    for number in range(8):
        await broker.append_values("t", [b"%d" % number])
    await broker.log.propose(DeleteRecords(broker.topic("t").streams[0], ((2, 6),)))
    assert [record.offset for record in await broker.read("t", 2, max_bytes=1)] == [6]
    await broker.log.propose(DeleteRecords(broker.topic("t").streams[0], ((6, 8),)))
    assert await broker.read("t", 2, max_bytes=1) == []


async def test_records_deleted_during_a_take_do_not_hide_the_others(machine: Machine) -> None:
    broker, port = await _opened(machine)
    for number in range(6):
        await broker.append_values("t", [b"%d" % number])
    stream = broker.topic("t").streams[0]
    port.append_gate.clear()
    taking = asyncio.ensure_future(broker.take("t", "g", limit=6))
    deleting = asyncio.ensure_future(broker.log.propose(DeleteRecords(stream, ((0, 2), (3, 4)))))
    await settle()
    port.append_gate.set()
    assert [record.offset for record in await taking] == [2, 4, 5]
    await deleting


async def test_records_truncated_during_a_take_do_not_fail_the_others(machine: Machine) -> None:
    broker, port = await _opened(machine)
    for number in range(6):
        await broker.append_values("t", [b"%d" % number])
    port.append_gate.clear()
    taking = asyncio.ensure_future(broker.take("t", "g", limit=6))
    trimming = asyncio.ensure_future(broker.trim("t", 3))
    await settle()
    port.append_gate.set()
    assert [record.offset for record in await taking] == [3, 4, 5]
    await trimming


async def test_a_read_from_a_deleted_object_is_out_of_range(machine: Machine) -> None:
    broker, port = await _opened(machine)
    written = await _fill(broker, 60)
    assert sum(object.sealed for object in port.objects()) > 4
    before = len(port.objects())

    async def read_all() -> None:
        at = 0
        while at < len(written):
            try:
                at = (await broker.fetch("t", at, max_bytes=1)).next_offset
            except OffsetOutOfRange as moved:
                at = moved.start

    readers = [asyncio.ensure_future(read_all()) for _ in range(5)]
    for floor in range(0, len(written), 7):
        await broker.trim("t", floor)
        await broker.trim("other", broker.partition("other").end)
    await asyncio.gather(*readers)
    assert len(port.objects()) < before


async def test_offsets_are_found_by_time_across_objects(machine: Machine) -> None:
    broker, _ = await _opened(machine)
    for number in range(60):
        await broker.append_values("t", [b"x" * 100] * 2, timestamps_ms=[TIME_MS + 10 * number] * 2)
    for number in range(60):
        assert await broker.offset_at("t", TIME_MS + 10 * number) == 2 * number
        assert await broker.offset_at("t", TIME_MS + 10 * number - 9) == 2 * number
    assert await broker.offset_at("t", 0) == 0
    assert await broker.offset_at("t", TIME_MS + 591) == 120


async def test_offsets_are_found_by_time_when_times_are_out_of_order(machine: Machine) -> None:
    broker, _ = await _opened(machine)
    times = [50, 10, 30, 90, 20, 20, 70, 5, 95, 40, 60, 100, 1]
    for at in range(0, len(times), 3):
        part = times[at : at + 3]
        await broker.append_values("t", [b"x"] * len(part), timestamps_ms=part)
    for start in range(len(times)):
        await broker.trim("t", start)
        for wanted in range(102):
            late = [offset for offset, time in enumerate(times) if offset >= start and time >= wanted]
            assert await broker.offset_at("t", wanted) == (late[0] if late else len(times)), (start, wanted)


async def test_offsets_are_found_by_time_past_deleted_records(machine: Machine) -> None:
    broker, _ = await _opened(machine)
    for number in range(6):
        await broker.append_values("t", [b"x"], timestamps_ms=[number])
    await broker.log.propose(DeleteRecords(broker.topic("t").streams[0], ((2, 4),)))
    assert await broker.offset_at("t", 2) == 4
