"""The offline check names the offsets of damaged records."""

from __future__ import annotations

import asyncio
from pathlib import Path

from mainstem.broker.broker import Broker
from mainstem.ledger.entry import AppendRun, Entry
from mainstem.log.verification.problems import Severity
from mainstem.log.verification.slices import slice_rows
from mainstem.records.building import build_batch
from mainstem.records.header import SliceFacts
from tests.support.batches import append_unchecked
from tests.support.stored import StoredLog, options

from .checking import check, lost, only, opened, readable, said, wal_name


async def test_a_damaged_payload_names_the_offsets_that_are_lost(closed: StoredLog) -> None:
    number = closed.segments[2]
    index = closed.index(number)
    stream, count, base, start, length, *_ = index.rows[1].tolist()
    closed.flip(closed.wal(number), start + length // 2)
    report = check(closed)
    problem = only(report)
    assert said(problem) == (Severity.DAMAGED, wal_name(closed, number), start, start + length)
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
    assert start >= 20  # after the records before the checkpoint


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


async def test_a_batch_that_was_stored_corrupt_is_distinguished_from_damage(tmp_path: Path) -> None:
    stored = StoredLog(tmp_path / "data")
    broker = await opened(stored)
    topic = await broker.create_topic("t")
    batch = build_batch([b"value"], timestamps_ms=1)
    batch[-2] ^= 1
    await append_unchecked(broker, topic, batch, SliceFacts(1, 1, 1, -1, -1, -1, False, False), 5)
    fine = build_batch([b"value"], timestamps_ms=1)
    await append_unchecked(broker, topic, fine, SliceFacts(2, 1, 1, -1, -1, -1, False, False), 5)
    await broker.close()
    report = check(stored)
    first, second = report.problems
    assert "hold a batch that does not match its own checksum" in first.what
    assert "hold 1 offsets in 1 batches, not 2 in 1" in second.what
    assert [lost(problem) for problem in report.problems] == [[("t/0", 0, 1)], [("t/0", 1, 3)]]


def test_a_quick_check_skips_the_record_bytes(closed: StoredLog) -> None:
    number = closed.segments[0]
    row = closed.index(number).rows[0]
    closed.flip(closed.wal(number), int(row["start"]) + 70)
    assert check(closed, quick=True).problems == []
    closed.flip(closed.wal(number), closed.footer(number).index_b + 70)
    assert only(check(closed, quick=True)).what == "the second copy of the index is damaged"
