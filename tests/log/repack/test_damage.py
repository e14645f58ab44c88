"""Damage before, in and after repacking: exactly the damaged records are reported as lost."""

from __future__ import annotations

import pytest

from mainstem.broker.broker import Broker
from mainstem.broker.routers.service import RouterSettings
from mainstem.errors import RecordsLost
from mainstem.ledger.streams import DeleteRecords, MarkLost
from mainstem.log.objects.repack.files import RepackedFiles
from mainstem.log.read.extents import SealedExtents
from mainstem.log.verification.directory import DirectoryCheck
from mainstem.log.verification.problems import Severity
from mainstem.ports.commitlog.local.layout import WAL
from mainstem.ports.commitlog.local.segments import segment_path
from mainstem.records.decoding import decode_records
from mainstem.records.header import LENGTH_COVERS_FROM
from tests.support.history import scan
from tests.support.machine import DIRECTORY, Machine

from .repacking import repack_all, repacker, wal_numbers, write_two


async def _second_batch(files: RepackedFiles, number: int, start: int, length: int) -> int:
    """Where the second batch of joined slices begins, in the file with this number."""
    (stored,) = await files.read(number, [(start, length)])
    return start + LENGTH_COVERS_FROM + int.from_bytes(stored[8:LENGTH_COVERS_FROM], "big")


async def _values_from(broker: Broker, stream: int, offset: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    while offset < broker.log.streams.of(stream).bounds(stream)[1]:
        chunk = await broker.log.streams.of(stream).read(stream, offset, 4000)
        records = [record for batch in chunk.batches for record in decode_records(batch)]
        found += [record.value for record in records if record.offset >= offset]
        offset = chunk.next_offset
    return found


async def test_the_repacker_reports_damage_as_a_loss_and_loses_nothing_else(
    machine: Machine,
) -> None:
    broker = await machine.open()
    await write_two(broker, 60)
    number = machine.sealed_numbers()[1]
    rows = SealedExtents.decode(number, machine.commit_log.read_index(number)).rows
    stream = broker.streams.of("busy", 0)
    row = rows[rows["stream"] == stream][3]
    base = int(row["base"])
    machine.files.flip_bit(segment_path(DIRECTORY / WAL, number), int(row["start"]) + 80, 1)
    await repack_all(broker)
    await broker.log.collect()
    values, lost = await scan(broker, "busy")
    assert lost == [(base, base + 1)]
    assert sorted(values) == [offset for offset in range(60) if offset != base]
    broker = await machine.restart()
    assert (await scan(broker, "busy")) == (values, lost)


async def test_damage_in_an_object_that_was_already_repacked_loses_nothing(machine: Machine) -> None:
    machine.checkpoint_every_bytes = 1 << 40  # so that a start replays everything
    broker = await machine.open()
    await write_two(broker, 60)
    expected = await scan(broker, "busy")
    await repack_all(broker)
    for number in wal_numbers(machine):
        if number < broker.log.ledger.repacked.frontier:
            rows = SealedExtents.decode(number, machine.commit_log.read_index(number)).rows
            for start in rows["start"].tolist():
                machine.files.flip_bit(segment_path(DIRECTORY / WAL, number), start + 70, 2)
    await machine.kill()
    assert await scan(await machine.open(), "busy") == expected
    await machine.close()
    report = DirectoryCheck(DIRECTORY, files=machine.files).run()
    assert report.sound
    assert report.counts[Severity.HARMLESS]


async def test_a_recorded_loss_of_one_slice_keeps_the_slices_joined_with_it(machine: Machine) -> None:
    broker = await machine.open()
    written = await write_two(broker, 120)
    await repack_all(broker)
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
    # As a task of the lake does that read the log's own object and found damage there.
    await broker.log.propose(MarkLost(stream, gone, gone + 1))
    await broker.log.propose(DeleteRecords(stream, ((gone + 1, gone + 2),)))
    # Memory must not say that there is nothing.
    assert broker.log.streams.of(stream).read_cached(stream, joined, 1000) is None
    values, lost = await scan(broker, "quiet")
    assert lost == [(gone, gone + 1)]
    assert values == {offset: value for offset, value in written.items() if offset not in (gone, gone + 1)}


async def test_damage_to_a_batch_among_joined_slices_loses_only_that_batch(machine: Machine) -> None:
    broker = await machine.open()
    written = await write_two(broker, 120)
    await repack_all(broker)
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
    second = await _second_batch(files, number, start, length)
    path = DIRECTORY / "objects" / file.key
    machine.files.flip_bit(path, start + 3, 0)  # in the first offset, which readers overwrite
    await machine.close()
    report = DirectoryCheck(DIRECTORY, files=machine.files).run()
    assert [problem.severity for problem in report.problems] == [Severity.REPAIRABLE]
    broker = await machine.open()
    assert await scan(broker, "quiet") == (written, [])

    machine.files.flip_bit(path, second + 70, 2)
    await machine.close()
    report = DirectoryCheck(DIRECTORY, files=machine.files).run()
    assert [(one.stream, one.start, one.end) for problem in report.problems for one in problem.lost] == [
        (stream, base + 1, base + 2)
    ]
    broker = await machine.open()
    left = {offset: value for offset, value in written.items() if offset != base + 1}
    # From behind the damage first: any read that meets the damage reports the loss.
    assert await _values_from(broker, stream, base + 2) == [left[at] for at in sorted(left) if at > base + 1]
    commits = broker.last_position
    assert await scan(broker, "quiet") == (left, [(base + 1, base + 2)])
    assert await scan(broker, "quiet") == (left, [(base + 1, base + 2)])
    assert broker.last_position == commits  # it is noted once
    chunk = await broker.log.streams.of(stream).stored(stream, base, 1)
    assert chunk.next_offset == base + 1
    with pytest.raises(RecordsLost):
        await broker.log.streams.of(stream).read(stream, base + 1, 1000)
    assert await scan(await machine.restart(), "quiet") == (left, [(base + 1, base + 2)])


@pytest.mark.parametrize("met_by", ["reader", "repacker", "second repacker"])
async def test_only_the_copy_of_a_damaged_record_is_lost(machine: Machine, met_by: str) -> None:
    broker = await machine.open()
    for name in ("source", "copy"):
        await broker.create_topic(name)
    await broker.routers.put("r", RouterSettings("source", "copy"))
    for number in range(60):
        await broker.append_values("source", [b"%d" % number + b"." * 100])
    await broker.routers.drain("copy")
    stream, log = broker.streams.of("source", 0), broker.log
    assert broker.streams.bounds(broker.streams.of("copy", 0)) == (0, 60)
    written, _ = await scan(broker, "copy")
    if met_by == "repacker":
        number = machine.sealed_numbers()[1]
        rows = SealedExtents.decode(number, machine.commit_log.read_index(number)).rows
        path, row = segment_path(DIRECTORY / WAL, number), rows[rows["stream"] == stream][2]
        start, offset = int(row["start"]), int(row["base"])
    else:
        assert await repacker(broker).step()
        made = log.ledger.repacked.rounds[0]
        index = await log.repacked_extents(made.number)
        assert index is not None
        path, row = DIRECTORY / "objects" / made.files[0].key, index.rows[index.rows["stream"] == stream][0]
        files = RepackedFiles(log.ledger.repacked, log.objects)
        start = await _second_batch(files, made.number, int(row["start"]), int(row["length"]))
        offset = int(row["base"]) + 1
    machine.files.flip_bit(path, start + 70, 4)
    if met_by != "reader":
        await repack_all(broker)
        await log.collect()
    for topic in ("copy", "source", "copy"):
        values, lost = await scan(broker, topic)
        assert lost == [(offset, offset + 1)]
        assert sorted(values) == [at for at in range(60) if at != offset]
    assert (await scan(broker, "copy"))[0].items() <= written.items()


async def test_repacking_again_loses_only_a_damaged_batch(machine: Machine) -> None:
    broker = await machine.open()
    await write_two(broker, 60)
    written, _ = await scan(broker, "busy")
    assert await repacker(broker).step()
    repacked, stream = broker.log.ledger.repacked, broker.streams.of("busy", 0)
    files = RepackedFiles(repacked, broker.log.objects)
    damaged: list[int] = []
    once = [one for one in repacked.rounds if one.level == 1]  # to be merged with later rounds
    before = {number for one in once for number in range(one.number, one.number + len(one.files))}
    for number in before:
        rows = (await files.read_index(number)).rows
        file = repacked.file(number)
        assert file is not None
        for _, _, base, start, length, *_ in rows[(rows["stream"] == stream) & (rows["count"] > 1)].tolist():
            second = await _second_batch(files, number, start, length)
            machine.files.flip_bit(DIRECTORY / "objects" / file.key, second + 70, 2)
            damaged.append(base + 1)
    assert damaged
    await write_two(broker, 200)
    await repack_all(broker)
    assert before.isdisjoint(repacked.numbers())
    found, lost = await scan(broker, "busy")
    assert lost == [(offset, offset + 1) for offset in sorted(damaged)]
    assert (
        found.items() >= {offset: value for offset, value in written.items() if offset not in damaged}.items()
    )


async def test_a_check_finds_a_flipped_bit_in_a_repacked_file(machine: Machine) -> None:
    broker = await machine.open()
    await write_two(broker, 60)
    await repack_all(broker)
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
