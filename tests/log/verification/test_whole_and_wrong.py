"""The offline check: intact checkpoints, digests and indexes that do not match the commits."""

from __future__ import annotations

from pathlib import Path

import pytest

from mainstem import limits
from mainstem.ledger.checkpoint import pack, unpack
from mainstem.ledger.entry import Entry
from mainstem.ledger.ledger import Ledger
from mainstem.log.read.extents import SealedExtents
from mainstem.log.verification.problems import Severity
from mainstem.ports.commitlog.local import frames, segments
from mainstem.ports.commitlog.local.checkpoints import LocalCheckpoints
from mainstem.ports.commitlog.port import Checkpoint
from mainstem.ports.files import OsFiles
from tests.support.stored import StoredLog, write_records

from .checking import check, lost, only, opened, said, wal_name


def test_a_checkpoint_of_another_state_diverges(closed: StoredLog) -> None:
    newest = closed.checkpoints[-1]
    position = int(newest.stem)
    files = OsFiles()
    checkpoints = LocalCheckpoints(files, newest.parent, limits.CHECKPOINTS_KEPT)
    stored = checkpoints.read(position)
    assert stored is not None
    ledger = Ledger.decode(stored.state)
    ledger.streams.end[0] += 1
    checkpoints.save(Checkpoint(position, ledger.encode()))
    report = check(closed)
    problem = next(problem for problem in report.problems if problem.file.startswith("checkpoints"))
    assert problem.severity == Severity.DAMAGED
    assert "but replay gives" in problem.what
    assert not report.sound


def test_an_intact_checkpoint_that_gives_another_state_must_be_kept(closed: StoredLog) -> None:
    """Its checksums are valid: the code that reads it may have changed, so the file must be kept."""
    newest = closed.checkpoints[-1]
    checkpoints = LocalCheckpoints(OsFiles(), newest.parent, limits.CHECKPOINTS_KEPT)
    stored = checkpoints.read(int(newest.stem))
    assert stored is not None
    state, digest = unpack(stored.state)
    checkpoints.save(Checkpoint(stored.position, pack(state, digest ^ 1)))
    report = check(closed)
    problem = next(problem for problem in report.problems if problem.file.startswith("checkpoints"))
    assert said(problem) == (Severity.DAMAGED, f"checkpoints/{newest.name}", 0, newest.stat().st_size)
    assert problem.what.startswith("its bytes are intact")
    assert problem.advice.startswith("keep every file as it is; open the directory with the version")
    assert not report.sound


async def test_a_digest_in_the_log_that_differs_from_replay_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "DIGEST_EVERY_COMMITS", 8)
    stored = StoredLog(tmp_path / "data")
    broker = await opened(stored)
    await write_records(broker, 20)
    await broker.close()
    assert check(stored).problems == []
    found = next(one for one in stored.frames(1) if Entry.decode(one.entry).digest)
    entry = Entry.decode(found.entry)
    assert entry.digest is not None
    entry.digest = (entry.digest[0], entry.digest[1] ^ 1)
    frame, encoded, log = found.frame, entry.encode(), stored.log.low
    content = bytearray(stored.wal(1).read_bytes())
    content[frame.start : frame.payload_start] = frames.leading_copy(frame, encoded, log)
    content[frame.payload_end : frame.end] = frames.trailing_copy(frame, encoded, log)
    stored.wal(1).write_bytes(content)
    report = check(stored)
    problem = only(report)
    assert said(problem) == (Severity.DAMAGED, wal_name(stored, 1), frame.start, frame.end)
    assert f"commit {frame.position} cannot be applied" in problem.what
    assert "but the checkpoint of position" in problem.meaning


@pytest.mark.parametrize("replayable", [True, False])
def test_an_index_that_contradicts_the_commits_is_reported(closed: StoredLog, replayable: bool) -> None:
    number = closed.segments[1]
    index = closed.index(number)
    rows = index.rows.copy()
    rows["length"][0] += 1
    rows["base"][1] += 0 if not replayable else 1
    footer = closed.footer(number)
    forged = SealedExtents(number, index.spans, rows).encode()
    segment = segments.Segment(number, footer.first, footer.end, footer.index_a)
    content = closed.wal(number).read_bytes()[: footer.index_a]
    closed.wal(number).write_bytes(content + b"".join(segments.seal_bytes(closed.log, segment, forged)))
    if not replayable:
        closed.wal(closed.segments[0]).unlink()
    report = check(closed)
    problem = next(problem for problem in report.problems if "does not match the commits" in problem.what)
    assert problem.severity == Severity.DAMAGED
    assert problem.file == wal_name(closed, number)
    assert (problem.start, problem.end) == (footer.index_a, closed.wal(number).stat().st_size - 64)
    assert lost(problem)[0][0] == "orders/0"
