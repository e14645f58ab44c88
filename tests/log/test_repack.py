"""Repack: whatever is copied where, every reader finds at every offset what was there before."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from mainstem import limits
from mainstem.broker.broker import Broker
from mainstem.broker.plans import PlanRequest
from mainstem.broker.routers import RouterSettings
from mainstem.broker.transactions import ProducerStamp
from mainstem.errors import LogDamaged, MainstemError, RecordsLost, invariant
from mainstem.ledger.commands import DeleteRecords, MarkLost
from mainstem.ledger.config import TopicConfig
from mainstem.ledger.lake_commands import ReleaseTask, TakeTask
from mainstem.ledger.repacked import REPACKED, Round
from mainstem.log.extents import SealedExtents
from mainstem.log.reader import UNREADABLE
from mainstem.log.repack.files import RepackedFiles
from mainstem.log.repack.plan import RepackOptions
from mainstem.log.repack.repacker import Repacker
from mainstem.log.verification.directory import DirectoryCheck
from mainstem.log.verification.problems import Severity
from mainstem.log.views import View
from mainstem.ports.commitlog.layout import WAL
from mainstem.ports.commitlog.segments import number_of, segment_path
from mainstem.records.building import build_batch
from mainstem.records.decoding import decode_records
from mainstem.records.header import walk
from mainstem.testing.files import Policy, SimulatedCrash
from mainstem.testing.history import History, scan
from mainstem.testing.lanes import step_instead_of_threads
from mainstem.testing.machine import DIRECTORY, Machine
from mainstem.testing.workload import Workload

SMALL = RepackOptions(
    on=False,  # each test says when
    after_objects=2,
    least_bytes=0,
    bytes_per_s=0,
    round_bytes=10_000,
    merged_rounds=3,
    file_bytes=3_000,
    grace_s=0.0,
)
Contents = dict[tuple[int, str, int], Any]
_POINTS_OF_A_SLICE = 12


@pytest.fixture
async def machine() -> AsyncIterator[Machine]:
    machine = Machine(repack=SMALL, tail_cache_bytes=0)
    yield machine
    await machine.kill()


def repacker(broker: Broker) -> Repacker:
    found = broker.log.repacker
    assert found is not None
    return found


async def contents(broker: Broker, step: int = 1) -> Contents:
    """What every offset of every stream, or every so many, gives to each kind of reader, and what is found by time."""
    found: Contents = {}
    for topic in broker.log.ledger.topics:
        for stream in topic.streams:
            start, end = broker.log.bounds(stream)
            for view in View:
                for offset in range(start, end, step):
                    found[stream, view.name, offset] = await _at(broker, stream, offset, view)
            found[stream, "latest", 0] = await broker.log.latest_time(stream)
            for time_ms in (0, broker.clock.now_ms() - 500, broker.clock.now_ms()):
                found[stream, "time", time_ms] = await broker.log.offset_at(stream, time_ms)
    return found


async def _at(broker: Broker, stream: int, offset: int, view: View) -> Any:
    """The batch that holds an offset, or the first after it."""
    at = offset
    try:
        while True:
            chunk = await broker.log.read(stream, at, 1, view=view)
            for batches in chunk.batches:
                for header in walk(batches):
                    if header.next_offset > offset:
                        return bytes(batches[header.position : header.end])
            if chunk.next_offset == at:
                return None
            at = chunk.next_offset
    except RecordsLost as loss:
        return ("lost", loss.start, loss.end, loss.reason)


class Writer:
    """Writes to topics of every kind, some of it in transactions, some copied from elsewhere, some deleted again."""

    def __init__(self, broker: Broker, seed: int) -> None:
        self.broker = broker
        self.dice = random.Random(seed)
        self._sequences: dict[int, int] = {}
        self._stamp: ProducerStamp | None = None

    async def prepare(self) -> None:
        await self.broker.create_topic("plain", partitions=3, config=TopicConfig(durability="disk"))
        await self.broker.create_topic("quiet")
        await self.broker.create_topic("in_transactions")
        await self.broker.create_topic("gone")
        await self.broker.create_topic("capped", config=TopicConfig(cap_records=20))
        await self.broker.routers.put("r", RouterSettings("plain", "copy"))
        await self.broker.append_values("quiet", [b"only"])

    async def write(self, rounds: int) -> None:
        chances = [self._plain, self._plain, self._plain, self._transaction, self._capped, self._remove]
        for _ in range(rounds):
            await self.dice.choice(chances)()
        await self.broker.routing.drain("copy")

    def _values(self) -> list[bytes]:
        return [self.dice.randbytes(self.dice.choice((3, 60, 300))) for _ in range(self.dice.randint(1, 4))]

    async def _plain(self) -> None:
        for topic in ("plain", "gone"):
            if self.broker.log.ledger.topics.get(topic) is not None:
                await self.broker.append_values(topic, self._values(), partition=0)
        await self.broker.append_values("plain", self._values(), partition=self.dice.randrange(3))

    async def _capped(self) -> None:
        await self.broker.append_values("capped", self._values())
        if self.dice.random() < 0.2:
            await self.broker.append_values("quiet", self._values())

    async def _transaction(self) -> None:
        transactions = self.broker.transactions
        if self._stamp is None:
            self._stamp = ProducerStamp("tx", *await transactions.initialise("tx", 60_000))
        stamp = self._stamp
        await transactions.add_partitions(stamp, [self.broker.streams.of("in_transactions", 0)])
        for _ in range(self.dice.randint(1, 3)):
            values = self._values()
            sequence = self._sequences.get(0, 0)
            batch = build_batch(
                values,
                timestamps_ms=self.broker.clock.now_ms(),
                producer=stamp.producer,
                producer_epoch=stamp.epoch,
                base_sequence=sequence,
                transactional=True,
            )
            await self.broker.append("in_transactions", batch)
            self._sequences[0] = sequence + len(values)
        await transactions.end(stamp, commit=self.dice.random() < 0.5)

    async def _remove(self) -> None:
        topic = self.dice.choice(("plain", "in_transactions"))
        stream = self.broker.streams.of(topic, 0)
        start, end = self.broker.log.bounds(stream)
        if end - start < 4:
            return
        first = self.dice.randrange(start, end - 1)
        if self.dice.random() < 0.3:
            await self.broker.trim(topic, min(first, start + 8))
        else:
            last = min(end, first + self.dice.randint(1, 9))
            await self.broker.log.propose(DeleteRecords(stream, ((first, last),)))


def _damage(machine: Machine, broker: Broker, dice: random.Random) -> None:
    """Flip a bit in a slice of a sealed object."""
    index = broker.log._index
    numbers = [number for number in index.sealed_numbers() if len(index._spans[number])]
    if not numbers:
        return
    number = dice.choice(numbers)
    port = broker.log._port
    rows = SealedExtents.decode(number, port.read_index(number)).rows
    row = rows[dice.randrange(len(rows))]
    machine.files.flip_bit(
        segment_path(DIRECTORY / WAL, number), int(row["start"]) + int(row["length"]) - 1, 6
    )


@pytest.mark.parametrize("seed", range(3))
async def test_every_offset_gives_the_same_before_during_and_after(
    machine: Machine, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    step_instead_of_threads(monkeypatch, seed)
    broker = await machine.open()
    writer = Writer(broker, seed)
    dice = random.Random(seed)
    await writer.prepare()
    for turn in range(4):
        await writer.write(20)
        machine.clock.advance(400)
        if turn == 1:
            _damage(machine, broker, dice)
        if turn == 2:
            await broker.delete_topic("gone")
        before = await contents(broker)  # so that what is damaged is known to be
        while await repacker(broker).step():
            assert (await contents(broker, 29)).items() <= before.items()
        await broker.log.collect()
        await repacker(broker).clean()
        assert await contents(broker) == before
        if turn % 2:
            writer.broker = broker = await machine.restart()
            assert (await contents(broker, 7)).items() <= before.items()
            writer._stamp, writer._sequences = None, {}
    ledger = broker.log.ledger
    assert ledger.repacked.frontier > 1
    assert any(one.level == 2 for one in ledger.repacked.rounds)
    assert any(len(one.files) > 1 for one in ledger.repacked.rounds)


async def _repack_all(broker: Broker) -> None:
    while await repacker(broker).step():
        pass


def _wal_numbers(machine: Machine) -> list[int]:
    return sorted(filter(None, map(number_of, machine.files.listdir(DIRECTORY / WAL))))


def _repacked_keys(machine: Machine) -> set[str]:
    folder = DIRECTORY / "objects" / REPACKED.rstrip("/")
    return (
        {REPACKED + name for name in machine.files.listdir(folder)} if machine.files.exists(folder) else set()
    )


async def _write_two(broker: Broker, count: int, *, quiet: str = "quiet") -> dict[int, bytes]:
    """A busy topic, and one that gets a record now and then."""
    for name in ("busy", quiet):
        if broker.log.ledger.topics.get(name) is None:
            await broker.create_topic(name)
    written: dict[int, bytes] = {}
    for number in range(count):
        await broker.append_values("busy", [b"%d" % number + b"." * 200])
        if number % 7 == 0:
            value = b"quiet %d" % number
            written[(await broker.append_values(quiet, [value])).base_offset] = value
    return written


async def test_a_quiet_topic_no_longer_keeps_the_files_of_a_busy_one(machine: Machine) -> None:
    broker = await machine.open()
    written = await _write_two(broker, 120)
    sealed = _wal_numbers(machine)
    assert len(sealed) > 6
    await broker.trim("busy", 110)
    await broker.log.collect()
    assert len(_wal_numbers(machine)) == len(sealed)  # the quiet topic has a record in each
    await _repack_all(broker)
    await broker.log.collect()
    assert len(_wal_numbers(machine)) <= 3
    assert (await scan(broker, "quiet"))[0] == written
    kept = sum(one.bytes for one in broker.log.ledger.repacked.rounds)
    assert kept < 120 * 100  # and nothing of what was trimmed is copied
    broker = await machine.restart()
    assert (await scan(broker, "quiet"))[0] == written


async def test_slices_of_a_stream_stand_together_and_small_ones_are_joined(machine: Machine) -> None:
    broker = await machine.open()
    await _write_two(broker, 120)
    await _repack_all(broker)
    stream = broker.streams.of("quiet", 0)
    (last,) = [one for one in broker.log.ledger.repacked.rounds if one.level == 2][-1:]
    found = [
        await RepackedFiles(broker.log.ledger.repacked, broker.log.objects).read_index(number)
        for number in last.covering(stream, 0)
    ]
    rows = [extents.rows_of(stream, 0, 1 << 60) for extents in found]
    assert sum(int(some["count"].sum()) for some in rows) >= 3  # each a slice of its own before
    assert sum(map(len, rows)) == 1


async def test_damage_that_the_repacker_meets_is_an_explicit_loss_and_nothing_else_goes(
    machine: Machine,
) -> None:
    broker = await machine.open()
    await _write_two(broker, 60)
    index = broker.log._index
    number = index.sealed_numbers()[1]
    rows = SealedExtents.decode(number, broker.log._port.read_index(number)).rows
    stream = broker.streams.of("busy", 0)
    row = rows[rows["stream"] == stream][3]
    base = int(row["base"])
    machine.files.flip_bit(segment_path(DIRECTORY / WAL, number), int(row["start"]) + 80, 1)
    await _repack_all(broker)
    await broker.log.collect()
    values, lost = await scan(broker, "busy")
    assert lost == [(base, base + 1)]
    assert sorted(values) == [offset for offset in range(60) if offset != base]
    broker = await machine.restart()
    assert (await scan(broker, "busy")) == (values, lost)


async def test_damage_in_an_object_that_was_repacked_is_no_loss(machine: Machine) -> None:
    machine._checkpoint_every_bytes = 1 << 40  # so that a start replays all of it
    broker = await machine.open()
    await _write_two(broker, 60)
    expected = await scan(broker, "busy")
    await _repack_all(broker)
    for number in _wal_numbers(machine):
        if number < broker.log.ledger.repacked.frontier:
            rows = SealedExtents.decode(number, broker.log._port.read_index(number)).rows
            for start in rows["start"].tolist():
                machine.files.flip_bit(segment_path(DIRECTORY / WAL, number), start + 70, 2)
    await machine.kill()
    assert await scan(await machine.open(), "busy") == expected
    await machine.close()
    report = DirectoryCheck(DIRECTORY, files=machine.files).run()
    assert report.sound
    assert report.counts[Severity.HARMLESS]


async def test_a_loss_told_of_one_slice_leaves_those_it_was_joined_with(machine: Machine) -> None:
    broker = await machine.open()
    written = await _write_two(broker, 120)
    await _repack_all(broker)
    stream = broker.streams.of("quiet", 0)
    repacked = broker.log.ledger.repacked
    rows = [
        row
        for number in repacked.numbers()
        for row in (await RepackedFiles(repacked, broker.log.objects).read_index(number)).rows
        if row["stream"] == stream and row["count"] > 2
    ]
    joined = int(rows[0]["base"])
    gone = joined + 1
    # As a job of the lake does that was sent to the log's own object, and met damage there.
    await broker.log.propose(MarkLost(stream, gone, gone + 1))
    await broker.log.propose(DeleteRecords(stream, ((gone + 1, gone + 2),)))
    assert broker.log.read_cached(stream, joined, 1000) is None  # memory must not say that there is nothing
    values, lost = await scan(broker, "quiet")
    assert lost == [(gone, gone + 1)]
    assert values == {offset: value for offset, value in written.items() if offset not in (gone, gone + 1)}


async def test_however_many_streams_there_are_others_have_their_turn_between_a_few_of_them(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Work is counted, by turn of the loop, of whatever the repacker asks the ledger about a single stream."""
    streams, at_once = 400, 16
    broker = await machine.open()
    await broker.create_topic("wide", partitions=streams)
    for _ in range(5):
        await asyncio.gather(
            *(broker.append_values("wide", [b"x" * 40], partition=at) for at in range(streams))
        )
    monkeypatch.setattr(limits, "REPACK_STREAMS_AT_ONCE", at_once)
    ledger, turn, asked = broker.log.ledger, 0, Counter[tuple[str, int]]()

    def counted(owner: Any, name: str) -> None:
        ask = getattr(owner, name)

        def counting(*arguments: Any) -> Any:
            asked[name, turn] += 1
            return ask(*arguments)

        monkeypatch.setattr(owner, name, counting)

    counted(ledger.streams, "holes")
    counted(ledger.generations, "serves")
    counted(ledger.streams.transactions, "touched")
    repacking = asyncio.ensure_future(_repack_all(broker))
    while not repacking.done():
        turn += 1
        await asyncio.sleep(0)
    await repacking
    assert sum(count for (name, _), count in asked.items() if name == "holes") >= streams
    assert max(asked.values()) <= 2 * at_once  # a little more where a turn also looks which objects may go
    monkeypatch.undo()
    for stream in broker.topic("wide").streams[::37]:
        assert broker.log.bounds(stream) == (0, 5)
        at = 0
        while at < 5:
            at = (await broker.log.read(stream, at, 1000)).next_offset


async def test_a_damaged_batch_among_joined_slices_is_lost_alone(machine: Machine) -> None:
    broker = await machine.open()
    written = await _write_two(broker, 120)
    await _repack_all(broker)
    await broker.log.collect()
    repacked, stream = broker.log.ledger.repacked, broker.streams.of("quiet", 0)
    files = RepackedFiles(repacked, broker.log.objects)
    joined = [
        (number, row)
        for number in repacked.numbers()
        for row in (await files.read_index(number)).rows.tolist()
        if row[0] == stream and row[1] > 2
    ]
    number, (_, _, base, start, length, *_) = joined[0]
    file = repacked.file(number)
    assert file is not None
    (stored,) = await files.read(number, [(start, length)])
    second = int.from_bytes(stored[8:12], "big") + 12  # where the second batch begins
    path = DIRECTORY / "objects" / file.key
    machine.files.flip_bit(path, start + 3, 0)  # of the first one's offset, which readers write over
    await machine.close()
    report = DirectoryCheck(DIRECTORY, files=machine.files).run()
    assert [problem.severity for problem in report.problems] == [Severity.REPAIRABLE]
    broker = await machine.open()
    assert await scan(broker, "quiet") == (written, [])

    machine.files.flip_bit(path, start + second + 70, 2)
    await machine.close()
    report = DirectoryCheck(DIRECTORY, files=machine.files).run()
    assert [(one.stream, one.start, one.end) for problem in report.problems for one in problem.lost] == [
        (stream, base + 1, base + 2)
    ]
    broker = await machine.open()
    left = {offset: value for offset, value in written.items() if offset != base + 1}
    # From behind the damage first: what is lost is told by whatever read meets it.
    assert await values_from(broker, stream, base + 2) == [left[at] for at in sorted(left) if at > base + 1]
    commits = broker.last_position
    assert await scan(broker, "quiet") == (left, [(base + 1, base + 2)])
    assert await scan(broker, "quiet") == (left, [(base + 1, base + 2)])
    assert broker.last_position == commits  # it is noted once
    chunk = await broker.log.stored(stream, base, 1)
    assert chunk.next_offset == base + 1
    with pytest.raises(RecordsLost):
        await broker.log.read(stream, base + 1, 1000)
    assert await scan(await machine.restart(), "quiet") == (left, [(base + 1, base + 2)])


@pytest.mark.parametrize("met_by", ["reader", "repacker", "second repacker"])
async def test_a_copy_of_a_damaged_record_is_lost_alone(machine: Machine, met_by: str) -> None:
    broker = await machine.open()
    for name in ("source", "copy"):
        await broker.create_topic(name)
    await broker.routers.put("r", RouterSettings("source", "copy"))
    for number in range(60):
        await broker.append_values("source", [b"%d" % number + b"." * 100])
    await broker.routing.drain("copy")
    stream, log = broker.streams.of("source", 0), broker.log
    assert log.bounds(broker.streams.of("copy", 0)) == (0, 60)
    written, _ = await scan(broker, "copy")
    if met_by == "repacker":
        number = log._index.sealed_numbers()[1]
        rows = SealedExtents.decode(number, log._port.read_index(number)).rows
        path, row = segment_path(DIRECTORY / WAL, number), rows[rows["stream"] == stream][2]
        start, offset = int(row["start"]), int(row["base"])
    else:
        assert await repacker(broker).step()
        made = log.ledger.repacked.rounds[0]
        index = await log.repacked_extents(made.number)
        assert index is not None
        path, row = DIRECTORY / "objects" / made.files[0].key, index.rows[index.rows["stream"] == stream][0]
        (stored,) = await RepackedFiles(log.ledger.repacked, log.objects).read(
            made.number, [(int(row["start"]), int(row["length"]))]
        )
        start = int(row["start"]) + 12 + int.from_bytes(stored[8:12], "big")
        offset = int(row["base"]) + 1
    machine.files.flip_bit(path, start + 70, 4)
    if met_by != "reader":
        await _repack_all(broker)
        await log.collect()
    for topic in ("copy", "source", "copy"):
        values, lost = await scan(broker, topic)
        assert lost == [(offset, offset + 1)]
        assert sorted(values) == [at for at in range(60) if at != offset]
    assert (await scan(broker, "copy"))[0].items() <= written.items()


async def values_from(broker: Broker, stream: int, offset: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    while offset < broker.log.bounds(stream)[1]:
        chunk = await broker.log.read(stream, offset, 4000)
        records = [record for batch in chunk.batches for record in decode_records(batch)]
        found += [record.value for record in records if record.offset >= offset]
        offset = chunk.next_offset
    return found


async def test_copying_files_once_more_loses_a_damaged_batch_alone(machine: Machine) -> None:
    broker = await machine.open()
    await _write_two(broker, 60)
    written, _ = await scan(broker, "busy")
    assert await repacker(broker).step()
    repacked, stream = broker.log.ledger.repacked, broker.streams.of("busy", 0)
    files = RepackedFiles(repacked, broker.log.objects)
    damaged: list[int] = []
    once = [one for one in repacked.rounds if one.level == 1]  # to be merged with those that come
    before = {number for one in once for number in range(one.number, one.number + len(one.files))}
    for number in before:
        rows = (await files.read_index(number)).rows
        file = repacked.file(number)
        assert file is not None
        for _, _, base, start, length, *_ in rows[(rows["stream"] == stream) & (rows["count"] > 1)].tolist():
            (stored,) = await files.read(number, [(start, length)])
            second = int.from_bytes(stored[8:12], "big") + 12
            machine.files.flip_bit(DIRECTORY / "objects" / file.key, start + second + 70, 2)
            damaged.append(base + 1)
    assert damaged
    await _write_two(broker, 200)
    await _repack_all(broker)
    assert before.isdisjoint(repacked.numbers())
    found, lost = await scan(broker, "busy")
    assert lost == [(offset, offset + 1) for offset in sorted(damaged)]
    assert (
        found.items() >= {offset: value for offset, value in written.items() if offset not in damaged}.items()
    )


async def test_files_that_were_merged_or_never_published_are_deleted(machine: Machine) -> None:
    broker = await machine.open()
    await _write_two(broker, 150)
    await _repack_all(broker)
    ledger = broker.log.ledger
    named = {key for one in ledger.repacked.rounds for key in one.keys}
    assert ledger.repacked.garbage()
    assert _repacked_keys(machine) == named | set(ledger.repacked.garbage())
    assert broker.log.objects is not None
    await broker.log.objects.put(f"{REPACKED}{1:012d}-{2:012d}-1-0-9", b"of an earlier life")
    await repacker(broker).clean()
    assert not ledger.repacked.garbage()
    assert _repacked_keys(machine) == named


async def test_what_was_replaced_stays_while_somebody_may_read_it() -> None:
    machine = Machine(repack=replace(SMALL, grace_s=10.0))
    try:
        broker = await machine.open()
        await _write_two(broker, 60)
        stream = broker.streams.of("busy", 0)
        await broker.log.propose(TakeTask(f"parts/{stream}", "somebody", 7, 60_000))
        before = set(_wal_numbers(machine))
        await _repack_all(broker)
        await broker.log.collect()
        machine.clock.advance(9_000)
        await broker.log.collect()
        assert before <= set(_wal_numbers(machine))
        machine.clock.advance(2_000)
        await broker.log.collect()
        assert before <= set(_wal_numbers(machine))  # the lease may be for a plan that names them
        await broker.log.propose(ReleaseTask(f"parts/{stream}", 7))
        await broker.log.collect()
        assert len(before & set(_wal_numbers(machine))) < len(before) / 2
    finally:
        await machine.kill()


async def test_a_round_that_is_mostly_dead_is_written_anew_and_a_dead_one_goes(machine: Machine) -> None:
    broker = await machine.open()
    written = await _write_two(broker, 120)
    await _repack_all(broker)
    size = sum(one.bytes for one in broker.log.ledger.repacked.rounds)
    await broker.trim("busy", 115)
    machine.clock.advance(61_000)
    await _repack_all(broker)
    assert sum(one.bytes for one in broker.log.ledger.repacked.rounds) < size / 2
    assert (await scan(broker, "quiet"))[0] == written
    await broker.trim("quiet", max(written) + 1)
    machine.clock.advance(61_000)
    await _repack_all(broker)
    await broker.log.collect()
    await repacker(broker).clean()
    (left,) = broker.log.ledger.repacked.rounds  # with the end of the busy topic
    assert _repacked_keys(machine) == set(left.keys)


@pytest.mark.parametrize("damaged", ["head", "tail", "both", "version"])
async def test_copies_of_an_index_serve_as_long_as_they_are_not_damaged_in_the_same_place(
    machine: Machine, damaged: str
) -> None:
    broker = await machine.open()
    await _write_two(broker, 60)
    before = await scan(broker, "busy")
    await _repack_all(broker)
    await broker.log.collect()
    broker = await machine.restart()
    for one in broker.log.ledger.repacked.rounds:
        for file in one.files:
            path = DIRECTORY / "objects" / file.key
            if damaged != "tail":
                machine.files.flip_bit(path, 9 if damaged == "version" else 70, 0)
            if damaged != "head":
                machine.files.flip_bit(path, file.bytes - 5, 0)
    assert await scan(broker, "busy") == before
    await machine.close()
    report = DirectoryCheck(DIRECTORY, files=machine.files).run()
    assert report.repacked_files
    assert report.sound
    copies = 1 if damaged in ("head", "tail") else 2
    assert report.counts[Severity.REPAIRABLE] == copies * report.repacked_files


@pytest.mark.parametrize("file", ["first", "last"])
async def test_a_file_that_nobody_can_tell_the_contents_of_loses_its_own_records_until_it_is_restored(
    machine: Machine, file: str
) -> None:
    broker = await machine.open()
    quiet = await _write_two(broker, 100)
    busy, _ = await scan(broker, "busy")
    while await repacker(broker).step():
        pass
    await broker.log.collect()
    await _write_two(broker, 5)  # goes on in the log
    repacked = broker.log.ledger.repacked
    made = repacked.rounds[1]
    at = 0 if file == "first" else len(made.files) - 1
    number, key = made.number + at, made.files[at].key
    index = await RepackedFiles(repacked, broker.log.objects).read_index(number)
    broker = await machine.restart()

    def flip() -> None:
        for place in (64 + 20, made.files[at].bytes - 64 - index_bytes + 20):
            machine.files.flip_bit(DIRECTORY / "objects" / key, place, 5)

    index_bytes = 16 + index.spans.nbytes + index.rows.nbytes
    flip()
    (problem,) = [
        one for one in DirectoryCheck(DIRECTORY, files=machine.files).run().problems if key in one.file
    ]
    assert problem.severity == Severity.DAMAGED
    lost_of: dict[str, set[int]] = {}
    for topic, written in (("busy", busy), ("quiet", quiet)):
        stream = broker.streams.of(topic, 0)
        rows = index.rows[index.rows["stream"] == stream]
        held = {offset for row in rows for offset in range(row["base"], row["base"] + row["count"])}
        values, lost = await scan(broker, topic)
        lost_of[topic] = {offset for first, end in lost for offset in range(first, end)}
        assert lost_of[topic] == held
        assert written.keys() - held <= values.keys()
        for offset in held:
            with pytest.raises(RecordsLost) as told:
                await broker.log.stored(stream, offset, 1000)
            assert told.value.reason == UNREADABLE
    # Nobody makes parts without these records, or trims by what it cannot see; others are not held up.
    await broker.create_topic("other", config=TopicConfig(retention_ms=1))
    await broker.append_values("other", [b"x"])
    machine.clock.advance(10)
    assert await broker._retention.enforce() == 1
    await broker.append_values("other", [b"y"])
    planned = {task.topic: task.sources.end for task in (await broker.lake.plan(PlanRequest("test"))).tasks}
    assert planned["other"] == 2
    assert all(
        planned.get(topic, 0) <= min(offsets, default=0) for topic, offsets in lost_of.items() if offsets
    )
    commits = broker.last_position
    with contextlib.suppress(LogDamaged):  # told once, and then left alone
        await _repack_all(broker)
    await _write_two(broker, 100)
    await _repack_all(broker)
    assert broker.last_position > commits
    assert made in repacked_rounds(broker)
    flip()  # restored, with the server running
    assert (await scan(broker, "busy"))[1] == []
    assert (await scan(broker, "quiet"))[1] == []
    assert busy.items() <= (await scan(broker, "busy"))[0].items()


def repacked_rounds(broker: Broker) -> list[Round]:
    return broker.log.ledger.repacked.rounds


async def test_a_check_knows_repacked_files_and_finds_a_bit_that_flipped_in_one(machine: Machine) -> None:
    broker = await machine.open()
    await _write_two(broker, 60)
    await _repack_all(broker)
    await broker.log.collect()
    repacked = broker.log.ledger.repacked
    number, key = repacked.rounds[0].number, repacked.rounds[0].keys[0]
    rows = (await RepackedFiles(repacked, broker.log.objects).read_index(number)).rows
    at = int(rows["start"][0]) + 70
    await machine.close()
    report = DirectoryCheck(DIRECTORY, files=machine.files).run()
    assert (report.problems, report.repacked_files > 0) == ([], True)
    machine.files.flip_bit(DIRECTORY / "objects" / key, at, 3)
    report = DirectoryCheck(DIRECTORY, files=machine.files).run()
    (problem,) = report.problems
    assert problem.severity == Severity.DAMAGED
    assert problem.file == f"objects/{key}"
    assert len(problem.lost) == 1
    broker = await machine.open()
    _, lost = await scan(broker, "busy")
    quietly = (await scan(broker, "quiet"))[1]
    assert lost + quietly == [(problem.lost[0].start, problem.lost[0].end)]


async def test_reads_in_flight_go_on_while_their_objects_are_replaced_and_dropped(machine: Machine) -> None:
    broker = await machine.open()
    await _write_two(broker, 200)
    before = await scan(broker, "busy")
    stop = asyncio.Event()

    async def read_over_and_over() -> int:
        times = 0
        while not stop.is_set():
            assert await scan(broker, "busy") == before
            times += 1
        return times

    readers = [asyncio.ensure_future(read_over_and_over()) for _ in range(3)]
    while await repacker(broker).step():
        await broker.log.collect()
        await repacker(broker).clean()
    stop.set()
    assert all(await asyncio.gather(*readers))


async def test_debt_slows_writes_down_until_it_is_paid(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "REPACK_DEBT_OBJECTS_MAX", 3)
    machine._repack = replace(SMALL, on=True, after_objects=2, least_bytes=1 << 40)
    broker = await machine.open()
    await _write_two(broker, 100)
    beyond = repacker(broker).debt_objects - 3
    assert beyond > 0
    assert broker.log._committer._held_back_s == pytest.approx(
        min(beyond * limits.REPACK_HELD_BACK_S, limits.REPACK_HELD_BACK_S_MAX)
    )
    machine._repack = replace(SMALL, on=True)
    broker = await machine.restart()
    await _repack_all(broker)
    assert broker.log._committer._held_back_s == 0.0


async def _work(machine: Machine, seed: int, history: History) -> None:
    """Two lives in which everything is repacked as soon as it can be; a crash may end them anywhere."""
    workload = Workload(history, seed)
    for _ in range(2):
        broker = await machine.open()
        for topic in history.topics:
            topic.forget_volatile()
        for _ in range(4):
            await asyncio.gather(workload.run(broker, 6), repacker(broker).step())
            await _repack_all(broker)
            await broker.log.collect()
            await repacker(broker).clean()
        await machine.close()


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["lost", "kept", "torn"])
async def test_nothing_promised_is_broken_wherever_the_power_goes(
    sweep_seed: int, policy: Policy, chaos: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    step_instead_of_threads(monkeypatch, sweep_seed)
    machine, history = Machine(repack=SMALL), History()
    await _work(machine, sweep_seed, history)
    total = machine.files.calls
    await machine.kill()
    points = range(1, total + 1)
    for point in points if chaos else sorted(random.Random(sweep_seed).sample(points, _POINTS_OF_A_SLICE)):
        step_instead_of_threads(monkeypatch, sweep_seed)
        machine, history = Machine(repack=SMALL), History()
        machine.files.crash_after(point)
        try:
            with contextlib.suppress(SimulatedCrash, MainstemError):
                await _work(machine, sweep_seed, history)
            if policy == "kept":
                await machine.kill()
            else:
                await machine.lose_power(policy, point)
            broker = await machine.open()
            await history.check(broker, all_written_survived=policy == "kept")
            await _repack_all(broker)
            await history.check(broker, all_written_survived=policy == "kept")
            await broker.log.collect()
            await repacker(broker).clean()
            named = {key for one in broker.log.ledger.repacked.rounds for key in one.keys}
            invariant(
                _repacked_keys(machine) == named, "what a crash left behind is deleted, and nothing else"
            )
            await history.check(await machine.restart(), all_written_survived=policy == "kept")
        except BaseException as error:
            error.add_note(f"the crash came after call {point} of {total}, {policy}")
            raise
        finally:
            await machine.kill()


async def test_it_gives_way_to_who_writes_much_until_too_much_waits(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await machine.open()
    await _write_two(broker, 120)
    working = repacker(broker)
    working._options = replace(SMALL, bytes_per_s=1 << 40)
    monkeypatch.setattr(limits, "REPACK_GIVES_WAY_BYTES_PER_S", -1)  # whatever is written is much
    machine.clock.advance(1_000)
    monkeypatch.setattr(limits, "REPACK_GIVES_WAY_S", 0.001)
    monkeypatch.setattr(limits, "REPACK_DEBT_OBJECTS_MAX", 2 * (working.debt_objects + 1))
    step = asyncio.ensure_future(working.step())
    done, _ = await asyncio.wait([step], timeout=0.1)
    assert not done
    assert working.counts.copied_bytes == 0
    monkeypatch.setattr(limits, "REPACK_DEBT_OBJECTS_MAX", 2 * working.debt_objects)
    assert await step
    assert working.counts.copied_bytes > 0
