"""Sealing where several write: what one thinks finished, another may go on with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from mainstem import limits
from mainstem.errors import InvariantBroken, LogDamaged
from mainstem.ports.commitlog.port import Checkpoint, Overtaken
from mainstem.ports.commitlog.shared.bucket.commits import BUCKET_INLINE_BYTES_MAX
from mainstem.ports.commitlog.shared.bucket.keys import BucketKeys
from mainstem.ports.commitlog.shared.bucket.log import BucketCommitLog
from mainstem.ports.objectstore.cache import CachedObjectStore
from tests.support.memory_store import MemoryObjectStore

from ..logs import append_samples, contents, sample_content
from .logs import open_bucket_log

KEYS = BucketKeys("log")


async def followed(log: BucketCommitLog) -> None:
    async for _ in log.follow(log.end):
        pass


async def test_every_writer_may_seal_an_object() -> None:
    store = MemoryObjectStore()
    one, other = await open_bucket_log(store), await open_bucket_log(store)
    await append_samples(one, 60)
    await followed(other)
    number = one.objects()[0].number
    await one.seal(number, b"index")
    await other.seal(number, b"index")
    with pytest.raises(InvariantBroken):
        await other.seal(number, b"another index")
    assert one.objects() == other.objects()
    assert await contents(other) == [sample_content(number) for number in range(60)]
    await one.close()
    await other.close()


async def test_a_seal_that_another_writer_outgrew_counts_for_nothing() -> None:
    store = MemoryObjectStore()
    one, other = await open_bucket_log(store), await open_bucket_log(store)
    await append_samples(one, 5)
    await followed(other)
    await one.roll()
    await one.seal(1, b"index of five")
    await one.sync()
    await one.save_checkpoint(Checkpoint(5, b"five"))
    assert one.load_checkpoint() == Checkpoint(5, b"five")
    assert (await other.append(*_sample(5))).object == 1  # it knows nothing of the roll
    with pytest.raises(Overtaken):
        await one.append(b"six", [])
    fresh = await open_bucket_log(store)
    for log in (one, other, fresh):
        assert [(found.number, found.end_position, found.sealed) for found in log.objects()] == [
            (1, 6, False)
        ]
        assert log.load_checkpoint() is None  # it stood at the end of an object that had no end there
        assert await contents(log) == [sample_content(number) for number in range(6)]
    await one.roll()
    await one.seal(1, b"index of six")
    await one.append(*_sample(6))
    again = await open_bucket_log(store)
    assert [(found.end_position, found.sealed) for found in again.objects()] == [(6, True), (7, False)]
    assert again.read_index(1) == b"index of six"
    assert await contents(again) == [sample_content(number) for number in range(7)]
    for log in (one, other, fresh, again):
        await log.close()


def _sample(number: int) -> tuple[bytes, list[bytes]]:
    _, entry, payload = sample_content(number)
    return entry, [payload]


class AskedStore(MemoryObjectStore):
    """Notes what it is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    async def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        self.asked.append(key)
        return await super().get_ranges(key, ranges)


async def test_sealing_reads_each_payload_by_one_request_and_past_the_cache() -> None:
    store = AskedStore()
    cache = CachedObjectStore(store, block_bytes=64 * limits.KIB)
    log = await open_bucket_log(store, reads=cache, object_bytes=limits.MIB)
    payload = bytes(2 * BUCKET_INLINE_BYTES_MAX)  # stands apart from its entry
    for _ in range(4):
        await log.append(b"entry", [payload])
    store.asked.clear()
    await log.seal(1, b"index")
    assert len([key for key in store.asked if key.startswith(KEYS.wal)]) == 4
    assert cache.counts.misses == 0
    assert log.read(1, 0, 4 * len(payload)) == 4 * payload
    await log.close()


@pytest.mark.parametrize("dropped", [False, True])
async def test_an_object_that_grows_after_it_was_sealed_is_followed_by_who_knew_only_its_seal(
    dropped: bool,
) -> None:
    store = MemoryObjectStore()
    one, other = await open_bucket_log(store), await open_bucket_log(store)
    await append_samples(one, 5)
    await followed(other)
    await one.roll()
    await one.seal(1, b"index of five")
    if dropped:
        await one.drop(1)
    late = await open_bucket_log(store)
    assert [found.sealed for found in late.objects()] == ([] if dropped else [True])
    await other.append(*_sample(5))
    for log in (one, late):
        await followed(log)
        assert log.objects() == other.objects()
        assert await contents(log) == [sample_content(number) for number in range(6)]
    for log in (one, other, late):
        await log.close()


async def test_an_object_that_grew_after_it_was_dropped_stays_when_the_drop_is_listed_again() -> None:
    store = MemoryObjectStore()
    one, other = await open_bucket_log(store), await open_bucket_log(store)
    await append_samples(one, 5)
    await followed(other)
    await one.roll()
    await one.seal(1, b"index of five")
    await one.drop(1)
    await other.append(*_sample(5))
    await followed(one)
    for log in (one, other):
        await log.refresh()
        assert [(found.number, found.end_position) for found in log.objects()] == [(1, 6)]
        assert await contents(log) == [sample_content(number) for number in range(6)]
        await log.close()


async def test_a_sealed_object_is_read_from_few_large_objects_through_the_cache() -> None:
    store = MemoryObjectStore()
    cached = CachedObjectStore(store)
    log = await open_bucket_log(store, reads=cached, object_bytes=1 << 20)
    payload = bytes(range(256)) * 64
    for number in range(100):
        await log.append(b"%d" % number, [payload])
    await log.seal(1, b"index")
    calls: list[str] = []

    async def note(call: str, key: str) -> None:
        calls.append(key)

    store.before = note
    first = log.objects()[0]
    assert first.sealed
    for number in range(first.end_position):
        assert log.read(1, number * len(payload), len(payload)) == payload
    assert len(calls) == 1  # one block holds the payload of all 64 commits
    assert calls[0].startswith("log/objects/")
    await log.close()


async def test_an_object_ends_after_so_many_commits_however_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mainstem.ports.commitlog.shared.bucket.log.BUCKET_OBJECT_COMMITS_MAX", 10)
    log = await open_bucket_log(MemoryObjectStore(), object_bytes=1 << 30)
    for _ in range(25):
        await log.append(b"", [])
    assert [one.end_position for one in log.objects()] == [10, 20, 25]
    await log.close()


async def test_a_seal_that_lost_its_index_is_damage() -> None:
    store = MemoryObjectStore()
    log = await open_bucket_log(store)
    await log.append(b"a", [b"payload"])
    await log.roll()
    await log.seal(1, b"the index")
    (key,) = [one.key async for one in store.list(KEYS.seals)]
    await store.put(key, (await store.get(key))[:-1])
    with pytest.raises(LogDamaged):
        log.read_index(1)
    await log.close()


async def test_a_drop_that_was_cut_short_is_a_drop() -> None:
    store = MemoryObjectStore()
    log = await open_bucket_log(store)
    await append_samples(log, 5)
    await log.roll()
    await log.seal(1, b"index")

    async def cut(call: str, key: str) -> None:
        if call == "delete":
            raise ConnectionError("cut short")

    store.before = cut
    with pytest.raises(ConnectionError):
        await log.drop(1)
    store.before = None
    await log.close()
    log = await open_bucket_log(store)
    assert log.objects() == []
    assert log.end == 5
    await log.drop(1)
    await log.close()


@pytest.mark.parametrize("size", [0, 1, 9_000_000])
async def test_a_checkpoint_of_any_size_comes_back(size: int) -> None:
    store = MemoryObjectStore()
    log = await open_bucket_log(store)
    await append_samples(log, 1)
    await log.sync()
    noise = bytearray(size)
    for at in range(0, size, 997):
        noise[at] = at % 251
    state = bytes(noise)
    await log.save_checkpoint(Checkpoint(1, state))
    assert log.load_checkpoint() == Checkpoint(1, state)
    await log.close()


async def test_a_damaged_checkpoint_gives_way_to_the_one_before() -> None:
    store = MemoryObjectStore()
    log = await open_bucket_log(store)
    for number in range(2):
        await log.append(b"%d" % number, [])
        await log.roll()
        await log.sync()
        await log.save_checkpoint(Checkpoint(number + 1, b"state %d" % number * 100))
    (newest,) = [one.key async for one in store.list(f"{KEYS.checkpoints}{2:020d}")]
    token = bytes.fromhex(newest.rpartition("-")[2])
    stored = bytearray(await store.get(KEYS.state_part(token, 0)))
    stored[-1] ^= 1
    await store.put(KEYS.state_part(token, 0), stored)
    assert log.load_checkpoint() == Checkpoint(1, b"state 0" * 100)
    await store.put(newest, b"nonsense")
    assert log.load_checkpoint() == Checkpoint(1, b"state 0" * 100)
    await log.close()


async def test_blocks_that_were_kept_of_another_log_are_not_taken_for_this_ones(tmp_path: Path) -> None:
    """A bucket was emptied, or a broker pointed to another one: keys and lengths are the same, and nothing else."""
    for content in (b"first", b"other"):
        log = await open_bucket_log(MemoryObjectStore(), cache=tmp_path)
        for number in range(3):
            await log.append(b"%d" % number, [content])
        await log.roll()
        await log.append(b"next", [])
        await log.seal(1, b"index")
        assert log.read(1, 0, 15) == content * 3
        await log.close()
