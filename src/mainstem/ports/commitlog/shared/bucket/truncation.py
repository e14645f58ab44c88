"""Truncation: delete old entries that sealed objects and every kept checkpoint replace.

Ages are measured by the store's clock alone. A WAL object is deleted with its entry, or, if a sealed object refers to
it, with that object.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from mainstem import limits
from mainstem.ports.commitlog.shared.bucket.commits import BucketCommits
from mainstem.ports.commitlog.shared.bucket.keys import BucketKeys, SealName, floor_in, position_in, wal_in
from mainstem.ports.commitlog.shared.bucket.parts import Parts
from mainstem.ports.commitlog.shared.bucket.reading import EntryReader
from mainstem.ports.commitlog.shared.bucket.seals import BucketObjects
from mainstem.ports.commitlog.shared.core.backend import Floor
from mainstem.ports.objectstore.port import ObjectStore, store_now_ms


class BucketTruncation:
    def __init__(
        self,
        store: ObjectStore,
        keys: BucketKeys,
        reader: EntryReader,
        commits: BucketCommits,
        objects: BucketObjects,
        kept_ms: int,
    ) -> None:
        self._store = store
        self._keys = keys
        self._reader = reader
        self._commits = commits
        self._objects = objects
        self._kept_ms = kept_ms
        self._wal = Parts(store)
        self._judged_ms = 0  # no orphan is left of uploads that the store wrote before this

    async def old_enough(self, settled: Sequence[SealName]) -> int:
        now_ms = await self._now_ms()
        end = 0
        async for one in self._store.list(self._keys.entries):
            if now_ms - one.modified_ms < self._kept_ms:
                end = position_in(one.key)
                break
            end = position_in(one.key) + 1
        return sum(one.end <= end for one in settled)

    async def truncate(self, old: Floor, new: Floor) -> Floor:
        """Raise the floor first, so that a reader that misses an entry learns why."""
        if new.position:
            await self._store.put(self._keys.floor(new), b"")
            for key in [found.key async for found in self._store.list(self._keys.floors)]:
                if floor_in(key).position < new.position:
                    await self._store.delete(key)
            await self._delete_below(new.position)
        return new

    async def collect_orphans(self) -> int:
        """Check each upload once: one that is kept belongs to its object from then on."""
        floor = await self._reader.floor()
        tail = await self._commits.tail()
        until_ms = await self._now_ms() - self._kept_ms + 1
        old: dict[bytes, list[str]] = {}
        async for one in self._store.list(self._keys.wal):
            if self._judged_ms <= one.modified_ms < until_ms:
                old.setdefault(wal_in(one.key), []).append(one.key)
        if old:
            for head in await self._reader.heads(range(floor.position, tail)):
                old.pop(head.id, None)
        if old:  # after the entries: an object is sealed before they go
            async for id in self._objects.referenced():
                old.pop(id, None)
        for keys in old.values():
            await asyncio.gather(*map(self._store.delete, keys))
        self._judged_ms = until_ms
        return len(old)

    async def _now_ms(self) -> int:
        return await store_now_ms(self._store, self._keys.clock(self._commits.new_token()))

    async def _delete_below(self, position: int) -> None:
        """Delete the oldest first, so that a crash leaves no gap, and WAL objects before the entries that name them."""
        entries = [position_in(one.key) async for one in self._store.list(self._keys.entries)]
        below = [one for one in entries if one < position]
        if not below:
            return
        listing = await self._objects.listed()
        for at in range(0, len(below), limits.BUCKET_READS_MAX):
            some = below[at : at + limits.BUCKET_READS_MAX]
            heads = await self._objects.unneeded_uploads(await self._reader.heads(some), listing)
            await asyncio.gather(
                *(self._wal.delete(partial(self._keys.wal_part, head.id), head.apart_bytes) for head in heads)
            )
            await asyncio.gather(*(self._store.delete(self._keys.entry(one)) for one in some))
