"""The offline check compared with a start of the same directory, whatever is damaged."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
from pathlib import Path

import pytest

from mainstem.errors import MainstemError
from mainstem.log.verification.problems import Severity
from mainstem.ports.commitlog.local import segments
from tests.support.stored import StoredLog

from .checking import check, lost, readable


def harm(chance: random.Random, stored: StoredLog) -> str:
    """One piece of damage that a disk or a person may do."""
    paths = [*sorted(stored.directory.rglob("*.*")), stored.directory / "FORMAT"]
    path = chance.choice([path for path in paths if path.exists() and path.stat().st_size])
    at = chance.randrange(path.stat().st_size)
    kind = chance.choice(["flip", "flip", "flip", "zero", "truncate", "delete"])
    number = segments.number_of(path.name)
    if kind == "zero":
        content = bytearray(path.read_bytes())
        content[at : at + 700] = bytes(len(content[at : at + 700]))
        path.write_bytes(content)
    elif kind == "truncate" and number != max(stored.segments):
        os.truncate(path, at)  # a truncated last segment could not be distinguished from a crash
    elif kind == "delete" and number != max(stored.segments):
        path.unlink()
    else:
        stored.flip(path, at)
    return f"{kind} {path} {at}"


@pytest.mark.parametrize("seed", range(24))
async def test_the_verdict_is_that_of_the_next_start(
    closed_log: Path, crashed_log: Path, tmp_path: Path, seed: int
) -> None:
    """Whatever is damaged: sound means that a start gives back every record, damaged that it cannot."""
    chance = random.Random(seed)
    for turn in range(3):
        source = chance.choice([closed_log, crashed_log])
        expected = await readable(StoredLog(Path(shutil.copytree(source, tmp_path / f"{turn}-whole"))))
        stored = StoredLog(Path(shutil.copytree(source, tmp_path / f"{turn}-damaged")))
        done = [harm(chance, stored) for _ in range(chance.choice([1, 1, 2, 4]))]
        report = check(stored)
        context = "\n".join([*done, *(problem.line for problem in report.problems)])
        found = {}
        with contextlib.suppress(MainstemError):
            found = await readable(stored)
        if not found:
            assert not report.sound, context
            continue
        gone = {
            (f"{topic}/{partition}", offset)
            for (topic, partition), records in expected.items()
            for offset in set(records) - set(found.get((topic, partition), ()))
        }
        told = {
            (name, offset)
            for problem in report.problems
            for name, start, end in lost(problem)
            for offset in range(start, end)
        }
        torn = any(problem.severity == Severity.TORN for problem in report.problems)
        assert gone <= told or torn, context
        # A start that replays a file does not need its index while the extents are in memory.
        assert report.sound or gone or "both copies of the index" in context, context
