"""Who may use a log's directory, and what is said to those who may not."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from mainstem.errors import DirectoryLocked, DirectoryUnusable, LogDamaged, NewerVersion
from mainstem.ports.commitlog.local.log import LocalCommitLog, open_reader
from mainstem.ports.commitlog.local.preallocation import ZEROED_AHEAD_BYTES
from mainstem.ports.commitlog.local.writer import SYNCS_BEFORE_ZEROING
from tests.support.files import SimFiles, SimulatedCrash
from tests.support.waiting import until

from .logs import (
    SIM_DIRECTORY,
    append_samples,
    commits,
    contents,
    open_log,
    sample_content,
    zero_ahead_at_once,
)

HOLD_THE_LOCK = """
import asyncio, sys
from pathlib import Path
from mainstem.ports.commitlog.local.log import LocalCommitLog

async def hold():
    log = await LocalCommitLog.open(Path(sys.argv[1]))
    await log.append(b"from the other process", [])
    print("held", flush=True)
    sys.stdin.read()

asyncio.run(hold())
"""


async def test_a_directory_held_by_a_live_process_is_refused_and_freed_by_its_death(tmp_path: Path) -> None:
    owner = subprocess.Popen(  # noqa: ASYNC220 - the test has nothing else to do meanwhile
        [sys.executable, "-c", HOLD_THE_LOCK, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "held\n"
        with pytest.raises(DirectoryLocked, match=f"process {owner.pid}"):
            await LocalCommitLog.open(tmp_path)
        owner.kill()
    log = await LocalCommitLog.open(tmp_path)
    assert await contents(log) == [(0, b"from the other process", b"")]
    await log.close()


@pytest.mark.parametrize("backend", ["os", "sim"])
async def test_a_second_log_in_the_same_process_is_refused(tmp_path: Path, backend: str) -> None:
    files = SimFiles() if backend == "sim" else None
    log = await open_log(tmp_path, files)
    with pytest.raises(DirectoryLocked):
        await open_log(tmp_path, files)
    await log.close()
    await (await open_log(tmp_path, files)).close()


async def test_a_lock_left_behind_by_a_dead_process_is_taken(tmp_path: Path) -> None:
    (tmp_path / "LOCK").write_text("999999999\n")
    log = await open_log(tmp_path)
    assert (tmp_path / "LOCK").read_text() == f"{os.getpid()}\n"
    await log.close()


async def test_a_log_that_cannot_be_opened_does_not_stay_locked(tmp_path: Path) -> None:
    (tmp_path / "FORMAT").write_text('{"version": 99}')
    for _ in range(2):
        with pytest.raises(NewerVersion, match="upgrade"):
            await open_log(tmp_path)


async def test_a_segment_of_a_newer_version_is_rejected(tmp_path: Path) -> None:
    from crc32c import crc32c

    log = await open_log(tmp_path)
    await append_samples(log, 1)
    await log.close()
    path = tmp_path / "wal" / f"{1:020d}.wal"
    raw = bytearray(path.read_bytes())
    raw[8:12] = (2).to_bytes(4, "little")
    raw[60:64] = crc32c(raw[:60]).to_bytes(4, "little")
    path.write_bytes(raw)
    with pytest.raises(NewerVersion, match="upgrade"):
        await open_log(tmp_path)


async def test_a_file_in_place_of_the_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(DirectoryUnusable, match="taken"):
        await open_log(tmp_path / "taken")
    with pytest.raises(DirectoryUnusable, match="taken"):
        await open_log(tmp_path / "taken" / "below")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
async def test_a_directory_without_permission_is_named_with_what_to_do(tmp_path: Path) -> None:
    os.chmod(tmp_path, 0o500)
    with pytest.raises(DirectoryUnusable, match="give the user"):
        await open_log(tmp_path / "log")


async def test_missing_parents_are_made(tmp_path: Path) -> None:
    log = await open_log(tmp_path / "a" / "b" / "c")
    await log.close()
    assert (tmp_path / "a" / "b" / "c" / "FORMAT").exists()


async def test_a_log_that_lost_its_format_file_finds_its_id_in_the_segments(tmp_path: Path) -> None:
    log = await open_log(tmp_path)
    await append_samples(log, 3)
    await log.close()
    before = (tmp_path / "FORMAT").read_text()
    (tmp_path / "FORMAT").unlink()
    log = await open_log(tmp_path)
    assert await contents(log) == [sample_content(number) for number in range(3)]
    await log.close()
    assert (tmp_path / "FORMAT").read_text() == before


async def test_segments_that_nothing_identifies_are_refused(tmp_path: Path) -> None:
    log = await open_log(tmp_path)
    await append_samples(log, 3)
    await log.close()
    (tmp_path / "FORMAT").unlink()
    path = tmp_path / "wal" / f"{1:020d}.wal"
    path.write_bytes(bytes(64) + path.read_bytes()[64:])
    with pytest.raises(LogDamaged, match="backup"):
        await open_log(tmp_path)


async def test_closing_gives_back_the_space_allocated_ahead(tmp_path: Path) -> None:
    log = await open_log(tmp_path, segment_bytes=1 << 20, prepare_ahead=True)
    await log.append(b"past half", [bytes(600_000)])
    await log.close()
    files = list((tmp_path / "wal").iterdir())
    assert [path.name for path in files] == [f"{1:020d}.wal"]
    assert files[0].stat().st_size < 601_000


async def test_a_file_whose_syncs_are_waited_for_is_zeroed_ahead(tmp_path: Path) -> None:
    log = await open_log(tmp_path, segment_bytes=1 << 23, prepare_ahead=True)
    path = tmp_path / "wal" / f"{1:020d}.wal"
    for number in range(SYNCS_BEFORE_ZEROING):
        await log.append(b"entry %d" % number, [])
        await log.sync()
    assert path.stat().st_size < 64_000
    await log.append(b"one more", [])
    await until(lambda: path.stat().st_size > ZEROED_AHEAD_BYTES)
    await log.close()
    assert path.stat().st_size < 64_000


async def test_zeroing_ahead_overwrites_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zero_ahead_at_once(monkeypatch, 4096)
    log = await open_log(tmp_path, segment_bytes=1 << 20, prepare_ahead=True)
    numbers = random.Random(1)
    payloads = []
    for number in range(3000):
        payloads.append(numbers.randbytes(numbers.choice((0, 10, 100, 100, 100, 3000, 9000))))
        await log.append(b"entry %d" % number, [payloads[-1]])
        if numbers.random() < 0.3:
            await log.sync()
    found = await commits(log)
    for commit, payload in zip(found, payloads, strict=True):
        place = commit.placement
        assert log.read(place.object, place.start, commit.payload_bytes) == payload
    await log.close()


async def test_half_written_checkpoints_are_removed(tmp_path: Path) -> None:
    log = await open_log(tmp_path)
    await log.close()
    (tmp_path / "checkpoints" / f"{5:020d}.ckpt.tmp").write_bytes(b"half")
    log = await open_log(tmp_path)
    assert os.listdir(tmp_path / "checkpoints") == []
    await log.close()


def test_a_reader_of_a_directory_without_a_log_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(DirectoryUnusable, match="does not hold a log"):
        open_reader(tmp_path)


async def test_a_simulated_log_survives_the_loss_of_its_directory_entries() -> None:
    files = SimFiles()
    log = await open_log(SIM_DIRECTORY, files)
    await append_samples(log, 3)
    await log.sync()
    after = await open_log(SIM_DIRECTORY, files.reboot("lost"))
    assert await contents(after) == [sample_content(number) for number in range(3)]
    await after.close()
    with pytest.raises(SimulatedCrash):
        await log.close()
