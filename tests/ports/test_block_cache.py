"""The block cache: never a wrong byte, bounds kept to the byte, one fetch a block."""

from __future__ import annotations

import asyncio
import errno
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainstem.errors import NotFound, StoreUnreachable
from mainstem.ports.files import File, OsFiles
from mainstem.ports.objectstore.blocks import HEADER, BlockFolder
from mainstem.ports.objectstore.cache import CachedObjectStore
from tests.support.files import SimFiles
from tests.support.memory_store import MemoryObjectStore

CONTENT = bytes(range(256)) * 4


async def filled(**objects: bytes) -> MemoryObjectStore:
    store = MemoryObjectStore()
    for key, content in objects.items():
        await store.put(key, content)
    return store


def files_of(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.blk"))


def held(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


@settings(max_examples=60, deadline=None)
@given(
    length=st.integers(0, 100),
    block=st.integers(1, 40),
    memory=st.integers(0, 120),
    ranges=st.lists(st.tuples(st.integers(0, 110), st.integers(0, 110)), max_size=8),
)
async def test_every_range_is_what_the_store_has(
    length: int, block: int, memory: int, ranges: list[tuple[int, int]]
) -> None:
    store = await filled(key=CONTENT[:length])
    cache = CachedObjectStore(store, block_bytes=block, memory_bytes=memory)
    for _ in range(2):
        assert await cache.get_ranges("key", ranges) == [
            CONTENT[:length][start : start + size] for start, size in ranges
        ]


async def test_a_block_is_fetched_once_and_then_served_from_memory() -> None:
    cache = CachedObjectStore(await filled(key=CONTENT), block_bytes=100)
    for _ in range(3):
        assert await cache.get_ranges("key", [(50, 100)]) == [CONTENT[50:150]]
    assert (cache.counts.misses, cache.counts.memory_hits) == (2, 4)
    assert (cache.counts.fetched_bytes, cache.counts.hit_bytes) == (200, 400)


async def test_many_who_want_one_block_share_one_fetch() -> None:
    store = await filled(key=CONTENT)
    fetches = 0
    go = asyncio.Event()

    async def hold(call: str, key: str) -> None:
        nonlocal fetches
        fetches += 1
        await go.wait()

    store.before = hold
    cache = CachedObjectStore(store, block_bytes=1000)
    asked = [asyncio.ensure_future(cache.get_ranges("key", [(n, 5)])) for n in range(20)]
    await asyncio.sleep(0)
    go.set()
    assert [(await one)[0] for one in asked] == [CONTENT[n : n + 5] for n in range(20)]
    assert fetches == 1


async def test_whoever_gives_up_takes_nobody_along() -> None:
    store = await filled(key=CONTENT)
    go = asyncio.Event()

    async def hold(call: str, key: str) -> None:
        await go.wait()

    store.before = hold
    cache = CachedObjectStore(store, block_bytes=1000)
    first, second, third = (asyncio.ensure_future(cache.get_ranges("key", [(0, 5)])) for _ in range(3))
    await asyncio.sleep(0)
    first.cancel()  # it fetches for all
    second.cancel()  # it waits
    for one in (first, second):
        with pytest.raises(asyncio.CancelledError):
            await one
    go.set()
    assert await third == [CONTENT[:5]]


async def test_an_error_is_told_to_all_who_wait_and_not_remembered() -> None:
    store = await filled(key=CONTENT)
    cache = CachedObjectStore(store, block_bytes=1000)

    async def fail(call: str, key: str) -> None:
        await asyncio.sleep(0)
        raise StoreUnreachable("down")

    store.before = fail
    asked = [asyncio.ensure_future(cache.get_ranges("key", [(0, 5)])) for _ in range(3)]
    for one in asked:
        with pytest.raises(StoreUnreachable):
            await one
    store.before = None
    assert await cache.get_ranges("key", [(0, 5)]) == [CONTENT[:5]]


async def test_a_range_far_past_the_end_costs_no_more_than_a_few_blocks() -> None:
    cache = CachedObjectStore(await filled(key=CONTENT), block_bytes=100)
    assert await cache.get_ranges("key", [(1000, 1 << 20)]) == [CONTENT[1000:]]
    assert cache.counts.misses <= 16


async def test_what_is_missing_is_asked_for_every_time() -> None:
    store = await filled()
    cache = CachedObjectStore(store, block_bytes=10)
    with pytest.raises(NotFound):
        await cache.get_ranges("key", [(0, 5)])
    await store.put("key", CONTENT)
    assert await cache.get_ranges("key", [(0, 5)]) == [CONTENT[:5]]


async def test_several_event_loops_share_the_cache() -> None:
    cache = CachedObjectStore(await filled(key=CONTENT), block_bytes=7)
    found: list[bool] = []

    async def read() -> bool:
        asked = [(n, 20) for n in range(0, 900, 3)]
        return await cache.get_ranges("key", asked) == [
            CONTENT[start : start + size] for start, size in asked
        ]

    threads = [threading.Thread(target=lambda: found.append(asyncio.run(read()))) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert await read()
    for thread in threads:
        await asyncio.to_thread(thread.join, 30)
    assert found == [True] * 4


async def test_the_cache_survives_a_restart_on_disk(tmp_path: Path) -> None:
    store = await filled(key=CONTENT)
    for misses in (11, 0):
        cache = CachedObjectStore(store, tmp_path, block_bytes=100)
        assert await cache.get_ranges("key", [(0, 1024)]) == [CONTENT]
        assert cache.counts.misses == misses
    assert cache.counts.disk_hits == 11


@pytest.mark.parametrize("harm", ["flip", "cut", "empty", "other block", "foreign"])
async def test_a_damaged_file_is_a_miss_and_is_replaced(tmp_path: Path, harm: str) -> None:
    store = await filled(key=CONTENT)
    await CachedObjectStore(store, tmp_path, block_bytes=100).get_ranges("key", [(0, 200)])
    one, other = files_of(tmp_path)[:2]
    whole = one.read_bytes()
    spoilt = bytearray(whole)
    spoilt[len(spoilt) // 2] ^= 4
    one.write_bytes(
        {
            "flip": bytes(spoilt),
            "cut": whole[:-1],
            "empty": b"",
            "other block": other.read_bytes(),
            "foreign": b"x" * 200,
        }[harm]
    )
    cache = CachedObjectStore(store, tmp_path, block_bytes=100)
    assert await cache.get_ranges("key", [(0, 200)]) == [CONTENT[:200]]
    assert (cache.counts.misses, cache.counts.disk_hits) == (1, 1)
    assert one.read_bytes() == whole


async def test_a_file_that_cannot_be_read_is_a_miss(tmp_path: Path) -> None:
    store = await filled(key=CONTENT)
    await CachedObjectStore(store, tmp_path, block_bytes=100).get_ranges("key", [(0, 100)])
    cache = CachedObjectStore(store, tmp_path, block_bytes=100)
    (one,) = files_of(tmp_path)
    one.unlink()
    one.symlink_to(tmp_path)  # a folder stands where the file was
    assert await cache.get_ranges("key", [(0, 100)]) == [CONTENT[:100]]
    assert cache.counts.misses == 1


async def test_a_half_written_file_is_removed_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "something.blk.tmp").write_bytes(b"half")
    CachedObjectStore(await filled(), tmp_path)
    assert held(tmp_path) == 0


async def test_blocks_of_another_size_are_not_taken_for_ours(tmp_path: Path) -> None:
    store = await filled(key=CONTENT)
    await CachedObjectStore(store, tmp_path, block_bytes=100).get_ranges("key", [(0, 1000)])
    cache = CachedObjectStore(store, tmp_path, block_bytes=64)
    assert await cache.get_ranges("key", [(0, 1000)]) == [CONTENT[:1000]]


async def test_memory_and_disk_stay_within_their_bounds_and_keep_what_was_used_last(tmp_path: Path) -> None:
    store = await filled(**{f"key{n}": CONTENT for n in range(10)})
    block_file = HEADER.size + len("key0") + 100
    cache = CachedObjectStore(
        store, tmp_path, block_bytes=100, memory_bytes=350, disk_bytes=5 * block_file + 10
    )
    for n in range(10):
        await cache.get_ranges(f"key{n}", [(0, 100)])
        await cache.get_ranges("key0", [(0, 100)])
        assert cache.memory_bytes <= 350
        assert held(tmp_path) <= 5 * block_file + 10
    assert held(tmp_path) == 5 * block_file
    assert cache.counts.misses == 10  # key0 was never let go
    smaller = CachedObjectStore(store, tmp_path, block_bytes=100, disk_bytes=2 * block_file)
    assert held(tmp_path) == 2 * block_file
    await smaller.get_ranges("key9", [(0, 100)])
    assert smaller.counts.disk_hits == 1  # the newest were kept


async def test_a_block_larger_than_the_bound_is_not_kept(tmp_path: Path) -> None:
    cache = CachedObjectStore(
        await filled(key=CONTENT), tmp_path, block_bytes=100, memory_bytes=99, disk_bytes=99
    )
    for _ in range(2):
        assert await cache.get_ranges("key", [(0, 100)]) == [CONTENT[:100]]
    assert cache.counts.misses == 2
    assert held(tmp_path) == 0


async def test_what_was_deleted_or_replaced_is_forgotten(tmp_path: Path) -> None:
    store = await filled(key=CONTENT, other=CONTENT)
    cache = CachedObjectStore(store, tmp_path, block_bytes=100)
    await cache.get_ranges("key", [(0, 300)])
    await cache.get_ranges("other", [(0, 100)])
    await cache.put("key", b"new")
    assert await cache.get_ranges("key", [(0, 300)]) == [b"new"]
    await cache.delete("key")
    with pytest.raises(NotFound):
        await cache.get_ranges("key", [(0, 1)])
    assert len(files_of(tmp_path)) == 1


async def test_a_full_disk_is_no_reason_to_fail_a_read() -> None:
    files = SimFiles()
    cache = CachedObjectStore(await filled(key=CONTENT), Path("/cache"), block_bytes=100, files=files)
    files.no_space_after(10)
    assert await cache.get_ranges("key", [(0, 1000)]) == [CONTENT[:1000]]
    files.space_returns()
    assert [name for name in files.listdir(Path("/cache")) if name.endswith(".tmp")] == []
    assert await cache.get_ranges("key", [(0, 1024)]) == [CONTENT]


async def test_a_disk_that_became_read_only_is_no_reason_to_fail_a_read(tmp_path: Path) -> None:
    class ReadOnlyFiles(OsFiles):
        def create(self, path: Path) -> File:
            raise OSError(errno.EROFS, "read-only file system")

        def unlink(self, path: Path) -> None:
            raise OSError(errno.EROFS, "read-only file system")

    store = await filled(key=CONTENT)
    for files in (OsFiles(), ReadOnlyFiles()):
        cache = CachedObjectStore(
            store, tmp_path, block_bytes=100, disk_bytes=250, memory_bytes=0, files=files
        )
        assert await cache.get_ranges("key", [(0, 1024)]) == [CONTENT]
        files_of(tmp_path)[0].write_bytes(b"damaged")
    await cache.delete("key")


def test_two_keys_never_share_a_block(tmp_path: Path) -> None:
    folder = BlockFolder(OsFiles(), tmp_path, 10_000, 10)
    folder.store("a", 0, b"a")
    folder.store("b", 0, b"b")
    folder.store("a", 1, b"c")
    assert [folder.load("a", 0), folder.load("b", 0), folder.load("a", 1)] == [b"a", b"b", b"c"]
    assert folder.load("b", 1) is None


async def test_metrics_tell_where_blocks_came_from(tmp_path: Path) -> None:
    cache = CachedObjectStore(await filled(key=CONTENT), tmp_path, block_bytes=100)
    await cache.get_ranges("key", [(0, 100)])
    await cache.get_ranges("key", [(0, 100)])
    told = {metric.name: dict(metric.samples) for metric in cache.metrics()}
    assert told["mainstem_block_cache_blocks_total"] == {
        (("from", "memory"),): 1,
        (("from", "disk"),): 0,
        (("from", "store"),): 1,
    }
    assert told["mainstem_block_cache_held_bytes"][(("in", "disk"),)] == held(tmp_path)
