"""Sealed objects that leave large payloads where their commits put them: stored once, and there as long as needed."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable

import pytest

from mainstem.errors import LogDamaged, NewerVersion
from mainstem.ports.commitlog.port import Checkpoint
from mainstem.ports.commitlog.shared.bucket.commits import BUCKET_INLINE_BYTES_MAX
from mainstem.ports.commitlog.shared.bucket.keys import BucketKeys, SealName
from mainstem.ports.commitlog.shared.bucket.log import BucketCommitLog
from mainstem.ports.commitlog.shared.bucket.references import References
from mainstem.ports.commitlog.shared.bucket.seals import packed_seal
from tests.support.clock import ManualClock
from tests.support.memory_store import MemoryObjectStore

from ..logs import commits
from .logs import check_nothing_stray, open_bucket_log, refer_to_all_over, s3_store

KEYS = BucketKeys("log")
HOUR_MS = 3_600_000
LARGE, APART, SMALL = 100, 80, 10  # bytes: referred to, apart from its entry but packed, in its entry


class Ground:
    """A store with a clock of its own, and what was put into the log that is there."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = MemoryObjectStore(self.clock)
        self.payloads: list[bytes] = []
        self._chance = random.Random(1)

    async def open(self) -> BucketCommitLog:
        return await open_bucket_log(self.store, clock=ManualClock())

    async def append(self, log: BucketCommitLog, *sizes: int) -> None:
        for size in sizes:
            self.payloads.append(self._chance.randbytes(size))
            await log.append(b"%d" % log.end, [self.payloads[-1]])

    async def seal(self, log: BucketCommitLog, *, checkpoint: bool = True) -> int:
        """What was appended so far becomes a sealed object, with a checkpoint behind it. Returns its number."""
        await log.roll()
        number = log.objects()[-1].number
        await log.seal(number, b"index of %d" % log.end)
        if checkpoint:
            await log.sync()
            await log.save_checkpoint(Checkpoint(log.end, b"state at %d" % log.end))
        return number

    async def keys(self, kind: str) -> list[str]:
        return [one.key async for one in self.store.list(f"log/{kind}/")]

    async def check(self, log: BucketCommitLog, step: int = 7) -> None:
        """All that is not dropped is there, wherever a read begins or ends."""
        for one in log.objects():
            content = b"".join(self.payloads[one.first_position : one.end_position])
            assert one.size_bytes == len(content)
            assert log.read(one.number, 0, one.size_bytes) == content
            for start in range(step, len(content), step):
                for length in (1, 90, len(content)):
                    assert log.read(one.number, start, length) == content[start : start + length]
            assert not one.sealed or log.read_index(one.number) == b"index of %d" % one.end_position


@pytest.fixture
async def ground(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Ground]:
    refer_to_all_over(monkeypatch, LARGE)
    ground = Ground()
    yield ground
    await check_nothing_stray(ground.store, ground.clock)


@pytest.mark.parametrize(
    "sizes",
    [
        [LARGE],
        [LARGE, LARGE + 1],
        [SMALL, LARGE],
        [LARGE, SMALL],
        [SMALL, APART, LARGE, 0, SMALL, SMALL, LARGE, APART],
        [SMALL, APART],
        [0],
    ],
)
async def test_only_what_is_small_is_copied(ground: Ground, sizes: list[int]) -> None:
    log = await ground.open()
    await ground.append(log, *sizes)
    put: list[str] = []

    async def note(call: str, key: str) -> None:
        if call == "put":
            put.append(key)

    ground.store.before = note
    await ground.seal(log, checkpoint=False)
    ground.store.before = None
    packed = sum(size for size in sizes if size < LARGE)
    (seal,) = await ground.keys("seals")
    assert put == [*await ground.keys("objects"), seal]
    assert len(put) == 1 + (packed > 0)
    assert packed == sum([len(await ground.store.get(key)) for key in put[:-1]])
    await ground.check(log)
    fresh = await ground.open()
    await ground.check(fresh)
    for one in (log, fresh):
        await one.close()


async def test_readers_without_the_broker_are_told_where_each_byte_is(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainstem.ports.commitlog.shared.bucket.parts.Parts.__init__.__defaults__", (64,))
    log = await ground.open()
    await ground.append(log, SMALL, LARGE + 60, APART, SMALL, LARGE, LARGE, SMALL)
    await ground.seal(log)
    content = b"".join(ground.payloads)
    for start in range(0, len(content), 3):
        for length in (1, 50, len(content) - start):
            wanted = range(start, min(start + length, len(content)))
            covered: set[int] = set()
            for piece in await log.pieces(1, [(start, length)]):
                stored = (await ground.store.get(piece.key))[piece.at : piece.at + piece.length]
                assert stored == content[piece.start : piece.start + piece.length]
                covered.update(range(piece.start, piece.start + piece.length))
            assert covered.issuperset(wanted)
    await ground.check(log)
    await log.close()


async def test_wal_objects_outlive_their_entries_and_go_with_their_object(ground: Ground) -> None:
    log = await ground.open()
    for _ in range(4):
        await ground.append(log, SMALL, LARGE, APART, LARGE)
        await ground.seal(log)
    await ground.append(log, SMALL)
    ground.clock.advance(HOUR_MS)
    assert await log.truncate() == 12
    assert len(await ground.keys("wal")) == 9  # the truncated objects have two each, the others three
    assert await log.collect_orphans() == 0
    fresh = await ground.open()
    assert await fresh.collect_orphans() == 0
    await ground.check(fresh)
    await log.drop(1)
    assert len(await ground.keys("wal")) == 7
    assert [one.number for one in log.objects()] == [2, 3, 4, 5]
    await ground.check(log)
    for one in (log, fresh):
        await one.close()


async def test_a_dropped_object_keeps_its_wal_objects_until_its_commits_are_truncated(ground: Ground) -> None:
    log = await ground.open()
    for _ in range(3):
        await ground.append(log, LARGE, SMALL)
        await ground.seal(log)
    await ground.append(log, SMALL)
    await log.drop(1)
    assert len(await ground.keys("wal")) == 3
    fresh = await ground.open()
    assert [one.number for one in fresh.objects()] == [2, 3, 4]
    ground.clock.advance(HOUR_MS)
    assert await log.truncate() == 4
    assert len(await ground.keys("wal")) == 2
    assert not any(key.endswith(".gone") for key in await ground.keys("seals"))
    await ground.check(log)
    for one in (log, fresh):
        await one.close()


async def test_an_object_that_grew_after_it_was_dropped_keeps_what_its_new_seal_refers_to(
    ground: Ground,
) -> None:
    one, other = await ground.open(), await ground.open()
    await ground.append(one, LARGE, SMALL)
    await commits(other)
    await ground.seal(one, checkpoint=False)
    await one.drop(1)
    await ground.append(other, LARGE)  # it knows nothing of all that
    await ground.seal(other)
    for _ in range(2):
        await ground.append(other, LARGE)
        await ground.seal(other)
    await ground.append(other, SMALL)
    ground.clock.advance(HOUR_MS)
    assert await other.truncate() == 4
    assert len(await ground.keys("seals")) == 3
    fresh = await ground.open()
    assert [found.number for found in fresh.objects()] == [1, 2, 3, 4]
    await ground.check(fresh)
    for log in (one, other, fresh):
        await log.close()


async def test_an_entry_that_stands_behind_its_payload_is_there_for_replay(ground: Ground) -> None:
    log = await ground.open()
    entry = b"entry" * BUCKET_INLINE_BYTES_MAX
    ground.payloads.append(b"x" * LARGE)
    await log.append(entry, [ground.payloads[-1]])
    await ground.seal(log)
    await ground.append(log, SMALL)
    await ground.seal(log)
    await log.drop(1)
    fresh = await ground.open()
    assert [bytes(one.entry) for one in await commits(fresh)] == [entry, b"1"]
    for one in (log, fresh):
        await one.close()


async def test_two_that_seal_at_once_put_the_same(ground: Ground) -> None:
    one, other = await ground.open(), await ground.open()
    await ground.append(one, LARGE, SMALL, LARGE)
    await commits(other)
    await ground.seal(one, checkpoint=False)
    stored = {key: await ground.store.get(key) for key in await ground.keys("seals")}
    for key in await ground.keys("seals"):
        await ground.store.delete(key)  # as if the other one had looked just before
    await ground.seal(other)
    assert {key: await ground.store.get(key) for key in await ground.keys("seals")} == stored
    await ground.check(one)
    for log in (one, other):
        await log.close()


async def test_a_packed_seal_beside_one_that_refers_makes_no_difference(ground: Ground) -> None:
    """A broker of an earlier version may have sealed the object at the same time."""
    log = await ground.open()
    await ground.append(log, LARGE, SMALL)
    await ground.seal(log)
    packed = SealName(1, 0, 2, LARGE + SMALL)
    await ground.store.put(KEYS.object_part(packed, 0), b"".join(ground.payloads))
    await ground.store.put(KEYS.seal(packed), packed_seal(b"index of 2"))
    for _ in range(2):
        await ground.append(log, LARGE)
        await ground.seal(log)
    await ground.append(log, SMALL)
    ground.clock.advance(HOUR_MS)
    await log.truncate()
    fresh = await ground.open()
    await ground.check(fresh)
    await fresh.drop(1)
    await ground.append(fresh, SMALL)
    await ground.seal(fresh)
    again = await ground.open()
    assert [one.number for one in again.objects()] == [2, 3, 4]
    assert len(await ground.keys("objects")) == 1  # of the last one
    for one in (log, fresh, again):
        await one.close()


async def test_damaged_references_are_damage_and_delete_nothing(ground: Ground) -> None:
    log = await ground.open()
    for _ in range(3):
        await ground.append(log, LARGE, SMALL, LARGE)
        await ground.seal(log)
    await ground.append(log, SMALL)
    key = (await ground.keys("seals"))[0]
    whole = await ground.store.get(key)
    rows = slice(16, 16 + 8 + 2 * 28)
    for at in (0, 8, *range(rows.start, rows.stop, 5)):
        stored = bytearray(whole)
        stored[at] ^= 0x40
        await ground.store.put(key, stored)
        fresh = await ground.open()
        with pytest.raises((LogDamaged, NewerVersion)):
            fresh.read(1, 0, LARGE)
        await fresh.close()
    for length in (0, 15, 20, rows.stop - 1):
        await ground.store.put(key, whole[:length])
        fresh = await ground.open()
        with pytest.raises(LogDamaged):
            fresh.read(1, 0, LARGE)
        ground.clock.advance(HOUR_MS)
        with pytest.raises(LogDamaged):
            await fresh.truncate()
        with pytest.raises(LogDamaged):
            await fresh.collect_orphans()
        await fresh.close()
    assert len(await ground.keys("wal")) == 6
    await ground.store.put(key, whole)
    fresh = await ground.open()
    await ground.check(fresh)
    for one in (log, fresh):
        await one.close()


@pytest.mark.parametrize("rows", [[(0, 5), (4, 5)], [(5, 5), (0, 5)], [(18, 5)], [(3, 0)]])
def test_references_that_make_no_sense_are_refused(rows: list[tuple[int, int]]) -> None:
    with pytest.raises(ValueError, match="overlap"):
        References(20, [(start, length, bytes(16)) for start, length in rows])


def test_the_bytes_of_a_seal_are_what_they_were() -> None:
    """Both versions, as they stand in buckets."""
    assert b"".join(packed_seal(b"index")).hex() == "4d4e53544d53454101000000b1f87544696e646578"
    references = References(300, [(10, 100, b"a" * 16), (110, 120, b"b" * 16)])
    assert b"".join(packed_seal(b"index", references)).hex() == (
        "4d4e53544d53454102000000b1f87544020000001865951b"
        f"0a0000000000000064000000{'61' * 16}"
        f"6e0000000000000078000000{'62' * 16}"
        "696e646578"
    )
    assert str(SealName(7, 3, 9, 300, 220)).endswith(f"{3:020d}-{9:020d}-300-220")


async def test_a_real_store_keeps_what_is_referred_to(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    refer_to_all_over(monkeypatch, LARGE)
    ground, store = Ground(), s3_store(request)
    log = await open_bucket_log(store, entries_kept_ms=0)
    for _ in range(3):
        await ground.append(log, LARGE, SMALL)
        await ground.seal(log)
    await ground.append(log, SMALL)
    assert await log.truncate() == 4
    assert await log.collect_orphans() == 0
    await log.close()
    log = await open_bucket_log(store)
    await ground.check(log, 50)
    await log.drop(1)
    assert [one.number for one in log.objects()] == [2, 3, 4]
    assert len([one async for one in store.list(KEYS.wal)]) == 2
    await ground.check(log, 50)
    await log.close()


@pytest.mark.parametrize("dropped_first", [False, True])
async def test_interrupted_maintenance_is_completed_by_the_next_run(
    dropped_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sealing, saving, truncating, dropping and collecting, each call to the store in turn the last of a process."""
    refer_to_all_over(monkeypatch, LARGE)
    step, finished = 0, False
    while not finished:
        ground = Ground()
        log = await ground.open()
        for _ in range(4):
            await ground.append(log, LARGE, SMALL, APART, LARGE)
            await log.roll()
        await ground.append(log, SMALL)
        finished = await _cut_short(ground, _upkeep(ground, log, dropped_first), step)
        await log.close()
        log = await ground.open()
        await ground.check(log, 150)
        await _upkeep(ground, log, dropped_first)
        assert [one.number for one in log.objects()] == [2, 3, 4, 5]
        await ground.check(log, 150)
        await log.close()
        await check_nothing_stray(ground.store, ground.clock)
        step += 1
    assert step > 30


async def _cut_short(ground: Ground, work: Awaitable[None], left: int) -> bool:
    """Let this many calls change the store, and none after them. Returns whether that was enough."""

    async def cut(call: str, key: str) -> None:
        nonlocal left
        if call in ("put", "delete"):
            left -= 1
            if left < 0:
                raise ConnectionError("cut short")

    ground.store.before = cut
    try:
        await work
    except ConnectionError:
        return False
    finally:
        ground.store.before = None
    return True


async def _upkeep(ground: Ground, log: BucketCommitLog, dropped_first: bool) -> None:
    for one in log.objects()[:-1]:
        if not one.sealed:
            await log.seal(one.number, b"index of %d" % one.end_position)
    await log.sync()
    for position in (12, 16):
        await log.save_checkpoint(Checkpoint(position, b"state at %d" % position))
    if dropped_first:
        await log.drop(1)
    ground.clock.advance(HOUR_MS)
    await log.truncate()
    await log.drop(1)
    await log.collect_orphans()
    await log.truncate()
