"""The offline check: one of two copies is damaged, and the other is used."""

from __future__ import annotations

import pytest

from mainstem.log.verification.problems import Severity
from mainstem.ports.commitlog.local import segments
from tests.support.stored import StoredLog

from .checking import check, only, opened, readable, said, wal_name


@pytest.mark.parametrize("which", ["first", "second"])
async def test_one_copy_of_an_entry_is_repairable(closed: StoredLog, which: str) -> None:
    number = closed.segments[1]
    frame = closed.frames(number)[2].frame
    start, end = (frame.start, frame.payload_start) if which == "first" else (frame.payload_end, frame.end)
    for at in (start, end - 1, (start + end) // 2):
        whole = closed.wal(number).read_bytes()
        closed.flip(closed.wal(number), at)
        report = check(closed)
        problem = only(report)
        assert said(problem) == (Severity.REPAIRABLE, wal_name(closed, number), start, end)
        assert f"the {which} copy of the entry of commit {frame.position}" in problem.what
        assert "nothing is lost" in problem.meaning
        assert report.sound
        closed.wal(number).write_bytes(whole)


@pytest.mark.parametrize("copy", ["first", "second"])
def test_one_copy_of_an_index_is_repairable(closed: StoredLog, copy: str) -> None:
    number = closed.segments[0]
    footer = closed.footer(number)
    size = closed.wal(number).stat().st_size
    start, end = (
        (footer.index_a, footer.index_b)
        if copy == "first"
        else (footer.index_b, size - segments.FOOTER_BYTES)
    )
    closed.flip(closed.wal(number), start + 100)
    problem = only(check(closed))
    assert said(problem) == (Severity.REPAIRABLE, wal_name(closed, number), start, end)
    assert problem.what == f"the {copy} copy of the index is damaged"


async def test_a_footer_is_repairable_and_the_next_start_repairs_it(closed: StoredLog) -> None:
    number = closed.segments[1]
    size = closed.wal(number).stat().st_size
    closed.flip(closed.wal(number), size - 20)
    problem = only(check(closed))
    assert said(problem) == (Severity.REPAIRABLE, wal_name(closed, number), size - 64, size)
    assert problem.advice == "the next start rewrites it"
    await (await opened(closed)).close()
    assert check(closed).problems == []


def test_a_header_is_repairable(closed: StoredLog) -> None:
    closed.flip(closed.wal(closed.segments[0]), 30)
    problem = only(check(closed))
    assert said(problem) == (Severity.REPAIRABLE, wal_name(closed, closed.segments[0]), 0, 64)


async def test_a_damaged_format_file_is_repairable_and_the_next_start_repairs_it(closed: StoredLog) -> None:
    path = closed.directory / "FORMAT"
    closed.flip(path, 20)
    problem = only(check(closed))
    assert said(problem) == (Severity.REPAIRABLE, "FORMAT", 0, path.stat().st_size)
    await (await opened(closed)).close()
    assert check(closed).problems == []
    path.unlink()
    assert said(only(check(closed))) == (Severity.REPAIRABLE, "FORMAT", 0, 0)


def test_a_format_file_that_cannot_be_rebuilt_is_damage(closed: StoredLog) -> None:
    for number in closed.segments:
        closed.flip(closed.wal(number), 3)
    (closed.directory / "FORMAT").write_bytes(b"")
    report = check(closed)
    assert said(only(report)) == (Severity.DAMAGED, "FORMAT", 0, 0)
    assert not report.sound


async def test_a_damaged_newest_checkpoint_falls_back_to_the_one_before(closed: StoredLog) -> None:
    older, newest = closed.checkpoints
    closed.flip(newest, 200)
    problem = only(check(closed))
    assert said(problem) == (Severity.REPAIRABLE, f"checkpoints/{newest.name}", 0, newest.stat().st_size)
    assert f"the checkpoint of position {int(older.stem)}" in problem.meaning
    closed.flip(older, 3)
    report = check(closed)
    assert [problem.severity for problem in report.problems] == [Severity.REPAIRABLE] * 2
    assert all("the log from its start" in problem.meaning for problem in report.problems)
    assert sum(map(len, (await readable(closed)).values())) == report.records
