"""Truncation behind checkpoints, and writers that were paused during it."""

from __future__ import annotations

import pytest

from mainstem.errors import BehindCheckpoint, Stale, StoreUnreachable
from mainstem.ports.commitlog.port import Checkpoint
from mainstem.ports.commitlog.shared.bucket.commits import BUCKET_INLINE_BYTES_MAX
from mainstem.ports.commitlog.shared.bucket.keys import BucketKeys
from mainstem.ports.commitlog.shared.bucket.log import BucketCommitLog
from tests.support.clock import ManualClock
from tests.support.memory_store import MemoryObjectStore

from ..logs import append_samples, contents, sample_content
from .logs import open_bucket_log, s3_store

KEYS = BucketKeys("log")
HOUR_MS = 3_600_000


class Ground:
    """A store with a clock of its own, and a log whose clock may say something else."""

    def __init__(self) -> None:
        self.store_clock = ManualClock()
        self.store = MemoryObjectStore(self.store_clock)

    async def open(self, clock: ManualClock | None = None) -> BucketCommitLog:
        return await open_bucket_log(self.store, clock=clock or ManualClock())

    async def positions(self) -> list[int]:
        return [int(one.key[-20:]) async for one in self.store.list(KEYS.entries)]

    async def keys(self, part: str) -> list[str]:
        return [one.key async for one in self.store.list(f"log/{part}/")]


async def grow(log: BucketCommitLog, objects: int, *, large: bool = False) -> None:
    """This many finished objects, each sealed and with a checkpoint after it, then one that is not."""
    for _ in range(objects):
        await append_samples(log, 5)
        if large:
            await log.append(b"large", [b"x" * (BUCKET_INLINE_BYTES_MAX + 1)])
        await log.roll()
        await log.seal(log.objects()[-1].number, b"index")
        await log.sync()
        await log.save_checkpoint(Checkpoint(log.end, b"state at %d" % log.end))
    await append_samples(log, 3)


async def test_entries_are_kept_for_an_hour_on_the_stores_clock() -> None:
    ground = Ground()
    wrong = ManualClock(now_ms=5)  # the broker's own clock is far off, and that changes nothing
    log = await ground.open(wrong)
    await grow(log, 4)
    ground.store_clock.advance(HOUR_MS - 1)
    assert await log.truncate() == 0
    assert await ground.positions() == list(range(23))
    ground.store_clock.advance(1)
    assert await log.truncate() == 15  # two checkpoints are kept, and what the older one lacks stays
    assert await ground.positions() == list(range(15, 23))
    assert await log.truncate() == 15
    await log.close()


async def test_a_truncated_log_is_opened_from_its_checkpoint_and_loses_no_payload() -> None:
    ground = Ground()
    log = await ground.open()
    await grow(log, 4, large=True)
    before = await contents(log)
    listed = log.objects()
    ground.store_clock.advance(HOUR_MS)
    assert len(await ground.keys("wal")) == 4
    assert await log.truncate() == 18
    assert len(await ground.keys("wal")) == 1
    await log.close()
    log = await ground.open()
    assert log.objects() == listed
    assert log.end == log.synced == 27
    assert log.load_checkpoint() == Checkpoint(24, b"state at 24")
    assert await contents(log, 24) == before[24:]
    for one in listed[:3]:
        payload = b"".join(before[at][2] for at in range(one.first_position, one.end_position))
        assert log.read(one.number, 0, one.size_bytes) == payload
        assert log.read(one.number, 7, 20) == payload[7:27]
        assert log.read_index(one.number) == b"index"
    assert (await log.append(b"next", [])).position == 27
    await log.close()


async def test_a_follower_whose_position_is_truncated_is_told_to_load_the_checkpoint() -> None:
    ground = Ground()
    log = await ground.open()
    sleeper_clock = ManualClock()
    sleeper = await ground.open(sleeper_clock)
    await grow(log, 4)
    ground.store_clock.advance(HOUR_MS)
    await log.truncate()
    sleeper_clock.advance(HOUR_MS)
    with pytest.raises(BehindCheckpoint):
        await contents(sleeper, 0)
    with pytest.raises(BehindCheckpoint):
        await sleeper.tail()
    fresh = await ground.open()
    with pytest.raises(BehindCheckpoint):
        await contents(fresh, 14)
    assert [place for place, _, _ in await contents(fresh, 15)] == list(range(15, 23))
    for one in (fresh, sleeper, log):
        await one.close()


async def test_a_writer_paused_during_a_truncation_cannot_write_before_it() -> None:
    ground = Ground()
    log = await ground.open()
    clock = ManualClock()
    sleeper = await ground.open(clock)
    await grow(log, 4)
    ground.store_clock.advance(HOUR_MS)
    await log.truncate()
    clock.advance(HOUR_MS)
    with pytest.raises(Stale):
        await sleeper.append(b"into the past", [])  # its position is free again
    with pytest.raises(BehindCheckpoint):
        await sleeper.rejoin()
    with pytest.raises(Stale):
        await sleeper.append(b"into the past", [])
    assert await ground.positions() == list(range(15, 23))
    await sleeper.close()
    await log.close()


async def test_a_put_that_stalled_through_a_truncation_counts_for_nothing() -> None:
    ground = Ground()
    log = await ground.open()
    clock = ManualClock()
    sleeper = await ground.open(clock)
    await grow(log, 4)

    async def fall_asleep(call: str, key: str) -> None:
        if call == "put" and key == KEYS.entry(0):
            ground.store.before = None
            ground.store_clock.advance(HOUR_MS)
            await log.truncate()
            clock.advance(HOUR_MS)

    ground.store.before = fall_asleep
    with pytest.raises(Stale, match="does not count"):
        await sleeper.append(b"ghost", [])
    with pytest.raises(Stale):
        await sleeper.append(b"again", [])
    ground.store_clock.advance(HOUR_MS)
    await log.truncate()
    assert (await ground.positions())[0] == 15  # the ghost is gone
    fresh = await ground.open()
    assert [entry for _, entry, _ in await contents(fresh, 20)] == [
        sample_content(n)[1] for n in (20, 21, 22)
    ]
    for one in (fresh, sleeper, log):
        await one.close()


@pytest.mark.parametrize("passed_ms", [59_000, 61_000])
async def test_a_writer_without_news_of_the_tail_for_a_minute_must_rejoin(passed_ms: int) -> None:
    ground = Ground()
    clock = ManualClock()
    log = await ground.open(clock)
    other = await ground.open()
    await log.append(b"first", [])
    async for _ in other.follow(0):
        pass
    clock.advance(passed_ms)
    if passed_ms < 60_000:
        await log.append(b"second", [])
    else:
        await other.append(b"theirs", [])
        with pytest.raises(Stale):
            await log.append(b"second", [])
        async for _ in log.follow(1):
            pass  # following alone does not do: others may have given this writer up
        with pytest.raises(Stale):
            await log.append(b"second", [])
        assert await log.rejoin() == 2
        assert (await log.append(b"second", [])).position == 2
    await log.close()
    await other.close()


async def test_a_follower_keeps_its_writer_fresh() -> None:
    ground = Ground()
    clock = ManualClock()
    log = await ground.open(clock)
    for _ in range(10):
        clock.advance(30_000)
        assert await log.tail() == 0
    await log.append(b"still here", [])
    await log.close()


async def test_dropped_objects_leave_no_trace_once_they_are_truncated() -> None:
    ground = Ground()
    log = await ground.open()
    await grow(log, 4)
    for one in log.objects()[:2]:
        await log.drop(one.number)
    assert sum(key.endswith(".gone") for key in await ground.keys("seals")) == 2
    ground.store_clock.advance(HOUR_MS)
    assert await log.truncate() == 15
    assert not any(key.endswith(".gone") for key in await ground.keys("seals"))
    await log.close()
    log = await ground.open()
    assert [one.first_position for one in log.objects()] == [10, 15, 20]
    assert log.end == 23
    await log.close()


async def test_a_truncation_that_was_cut_short_is_finished_by_the_next() -> None:
    ground = Ground()
    log = await ground.open()
    await grow(log, 4)
    ground.store_clock.advance(HOUR_MS)
    deletes = 0

    async def fail_later(call: str, key: str) -> None:
        nonlocal deletes
        deletes += call == "delete" and key.startswith(KEYS.entries)
        if deletes > 3:
            raise ConnectionError("cut short")

    ground.store.before = fail_later
    with pytest.raises(ConnectionError):
        await log.truncate()
    ground.store.before = None
    fresh = await ground.open()
    assert fresh.end == 23
    assert [place for place, _, _ in await contents(fresh, 20)] == [20, 21, 22]
    assert await fresh.truncate() == 15
    assert await ground.positions() == list(range(15, 23))
    await fresh.close()
    await log.close()


async def test_a_real_store_truncates_too(request: pytest.FixtureRequest) -> None:
    store = s3_store(request)
    log = await open_bucket_log(store, entries_kept_ms=0)
    await grow(log, 3)
    assert await log.truncate() == 10
    await log.close()
    log = await open_bucket_log(store)
    assert log.end == 18
    assert log.load_checkpoint() == Checkpoint(15, b"state at 15")
    with pytest.raises(BehindCheckpoint):
        await contents(log, 0)
    await log.close()


async def test_a_broker_that_lags_does_not_truncate_what_a_seal_it_trusts_does_not_hold() -> None:
    ground = Ground()
    one, other, lagging = [await ground.open() for _ in range(3)]
    await append_samples(one, 5)
    for log in (other, lagging):
        async for _ in log.follow(0):
            pass
    await one.roll()
    await one.seal(1, b"index of five")
    await other.append(b"sixth", [b"of the first object"])
    await grow_further(other)
    ground.store_clock.advance(HOUR_MS)
    assert lagging.end == 5
    assert await lagging.truncate() == 0
    fresh = await ground.open()
    assert len(await contents(fresh)) == fresh.end == 12
    for log in (one, other, lagging, fresh):
        await log.close()


async def grow_further(log: BucketCommitLog) -> None:
    """Checkpoints that stand, although the object before them is not sealed."""
    for _ in range(3):
        await log.roll()
        await log.append(b"first of an object", [])
        await log.append(b"second", [])
        await log.sync()
        await log.save_checkpoint(Checkpoint(log.end - 2, b"state"))


async def test_uploads_that_never_became_commits_are_collected_once_they_are_old() -> None:
    ground = Ground()
    log = await ground.open()
    large = b"x" * (BUCKET_INLINE_BYTES_MAX + 1)
    await log.append(b"kept", [large])
    ground.store.lose_next_response(StoreUnreachable("lost"))  # the upload goes through, then nothing follows
    with pytest.raises(StoreUnreachable):
        await log.append(b"lost", [large])
    assert len(await ground.keys("wal")) == 2
    assert await log.collect_orphans() == 0
    ground.store_clock.advance(HOUR_MS)
    assert await log.collect_orphans() == 1
    assert len(await ground.keys("wal")) == 1
    assert await contents(log) == [(0, b"kept", large)]
    await log.close()
