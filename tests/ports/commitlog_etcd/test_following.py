"""Following a log that others write: past the tail, through compactions, behind truncation."""

from __future__ import annotations

import asyncio

import pytest

from mainstem.errors import Closed, LogDamaged
from mainstem.ports.commitlog.shared.etcd.client import EtcdClient
from mainstem.ports.commitlog.shared.etcd.commits import ETCD_ENTRY_BYTES_MAX
from mainstem.ports.commitlog.shared.etcd.log import EtcdCommitLog
from tests.support.waiting import until

from ..logs import append_samples, contents, sample
from .logs import Ground, Tail, append_after_all


async def test_a_follower_sees_commits_as_they_are_made(ground: Ground) -> None:
    writer, reader = await ground.open("w"), await ground.open(None)
    await append_samples(writer, 5)
    async with Tail(reader, 2) as tail:
        await tail.reaches(5)
        await append_samples(writer, 40)
        await tail.reaches(45)
        assert [(place, entry) for place, entry in tail.seen] == [(n, sample(n)[0]) for n in range(2, 45)]
        assert reader.end == 45


async def test_a_follower_may_wait_for_a_position_that_is_far_off(ground: Ground) -> None:
    writer, reader = await ground.open("w"), await ground.open(None)
    async with Tail(reader, 10) as tail:
        await append_samples(writer, 12)
        await tail.reaches(12)
        assert [place for place, _ in tail.seen] == [10, 11]
    assert len(await contents(reader)) == 12


async def test_a_follower_whose_writer_follows_too_gets_each_commit_once(ground: Ground) -> None:
    one, two = await ground.open("one"), await ground.open("two")
    async with Tail(one, 0) as first, Tail(two, 0) as second:

        async def write(log: EtcdCommitLog, name: bytes) -> None:
            for number in range(20):
                await append_after_all(log, b"%s %d" % (name, number), [])

        await asyncio.gather(write(one, b"one"), write(two, b"two"))
        await first.reaches(40)
        await second.reaches(40)
        assert first.seen == second.seen
        assert [place for place, _ in first.seen] == list(range(40))


async def test_a_compaction_under_a_follower_costs_it_nothing(ground: Ground, client: EtcdClient) -> None:
    writer, reader = await ground.open("w"), await ground.open(None)
    async with Tail(reader, 0) as tail:
        for _ in range(6):
            await append_samples(writer, 10)
            revision = (await client.range(b"x")).header.revision
            await client.compact(revision)
        await tail.reaches(60)
        assert [place for place, _ in tail.seen] == list(range(60))


async def test_a_watch_that_asks_for_compacted_history_ranges_again(
    ground: Ground, client: EtcdClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The history goes between the range and the watch, which is where a slow follower would lose commits."""
    writer, reader = await ground.open("w"), await ground.open(None)
    watched: list[int] = []
    watch = EtcdClient.watch

    async def compact_first(self: EtcdClient, start: bytes, end: bytes, revision: int):  # type: ignore[no-untyped-def]
        if not watched:
            await append_samples(writer, 7)
            await client.compact((await client.range(b"x")).header.revision)
        watched.append(revision)
        async for some in watch(self, start, end, revision):
            yield some

    monkeypatch.setattr(EtcdClient, "watch", compact_first)
    async with Tail(reader, 0) as tail:
        await tail.reaches(7)
        await until(lambda: len(watched) == 2)
        await append_samples(writer, 3)
        await tail.reaches(10)
        assert [place for place, _ in tail.seen] == list(range(10))


async def test_closing_a_log_ends_its_followers(ground: Ground) -> None:
    log = await ground.open("b")
    await log.append(b"a", [])
    tail = Tail(log, 0)
    async with tail:
        await tail.reaches(1)
        await log.close()
        await until(tail.ended)
        with pytest.raises(Closed):
            tail.result()


async def test_the_tail_is_that_of_the_log_not_of_what_was_seen(ground: Ground) -> None:
    one, two = await ground.open("one"), await ground.open("two")
    assert await two.tail() == 0
    await append_samples(one, 12)
    assert two.end == 0
    assert await two.tail() == 12


async def test_entries_too_large_for_etcd_stand_in_the_store(ground: Ground) -> None:
    log = await ground.open(object_bytes=1 << 20)
    sizes = [ETCD_ENTRY_BYTES_MAX + extra for extra in (-1, 0, 1)] + [2_000_000]
    expected = []
    for position, size in enumerate(sizes):
        entry, payload = bytes([position]) * size, b"payload %d" % position * (position % 3)
        await log.append(entry, [payload] if payload else [])
        expected.append((position, entry, payload))
    assert await contents(await ground.open(None)) == expected


async def test_an_entry_whose_object_is_missing_is_damage_not_silence(ground: Ground) -> None:
    log = await ground.open()
    await log.append(b"x" * (ETCD_ENTRY_BYTES_MAX + 1), [])
    async for stored in ground.store.list():
        await ground.store.delete(stored.key)
    with pytest.raises(LogDamaged, match="at position 0"):
        await contents(log)


async def test_a_commit_missing_in_the_middle_is_damage(ground: Ground, client: EtcdClient) -> None:
    log = await ground.open()
    await append_samples(log, 5)
    await client.delete(ground.keys.commit(2))
    with pytest.raises(LogDamaged, match="at position 2"):
        await contents(log)
