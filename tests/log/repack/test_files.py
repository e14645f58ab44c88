"""Which files exist: what is copied together, what a round replaces, and when old files are deleted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mainstem.errors import NoSpace
from mainstem.ledger.repacked_objects import REPACKED
from mainstem.ledger.tasks import ReleaseTask, TakeTask
from mainstem.log.objects.repack.files import RepackedFiles
from tests.support.history import scan
from tests.support.machine import Machine

from .repacking import SMALL, repack_all, repacked_keys, repacker, wal_numbers, write_two


async def test_a_quiet_topic_no_longer_keeps_the_files_of_a_busy_one(machine: Machine) -> None:
    broker = await machine.open()
    written = await write_two(broker, 120)
    sealed = wal_numbers(machine)
    assert len(sealed) > 6
    await broker.trim("busy", 110)
    await broker.log.collect()
    assert len(wal_numbers(machine)) == len(sealed)  # the quiet topic has a record in each
    await repack_all(broker)
    await broker.log.collect()
    assert len(wal_numbers(machine)) <= 3
    assert (await scan(broker, "quiet"))[0] == written
    kept = sum(one.bytes for one in broker.log.ledger.repacked.rounds)
    assert kept < 120 * 100  # truncated records are not copied
    broker = await machine.restart()
    assert (await scan(broker, "quiet"))[0] == written


async def test_slices_of_a_stream_are_contiguous_and_small_ones_are_joined(machine: Machine) -> None:
    broker = await machine.open()
    await write_two(broker, 120)
    await repack_all(broker)
    stream = broker.streams.of("quiet", 0)
    (last,) = [one for one in broker.log.ledger.repacked.rounds if one.level == 2][-1:]
    found = [
        await RepackedFiles(broker.log.ledger.repacked, broker.log.objects).read_index(number)
        for number in last.covering(stream, 0)
    ]
    rows = [extents.rows_of(stream, 0, 1 << 60) for extents in found]
    assert sum(int(some["count"].sum()) for some in rows) >= 3  # each was a slice of its own before
    assert sum(map(len, rows)) == 1


async def test_files_that_were_merged_or_never_published_are_deleted(machine: Machine) -> None:
    broker = await machine.open()
    await write_two(broker, 150)
    await repack_all(broker)
    ledger = broker.log.ledger
    named = {key for one in ledger.repacked.rounds for key in one.keys}
    assert ledger.repacked.garbage()
    assert repacked_keys(machine) == named | set(ledger.repacked.garbage())
    assert broker.log.objects is not None
    await broker.log.objects.put(f"{REPACKED}{1:012d}-{2:012d}-1-0-9", b"of an earlier life")
    await repacker(broker).clean()
    assert not ledger.repacked.garbage()
    assert repacked_keys(machine) == named


@pytest.mark.parametrize("room", [4_000, 8_000])
async def test_a_round_that_fails_midway_leaves_no_file_behind(machine: Machine, room: int) -> None:
    """Most of all on a full disk: the round is retried again and again."""
    machine.repack = replace(SMALL, round_bytes=1 << 20)
    broker = await machine.open()
    await write_two(broker, 60)
    for _ in range(3):
        machine.files.no_space_after(room)
        stored = repacker(broker).files_stored
        with pytest.raises(NoSpace):
            await repacker(broker).step()
        assert repacker(broker).files_stored > stored + 1  # more than one file was written
        assert repacked_keys(machine) == set()
    machine.files.space_returns()
    await repack_all(broker)
    assert repacked_keys(machine) == {key for one in broker.log.ledger.repacked.rounds for key in one.keys}


async def test_a_replaced_object_stays_while_it_may_be_read() -> None:
    machine = Machine(repack=replace(SMALL, grace_s=10.0))
    try:
        broker = await machine.open()
        await write_two(broker, 60)
        stream = broker.streams.of("busy", 0)
        await broker.log.propose(TakeTask(f"parts/{stream}", "somebody", 7, 60_000))
        before = set(wal_numbers(machine))
        await repack_all(broker)
        await broker.log.collect()
        machine.clock.advance(9_000)
        await broker.log.collect()
        assert before <= set(wal_numbers(machine))
        machine.clock.advance(2_000)
        await broker.log.collect()
        assert before <= set(wal_numbers(machine))  # the lease may belong to a plan that names them
        await broker.log.propose(ReleaseTask(f"parts/{stream}", 7))
        await broker.log.collect()
        assert len(before & set(wal_numbers(machine))) < len(before) / 2
    finally:
        await machine.kill()


async def test_a_mostly_dead_round_is_rewritten_and_a_dead_one_deleted(machine: Machine) -> None:
    broker = await machine.open()
    written = await write_two(broker, 120)
    await repack_all(broker)
    size = sum(one.bytes for one in broker.log.ledger.repacked.rounds)
    await broker.trim("busy", 115)
    machine.clock.advance(61_000)
    await repack_all(broker)
    assert sum(one.bytes for one in broker.log.ledger.repacked.rounds) < size / 2
    assert (await scan(broker, "quiet"))[0] == written
    await broker.trim("quiet", max(written) + 1)
    machine.clock.advance(61_000)
    await repack_all(broker)
    await broker.log.collect()
    await repacker(broker).clean()
    (left,) = broker.log.ledger.repacked.rounds  # with the end of the busy topic
    assert repacked_keys(machine) == set(left.keys)
