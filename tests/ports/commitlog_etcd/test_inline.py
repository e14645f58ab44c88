"""Small payloads are in etcd until their object is sealed, and in the object store from then on."""

from __future__ import annotations

import pytest

from mainstem.errors import Unavailable
from mainstem.ports.commitlog.shared.etcd.client import EtcdClient, put
from mainstem.ports.commitlog.shared.etcd.commits import ETCD_ENTRY_BYTES_MAX
from mainstem.ports.commitlog.shared.etcd.log import EtcdCommitLog
from tests.support.clock import ManualClock
from tests.support.etcd import EtcdCluster
from tests.support.memory_store import MemoryObjectStore

from ..logs import append_samples, commits, contents, sample_content
from .logs import Ground, stored_keys

HOUR_MS = 3_600_000
LARGE = b"large " * 20_000


async def seal_all(log: EtcdCommitLog) -> None:
    await log.roll()
    for one in log.objects():
        if not one.sealed:
            await log.seal(one.number, b"index of %d" % one.number)


async def payload_keys(ground: Ground, client: EtcdClient) -> int:
    return int((await client.range(ground.keys.payloads(0), ground.keys.payloads_end)).count)


def samples(count: int) -> list[tuple[int, bytes, bytes]]:
    return [sample_content(number) for number in range(count)]


async def test_a_small_payload_needs_no_store_until_its_object_is_sealed(
    ground: Ground, client: EtcdClient
) -> None:
    log, other = await ground.open("one"), await ground.open("two")
    await append_samples(log, 60)
    assert await stored_keys(ground.store) == []
    held = sum(bool(payload) for _, _, payload in samples(60))
    assert await payload_keys(ground, client) == held
    assert await contents(log) == await contents(other) == samples(60)
    await seal_all(log)
    assert await payload_keys(ground, client) == 0
    copies = [key for key in await stored_keys(ground.store) if "/wal/" in key]
    assert len(copies) == len(log.objects())  # one for all payloads of an object
    assert await contents(log) == await contents(await ground.open("three")) == samples(60)


async def test_a_small_payload_by_reference_is_in_the_store_and_not_in_etcd(
    ground: Ground, client: EtcdClient
) -> None:
    log, other = await ground.open("one"), await ground.open("two")
    prepared = await log.prepare(b"entry", [b"small"], by_reference=True)
    placed = await log.append(b"entry", [b"small"], prepared)
    assert await payload_keys(ground, client) == 0
    assert len(await stored_keys(ground.store)) == 1
    assert len(await commits(other)) == 1
    assert other.read(placed.object, placed.start, 5) == b"small"


async def test_a_reader_that_has_not_heard_of_the_seal_finds_the_payloads(ground: Ground) -> None:
    log, unaware = await ground.open("one", object_bytes=1 << 20), await ground.open("two")
    await append_samples(log, 30)
    placed = [(commit.placement, commit.payload_bytes) for commit in await commits(unaware)]
    (number,) = {place.object for place, _ in placed}
    await seal_all(log)
    assert [one.sealed for one in unaware.objects()] == [False]
    found = [bytes(unaware.read(place.object, place.start, length)) for place, length in placed]
    assert found == [payload for _, _, payload in samples(30)]
    (piece,) = await unaware.pieces(number, [(0, 100)])
    assert (await ground.store.get(piece.key))[:100] == unaware.read(number, 0, 100)


async def test_large_and_small_payloads_share_an_object(ground: Ground) -> None:
    log = await ground.open(object_bytes=1 << 24)
    expected = []
    for number, payload in enumerate([b"a", LARGE, b"", b"bc", LARGE * 10, b"d", b"e"]):
        await log.append(b"%d" % number, [payload])
        expected.append((number, b"%d" % number, payload))
    assert len(await stored_keys(ground.store)) == 2
    assert await contents(log) == expected
    await seal_all(log)
    assert await contents(log) == await contents(await ground.open(None)) == expected
    (one,) = log.objects()
    joined = b"".join(payload for _, _, payload in expected)
    assert log.read(one.number, 0, len(joined)) == joined


async def test_small_uploads_are_joined_when_they_are_sealed(ground: Ground) -> None:
    store = ground.store
    assert isinstance(store, MemoryObjectStore)
    log = await ground.open(object_bytes=1 << 24, inline_bytes=0)
    await append_samples(log, 100)
    await seal_all(log)
    cold = await ground.open(None)
    (one,) = cold.objects()
    reads: list[str] = []

    async def note(call: str, key: str) -> None:
        reads.append(key)

    store.before = note
    joined = b"".join(payload for _, _, payload in samples(100))
    assert cold.read(one.number, 0, one.size_bytes) == joined
    assert len(reads) == 2  # the directory, and one object with all payloads


async def test_the_store_may_be_away_while_small_payloads_are_written(
    ground: Ground, client: EtcdClient
) -> None:
    store = ground.store
    assert isinstance(store, MemoryObjectStore)
    log, other = await ground.open("one"), await ground.open("two")

    async def away(call: str, key: str) -> None:
        raise Unavailable("the store is away")

    store.before = away
    await append_samples(log, 40)
    assert await contents(other) == samples(40)
    with pytest.raises(Unavailable):
        await seal_all(log)
    with pytest.raises(Unavailable):
        await log.append(b"needs the store", [LARGE])
    await append_samples(log, 10)
    store.before = None
    await seal_all(log)
    assert await payload_keys(ground, client) == 0
    assert await contents(other) == await contents(await ground.open(None)) == samples(50)


@pytest.mark.parametrize("step", range(5))
async def test_a_sealer_that_dies_at_any_step_loses_nothing(
    ground: Ground, client: EtcdClient, step: int
) -> None:
    """Its calls to the store are: two copies, the seal; then one transaction, and the deletion from etcd."""
    store = ground.store
    assert isinstance(store, MemoryObjectStore)
    log = await ground.open("one", object_bytes=1 << 24)
    payloads = [bytes([number]) * 40_000 for number in range(230)]  # more than one copy holds
    for payload in payloads:
        await log.append(b"entry", [payload])
    (one,) = log.objects()
    await log.roll()
    calls = 0

    async def die(call: str, key: str) -> None:
        nonlocal calls
        calls += 1
        if calls > step:
            raise ConnectionError("the broker dies here")

    store.before = die
    if step < 3:
        with pytest.raises(ConnectionError):
            await log.seal(one.number, b"index")
    elif step == 3:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(EtcdClient, "txn", _die)
            with pytest.raises(ConnectionError):
                await log.seal(one.number, b"index")
    else:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(EtcdClient, "delete", _die)
            with pytest.raises(ConnectionError):
                await log.seal(one.number, b"index")
    store.before = None
    assert [bytes(payload) for _, _, payload in await contents(log)] == payloads
    again = await ground.open("one", object_bytes=1 << 24)
    await again.roll()
    await again.seal(one.number, b"index")
    assert [bytes(payload) for _, _, payload in await contents(again)] == payloads
    await again.collect_orphans()
    assert await payload_keys(ground, client) == 0
    assert [bytes(payload) for _, _, payload in await contents(again)] == payloads


async def _die(*_: object, **__: object) -> None:
    raise ConnectionError("the broker dies here")


async def test_an_etcd_that_fills_up_takes_no_more_payloads(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await ground.open()
    await log.append(b"inline", [b"payload"])
    assert await stored_keys(ground.store) == []
    monkeypatch.setattr("mainstem.ports.commitlog.shared.etcd.objects.ETCD_IN_USE_BYTES_MAX", 0)
    await log.refresh()
    assert log.inline_bytes == 0
    await log.append(b"uploaded", [b"payload"])
    assert len(await stored_keys(ground.store)) == 1
    monkeypatch.undo()
    await log.refresh()
    await log.append(b"inline again", [b"payload"])
    assert len(await stored_keys(ground.store)) == 1
    assert [bytes(payload) for _, _, payload in await contents(log)] == [b"payload"] * 3


async def test_workers_find_inline_payloads_of_an_open_object_in_the_store(ground: Ground) -> None:
    log = await ground.open(object_bytes=1 << 20)
    await append_samples(log, 40)
    (one,) = log.objects()
    whole = log.read(one.number, 0, one.size_bytes)
    ranges = [(10, 200), (900, 50)]
    found = await log.pieces(one.number, ranges)
    assert found == await log.pieces(one.number, ranges)
    for start, length in ranges:
        (piece,) = [each for each in found if each.start <= start < each.start + each.length]
        stored = (await ground.store.get(piece.key))[piece.at : piece.at + piece.length]
        assert stored == whole[piece.start : piece.start + piece.length]
        assert start + length <= piece.start + piece.length
    stored_once = await stored_keys(ground.store)
    assert len(stored_once) == len(found)


async def test_an_entry_too_large_for_etcd_may_have_a_small_payload(ground: Ground) -> None:
    log = await ground.open(object_bytes=1 << 20)
    entry = b"e" * (ETCD_ENTRY_BYTES_MAX + 1)
    await log.append(entry, [b"small"])
    await log.append(b"next", [b"payload"])
    expected = [(0, entry, b"small"), (1, b"next", b"payload")]
    assert await contents(log) == await contents(await ground.open(None)) == expected
    await seal_all(log)
    assert await contents(await ground.open(None)) == expected


async def test_a_large_entry_stays_as_long_as_its_commit(etcd: EtcdCluster) -> None:
    clock = ManualClock()
    ground = Ground(etcd, MemoryObjectStore(clock))
    log = await ground.open(clock=clock)
    entry = b"e" * (ETCD_ENTRY_BYTES_MAX + 1)
    await log.append(entry, [])
    await log.append(entry, [b"payload"])
    await seal_all(log)
    clock.advance(HOUR_MS + 1)
    assert await log.collect_orphans(HOUR_MS) == 0
    assert await contents(await ground.open(None)) == [(0, entry, b""), (1, entry, b"payload")]
    await ground.close()


async def test_an_upload_that_the_store_lost_keeps_no_object_from_being_sealed(ground: Ground) -> None:
    log = await ground.open(object_bytes=1 << 24)
    await log.append(b"inline", [b"before"])
    await log.append(b"uploaded", [LARGE])
    await log.append(b"inline", [b"after"])
    (lost,) = await stored_keys(ground.store)
    await ground.store.delete(lost)
    await seal_all(log)
    (one,) = log.objects()
    assert log.read(one.number, 0, 6) == b"before"
    assert log.read(one.number, 6 + len(LARGE), 5) == b"after"
    with pytest.raises(FileNotFoundError):
        log.read(one.number, 6, 10)


async def test_payloads_that_a_crash_left_behind_a_seal_are_deleted(
    ground: Ground, client: EtcdClient
) -> None:
    log = await ground.open()
    await append_samples(log, 60)
    await seal_all(log)
    first = log.objects()[0].number
    await log.append(b"open", [b"payload"])
    await client.txn([], [put(ground.keys.payload(first, 0, b"commit"), b"left behind")])
    assert await payload_keys(ground, client) == 2
    await log.collect_orphans()
    assert await payload_keys(ground, client) == 1
