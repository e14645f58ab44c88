"""The offline check of an intact data directory: it reports no problem, and changes nothing."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mainstem import limits
from mainstem.broker.broker import Broker
from mainstem.errors import DirectoryUnusable
from mainstem.ledger.config import TopicConfig
from mainstem.log.read.visibility import CEILING_STEP_RECORDS
from mainstem.log.verification.directory import DirectoryCheck
from mainstem.log.verification.problems import Severity
from tests.support.stored import StoredLog, options, write_records

from .checking import check, only, opened


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


async def test_segments_that_retention_deleted_are_not_reported_missing(tmp_path: Path) -> None:
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


async def test_offsets_skipped_after_an_unclean_shutdown_are_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await Broker.open(options(tmp_path / "live"))
    for durability in ("ephemeral", "disk"):
        await broker.create_topic(durability, config=TopicConfig(durability=durability))
        await broker.append_values(durability, [b"x"] * 3)
    await broker.log.sync()
    shutil.copytree(tmp_path / "live", tmp_path / "data")
    await broker.close()
    monkeypatch.setattr("mainstem.broker.storage.opening.boot_id", lambda: "another boot")
    stored = StoredLog(tmp_path / "data")
    broker = await opened(stored)
    assert (await broker.append_values("disk", [b"y"])).base_offset == CEILING_STEP_RECORDS + 3
    await broker.close()
    assert check(stored).problems == []


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


def test_a_directory_without_a_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DirectoryUnusable, match="no log at"):
        DirectoryCheck(tmp_path).run()


def test_problems_past_the_limit_are_counted(closed: StoredLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CHECK_PROBLEMS_MAX", 3)
    for number in closed.segments[:5]:
        closed.flip(closed.wal(number), 8)
    report = check(closed)
    assert len(report.problems) == 3
    assert report.counts[Severity.REPAIRABLE] == 5
    assert "2 more problems" in report.notes[0]
