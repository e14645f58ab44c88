"""What the tests of the commit log in a bucket share."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from mainstem.errors import Unavailable
from mainstem.ports.commitlog.port import Committed, Overtaken
from mainstem.ports.commitlog.shared.bucket.keys import BucketKeys, wal_in
from mainstem.ports.commitlog.shared.bucket.log import BUCKET_ENTRIES_KEPT_MS, BucketCommitLog
from mainstem.ports.commitlog.shared.bucket.reading import EntryReader
from mainstem.ports.commitlog.shared.bucket.seals import BucketObjects
from mainstem.ports.commitlog.shared.core.objects import ObjectTable
from mainstem.ports.objectstore.open import open_store
from mainstem.ports.objectstore.port import ObjectStore
from tests.support.clock import ManualClock
from tests.support.memory_store import MemoryObjectStore
from tests.support.s3 import S3Server

from ..vendors import vendor_store


def s3_store(request: pytest.FixtureRequest) -> ObjectStore:
    """A new place in a bucket that these tests share."""
    server: S3Server = request.getfixturevalue("s3_server")
    server.make_bucket("logs")
    return open_store(server.url("logs", f"log-{os.urandom(4).hex()}"))


def bucket_log_opener(request: pytest.FixtureRequest, where: str) -> Callable[[], Awaitable[BucketCommitLog]]:
    """`where`: `memory`, `s3`, or what `vendor_store` takes."""
    if where == "memory":
        store: ObjectStore = MemoryObjectStore()
    else:
        store = s3_store(request) if where == "s3" else vendor_store(request, where)
    return lambda: open_bucket_log(store)


async def open_bucket_log(store: ObjectStore, **options: Any) -> BucketCommitLog:
    options.setdefault("object_bytes", 4096)
    return await BucketCommitLog.open(store, **options)


def refer_to_all_over(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Payloads of at least this size stay in place when their object is sealed; smaller ones are packed, and the
    smallest of all stand in their entries."""
    monkeypatch.setattr(
        "mainstem.ports.commitlog.shared.bucket.commits.BUCKET_INLINE_BYTES_MAX", 2 * size // 3
    )
    monkeypatch.setattr("mainstem.ports.commitlog.shared.bucket.references.BUCKET_REFERENCE_BYTES_MIN", size)


async def check_nothing_stray(store: MemoryObjectStore, clock: ManualClock) -> None:
    """Once all is old and orphans were collected, there are just the WAL objects that somebody may ask for."""
    clock.advance(2 * BUCKET_ENTRIES_KEPT_MS)
    log = await open_bucket_log(store)
    await log.truncate()
    await log.collect_orphans()
    reader = EntryReader(store, store, BucketKeys("log"), int.from_bytes(log.identity[:8], "little"))
    heads = await reader.heads(range((await reader.floor()).position, await log.tail()))
    needed = {head.id for head in heads if head.apart_bytes}
    needed |= {
        id
        async for id in BucketObjects(store, store, BucketKeys("log"), reader, ObjectTable(0, 0)).referenced()
    }
    found = {wal_in(one.key) async for one in store.list("log/wal/")}
    assert found == needed
    await log.close()


class Writer:
    """A broker in small: notes the log in order, whichever way it learns of a commit, and writes on demand."""

    def __init__(self, log: BucketCommitLog) -> None:
        self.log = log
        self.seen: list[bytes] = []  # entries by position
        self.overtaken = 0
        self.in_doubt = 0

    async def write(self, entry: bytes, *slices: bytes) -> None:
        """Once, whatever goes wrong on the way."""
        while entry not in self.seen:
            try:
                place = await self.log.append(entry, slices)
            except Overtaken as overtaken:
                self.overtaken += 1
                await self._take(overtaken.commits)
            except Unavailable:
                self.in_doubt += 1
                await self.catch_up()
            else:
                await self._fill(place.position)
                assert place.position == len(self.seen)
                self.seen.append(entry)

    async def catch_up(self) -> None:
        while True:
            try:
                async for chunk in self.log.follow(len(self.seen)):
                    await self._take(chunk)
            except Unavailable:
                continue
            return

    async def _take(self, commits: Sequence[Committed]) -> None:
        await self._fill(commits[0].placement.position)
        for commit in commits:
            if commit.placement.position == len(self.seen):
                self.seen.append(bytes(commit.entry))

    async def _fill(self, position: int) -> None:
        """What another task learnt of meanwhile comes first."""
        if position > len(self.seen):
            async for chunk in self.log.follow(len(self.seen)):
                for commit in chunk:
                    if len(self.seen) == commit.placement.position < position:
                        self.seen.append(bytes(commit.entry))


async def race(logs: Sequence[BucketCommitLog], each: int, payload: int = 10) -> list[Writer]:
    """Every log writes this many entries concurrently; then all read up to the tail."""
    writers = [Writer(log) for log in logs]

    async def work(name: int, writer: Writer) -> None:
        for number in range(each):
            await writer.write(b"%d/%d" % (name, number), b"%d" % name * payload)

    await asyncio.gather(*(work(name, writer) for name, writer in enumerate(writers)))
    for writer in writers:
        await writer.catch_up()
    return writers


def check_race(writers: Sequence[Writer], each: int) -> None:
    """Nothing lost, nothing twice, the same order for all, and of each writer the order it wrote in."""
    orders = [writer.seen for writer in writers]
    assert all(order == orders[0] for order in orders)
    assert sorted(orders[0]) == sorted(b"%d/%d" % (n, m) for n in range(len(writers)) for m in range(each))
    for name in range(len(writers)):
        own = [entry for entry in orders[0] if entry.startswith(b"%d/" % name)]
        assert own == [b"%d/%d" % (name, number) for number in range(each)]
