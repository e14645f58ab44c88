"""A repacked file has its index twice: damage of one copy, of both, and in the same place."""

from __future__ import annotations

import contextlib

import pytest

from mainstem.api.lake import PlanRequest
from mainstem.errors import LogDamaged, RecordsLost
from mainstem.ledger.config import TopicConfig
from mainstem.log.objects.repack.files import RepackedFiles
from mainstem.log.read.losses import UNREADABLE
from mainstem.log.verification.directory import DirectoryCheck
from mainstem.log.verification.problems import Severity
from tests.support.history import scan
from tests.support.machine import DIRECTORY, Machine

from .repacking import repack_all, write_two


@pytest.mark.parametrize("damaged", ["head", "tail", "both", "version"])
async def test_an_index_survives_damage_in_different_places_of_its_copies(
    machine: Machine, damaged: str
) -> None:
    broker = await machine.open()
    await write_two(broker, 60)
    before = await scan(broker, "busy")
    await repack_all(broker)
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
async def test_a_file_with_damaged_indexes_loses_only_its_own_records_until_it_is_restored(
    machine: Machine, file: str
) -> None:
    broker = await machine.open()
    quiet = await write_two(broker, 100)
    busy, _ = await scan(broker, "busy")
    await repack_all(broker)
    await broker.log.collect()
    await write_two(broker, 5)  # continues in the log
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
                await broker.log.streams.of(stream).stored(stream, offset, 1000)
            assert told.value.reason == UNREADABLE
    # The lake does not materialise without these records, and retention does not guess; other streams continue.
    await broker.create_topic("other", config=TopicConfig(retention_ms=1))
    await broker.append_values("other", [b"x"])
    machine.clock.advance(10)
    assert await broker.enforce_retention() == 1
    await broker.append_values("other", [b"y"])
    planned = {task.topic: task.sources.end for task in (await broker.lake.plan(PlanRequest("test"))).tasks}
    assert planned["other"] == 2
    assert all(
        planned.get(topic, 0) <= min(offsets, default=0) for topic, offsets in lost_of.items() if offsets
    )
    commits = broker.last_position
    with contextlib.suppress(LogDamaged):  # reported once, then left alone
        await repack_all(broker)
    await write_two(broker, 100)
    await repack_all(broker)
    assert broker.last_position > commits
    assert made in broker.log.ledger.repacked.rounds
    flip()  # restored while the server runs
    assert (await scan(broker, "busy"))[1] == []
    assert (await scan(broker, "quiet"))[1] == []
    assert busy.items() <= (await scan(broker, "busy"))[0].items()
