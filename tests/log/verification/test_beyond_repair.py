"""The offline check: damage that no copy repairs, and torn tails."""

from __future__ import annotations

import os
import shutil

import pytest

from mainstem.errors import MainstemError
from mainstem.log.verification.problems import Severity
from mainstem.ports.commitlog.local import segments
from tests.support.stored import StoredLog

from .checking import all_in, check, lost, only, opened, said, wal_name


def test_losing_both_copies_of_an_entry_before_the_checkpoint_loses_nothing(closed: StoredLog) -> None:
    number = closed.segments[1]
    first, second = (one.frame for one in closed.frames(number)[3:5])
    for at in (first.start + 10, first.tail_start + 10, second.start + 60, second.tail_start):
        closed.flip(closed.wal(number), at)
    problem = only(check(closed))
    assert said(problem) == (Severity.REPAIRABLE, wal_name(closed, number), first.start, second.end)
    assert f"positions {first.position} to {second.position}" in problem.what
    assert f"the checkpoint of position {int(closed.checkpoints[-1].stem)} includes" in problem.meaning


async def test_losing_both_copies_of_a_durable_entry_after_the_checkpoint_stops_a_start(
    crashed: StoredLog,
) -> None:
    number = crashed.segments[-1]
    frame = crashed.frames(number)[4].frame
    crashed.flip(crashed.wal(number), frame.start)
    crashed.flip(crashed.wal(number), frame.tail_start)
    report = check(crashed)
    problem = only(report)
    assert said(problem) == (Severity.DAMAGED, wal_name(crashed, number), frame.start, frame.end)
    assert "cannot be opened" in problem.meaning
    assert report.commits == frame.position + len(crashed.frames(number)) - 4
    with pytest.raises(MainstemError, match=f"positions {frame.position} to {frame.position}"):
        await opened(crashed)


async def test_losing_both_copies_of_an_index_names_the_unreadable_offsets(closed: StoredLog) -> None:
    number = closed.segments[1]
    footer = closed.footer(number)
    held = all_in(closed, number)
    closed.flip(closed.wal(number), footer.index_a + 70)
    closed.flip(closed.wal(number), footer.index_b + 70)
    report = check(closed)
    problem = only(report)
    size = closed.wal(number).stat().st_size
    assert said(problem) == (
        Severity.DAMAGED,
        wal_name(closed, number),
        footer.index_a,
        size - segments.FOOTER_BYTES,
    )
    assert lost(problem) == held
    assert not report.sound
    with pytest.raises(MainstemError, match="both copies of the index"):
        await opened(closed)


async def test_an_index_lost_with_its_footer_before_the_checkpoint_stops_a_start(closed: StoredLog) -> None:
    number = closed.segments[1]
    footer = closed.footer(number)
    os.truncate(closed.wal(number), footer.index_a)
    problem = only(check(closed))
    assert said(problem) == (Severity.DAMAGED, wal_name(closed, number), footer.index_a, footer.index_a)
    with pytest.raises(MainstemError, match="both copies of the index"):
        await opened(closed)


async def test_a_missing_middle_segment_names_the_offsets_that_are_in_no_file(closed: StoredLog) -> None:
    number = closed.segments[2]
    held = all_in(closed, number)
    closed.wal(number).unlink()
    problem = only(check(closed))
    assert (problem.severity, problem.file) == (Severity.DAMAGED, wal_name(closed, number))
    assert lost(problem) == held


async def test_a_missing_segment_that_no_checkpoint_covers_stops_a_start(closed: StoredLog) -> None:
    for path in closed.checkpoints:
        path.unlink()
    number = closed.segments[2]
    footer = closed.footer(number)
    closed.wal(number).unlink()
    report = check(closed)
    hole = next(problem for problem in report.problems if "no checkpoint" in problem.what)
    assert (hole.severity, hole.file) == (Severity.DAMAGED, wal_name(closed, number))
    assert f"positions {footer.first} to {footer.end - 1}" in hole.what
    assert any(problem.lost for problem in report.problems)
    with pytest.raises(MainstemError, match="lacks the file"):
        await opened(closed)


def test_a_log_that_lost_its_newest_segment_ends_before_its_checkpoint(closed: StoredLog) -> None:
    number = closed.segments[-1]
    first = closed.footer(number).first
    closed.wal(number).unlink()
    report = check(closed)
    assert any(f"ends at position {first}" in problem.what for problem in report.problems)
    assert not report.sound


def test_a_duplicate_segment_is_reported(closed: StoredLog) -> None:
    copy = closed.wal(closed.segments[-1] + 1)
    shutil.copy(closed.wal(closed.segments[0]), copy)
    report = check(closed)
    assert not report.sound
    assert any(problem.file == f"wal/{copy.name}" for problem in report.problems)


async def test_a_torn_last_commit_will_be_truncated(crashed: StoredLog) -> None:
    number = crashed.segments[-1]
    frames = crashed.frames(number)
    last = frames[-1].frame
    crashed.wal(number).write_bytes(crashed.wal(number).read_bytes()[: last.start + 60])
    report = check(crashed)
    problem = only(report)
    assert said(problem) == (Severity.TORN, wal_name(crashed, number), last.start, last.start + 60)
    assert problem.advice == "the next start truncates them"
    assert report.sound
    assert report.commits == last.position
    await (await opened(crashed)).close()
    assert check(crashed).problems == []


def test_a_commit_that_lacks_only_its_second_copy_is_kept(crashed: StoredLog) -> None:
    number = crashed.segments[-1]
    last = crashed.frames(number)[-1].frame
    crashed.wal(number).write_bytes(crashed.wal(number).read_bytes()[: last.payload_end])
    report = check(crashed)
    assert said(only(report))[0] == Severity.REPAIRABLE
    assert report.commits == last.position + 1


def test_preallocated_space_is_not_a_problem(crashed: StoredLog) -> None:
    with open(crashed.wal(crashed.segments[-1]), "ab") as file:
        file.write(bytes(100_000))
    assert check(crashed).problems == []
