"""A disk that is full or failing: refused clearly, never half done, and reads go on."""

from __future__ import annotations

import asyncio
import contextlib
import threading

import pytest

from mainstem.errors import NoSpace, ReadOnly, TooLarge
from mainstem.ports.commitlog.local.log import SHORTCUT_BYTES_MAX
from mainstem.ports.commitlog.port import Checkpoint
from tests.support.files import SimFiles

from .logs import SIM_DIRECTORY, append_samples, contents, open_log, sample_content, zero_ahead_at_once


async def _a_sync_waits(files: SimFiles) -> None:
    while not files.syncs_waiting:  # noqa: ASYNC110 - it waits on another thread
        await asyncio.sleep(0.001)


@pytest.mark.parametrize("room", [0, 1, 47, 48, 60, 100, 200, 300])
async def test_a_full_disk_refuses_the_append_and_takes_it_when_space_returns(room: int) -> None:
    files = SimFiles()
    log = await open_log(SIM_DIRECTORY, files)
    await append_samples(log, 2)
    files.no_space_after(room)
    with pytest.raises(NoSpace):
        await log.append(b"refused", [b"x" * 500])
    end = log.end
    assert end == 2
    files.space_returns()
    assert await log.append(b"taken", [b"y"]) is not None
    assert log.end == end + 1
    await log.close()
    log = await open_log(SIM_DIRECTORY, files)
    assert await contents(log, end) == [(end, b"taken", b"y")]
    await log.close()


@pytest.mark.parametrize("room", range(0, 320, 8))
async def test_a_refused_append_does_not_appear_after_a_crash(room: int) -> None:
    files = SimFiles()
    log = await open_log(SIM_DIRECTORY, files)
    await append_samples(log, 2)
    files.no_space_after(room)
    with contextlib.suppress(NoSpace):  # with enough room it is taken
        await log.append(b"refused", [b"x" * 150])
    end = log.end
    disks = [files.reboot("kept"), files.reboot("lost"), *(files.reboot("torn", seed) for seed in range(4))]
    for disk in disks:
        again = await open_log(SIM_DIRECTORY, disk)
        assert again.end <= end
        await again.close()
    await asyncio.gather(log.close(), return_exceptions=True)


async def test_a_full_disk_at_the_start_of_a_new_segment_publishes_nothing() -> None:
    files = SimFiles()
    log = await open_log(SIM_DIRECTORY, files, segment_bytes=200)
    await append_samples(log, 4)
    await log.roll()
    files.no_space_after(10)
    with pytest.raises(NoSpace):
        await log.append(b"refused", [])
    files.space_returns()
    await append_samples(log, 4)
    assert await contents(log) == [sample_content(number) for number in range(8)]
    await log.close()


async def test_preparing_the_next_segment_on_a_full_disk_leaves_the_current_one_alone() -> None:
    files = SimFiles()
    log = await open_log(SIM_DIRECTORY, files, segment_bytes=2000, prepare_ahead=True)
    files.no_space_after(1700)  # enough to go on, not enough to allocate the next one
    await append_samples(log, 8)
    files.space_returns()
    await append_samples(log, 30)
    assert await contents(log) == [sample_content(number) for number in range(38)]
    await log.close()


async def test_a_log_on_a_full_disk_opens_and_reads() -> None:
    files = SimFiles()
    log = await open_log(SIM_DIRECTORY, files)
    await append_samples(log, 5)
    await log.close()
    files.no_space_after(0)
    log = await open_log(SIM_DIRECTORY, files)
    assert await contents(log) == [sample_content(number) for number in range(5)]
    with pytest.raises(NoSpace):
        await log.append(b"refused", [])
    await log.close()


async def test_a_full_disk_leaves_an_object_unsealed_and_a_checkpoint_unsaved() -> None:
    files = SimFiles()
    log = await open_log(SIM_DIRECTORY, files)
    await append_samples(log, 3)
    await log.roll()
    await log.sync()
    files.no_space_after(20)
    with pytest.raises(NoSpace):
        await log.seal(1, b"index")
    with pytest.raises(NoSpace):
        await log.save_checkpoint(Checkpoint(3, b"state"))
    files.space_returns()
    assert not log.objects()[0].sealed
    assert log.load_checkpoint() is None
    await log.seal(1, b"index")
    await log.save_checkpoint(Checkpoint(3, b"state"))
    assert log.read_index(1) == b"index"
    assert files.listdir(SIM_DIRECTORY / "checkpoints") == [f"{3:020d}.ckpt"]
    await log.close()


async def test_short_writes_are_completed() -> None:
    files = SimFiles()
    log = await open_log(SIM_DIRECTORY, files)
    files.shorten_next_writes(1000)
    await append_samples(log, 40)
    await log.append(b"large", [b"z" * 5000 for _ in range(100)])
    await log.close()
    log = await open_log(SIM_DIRECTORY, files)
    assert (await contents(log))[:40] == [sample_content(number) for number in range(40)]
    assert log.end == 41
    await log.close()


async def test_a_failed_fsync_is_final_and_reads_go_on() -> None:
    files = SimFiles()
    log = await open_log(SIM_DIRECTORY, files)
    await append_samples(log, 3)
    await log.sync()
    await append_samples(log, 2)
    files.fail_next_fdatasync()
    with pytest.raises(ReadOnly, match="restart"):
        await log.sync()
    with pytest.raises(ReadOnly):
        await log.sync()
    with pytest.raises(ReadOnly):
        await log.append(b"refused", [])
    assert log.synced == 3
    assert await contents(log) == [sample_content(number) for number in range(5)]
    await log.close()
    after = await open_log(SIM_DIRECTORY, files.reboot("lost"))
    assert await contents(after) == [sample_content(number) for number in range(3)]
    await after.close()


async def test_no_commit_is_durable_once_zeroing_ahead_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel reports lost pages once: to the sync of the zeros, and then not to that of a commit."""
    zero_ahead_at_once(monkeypatch, 4096)
    noting, noted = threading.Event(), threading.Event()

    def noted_slowly(*_: object) -> None:
        noting.set()
        noted.wait()

    monkeypatch.setattr("mainstem.ports.commitlog.local.writer.write_whole", noted_slowly)
    files = SimFiles()
    log = await open_log(SIM_DIRECTORY, files, segment_bytes=1 << 16, prepare_ahead=True)
    await log.append(b"kept", [])
    await log.sync()
    zeroed = files.hold_syncs()
    await log.append(b"lost", [])
    await _a_sync_waits(files)
    files.fail_next_fdatasync()
    zeroed.set()
    await asyncio.to_thread(noting.wait)
    try:
        with pytest.raises(ReadOnly, match="restart"):
            await log.sync()
        assert log.synced == 1
    finally:
        noted.set()
    await log.close()


async def test_a_failed_fsync_of_a_commit_just_written_is_final_too() -> None:
    files = SimFiles()
    log = await open_log(SIM_DIRECTORY, files)
    await append_samples(log, 3)
    await log.sync()
    files.fail_next_fdatasync()
    with pytest.raises(ReadOnly, match="restart"):
        await log.append_synced(b"in doubt", [b"x" * SHORTCUT_BYTES_MAX])
    assert log.synced == 3
    with pytest.raises(ReadOnly):
        await log.append(b"refused", [])
    with pytest.raises(ReadOnly):
        await log.sync()
    await log.close()
    after = await open_log(SIM_DIRECTORY, files.reboot("lost"))
    assert after.suspect
    assert await contents(after) == [sample_content(number) for number in range(3)]
    await after.close()


async def test_a_commit_is_synced_as_it_is_written_unless_a_sync_runs() -> None:
    files = SimFiles()
    log = await open_log(SIM_DIRECTORY, files, segment_bytes=1 << 20)
    large = [b"x" * SHORTCUT_BYTES_MAX]
    _, sync_s = await log.append_synced(b"alone", large)
    assert sync_s is not None
    assert log.synced == 1
    release = files.hold_syncs()
    running = asyncio.ensure_future(log.sync())
    await _a_sync_waits(files)
    assert (await log.append_synced(b"beside", large))[1] is None
    assert log.synced == 1
    release.set()
    assert await running == 1
    assert await log.sync() == 2
    await log.close()


async def test_a_sync_beside_one_of_a_commit_just_written_waits_for_it() -> None:
    """Each of them closes the files that it was the last to sync."""
    files = SimFiles()
    log = await open_log(SIM_DIRECTORY, files, segment_bytes=1 << 20)
    await append_samples(log, 1)
    await log.roll()
    release = files.hold_syncs()
    written = asyncio.ensure_future(log.append_synced(b"large", [b"x" * SHORTCUT_BYTES_MAX]))
    await _a_sync_waits(files)
    syncing = asyncio.ensure_future(log.sync())
    await asyncio.sleep(0.02)  # it would be in there by now
    assert files.syncs_waiting == 1
    release.set()
    await asyncio.gather(written, syncing)
    assert log.synced == 2
    await log.close()


async def test_a_failed_fsync_while_sealing_is_final_too() -> None:
    files = SimFiles()
    log = await open_log(SIM_DIRECTORY, files)
    await append_samples(log, 3)
    await log.roll()
    await log.sync()
    files.fail_next_fdatasync()
    with pytest.raises(ReadOnly):
        await log.seal(1, b"index")
    with pytest.raises(ReadOnly):
        await log.append(b"refused", [])
    await log.close()


async def test_appends_do_not_wait_for_a_running_fsync() -> None:
    files = SimFiles()
    log = await open_log(SIM_DIRECTORY, files)
    await append_samples(log, 1)
    release = files.hold_syncs()
    running = asyncio.ensure_future(log.sync())
    await append_samples(log, 20)
    assert not running.done()
    release.set()
    assert await running >= 1
    await log.close()


async def test_an_entry_over_the_limit_is_refused_before_anything_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mainstem.limits.ENTRY_BYTES_MAX", 100)
    log = await open_log(SIM_DIRECTORY, SimFiles())
    with pytest.raises(TooLarge):
        await log.append(b"x" * 101, [])
    assert log.end == 0
    await append_samples(log, 2)
    assert await contents(log) == [sample_content(number) for number in range(2)]
    await log.close()


async def test_a_refused_append_that_lacked_only_its_end_is_taken_back_durably() -> None:
    files = SimFiles()
    log = await open_log(SIM_DIRECTORY, files)
    await append_samples(log, 2)
    await log.sync()
    files.no_space_after(48 + len(b"refused") + 150 + 5)  # head, entry and payload fit, the tail does not
    with pytest.raises(NoSpace):
        await log.append(b"refused", [b"x" * 150])
    for seed in range(80):
        again = await open_log(SIM_DIRECTORY, files.reboot("torn", seed))
        assert await contents(again) == [sample_content(number) for number in range(2)]
        await again.close()
    await asyncio.gather(log.close(), return_exceptions=True)


async def test_dropping_everything_before_keeps_the_position_through_a_crash() -> None:
    files = SimFiles()
    log = await open_log(SIM_DIRECTORY, files)
    await append_samples(log, 4)
    await log.roll()
    await log.seal(1, b"index")
    await append_samples(log, 2)
    await log.drop(1)
    again = await open_log(SIM_DIRECTORY, files.reboot("lost"))
    assert await contents(again, 4) == [sample_content(number) for number in (4, 5)]
    await again.close()
    await asyncio.gather(log.close(), return_exceptions=True)
