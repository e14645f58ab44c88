"""Following a log in a bucket past its tail, and the barrier that reads where it ends."""

from __future__ import annotations

import asyncio

import pytest

from mainstem import limits
from mainstem.errors import LogDamaged, NewerVersion
from mainstem.ports.commitlog.shared.bucket.commits import BUCKET_POLL_MAX_S, BUCKET_POLL_S
from mainstem.ports.commitlog.shared.bucket.entries import HEAD
from mainstem.ports.commitlog.shared.bucket.keys import BucketKeys
from tests.support.memory_store import MemoryObjectStore

from ..logs import append_samples, commits, contents, sample_content
from .logs import open_bucket_log

KEYS = BucketKeys("log")


async def test_a_follower_sees_what_others_commit_and_ends_when_its_log_is_closed() -> None:
    store = MemoryObjectStore()
    pauses: list[float] = []
    polled = asyncio.Event()

    async def wait(seconds: float) -> None:
        pauses.append(seconds)
        polled.set()
        await asyncio.sleep(0)

    writer = await open_bucket_log(store)
    follower = await open_bucket_log(store, wait=wait)
    positions: list[int] = []

    async def follow() -> None:
        async for chunk in follower.follow(0, wait=True):
            positions.extend(commit.placement.position for commit in chunk)

    task = asyncio.ensure_future(follow())
    await polled.wait()
    await append_samples(writer, 50)
    while len(positions) < 50:
        polled.clear()
        await polled.wait()
    assert positions == list(range(50))
    assert follower.end == 50
    assert min(pauses) == BUCKET_POLL_S
    assert max(pauses) <= BUCKET_POLL_MAX_S
    await follower.close()
    await asyncio.wait_for(task, 30)
    await writer.close()


async def test_a_follower_of_its_own_commits_alone_asks_for_the_tail_seldom_and_once() -> None:
    store = MemoryObjectStore()
    pauses: list[float] = []
    asked: list[int] = []  # for entries, by the pause that it came after

    async def count(call: str, key: str) -> None:
        if call == "get" and key.startswith(KEYS.entries):
            asked[-1] += 1

    async def wait(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 11:
            await log.close()
        elif len(pauses) == 9:
            async for _ in other.follow(other.end):
                pass
            await other.append(b"of another", [])
        else:
            for _ in range(3):
                await log.append(b"own", [])
        asked.append(0)

    other = await open_bucket_log(store)
    log = await open_bucket_log(store, wait=wait)
    asked.append(0)
    store.before = count
    async for _ in log.follow(0, wait=True):
        pass
    assert pauses[:4] == [BUCKET_POLL_S * 2**power for power in range(4)]
    assert pauses[4:9] == [BUCKET_POLL_MAX_S] * 5
    assert pauses[9] == BUCKET_POLL_S  # who writes once may write again
    assert asked[:8] == [1] * 8
    await other.close()


async def test_a_follower_far_behind_reads_many_entries_at_once() -> None:
    store = MemoryObjectStore()
    writer = await open_bucket_log(store)
    await append_samples(writer, 200)
    running = most = 0

    async def count(call: str, key: str) -> None:
        nonlocal running, most
        if call == "get" and key.startswith(KEYS.entries):
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            running -= 1

    store.before = count
    reader = await open_bucket_log(store)
    assert await contents(reader) == [sample_content(number) for number in range(200)]
    assert 8 <= most <= limits.BUCKET_READS_MAX
    await reader.close()
    await writer.close()


@pytest.mark.parametrize("ahead", [0, 1, 2, 3, 7, 8, 100])
async def test_the_tail_is_found_in_few_reads_and_nothing_is_learnt_by_it(ahead: int) -> None:
    store = MemoryObjectStore()
    reader = await open_bucket_log(store)
    writer = await open_bucket_log(store)
    await append_samples(writer, ahead)
    reads = 0

    async def count(call: str, key: str) -> None:
        nonlocal reads
        reads += key.startswith(KEYS.entries)

    store.before = count
    assert await reader.tail() == ahead
    assert reads <= 2 * max(1, ahead).bit_length() + 2
    assert reader.end == 0
    await reader.close()
    await writer.close()


async def test_what_is_too_large_for_an_entry_stands_apart_in_bounded_objects() -> None:
    store = MemoryObjectStore()
    log = await open_bucket_log(store)
    entry = bytes(range(256)) * 1024
    slices = [b"a" * 5_000_000, b"b" * 5_000_000, b"c"]
    place = await log.append(entry, slices)
    await log.append(b"small", [b"d"])
    assert max([one.size_bytes async for one in store.list()]) <= limits.STORE_OBJECT_BYTES_MAX
    await log.close()
    log = await open_bucket_log(store)
    assert await contents(log) == [(0, entry, b"".join(slices)), (1, b"small", b"d")]
    at = limits.STORE_OBJECT_BYTES_MAX - 2
    assert log.read(place.object, at, 4) == b"bbbb"
    assert log.read(place.object, 9_999_999, 3) == b"bc"
    await log.close()


async def test_a_payload_that_was_damaged_on_its_way_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A start notes for good what it finds damaged twice."""
    store = MemoryObjectStore()
    await (await open_bucket_log(store)).append(b"entry", [b"payload"])
    get = store.get

    async def damaged(key: str) -> bytes:
        found = await get(key)
        return found.replace(b"payload", b"pay!oad")

    monkeypatch.setattr(store, "get", damaged)
    log = await open_bucket_log(store)
    (commit,) = await commits(log)
    assert not commit.payload_intact
    assert log.read(1, 0, 7) == b"payload"
    await log.close()


async def test_a_damaged_payload_is_marked_and_all_else_is_there() -> None:
    store = MemoryObjectStore()
    log = await open_bucket_log(store)
    for number in range(3):
        await log.append(b"entry", [b"payload %d" % number])
    await log.close()
    stored = bytearray(await store.get(KEYS.entry(1)))
    stored[-1] ^= 1
    await store.put(KEYS.entry(1), stored)
    log = await open_bucket_log(store)
    intact = [commit.payload_intact async for chunk in log.follow(0) for commit in chunk]
    assert intact == [True, False, True]
    await log.close()


@pytest.mark.parametrize("at", [0, 8, 12, 20, 28, 60, HEAD.size - 1, HEAD.size])
async def test_a_damaged_entry_stops_the_log(at: int) -> None:
    store = MemoryObjectStore()
    log = await open_bucket_log(store)
    await log.append(b"entry", [b"payload"])
    await log.close()
    stored = bytearray(await store.get(KEYS.entry(0)))
    stored[at] ^= 0x80
    await store.put(KEYS.entry(0), stored)
    with pytest.raises((LogDamaged, NewerVersion)):
        await open_bucket_log(store)


@pytest.mark.parametrize("length", [0, 1, HEAD.size - 1, HEAD.size, HEAD.size + 4])
async def test_a_cut_entry_stops_the_log(length: int) -> None:
    store = MemoryObjectStore()
    log = await open_bucket_log(store)
    await log.append(b"entry", [])
    await log.close()
    await store.put(KEYS.entry(0), (await store.get(KEYS.entry(0)))[:length])
    with pytest.raises(LogDamaged):
        await open_bucket_log(store)


@pytest.mark.parametrize(
    "key", ["seals/README", "seals/1-2-3", "seals/1-2-x-4.gone", "floor/7", "floor/-1-2", "seals/²-1-1-1"]
)
async def test_objects_that_are_not_the_logs_are_named(key: str) -> None:
    store = MemoryObjectStore()
    await (await open_bucket_log(store)).close()
    await store.put(f"log/{key}", b"")
    with pytest.raises(LogDamaged, match=f"log/{key}"):
        await open_bucket_log(store)


@pytest.mark.parametrize("key", ["checkpoints/1-zz", "checkpoints/x-" + "0" * 32, "checkpoints/1"])
async def test_a_checkpoint_that_is_not_the_logs_is_named(key: str) -> None:
    store = MemoryObjectStore()
    log = await open_bucket_log(store)
    await store.put(f"log/{key}", b"")
    with pytest.raises(LogDamaged, match=f"log/{key}"):
        log.load_checkpoint()
    await log.close()


async def test_an_entry_of_another_log_is_not_taken_for_ours() -> None:
    ours, theirs = MemoryObjectStore(), MemoryObjectStore()
    for store in (ours, theirs):
        log = await open_bucket_log(store)
        await log.append(b"entry", [])
        await log.close()
    await ours.put(KEYS.entry(1), await theirs.get(KEYS.entry(0)))
    with pytest.raises(LogDamaged):
        await open_bucket_log(ours)


async def test_an_entry_missing_in_the_middle_is_damage_and_not_the_tail() -> None:
    store = MemoryObjectStore()
    log = await open_bucket_log(store)
    await append_samples(log, 5)
    other = await open_bucket_log(store)
    await store.delete(KEYS.entry(2))
    fresh = await open_bucket_log(store)
    assert fresh.end == 2  # nothing tells a new reader that there was more …
    other._commits._reader.recent.forget(2)
    with pytest.raises(LogDamaged, match="position 2"):
        await contents(other)  # … but who knows it says so
    for one in (log, other, fresh):
        await one.close()
