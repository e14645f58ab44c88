"""The offline check of a data directory: what it finds, what it says of it, and that it changes nothing."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from mainstem import limits
from mainstem.broker.broker import Broker
from mainstem.errors import DirectoryUnusable, MainstemError, RecordsLost
from mainstem.ledger.appends import AppendRun
from mainstem.ledger.checkpoint import pack, unpack
from mainstem.ledger.config import TopicConfig
from mainstem.ledger.entry import Entry
from mainstem.ledger.ledger import Ledger
from mainstem.log.extents import SealedExtents
from mainstem.log.verification.directory import DirectoryCheck, Report
from mainstem.log.verification.problems import Problem, Severity
from mainstem.log.verification.slices import slice_rows
from mainstem.ports.commitlog import frames, segments
from mainstem.ports.commitlog.checkpoints import Checkpoints
from mainstem.ports.commitlog.port import Checkpoint
from mainstem.ports.files import OsFiles
from mainstem.records.building import build_batch
from mainstem.records.header import SliceFacts
from mainstem.testing.stored import StoredLog, options, write_records

Copy = Callable[[], StoredLog]


@pytest.fixture(scope="module")
def closed_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Closed twice: every segment sealed, two checkpoints, a group offset."""
    directory = tmp_path_factory.mktemp("closed") / "data"

    async def write() -> None:
        for rounds in (60, 40):
            broker = await Broker.open(options(directory))
            await write_records(broker, rounds)
            await broker.commit_offset("readers", "orders", 7)
            await broker.close()

    asyncio.run(write())
    return directory


@pytest.fixture(scope="module")
def crashed_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Closed once, then killed: a checkpoint, and a segment after it that is not sealed."""
    root = tmp_path_factory.mktemp("crashed")

    async def write() -> None:
        broker = await Broker.open(options(root / "live"))
        await write_records(broker, 40)
        await broker.close()
        broker = await Broker.open(options(root / "live", segment_bytes=1 << 20))
        await write_records(broker, 30)
        await broker.log.sync()
        shutil.copytree(root / "live", root / "data")
        await broker.close()

    asyncio.run(write())
    return root / "data"


@pytest.fixture
def closed(closed_log: Path, tmp_path: Path) -> StoredLog:
    return StoredLog(Path(shutil.copytree(closed_log, tmp_path / "data")))


@pytest.fixture
def crashed(crashed_log: Path, tmp_path: Path) -> StoredLog:
    return StoredLog(Path(shutil.copytree(crashed_log, tmp_path / "data")))


def check(stored: StoredLog, *, owned: bool = False, quick: bool = False) -> Report:
    """Check, and see that no byte of any file changed."""
    before = stored.digest()
    report = DirectoryCheck(stored.directory, owned=owned, quick=quick).run()
    assert stored.digest() == before
    return report


def only(report: Report) -> Problem:
    assert len(report.problems) == 1, [problem.line for problem in report.problems]
    return report.problems[0]


def said(problem: Problem) -> tuple[Severity, str, int, int]:
    return problem.severity, problem.file, problem.start, problem.end


def lost(problem: Problem) -> list[tuple[str | None, int, int]]:
    return [(name, one.start, one.end) for name, one in zip(problem.topics, problem.lost, strict=True)]


async def opened(stored: StoredLog) -> Broker:
    return await Broker.open(options(stored.directory, segment_bytes=1 << 20))


async def readable(stored: StoredLog) -> dict[tuple[str, int], dict[int, bytes | None]]:
    """Every record a start gives back."""
    broker = await opened(stored)
    found: dict[tuple[str, int], dict[int, bytes | None]] = {}
    try:
        for topic in broker.topics():
            for partition in range(topic.partitions):
                records = found[topic.name, partition] = {}
                at, end = (
                    broker.partition(topic.name, partition).start,
                    broker.partition(topic.name, partition).end,
                )
                while at < end:
                    try:
                        batch = await broker.read(topic.name, at, partition=partition)
                    except RecordsLost as gone:
                        at = gone.end
                        continue
                    records.update((record.offset, record.value) for record in batch)
                    at = batch[-1].offset + 1
    finally:
        await broker.close()
    return found


# Sound logs


def test_a_sound_log_of_many_segments_has_nothing_to_report(closed: StoredLog) -> None:
    report = check(closed)
    assert report.problems == []
    assert report.notes == []
    assert report.sound
    assert report.segments == len(closed.segments) > 3
    assert report.topics == 2
    assert report.commits == closed.footer(closed.segments[-1]).end
    assert report.records == (60 + 40) * 3 + 20 + 14
    assert report.bytes == sum(closed.wal(number).stat().st_size for number in closed.segments)


def test_a_log_after_a_crash_is_sound_too(crashed: StoredLog) -> None:
    assert not crashed.is_sealed(crashed.segments[-1])
    report = check(crashed)
    assert report.problems == []
    assert report.records == (40 + 30) * 3 + 14 + 10


async def test_segments_that_retention_dropped_are_not_missed(tmp_path: Path) -> None:
    stored = StoredLog(tmp_path / "data")
    broker = await Broker.open(options(stored.directory))
    await broker.create_topic("quiet")
    await broker.append_values("quiet", [b"stays"])
    for number in range(3):
        await broker.create_topic(f"short{number}")
        for _ in range(60):
            await broker.append_values(f"short{number}", [b"gone " * 100])
        await broker.delete_topic(f"short{number}")
        await broker.append_values("quiet", [b"stays"])
    await broker.close()
    before = stored.segments
    broker = await opened(stored)
    await broker.log.collect()
    await broker.close()
    assert set(before) - set(stored.segments)
    report = check(stored)
    assert report.problems == []
    assert report.sound


async def test_offsets_skipped_after_an_unclean_shutdown_are_on_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await Broker.open(options(tmp_path / "live"))
    for durability in ("ephemeral", "disk"):
        await broker.create_topic(durability, config=TopicConfig(durability=durability))
        await broker.append_values(durability, [b"x"] * 3)
    await broker.log.sync()
    shutil.copytree(tmp_path / "live", tmp_path / "data")
    await broker.close()
    monkeypatch.setattr("mainstem.broker.opening.boot_id", lambda: "another boot")
    stored = StoredLog(tmp_path / "data")
    broker = await opened(stored)
    assert (await broker.append_values("disk", [b"y"])).base_offset == limits.CEILING_STEP_RECORDS + 3
    await broker.close()
    assert check(stored).problems == []


# Damage to one copy of two


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
        assert said(problem) == (Severity.REPAIRABLE, f"wal/{closed.wal(number).name}", start, end)
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
    assert said(problem) == (Severity.REPAIRABLE, f"wal/{closed.wal(number).name}", start, end)
    assert problem.what == f"the {copy} copy of the index is damaged"


async def test_a_footer_is_repairable_and_the_next_start_repairs_it(closed: StoredLog) -> None:
    number = closed.segments[1]
    size = closed.wal(number).stat().st_size
    closed.flip(closed.wal(number), size - 20)
    problem = only(check(closed))
    assert said(problem) == (Severity.REPAIRABLE, f"wal/{closed.wal(number).name}", size - 64, size)
    assert problem.advice == "the next start writes it again"
    await (await opened(closed)).close()
    assert check(closed).problems == []


def test_a_header_is_repairable(closed: StoredLog) -> None:
    closed.flip(closed.wal(closed.segments[0]), 30)
    problem = only(check(closed))
    assert said(problem) == (Severity.REPAIRABLE, f"wal/{closed.wal(closed.segments[0]).name}", 0, 64)


async def test_a_damaged_format_file_is_repairable_and_the_next_start_repairs_it(closed: StoredLog) -> None:
    path = closed.directory / "FORMAT"
    closed.flip(path, 20)
    problem = only(check(closed))
    assert said(problem) == (Severity.REPAIRABLE, "FORMAT", 0, path.stat().st_size)
    await (await opened(closed)).close()
    assert check(closed).problems == []
    path.unlink()
    assert said(only(check(closed))) == (Severity.REPAIRABLE, "FORMAT", 0, 0)


def test_a_format_file_that_nothing_can_tell_again_is_damage(closed: StoredLog) -> None:
    for number in closed.segments:
        closed.flip(closed.wal(number), 3)
    (closed.directory / "FORMAT").write_bytes(b"")
    report = check(closed)
    assert said(only(report)) == (Severity.DAMAGED, "FORMAT", 0, 0)
    assert not report.sound


async def test_a_damaged_newest_checkpoint_gives_way_to_the_one_before(closed: StoredLog) -> None:
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


# Damage to records


async def test_a_damaged_payload_names_the_offsets_that_are_lost(closed: StoredLog) -> None:
    number = closed.segments[2]
    index = closed.index(number)
    stream, count, base, start, length, *_ = index.rows[1].tolist()
    closed.flip(closed.wal(number), start + length // 2)
    report = check(closed)
    problem = only(report)
    assert said(problem) == (Severity.DAMAGED, f"wal/{closed.wal(number).name}", start, start + length)
    assert stream == 0
    assert lost(problem) == [("orders/0", base, base + count)]
    assert f"orders/0 offsets {base} to {base + count - 1} are lost" in problem.line
    assert not report.sound
    assert report.counts[Severity.DAMAGED] == 1
    records = (await readable(closed))["orders", 0]
    assert set(range(150)) - set(records) == set(range(base, base + count))


def test_only_the_damaged_slice_of_a_commit_is_lost(tmp_path: Path) -> None:
    stored = StoredLog(tmp_path / "data")

    async def write() -> None:
        broker = await Broker.open(options(stored.directory))
        await broker.create_topic("t", partitions=3)
        await asyncio.gather(*(broker.append_values("t", [b"v" * 50], partition=p) for p in (0, 1, 2, 0)))
        await broker.close()

    asyncio.run(write())
    rows = {row[0]: row for row in stored.index(1).rows.tolist() if row[2] == 0}
    assert len({row[3] for row in rows.values()}) == 3
    _, count, base, start, length, *_ = rows[1]
    stored.flip(stored.wal(1), start + length - 1)
    problem = only(check(stored))
    assert (problem.start, problem.end) == (start, start + length)
    assert lost(problem) == [("t/1", base, base + count)]


def test_damage_after_the_checkpoint_names_offsets_by_replay(crashed: StoredLog) -> None:
    number = crashed.segments[-1]
    found = next(one for one in crashed.frames(number) if one.frame.payload_length and one.frame.position % 2)
    (run,) = (part for part in Entry.decode(found.entry).parts if isinstance(part, AppendRun))
    (row,) = slice_rows(run, found.frame.payload_start)
    crashed.flip(crashed.wal(number), row.start + 70)
    problem = only(check(crashed))
    assert (problem.start, problem.end) == (row.start, row.start + row.length)
    ((_, start, end),) = lost(problem)
    assert end - start == row.count
    assert start >= 20  # after those written before the checkpoint


async def test_damage_to_records_of_a_deleted_topic_is_harmless(closed: StoredLog) -> None:
    broker = await opened(closed)
    await broker.delete_topic("users")
    await broker.close()
    number = closed.segments[0]
    rows = [row for row in closed.index(number).rows.tolist() if row[0] == 2]
    closed.flip(closed.wal(number), rows[0][3] + 80)
    report = check(closed)
    assert only(report).severity == Severity.HARMLESS
    assert only(report).lost == []
    assert report.sound


async def test_a_batch_that_was_stored_broken_is_told_from_damage(tmp_path: Path) -> None:
    stored = StoredLog(tmp_path / "data")
    broker = await opened(stored)
    topic = await broker.create_topic("t")
    batch = build_batch([b"value"], timestamps_ms=1)
    batch[-2] ^= 1
    await broker.log.append(topic.streams[0], batch, SliceFacts(1, 1, 1, -1, -1, -1, False, False), 5)
    fine = build_batch([b"value"], timestamps_ms=1)
    await broker.log.append(topic.streams[0], fine, SliceFacts(2, 1, 1, -1, -1, -1, False, False), 5)
    await broker.close()
    report = check(stored)
    first, second = report.problems
    assert "hold a batch that does not match its own checksum" in first.what
    assert "hold 1 offsets in 1 batches, not 2 in 1" in second.what
    assert [lost(problem) for problem in report.problems] == [[("t/0", 0, 1)], [("t/0", 1, 3)]]


def test_quick_leaves_the_record_bytes_out(closed: StoredLog) -> None:
    number = closed.segments[0]
    row = closed.index(number).rows[0]
    closed.flip(closed.wal(number), int(row["start"]) + 70)
    assert check(closed, quick=True).problems == []
    closed.flip(closed.wal(number), closed.footer(number).index_b + 70)
    assert only(check(closed, quick=True)).what == "the second copy of the index is damaged"


# Damage beyond what copies repair


def test_both_copies_of_an_entry_before_the_checkpoint_cost_nothing(closed: StoredLog) -> None:
    number = closed.segments[1]
    first, second = (one.frame for one in closed.frames(number)[3:5])
    for at in (first.start + 10, first.tail_start + 10, second.start + 60, second.tail_start):
        closed.flip(closed.wal(number), at)
    report = check(closed)
    problem = only(report)
    assert said(problem) == (
        Severity.REPAIRABLE,
        f"wal/{closed.wal(number).name}",
        first.start,
        second.end,
    )
    assert f"positions {first.position} to {second.position}" in problem.what
    assert f"the checkpoint of position {int(closed.checkpoints[-1].stem)} holds" in problem.meaning


async def test_both_copies_of_a_durable_entry_after_the_checkpoint_stop_a_start(crashed: StoredLog) -> None:
    number = crashed.segments[-1]
    frame = crashed.frames(number)[4].frame
    crashed.flip(crashed.wal(number), frame.start)
    crashed.flip(crashed.wal(number), frame.tail_start)
    report = check(crashed)
    problem = only(report)
    assert said(problem) == (Severity.DAMAGED, f"wal/{crashed.wal(number).name}", frame.start, frame.end)
    assert "cannot be opened" in problem.meaning
    assert report.commits == frame.position + len(crashed.frames(number)) - 4
    with pytest.raises(MainstemError, match=f"positions {frame.position} to {frame.position}"):
        await opened(crashed)


async def test_both_copies_of_an_index_name_what_cannot_be_looked_up(closed: StoredLog) -> None:
    number = closed.segments[1]
    footer = closed.footer(number)
    spans = closed.index(number).spans
    closed.flip(closed.wal(number), footer.index_a + 70)
    closed.flip(closed.wal(number), footer.index_b + 70)
    report = check(closed)
    problem = only(report)
    size = closed.wal(number).stat().st_size
    assert said(problem) == (
        Severity.DAMAGED,
        f"wal/{closed.wal(number).name}",
        footer.index_a,
        size - segments.FOOTER_BYTES,
    )
    names = {0: "orders/0", 1: "orders/1", 2: "users/0"}
    assert lost(problem) == [(names[row["stream"]], row["base"], row["end"]) for row in spans]
    assert not report.sound
    with pytest.raises(MainstemError, match="no whole index"):
        await opened(closed)


async def test_an_index_lost_with_its_footer_before_the_checkpoint_stops_a_start(closed: StoredLog) -> None:
    number = closed.segments[1]
    footer = closed.footer(number)
    os.truncate(closed.wal(number), footer.index_a)
    report = check(closed)
    problem = only(report)
    assert said(problem) == (
        Severity.DAMAGED,
        f"wal/{closed.wal(number).name}",
        footer.index_a,
        footer.index_a,
    )
    with pytest.raises(MainstemError, match="no whole index"):
        await opened(closed)


async def test_a_missing_middle_segment_names_the_offsets_that_are_in_no_file(closed: StoredLog) -> None:
    number = closed.segments[2]
    spans = closed.index(number).spans
    closed.wal(number).unlink()
    report = check(closed)
    problem = only(report)
    assert problem.severity == Severity.DAMAGED
    assert problem.file == f"wal/{closed.wal(number).name}"
    names = {0: "orders/0", 1: "orders/1", 2: "users/0"}
    assert lost(problem) == [(names[row["stream"]], row["base"], row["end"]) for row in spans]


async def test_a_missing_segment_that_no_checkpoint_covers_stops_a_start(closed: StoredLog) -> None:
    for path in closed.checkpoints:
        path.unlink()
    number = closed.segments[2]
    footer = closed.footer(number)
    closed.wal(number).unlink()
    report = check(closed)
    hole = next(problem for problem in report.problems if "no checkpoint" in problem.what)
    assert (hole.severity, hole.file) == (Severity.DAMAGED, f"wal/{closed.wal(number).name}")
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


def test_a_segment_twice_is_told(closed: StoredLog) -> None:
    copy = closed.wal(closed.segments[-1] + 1)
    shutil.copy(closed.wal(closed.segments[0]), copy)
    report = check(closed)
    assert not report.sound
    assert any(problem.file == f"wal/{copy.name}" for problem in report.problems)


# Torn tails


async def test_a_torn_last_commit_will_be_cut(crashed: StoredLog) -> None:
    number = crashed.segments[-1]
    frames = crashed.frames(number)
    last = frames[-1].frame
    crashed.wal(number).write_bytes(crashed.wal(number).read_bytes()[: last.start + 60])
    report = check(crashed)
    problem = only(report)
    assert said(problem) == (
        Severity.TORN,
        f"wal/{crashed.wal(number).name}",
        last.start,
        last.start + 60,
    )
    assert problem.advice == "the next start cuts them"
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


def test_space_allocated_ahead_is_no_problem(crashed: StoredLog) -> None:
    with open(crashed.wal(crashed.segments[-1]), "ab") as file:
        file.write(bytes(100_000))
    assert check(crashed).problems == []


# States and indexes that are whole and wrong


def test_a_checkpoint_of_another_state_diverges(closed: StoredLog) -> None:
    newest = closed.checkpoints[-1]
    position = int(newest.stem)
    files = OsFiles()
    checkpoints = Checkpoints(files, newest.parent, limits.CHECKPOINTS_KEPT)
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


def test_a_whole_checkpoint_that_gives_another_state_is_not_to_be_thrown_away(closed: StoredLog) -> None:
    """Its checksums hold: the code that reads it may be what changed, so the file must be kept."""
    newest = closed.checkpoints[-1]
    checkpoints = Checkpoints(OsFiles(), newest.parent, limits.CHECKPOINTS_KEPT)
    stored = checkpoints.read(int(newest.stem))
    assert stored is not None
    state, digest = unpack(stored.state)
    checkpoints.save(Checkpoint(stored.position, pack(state, digest ^ 1)))
    report = check(closed)
    problem = next(problem for problem in report.problems if problem.file.startswith("checkpoints"))
    assert said(problem) == (Severity.DAMAGED, f"checkpoints/{newest.name}", 0, newest.stat().st_size)
    assert problem.what.startswith("its bytes are whole")
    assert problem.advice.startswith("keep every file as it is; open the directory with the version")
    assert not report.sound


async def test_a_digest_in_the_log_that_replay_does_not_give_is_told(
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
    assert said(problem) == (Severity.DAMAGED, f"wal/{stored.wal(1).name}", frame.start, frame.end)
    assert f"commit {frame.position} cannot be applied" in problem.what
    assert "but the checkpoint of position" in problem.meaning


@pytest.mark.parametrize("replayable", [True, False])
def test_an_index_that_contradicts_the_commits_is_told(closed: StoredLog, replayable: bool) -> None:
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
    problem = next(problem for problem in report.problems if "does not say what the commits" in problem.what)
    assert problem.severity == Severity.DAMAGED
    assert problem.file == f"wal/{closed.wal(number).name}"
    assert (problem.start, problem.end) == (footer.index_a, closed.wal(number).stat().st_size - 64)
    assert lost(problem)[0][0] == "orders/0"


# Beside a live owner


async def test_beside_a_live_owner_only_sealed_files_are_checked(tmp_path: Path) -> None:
    stored = StoredLog(tmp_path / "data")
    broker = await Broker.open(options(stored.directory))
    await write_records(broker, 40)
    await broker.close()
    broker = await opened(stored)
    await write_records(broker, 10)
    await broker.log.sync()
    live = stored.segments[-1]
    report = check(stored, owned=True)
    assert report.problems == []
    assert not report.whole
    assert report.segments == len([number for number in stored.segments if stored.is_sealed(number)])
    assert "a live process owns the directory" in report.notes[0]
    start = int(stored.index(1).rows["start"][0])
    stored.flip(stored.wal(1), start + 70)
    assert only(check(stored, owned=True)).lost
    assert not stored.is_sealed(live)
    stored.flip(stored.wal(1), start + 70)
    await broker.close()


# As a whole


def test_a_directory_without_a_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DirectoryUnusable, match="there is no log"):
        DirectoryCheck(tmp_path).run()


def test_problems_past_the_limit_are_counted(closed: StoredLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CHECK_PROBLEMS_MAX", 3)
    for number in closed.segments[:5]:
        closed.flip(closed.wal(number), 8)
    report = check(closed)
    assert len(report.problems) == 3
    assert report.counts[Severity.REPAIRABLE] == 5
    assert "2 more problems" in report.notes[0]


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
        os.truncate(path, at)  # of the last segment it could not be told from a crash
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
        # A start that replays a file can do without its index, for as long as it keeps it in memory.
        assert report.sound or gone or "both copies of the index" in context, context
