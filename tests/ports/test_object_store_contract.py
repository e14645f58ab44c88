"""The rules every object store backend keeps, run against each of them."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from mainstem.errors import InvalidName, NoSpace, NotFound, Unavailable
from mainstem.ports.objectstore.cache import CachedObjectStore
from mainstem.ports.objectstore.local import LocalObjectStore
from mainstem.ports.objectstore.open import open_store
from mainstem.ports.objectstore.port import ObjectStore
from tests.support.files import SimFiles, SimulatedCrash
from tests.support.memory_store import MemoryObjectStore
from tests.support.s3 import S3Server

from .vendors import VENDORS, vendor_store

_BACKENDS = [
    "local",
    "local-sim",
    "memory",
    "cached",
    "s3",
    "s3-prefix",
    *VENDORS,
]


@pytest.fixture(params=_BACKENDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param.startswith("s3"):
        server: S3Server = request.getfixturevalue("s3_server")
        own = f"contract-{os.urandom(4).hex()}"
        bucket, prefix = (own, "") if request.param == "s3" else ("contract", f"some/{own}")
        server.make_bucket(bucket)
        return open_store(server.url(bucket, prefix))
    if request.param in VENDORS:
        return vendor_store(request, request.param)
    if request.param == "cached":
        return CachedObjectStore(MemoryObjectStore(), tmp_path / "cache", block_bytes=4)
    if request.param == "memory":
        return MemoryObjectStore()
    if request.param == "local":
        return LocalObjectStore(tmp_path / "objects")
    return LocalObjectStore(Path("/objects"), files=SimFiles())


async def keys(store: ObjectStore, prefix: str = "") -> list[str]:
    return [found.key async for found in store.list(prefix)]


async def test_what_was_put_comes_back(store: ObjectStore) -> None:
    assert await store.put("a/b/c", b"content")
    assert await store.get("a/b/c") == b"content"


async def test_an_object_is_put_from_pieces(store: ObjectStore) -> None:
    await store.put("pieces", [b"ab", bytearray(b"cd"), memoryview(b"ef")])
    await store.put("empty", [])
    assert await store.get("pieces") == b"abcdef"
    assert await store.get("empty") == b""


async def test_a_put_replaces_unless_told_otherwise(store: ObjectStore) -> None:
    assert await store.put("key", b"one")
    assert await store.put("key", b"two")
    assert await store.get("key") == b"two"
    assert not await store.put("key", b"three", if_absent=True)
    assert await store.get("key") == b"two"


async def test_of_many_puts_if_absent_one_wins(store: ObjectStore) -> None:
    won = await asyncio.gather(*(store.put("key", b"%d" % n, if_absent=True) for n in range(8)))
    assert sum(won) == 1
    assert await store.get("key") == b"%d" % won.index(True)


async def test_ranges_are_cut_short_at_the_end(store: ObjectStore) -> None:
    await store.put("key", b"0123456789")
    wanted = [(0, 3), (8, 5), (10, 1), (50, 2), (4, 0)]
    assert await store.get_ranges("key", wanted) == [b"012", b"89", b"", b"", b""]


async def test_what_is_not_there_is_not_found(store: ObjectStore) -> None:
    await store.put("folder/key", b"")
    for key in ("missing", "folder", "folder/key/below", "no/such/folder"):
        with pytest.raises(NotFound):
            await store.get(key)
        with pytest.raises(NotFound):
            await store.get_ranges(key, [(0, 1)])


async def test_deleting_is_idempotent(store: ObjectStore) -> None:
    await store.put("a/key", b"x")
    await store.delete("a/key")
    await store.delete("a/key")
    await store.delete("never/was")
    with pytest.raises(NotFound):
        await store.get("a/key")
    assert await store.put("a/key", b"y", if_absent=True)


async def test_listing_goes_by_key_bytes_and_prefix(store: ObjectStore) -> None:
    names = ["a/b", "a-b", "a/b2/c", "a", "ab", "b/é", "b/z", "B"]
    names.remove("a")  # a key that is also a folder is not for every store
    for name in names:
        await store.put(name, name.encode())
    assert await keys(store) == sorted(names, key=str.encode)
    assert await keys(store, "a") == ["a-b", "a/b", "a/b2/c", "ab"]
    assert await keys(store, "a/b") == ["a/b", "a/b2/c"]
    assert await keys(store, "a/b2/") == ["a/b2/c"]
    assert await keys(store, "b/é") == ["b/é"]
    assert await keys(store, "zzz") == []


async def test_listing_an_empty_store_gives_nothing(store: ObjectStore) -> None:
    assert await keys(store) == []


async def test_listing_tells_sizes(store: ObjectStore) -> None:
    await store.put("key", b"12345")
    (found,) = [one async for one in store.list()]
    assert (found.key, found.size_bytes) == ("key", 5)


@pytest.mark.parametrize(
    "key", ["", "/abs", "a//b", "a/", "..", "a/../b", ".", "a/./b", ".staging/x", "a\0b", "x" * 256]
)
async def test_keys_that_could_leave_the_store_are_refused(store: ObjectStore, key: str) -> None:
    with pytest.raises(InvalidName):
        await store.put(key, b"")
    with pytest.raises(InvalidName):
        await store.get(key)
    with pytest.raises(InvalidName):
        await store.delete(key)


async def test_a_local_key_cannot_be_a_folder_too(tmp_path: Path) -> None:
    store = LocalObjectStore(tmp_path)
    await store.put("a/b", b"")
    await store.put("c", b"")
    with pytest.raises(InvalidName):
        await store.put("a", b"")
    with pytest.raises(InvalidName):
        await store.put("c/d", b"")
    assert await keys(store) == ["a/b", "c"]


async def test_a_put_that_fails_leaves_nothing_behind() -> None:
    files = SimFiles()
    store = LocalObjectStore(Path("/objects"), files=files)
    await store.put("kept", b"x")
    files.no_space_after(3)
    with pytest.raises(NoSpace):
        await store.put("refused", b"too large")
    files.space_returns()
    assert await keys(store) == ["kept"]
    assert files.listdir(Path("/objects/.staging")) == []


@pytest.mark.parametrize("if_absent", [False, True])
async def test_an_object_is_there_whole_or_not_at_all_wherever_the_crash(if_absent: bool) -> None:
    content = bytes(range(256)) * 8
    call = 0
    done = False
    while not done:
        call += 1
        files = SimFiles()
        files.crash_after(call)
        try:
            await LocalObjectStore(Path("/objects"), files=files).put("a/key", content, if_absent=if_absent)
            done = True
        except SimulatedCrash:
            done = False
        disks = [
            files.reboot("lost"),
            files.reboot("kept"),
            *(files.reboot("torn", seed) for seed in range(5)),
        ]
        for disk in disks:
            store = LocalObjectStore(Path("/objects"), files=disk)
            found = [await store.get(key) for key in await keys(store)]
            assert found == [content] or (not done and found == [])


async def test_memory_faults_happen_once() -> None:
    store = MemoryObjectStore()
    store.fail_next_put(Unavailable("down"))
    with pytest.raises(Unavailable):
        await store.put("key", b"one")
    assert await keys(store) == []
    store.lose_next_response(Unavailable("lost"))
    with pytest.raises(Unavailable):
        await store.put("key", b"two")
    assert await store.get("key") == b"two"
    assert not await store.put("key", b"three", if_absent=True)


async def test_a_memory_hook_can_hold_a_call() -> None:
    store = MemoryObjectStore()
    go = asyncio.Event()
    seen = []

    async def wait(call: str, key: str) -> None:
        seen.append((call, key))
        await go.wait()

    store.before = wait
    first = asyncio.ensure_future(store.put("key", b"first", if_absent=True))
    second = asyncio.ensure_future(store.put("key", b"second", if_absent=True))
    await asyncio.sleep(0)
    assert seen == [("put", "key")] * 2
    go.set()
    assert [await first, await second] == [True, False]
