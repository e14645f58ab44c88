"""`mainstem check`: what it prints and how it ends."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from mainstem import limits
from mainstem.broker.broker import Broker
from mainstem.ports.commitlog.local.checkpoints import LocalCheckpoints
from mainstem.ports.commitlog.port import Checkpoint
from mainstem.ports.files import OsFiles
from tests.support.stored import StoredLog, options, write_records

from .conftest import Shell


@pytest.fixture
def stored(tmp_path: Path) -> StoredLog:
    """A log of several segments in the default data directory, closed cleanly."""

    async def write() -> None:
        broker = await Broker.open(options(tmp_path / "data"))
        await write_records(broker, 40)
        await broker.close()

    asyncio.run(write())
    return StoredLog(tmp_path / "data")


def test_a_sound_directory_exits_with_0_and_a_summary(shell: Shell, stored: StoredLog) -> None:
    before = stored.digest()
    outcome = shell("check")
    assert stored.digest() == before
    assert (outcome.code, outcome.err) == (0, "")
    summary, verdict = outcome.text.splitlines()
    assert summary.startswith(f"{len(stored.segments)} segments, ")
    assert " 134 records, " in summary
    assert summary.endswith(" 2 topics")
    assert verdict == "sound: no problems"


def test_lost_records_exit_with_1_and_one_line_that_says_all(shell: Shell, stored: StoredLog) -> None:
    _, count, base, start, length, *_ = stored.index(2).rows[0].tolist()
    stored.flip(stored.wal(2), start + 65)
    before = stored.digest()
    outcome = shell("check", "--data-dir", "data")
    assert stored.digest() == before
    assert outcome.code == 1
    line, _, verdict = outcome.text.splitlines()
    assert line.startswith(
        f"damaged: wal/{stored.wal(2).name} bytes {start} to {start + length}: records of commit"
    )
    assert f"orders/0 offsets {base} to {base + count - 1} are lost" in line
    assert line.endswith("restore the file from a backup")
    assert verdict == "damaged: 1 damaged"


def test_one_bad_copy_is_listed_and_exits_with_0(shell: Shell, stored: StoredLog) -> None:
    frame = stored.frames(1)[5].frame
    stored.flip(stored.wal(1), frame.start + 9)
    outcome = shell("check")
    assert outcome.code == 0
    assert outcome.text.startswith(
        f"repairable: wal/{stored.wal(1).name} bytes {frame.start} to {frame.payload_start}: the first copy"
    )
    assert outcome.text.splitlines()[-1] == "sound: 1 repairable"


def test_json_has_every_fact(shell: Shell, stored: StoredLog) -> None:
    stream, count, base, start, length, *_ = stored.index(2).rows[0].tolist()
    stored.flip(stored.wal(2), start + 65)
    outcome = shell("check", "--json")
    assert outcome.code == 1
    found = outcome.json
    assert (found["sound"], found["whole"], found["quick"]) == (False, True, False)
    assert found["counts"] == {"damaged": 1, "repairable": 0, "torn": 0, "harmless": 0}
    assert found["segments"] == len(stored.segments)
    (problem,) = found["problems"]
    assert (problem["file"], problem["start"], problem["end"]) == (
        f"wal/{stored.wal(2).name}",
        start,
        start + length,
    )
    assert problem["lost"] == [
        {"partition": "orders/0", "stream": stream, "start": base, "end": base + count}
    ]


def test_quick_says_what_it_left_out(shell: Shell, stored: StoredLog) -> None:
    stored.flip(stored.wal(1), int(stored.index(1).rows["start"][0]) + 65)
    outcome = shell("check", "--quick")
    assert outcome.code == 0
    assert "record bytes not read" in outcome.text


async def test_beside_an_owner_it_says_what_it_left_out(shell: Shell, tmp_path: Path) -> None:
    broker = await Broker.open(options(tmp_path / "data"))
    await write_records(broker, 5)
    await broker.log.sync()
    outcome = shell("check")
    assert outcome.code == 0
    assert "note: a live process owns the directory: files it may still write to (" in outcome.text
    assert outcome.text.endswith("sound: no problems in what was checked\n")
    assert shell("check", "--json").json["whole"] is False
    await broker.close()
    assert "note:" not in shell("check").text


async def test_nobody_takes_the_directory_while_it_is_checked(stored: StoredLog) -> None:
    from mainstem.errors import DirectoryLocked
    from mainstem.ports.commitlog.local.locking import block_owner

    with block_owner(stored.directory) as still, block_owner(stored.directory) as still_too:
        assert still
        assert still_too
        with pytest.raises(DirectoryLocked):
            await Broker.open(options(stored.directory))
    await (await Broker.open(options(stored.directory))).close()


def test_a_copy_without_a_lock_file_can_be_checked(shell: Shell, stored: StoredLog) -> None:
    (stored.directory / "LOCK").unlink()
    assert shell("check").code == 0
    assert not (stored.directory / "LOCK").exists()


def test_no_log_is_an_error(shell: Shell, tmp_path: Path) -> None:
    missing = shell("check")
    (tmp_path / "data").mkdir()
    empty = shell("check")
    for outcome in (missing, empty):
        assert outcome.code == 1
        assert outcome.err == "error: no log at data: set --data-dir to its directory\n"


def _with_a_wrong_digest(stored: StoredLog) -> None:
    checkpoints = LocalCheckpoints(OsFiles(), stored.directory / "checkpoints", limits.CHECKPOINTS_KEPT)
    newest = checkpoints.load()
    assert newest is not None
    state = bytearray(newest.state)
    state[16] ^= 1
    checkpoints.save(Checkpoint(newest.position, bytes(state)))


def test_a_divergence_is_explained_and_repaired(shell: Shell, stored: StoredLog) -> None:
    _with_a_wrong_digest(stored)
    before = stored.digest()
    outcome = shell("check", "--explain-divergence")
    assert stored.digest() == before
    assert outcome.code == 1
    assert "only the recorded digest is wrong" in outcome.text
    assert "mainstem repair" in outcome.text
    outcome = shell("check", "--explain-divergence", "--json")
    assert json.loads(outcome.text)["diverged"] is True
    outcome = shell("repair", "--yes")
    assert (outcome.code, outcome.err) == (0, "")
    assert "checkpoint written at position" in outcome.text
    assert [path.name for path in stored.directory.iterdir() if path.name.startswith("repair-")]
    assert shell("check").code == 0
    outcome = shell("check", "--explain-divergence")
    assert (outcome.code, outcome.text.splitlines()[-1]) == (0, "no divergence")


def test_a_repair_asks_first_and_needs_a_log(shell: Shell, stored: StoredLog, tmp_path: Path) -> None:
    before = stored.digest()
    assert shell("repair").code != 0
    assert stored.digest() == before
    outcome = shell("repair", "--yes", "--data-dir", str(tmp_path / "nothing"))
    assert outcome.code == 1
    assert "no log at" in outcome.err
