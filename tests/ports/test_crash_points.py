"""Crashes at every call to the disk: what was promised is there, in order, and nothing that never was."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field

import pytest

from mainstem.ports.commitlog.local.log import LocalCommitLog
from mainstem.ports.commitlog.port import Checkpoint
from tests.support.files import Policy, SimFiles, SimulatedCrash

from .logs import SIM_DIRECTORY, commits, open_log, zero_ahead_at_once

SEGMENT_BYTES = 1500
DISKS: list[tuple[Policy, int]] = [("lost", 0), ("kept", 0), *(("torn", seed) for seed in range(6))]


@dataclass
class Promises:
    """What the log told its caller before it went down."""

    attempted: list[tuple[bytes, bytes]] = field(default_factory=list)  # by position, the last word on each
    synced: int = 0
    checkpoint: int = 0
    sealed: set[int] = field(default_factory=set)
    dropped: set[int] = field(default_factory=set)
    dropping: set[int] = field(default_factory=set)
    torn: set[int] = field(default_factory=set)  # found with a damaged payload while not yet durable


async def append(log: LocalCommitLog, promises: Promises, life: int) -> None:
    number = log.end
    del promises.attempted[number:]
    entry, payload = b"life %d commit %d" % (life, number), b"%d/%d " % (life, number) * (number % 7 * 25)
    promises.attempted.append((entry, payload))
    slices = [payload[:10], payload[10:]]
    if number % 3 == 2:
        _, sync_s = await log.append_synced(entry, slices)
        if sync_s is not None:
            promises.synced = number + 1
    else:
        await log.append(entry, slices)


@pytest.fixture(autouse=True)
def only_the_smallest_are_written_on_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others take the way of large commits: to another thread, which may sync them as well."""
    monkeypatch.setattr("mainstem.ports.commitlog.local.log.SHORTCUT_BYTES_MAX", 100)


async def work(log: LocalCommitLog, promises: Promises, life: int) -> None:
    """A bit of everything a log is asked to do."""
    for step in range(36):
        await append(log, promises, life)
        if step % 4 == 3:
            promises.synced = await log.sync()
        if step % 12 == 9:
            await log.roll()
        if step % 12 == 10:
            for one in log.objects()[:-1]:
                if not one.sealed:
                    await log.seal(one.number, b"index %d" % one.number)
                    promises.sealed.add(one.number)
                    promises.synced = max(promises.synced, log.synced)
        if step % 16 == 15:
            await log.save_checkpoint(Checkpoint(promises.synced, b"state"))
            promises.checkpoint = promises.synced
        if step % 18 == 17:
            for one in log.objects()[:-1]:
                if one.sealed and one.end_position <= promises.checkpoint:
                    promises.dropping.add(one.number)
                    await log.drop(one.number)
                    promises.dropped.add(one.number)
    await log.close()
    promises.synced = log.end


async def check(log: LocalCommitLog, promises: Promises) -> None:
    assert log.end >= promises.synced
    checkpoint = log.load_checkpoint()
    assert (checkpoint.position if checkpoint else 0) >= promises.checkpoint
    objects = log.objects()
    numbers = {one.number for one in objects}
    assert not numbers & promises.dropped
    for one in objects:
        if one.number in promises.sealed:
            assert one.sealed
            assert log.read_index(one.number) == b"index %d" % one.number
    assert promises.sealed - promises.dropping <= numbers
    start = min((one.first_position for one in objects), default=log.end)
    assert start <= promises.checkpoint or not promises.dropping
    found = await commits(log, start)
    assert [commit.placement.position for commit in found] == list(range(start, log.end))
    for commit in found:
        place = commit.placement
        entry, payload = promises.attempted[place.position]
        assert commit.entry == entry
        assert commit.payload_bytes == len(payload)
        if not commit.payload_intact:
            assert place.position >= promises.synced or place.position in promises.torn
            promises.torn.add(place.position)
        else:
            assert log.read(place.object, place.start, commit.payload_bytes) == payload


async def live(files: SimFiles, promises: Promises, life: int, *, prepare_ahead: bool = False) -> bool:
    """Open, check, work. False if it crashed, whenever that was."""
    log = None
    try:
        log = await open_log(SIM_DIRECTORY, files, segment_bytes=SEGMENT_BYTES, prepare_ahead=prepare_ahead)
        await check(log, promises)
        promises.synced = log.end  # opening makes all it found durable
        await work(log, promises, life)
    except SimulatedCrash:
        return False
    finally:
        if log is not None:
            await close_crashed(log)
    return True


async def close_crashed(log: LocalCommitLog) -> None:
    with contextlib.suppress(SimulatedCrash):
        await log.close()


async def calls_of_a_whole_life() -> int:
    files = SimFiles()
    assert await live(files, Promises(), 1)
    return files.calls


@pytest.mark.parametrize(("policy", "seed"), DISKS)
async def test_a_crash_at_any_call_keeps_every_promise(policy: Policy, seed: int) -> None:
    total = await calls_of_a_whole_life()
    assert total > 100
    for call in range(1, total + 1):
        files, promises = SimFiles(), Promises()
        files.crash_after(call)
        assert not await live(files, promises, 1)
        after = files.reboot(policy, seed * 1000 + call)
        after.crash_after(after.calls + 3 + call % 60)
        await live(after, promises, 2)
        last = await open_log(SIM_DIRECTORY, after.reboot(policy, call), segment_bytes=SEGMENT_BYTES)
        await check(last, promises)
        await last.close()


@pytest.mark.parametrize("seed", range(4))
async def test_crashes_during_recovery_do_no_harm(seed: int) -> None:
    total = await calls_of_a_whole_life()
    for call in range(5, total, 5):
        files, promises = SimFiles(), Promises()
        files.crash_after(call)
        assert not await live(files, promises, 1)
        disk = files.reboot("torn", seed * 1000 + call)
        for during in range(1, 12):
            disk.crash_after(during)
            try:
                log = await open_log(SIM_DIRECTORY, disk, segment_bytes=SEGMENT_BYTES)
            except SimulatedCrash:
                disk = disk.reboot("torn", seed + during)
                continue
            await close_crashed(log)
            disk = disk.reboot("torn", seed + during)
        log = await open_log(SIM_DIRECTORY, disk, segment_bytes=SEGMENT_BYTES)
        await check(log, promises)
        await log.close()


@pytest.mark.parametrize("seed", range(3))
async def test_segments_prepared_ahead_keep_every_promise_too(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """The preparing thread makes calls of its own, so where the crash falls differs from run to run."""
    zero_ahead_at_once(monkeypatch, 300)
    total = await calls_of_a_whole_life()
    for call in range(1, total, 3):
        files, promises = SimFiles(), Promises()
        files.crash_after(call)
        await live(files, promises, 1, prepare_ahead=True)
        last = await open_log(
            SIM_DIRECTORY, files.reboot("torn", seed * 1000 + call), segment_bytes=SEGMENT_BYTES
        )
        await check(last, promises)
        await last.close()
