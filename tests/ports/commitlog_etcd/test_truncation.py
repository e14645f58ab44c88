"""What every kept checkpoint holds leaves etcd, and nobody can take its positions again."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from mainstem.errors import BehindCheckpoint
from mainstem.ports.clock import SystemClock
from mainstem.ports.commitlog.port import Checkpoint, Overtaken
from mainstem.ports.commitlog.shared.etcd.client import EtcdClient
from mainstem.ports.commitlog.shared.etcd.commits import ETCD_ENTRY_BYTES_MAX
from mainstem.ports.commitlog.shared.etcd.log import EtcdCommitLog
from mainstem.ports.objectstore.local import LocalObjectStore
from tests.support.clock import ManualClock
from tests.support.etcd import EtcdCluster
from tests.support.memory_store import MemoryObjectStore

from ..logs import append_samples, commits, contents, sample_content
from .logs import Ground, Tail, append_after_all, stored_keys

HOUR_MS = 3_600_000


async def seal_all(log: EtcdCommitLog) -> None:
    await log.roll()
    for one in log.objects():
        if not one.sealed:
            await log.seal(one.number, b"index of %d" % one.number)
    await log.sync()


async def checkpoint_all(log: EtcdCommitLog) -> None:
    """As many checkpoints as are kept, the oldest of them at the end of what there is."""
    await log.sync()
    await log.save_checkpoint(Checkpoint(log.end, b"state"))
    await log.append(b"between", [])
    await log.sync()
    await log.save_checkpoint(Checkpoint(log.end, b"later state"))


async def commit_keys(ground: Ground) -> int:
    client = EtcdClient(ground.options)
    try:
        return int((await client.range(ground.keys.commit(0), ground.keys.commits_end)).count)
    finally:
        await client.close()


async def test_commits_leave_once_all_kept_checkpoints_hold_them_and_their_retention_is_over(
    ground: Ground,
) -> None:
    clock = ManualClock()
    log = await ground.open(clock=clock, retention_ms=HOUR_MS)
    await append_samples(log, 50)
    await seal_all(log)
    await checkpoint_all(log)
    assert await commit_keys(ground) == 51
    clock.advance(HOUR_MS - 1)
    assert await log.truncate() == 0
    clock.advance(1)
    assert await log.truncate() == 50
    assert await commit_keys(ground) == 1
    assert [place for place, _, _ in await contents(log, 50)] == [50]


async def test_one_checkpoint_is_not_enough_when_two_are_kept(ground: Ground) -> None:
    log = await ground.open(retention_ms=0)
    await append_samples(log, 10)
    await seal_all(log)
    await log.save_checkpoint(Checkpoint(10, b"state"))
    assert await log.truncate() == 0


async def test_an_object_that_is_not_sealed_keeps_its_commits_and_all_after_it(ground: Ground) -> None:
    log = await ground.open(retention_ms=0)
    await append_samples(log, 30)
    await log.roll()
    first, second, *_ = log.objects()
    await log.seal(second.number, b"index")
    await checkpoint_all(log)
    assert await log.truncate() == 0
    await log.seal(first.number, b"index")
    assert await log.truncate() == second.end_position


async def test_payloads_of_truncated_commits_are_still_read_after_a_restart(ground: Ground) -> None:
    log = await ground.open(retention_ms=0)
    await append_samples(log, 50)
    places = [(commit.placement, commit.payload_bytes) for commit in await commits(log)]
    await seal_all(log)
    await checkpoint_all(log)
    objects = log.objects()
    again = await ground.open()
    assert again.end == 51
    assert again.objects() == objects
    for number, (place, length) in enumerate(places):
        assert again.read(place.object, place.start, length) == sample_content(number)[2]
    found = again.load_checkpoint()
    assert found == Checkpoint(51, b"later state")


async def test_a_log_truncated_to_its_very_end_goes_on_where_it_was(ground: Ground) -> None:
    log = await ground.open(retention_ms=0, checkpoints_kept=1)
    await append_samples(log, 9)
    await seal_all(log)
    last = log.objects()[-1].number
    await log.save_checkpoint(Checkpoint(9, b"state"))
    assert await commit_keys(ground) == 0
    again = await ground.open()
    assert again.end == again.synced == await again.tail() == 9
    place = await again.append(b"next", [b"payload"])
    assert (place.position, place.object, place.start) == (9, last + 1, 0)


async def test_a_reader_behind_the_floor_is_told_to_load_a_checkpoint(ground: Ground) -> None:
    log, lagging = await ground.open("b", retention_ms=0), await ground.open(None)
    await append_samples(log, 20)
    await seal_all(log)
    await checkpoint_all(log)
    with pytest.raises(BehindCheckpoint):
        await contents(lagging, 0)
    found = lagging.load_checkpoint()
    assert found is not None
    assert found.position == 21
    assert await contents(lagging, 20) == [(20, b"between", b"")]
    async with Tail(lagging, found.position) as tail:
        await log.append(b"after", [])
        await tail.reaches(22)
    assert lagging.end == 22
    assert [one.number for one in lagging.objects()] == [one.number for one in log.objects()]


async def test_a_stale_writer_cannot_take_a_truncated_position_again(ground: Ground) -> None:
    log, stale = await ground.open("b", retention_ms=0), await ground.open("stale")
    await append_samples(log, 20)
    await seal_all(log)
    await checkpoint_all(log)
    with pytest.raises(BehindCheckpoint):
        await stale.append(b"late by far", [b"x"])
    assert await commit_keys(ground) == 1
    async for _ in stale.follow(20):
        pass
    assert (await stale.append(b"caught up", [b"x"])).position == 21


async def test_a_half_done_truncation_is_finished_by_the_next(ground: Ground, client: EtcdClient) -> None:
    log = await ground.open(retention_ms=0)
    await append_samples(log, 30)
    await seal_all(log)
    found = await client.range(ground.keys.commit(0), ground.keys.commits_end)
    kept = [(pair.key, pair.value) for pair in found.kvs]
    await checkpoint_all(log)
    await ground.put(client, dict(kept[7:]))  # as if only the floor and the first step had been done
    assert await commit_keys(ground) == 24
    again = await ground.open(retention_ms=0)
    with pytest.raises(BehindCheckpoint):
        await contents(again, 10)
    await again.truncate()
    assert await commit_keys(ground) == 1


async def test_a_dropped_object_takes_its_payloads_and_its_record_with_it(
    ground: Ground, client: EtcdClient
) -> None:
    log, other = await ground.open("b", retention_ms=0), await ground.open("other")
    await append_samples(log, 40)
    await seal_all(log)
    for one in log.objects():
        await log.drop(one.number)
    assert await stored_keys(ground.store) == []
    assert log.objects() == []
    await checkpoint_all(log)
    assert (await client.range(ground.keys.object(0), ground.keys.objects_end)).count == 0
    async for _ in other.follow(40):
        pass
    await log.append(b"one more", [])
    assert (await append_after_all(other, b"x", [b"y"])).position == 42


async def test_a_drop_cut_off_half_way_is_finished_by_the_next_truncation(ground: Ground) -> None:
    store = ground.store
    assert isinstance(store, MemoryObjectStore)
    log = await ground.open(retention_ms=0)
    await append_samples(log, 40)
    await seal_all(log)
    one = log.objects()[0]
    deletes = 0

    async def die_at_the_second_delete(call: str, key: str) -> None:
        nonlocal deletes
        deletes += call == "delete"
        if deletes == 2:
            raise ConnectionError("the broker dies here")

    store.before = die_at_the_second_delete
    with pytest.raises(ConnectionError):
        await log.drop(one.number)
    store.before = None
    again = await ground.open(retention_ms=0)
    assert one.number not in [other.number for other in again.objects()]
    with pytest.raises(FileNotFoundError):
        again.read(one.number, 0, 1)
    await checkpoint_all(again)
    named = len(await stored_keys(store))
    sealed = sum(other.sealed for other in again.objects())
    assert named == 2 * sealed + 2  # payloads, seals, checkpoints


async def test_uploads_that_never_became_commits_are_collected_and_no_others(etcd: EtcdCluster) -> None:
    clock = ManualClock()
    ground = Ground(etcd, MemoryObjectStore(clock))
    one = await ground.open("one", clock=clock, inline_bytes=0)
    two = await ground.open("two", clock=clock, inline_bytes=0)
    await append_samples(one, 30)
    with pytest.raises(Overtaken):
        await two.append(b"lost", [b"its payload"])
    await seal_all(one)
    await append_samples(one, 5)
    before = await stored_keys(ground.store)
    assert await one.collect_orphans(HOUR_MS) == 0
    clock.advance(HOUR_MS + 1)
    assert await one.collect_orphans(HOUR_MS) == 1
    assert len(await stored_keys(ground.store)) == len(before) - 1
    assert await contents(one) == [sample_content(number) for number in range(35)]
    await ground.close()


@pytest.mark.parametrize(("writer_ms", "collector_ms"), [(-2 * HOUR_MS, 0), (0, 2 * HOUR_MS)])
async def test_whoevers_clock_is_off_no_upload_that_is_under_way_is_taken_for_an_orphan(
    ground: Ground, writer_ms: int, collector_ms: int
) -> None:
    now_ms = SystemClock().now_ms()
    writer = await ground.open("writer", clock=ManualClock(now_ms + writer_ms), inline_bytes=0)
    collector = await ground.open("collector", clock=ManualClock(now_ms + collector_ms))
    prepared = await writer.prepare(b"entry", [b"its payload"])
    assert await collector.collect_orphans() == 0
    placed = await writer.append(b"entry", [b"its payload"], prepared)
    assert writer.read(placed.object, placed.start, 11) == b"its payload"


async def test_an_upload_that_waited_for_long_is_put_anew(etcd: EtcdCluster) -> None:
    """A process that stood still between the two may find that the first was taken for an orphan."""
    clock = ManualClock()
    ground = Ground(etcd, MemoryObjectStore(clock))
    writer, collector = await ground.open("writer", clock=clock), await ground.open("collector", clock=clock)
    entry = b"e" * (ETCD_ENTRY_BYTES_MAX + 1)  # it stands behind the payload: without it nobody goes on
    prepared = await writer.prepare(entry, [b"its payload"])
    clock.advance(HOUR_MS + 1)
    assert await collector.collect_orphans() == 1
    placed = await writer.append(entry, [b"its payload"], prepared)
    assert [bytes(one.entry) for one in await commits(collector)] == [entry]
    assert writer.read(placed.object, placed.start, 11) == b"its payload"
    await ground.close()


async def test_checkpoints_of_several_brokers_are_seen_by_all(ground: Ground) -> None:
    one, two = await ground.open("one"), await ground.open("two")
    await append_samples(one, 10)
    async for _ in two.follow(0):
        pass
    for log in (one, two):
        await log.sync()
    await one.save_checkpoint(Checkpoint(5, b"of one"))
    await two.save_checkpoint(Checkpoint(5, b"of two, which comes second"))
    await two.save_checkpoint(Checkpoint(10, b"ten"))
    assert len([key for key in await stored_keys(ground.store) if "/checkpoints/" in key]) == 2
    third = await ground.open(None)
    assert third.load_checkpoint() == Checkpoint(10, b"ten")


async def test_a_damaged_checkpoint_gives_way_to_the_one_before(ground: Ground) -> None:
    log = await ground.open()
    await append_samples(log, 10)
    await log.sync()
    await log.save_checkpoint(Checkpoint(5, b"five"))
    await log.save_checkpoint(Checkpoint(10, b"ten"))
    newest = [key for key in await stored_keys(ground.store) if "/checkpoints/" in key][-1]
    await ground.store.put(newest, b"something else")
    assert log.load_checkpoint() == Checkpoint(5, b"five")


async def test_a_log_lives_its_whole_life_over_a_store_on_disk(etcd: EtcdCluster, tmp_path: Path) -> None:
    ground = Ground(etcd, LocalObjectStore(tmp_path))
    log = await ground.open(retention_ms=0)
    await append_samples(log, 40)
    await log.append(b"e" * (ETCD_ENTRY_BYTES_MAX + 1), [b"behind its payload"])
    before = await contents(log)
    await seal_all(log)
    again = await ground.open(retention_ms=0)
    assert await contents(again) == before
    first, *others = again.objects()
    assert await asyncio.to_thread(again.read_index, first.number) == b"index of %d" % first.number
    await again.drop(first.number)
    await checkpoint_all(again)
    last = await ground.open()
    assert last.load_checkpoint() == Checkpoint(42, b"later state")
    assert [one.number for one in last.objects()][: len(others)] == [one.number for one in others]
    await ground.close()
