"""A check of the directory looks at the files of parts as well."""

from __future__ import annotations

from pathlib import Path

import pytest

from mainstem.log.verification.directory import DirectoryCheck, VerificationReport
from mainstem.log.verification.problems import Severity
from tests.support.lake import Worker
from tests.support.machine import DIRECTORY, Machine


async def made(machine: Machine) -> list[Path]:
    """A topic of three parts and what else makes the log give its own bytes up. Returns the parts' files."""
    broker = await machine.open()
    await broker.create_topic("t")
    for number in range(30):
        await broker.append_values("t", [b"%d" % number * 40] * 4, timestamps_ms=[1_000] * 4)
    assert machine.port is not None
    work = Worker(broker, machine.port)
    (task,) = await work.plan()
    await broker.lake.publish(await work.work(task, split_at=[40, 80]))
    for _ in range(3):
        broker = await machine.restart()
        await broker.append_values("t", [b"more"] * 4, timestamps_ms=[1_000] * 4)
    files = [file for part in broker.log.ledger.generations.parts(0) for file in part.files]
    await machine.close()
    return [DIRECTORY / "objects" / file.key for file in files]


def check(machine: Machine, **how: bool) -> VerificationReport:
    return DirectoryCheck(DIRECTORY, files=machine.files, **how).run()


async def test_records_that_only_parts_hold_are_not_missed_in_the_log(machine: Machine) -> None:
    files = await made(machine)
    numbers = sorted(machine.files.listdir(DIRECTORY / "wal"))
    assert not numbers[0].startswith("00000000000000000001")
    report = check(machine)
    assert report.problems == []
    assert report.part_files == len(files) == 3


@pytest.mark.parametrize("quick", [True, False])
async def test_a_missing_file_is_named_with_what_it_held(machine: Machine, quick: bool) -> None:
    files = await made(machine)
    machine.files.unlink(files[1])
    (problem,) = check(machine, quick=quick).problems
    assert problem.severity == Severity.DAMAGED
    assert problem.file == str(files[1].relative_to(DIRECTORY))
    assert [(lost.start, lost.end) for lost in problem.lost] == [(40, 80)]
    assert problem.topics == ["t/0"]
    assert "offsets 40 to 79 are lost" in problem.line


async def test_a_damaged_page_is_found_by_its_checksum_unless_the_check_is_quick(machine: Machine) -> None:
    files = await made(machine)
    machine.files.flip_bit(files[2], 60, 3)
    (problem,) = check(machine).problems
    assert [(lost.start, lost.end) for lost in problem.lost] == [(80, 120)]
    machine.files.flip_bit(files[2], 60, 3)
    assert check(machine).problems == []


async def test_a_damaged_footer_is_found_by_a_quick_check_too(machine: Machine) -> None:
    files = await made(machine)
    size = machine.files.facts(files[0]).size_bytes
    machine.files.flip_bit(files[0], size - 1, 0)
    (problem,) = check(machine, quick=True).problems
    assert [(lost.start, lost.end) for lost in problem.lost] == [(0, 40)]


async def test_a_file_below_the_start_is_nobodys_loss(machine: Machine) -> None:
    files = await made(machine)
    broker = await machine.open()
    await broker.trim("t", 40)
    await machine.close()
    machine.files.unlink(files[0])
    assert check(machine).problems == []


async def test_beside_a_live_server_a_file_may_just_have_been_replaced(machine: Machine) -> None:
    files = await made(machine)
    machine.files.unlink(files[1])
    assert check(machine, owned=True).problems == []
