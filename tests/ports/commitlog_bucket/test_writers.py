"""Several writers of one log in a bucket: no commit lost, none twice, one order for all."""

from __future__ import annotations

import asyncio

import pytest

from mainstem.errors import StoreRefused, StoreUnreachable, Unavailable
from mainstem.ports.commitlog.port import Overtaken
from mainstem.ports.commitlog.shared.bucket.commits import BUCKET_INLINE_BYTES_MAX
from mainstem.ports.commitlog.shared.bucket.log import BucketCommitLog
from mainstem.ports.objectstore.port import ObjectStore
from tests.support.faulty_store import FaultRates, FaultyObjectStore
from tests.support.memory_store import MemoryObjectStore

from ..logs import contents
from .logs import Writer, check_race, open_bucket_log, race, s3_store


async def joined(stores: list[ObjectStore]) -> list[BucketCommitLog]:
    return [await open_bucket_log(store) for store in stores]


async def closed(logs: list[BucketCommitLog]) -> None:
    for log in logs:
        await log.close()


@pytest.mark.parametrize("seed", range(4))
async def test_two_writers_race_for_200_entries(seed: int) -> None:
    shared = MemoryObjectStore()
    logs = await joined([FaultyObjectStore(shared, seed * 2 + n) for n in range(2)])
    writers = await race(logs, 100)
    check_race(writers, 100)
    assert sum(writer.overtaken for writer in writers) > 10
    assert logs[0].objects() == logs[1].objects()
    await closed(logs)


async def test_three_writers_over_a_store_that_fails_in_every_way(walk_seed: int) -> None:
    shared = MemoryObjectStore()
    rates = FaultRates(refused=0.08, lost=0.08, late=0.08, unread=0.04)
    stores = [FaultyObjectStore(shared, walk_seed * 3 + n, rates) for n in range(3)]
    logs = [await _opened(store) for store in stores]
    writers = await race(logs, 30, payload=140_000 if walk_seed % 3 == 0 else 10)
    for store in stores:
        await store.deliver_late()
    for writer in writers:
        await writer.catch_up()
    check_race(writers, 30)
    assert sum(store.faults for store in stores) > 20
    await closed(logs)


async def _opened(store: ObjectStore) -> BucketCommitLog:
    while True:
        try:
            return await open_bucket_log(store)
        except StoreUnreachable:
            continue


async def test_a_lost_response_is_settled_by_reading_the_key() -> None:
    store = MemoryObjectStore()
    log = await open_bucket_log(store)
    store.lose_next_response(StoreUnreachable("lost"))
    assert (await log.append(b"once", [b"payload"])).position == 0
    assert (await log.append(b"next", [])).position == 1
    entries = [bytes(commit.entry) async for chunk in log.follow(0) for commit in chunk]
    assert entries == [b"once", b"next"]
    await log.close()


async def test_a_lost_response_hides_no_lost_race() -> None:
    store = MemoryObjectStore()
    ours, theirs = await joined([store, store])
    await theirs.append(b"theirs", [])
    store.fail_next_put(StoreUnreachable("down"))
    with pytest.raises(Overtaken) as raised:
        await ours.append(b"ours", [])
    assert [bytes(commit.entry) for commit in raised.value.commits] == [b"theirs"]
    assert (await ours.append(b"ours", [])).position == 1
    await closed([ours, theirs])


async def test_a_put_that_fails_for_good_publishes_nothing_and_frees_its_position() -> None:
    store = MemoryObjectStore()
    log = await open_bucket_log(store)
    for _ in range(10):
        store.fail_next_put(StoreUnreachable("down"))
    with pytest.raises(StoreUnreachable):
        await log.append(b"refused", [])
    assert log.end == 0
    while True:
        try:
            place = await log.append(b"taken", [])
            break
        except Unavailable:
            continue
    assert place.position == 0
    assert [bytes(commit.entry) async for chunk in log.follow(0) for commit in chunk] == [b"taken"]
    await log.close()


async def test_a_put_that_lands_after_its_caller_gave_up_is_told_to_the_next_append() -> None:
    shared = MemoryObjectStore()
    store = FaultyObjectStore(shared, 1)
    log = await open_bucket_log(store)
    store.rates = FaultRates(late=1.0, landing=0.0)
    with pytest.raises(StoreUnreachable):
        await log.append(b"late", [])
    await store.deliver_late()
    store.rates = FaultRates()
    with pytest.raises(Overtaken) as raised:
        await log.append(b"next", [])
    assert [bytes(commit.entry) for commit in raised.value.commits] == [b"late"]
    assert (await log.append(b"next", [])).position == 1
    await log.close()


async def test_a_writer_that_stalls_in_its_put_loses_and_nothing_is_lost() -> None:
    store = MemoryObjectStore()
    slow, fast = await joined([store, store])
    go, held = asyncio.Event(), asyncio.Event()

    async def hold_first_put(call: str, key: str) -> None:
        if call == "put" and "/entries/" in key and not held.is_set():
            held.set()
            await go.wait()

    store.before = hold_first_put
    stalled = asyncio.ensure_future(slow.append(b"slow", []))
    await held.wait()
    writer = Writer(fast)
    for number in range(5):
        await writer.write(b"fast %d" % number)
    go.set()
    with pytest.raises(Overtaken) as raised:
        await stalled
    assert len(raised.value.commits) == 5
    assert (await slow.append(b"slow", [])).position == 5
    await closed([slow, fast])


@pytest.mark.parametrize("won", [False, True])
@pytest.mark.parametrize("followed", [False, True])
async def test_a_race_is_settled_before_the_store_answers(
    won: bool, followed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some stores have the loser of a race wait for a second. Who follows the log knows sooner; else one looks."""
    monkeypatch.setattr(
        "mainstem.ports.commitlog.shared.bucket.commits.BUCKET_POLL_MAX_S", 3600 if followed else 0.01
    )
    store = MemoryObjectStore()
    ours, theirs = await joined([store, store])
    put = store.put
    answered = asyncio.Event()

    async def slow_answer(key: str, data: bytes, *, if_absent: bool = False) -> bool:
        stored = await put(key, data, if_absent=if_absent)
        if "/entries/" in key:
            await answered.wait()
        return stored

    if not won:
        await theirs.append(b"theirs", [])
    store.put = slow_answer  # type: ignore[method-assign, assignment]
    appending = asyncio.ensure_future(ours.append(b"ours", []))
    async with asyncio.timeout(30):
        if followed:
            async for _ in ours.follow(0, wait=True):
                break
        if won:
            assert (await appending).position == 0
        else:
            with pytest.raises(Overtaken):
                await appending
    assert not answered.is_set()
    answered.set()
    if not won:
        assert (await ours.append(b"ours", [])).position == 1
    entries = [bytes(commit.entry) async for chunk in theirs.follow(0) for commit in chunk]
    assert entries == ([b"ours"] if won else [b"theirs", b"ours"])
    await closed([ours, theirs])


async def test_a_put_whose_connection_died_without_a_word_is_tried_on_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mainstem.ports.commitlog.shared.bucket.commits.BUCKET_PUT_S", 0.5)
    monkeypatch.setattr("mainstem.ports.commitlog.shared.bucket.commits.BUCKET_POLL_MAX_S", 0.02)
    store = MemoryObjectStore()
    log = await open_bucket_log(store)
    puts = 0

    async def lose_the_first(call: str, key: str) -> None:
        nonlocal puts
        if call == "put" and "/entries/" in key:
            puts += 1
            if puts == 1:
                await asyncio.Event().wait()

    store.before = lose_the_first
    async with asyncio.timeout(60):
        assert (await log.append(b"entry", [b"payload"])).position == 0
    assert puts == 2
    assert await contents(log) == [(0, b"entry", b"payload")]
    await log.close()


async def test_a_large_payload_is_put_once_although_the_race_is_lost() -> None:
    store = MemoryObjectStore()
    ours, theirs = await joined([store, store])
    large = b"x" * (BUCKET_INLINE_BYTES_MAX + 1)
    puts: list[str] = []

    async def note(call: str, key: str) -> None:
        if call == "put" and "/wal/" in key:
            puts.append(key)

    store.before = note
    await theirs.append(b"theirs", [])
    with pytest.raises(Overtaken):
        await ours.append(b"ours", [large])
    place = await ours.append(b"ours", [large])
    assert len(puts) == 1
    assert ours.read(place.object, place.start, len(large)) == large
    await closed([ours, theirs])


async def test_a_cancelled_append_that_was_overtaken_tells_the_next_one() -> None:
    store = MemoryObjectStore()
    ours, theirs = await joined([store, store])
    await theirs.append(b"theirs", [])
    task = asyncio.ensure_future(ours.append(b"ours", []))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(Overtaken) as raised:
        await ours.append(b"next", [])
    assert [bytes(commit.entry) for commit in raised.value.commits] == [b"theirs"]
    await closed([ours, theirs])


async def test_whoever_comes_first_names_the_log() -> None:
    store = MemoryObjectStore()
    logs = await asyncio.gather(*(open_bucket_log(FaultyObjectStore(store, seed)) for seed in range(6)))
    assert len({log.identity for log in logs}) == 1
    assert len(logs[0].identity) == 16
    await closed(list(logs))


async def test_a_store_that_ignores_the_condition_is_rejected() -> None:
    class Careless(MemoryObjectStore):
        async def put(self, key: str, data: object, *, if_absent: bool = False) -> bool:
            return await super().put(key, data)  # type: ignore[arg-type]

    with pytest.raises(StoreRefused, match="If-None-Match"):
        await open_bucket_log(Careless())


async def test_two_writers_race_on_a_real_store(request: pytest.FixtureRequest) -> None:
    store = s3_store(request)
    logs = await joined([store, store])
    writers = await race(logs, 12)
    check_race(writers, 12)
    await closed(logs)
