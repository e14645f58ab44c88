"""Truncation: entries that sealed objects and every kept checkpoint replace leave the bucket, once they are old.

How old is judged by the store's clock alone, on both sides: when it wrote the entry, and what it says now. WAL
objects go with their entries, unless a sealed object refers to them: then they go when it does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from mainstem import limits
from mainstem.ports.clock import Random
from mainstem.ports.commitlog.shared.bucket.keys import (
    TOKEN_BYTES,
    Floor,
    Keys,
    SealName,
    floor_in,
    position_in,
    wal_in,
)
from mainstem.ports.commitlog.shared.bucket.parts import Parts
from mainstem.ports.commitlog.shared.bucket.reading import EntryReader
from mainstem.ports.commitlog.shared.bucket.seals import Seals
from mainstem.ports.objectstore.port import ObjectStore
from mainstem.ports.objectstore.store_time import store_now_ms


class Truncation:
    def __init__(
        self,
        store: ObjectStore,
        keys: Keys,
        reader: EntryReader,
        seals: Seals,
        random: Random,
        kept_ms: int,
    ) -> None:
        self._store = store
        self._keys = keys
        self._reader = reader
        self._seals = seals
        self._random = random
        self._kept_ms = kept_ms
        self._wal = Parts(store)
        self._judged_ms = 0  # of uploads put before this, by the store's clock, no orphan is left

    async def run(self, floor: Floor, settled: Sequence[SealName], behind: int) -> Floor:
        """Move the floor up to the end of the last settled object before `behind` that is old enough.

        First the floor, so that whoever misses an entry learns why; then the entries below it."""
        behind_it = [seal for seal in settled if seal.end <= behind]
        if behind_it:
            old = await self._old_enough()
            for seal in behind_it:
                if seal.end <= old:
                    floor = Floor(seal.end, seal.number)
        if floor.position:
            await self._store.put(self._keys.floor(floor), b"")
            await self._forget_floors(floor)
            await self._delete_below(floor.position)
        return floor

    async def _old_enough(self) -> int:
        """All entries before this position are older than they must be kept."""
        now_ms = await self.store_now_ms()
        position = 0
        async for one in self._store.list(self._keys.entries):
            if now_ms - one.modified_ms < self._kept_ms:
                return position_in(one.key)
            position = position_in(one.key) + 1
        return position

    async def collect_orphans(self, floor: int, tail: int) -> int:
        """Delete uploads as old as an entry may get that no entry in the range names, and no sealed object. Returns how
        many. Each upload is judged once: what was kept then is the business of its object."""
        until_ms = await self.store_now_ms() - self._kept_ms + 1
        old: dict[bytes, list[str]] = {}
        async for one in self._store.list(self._keys.wal):
            if self._judged_ms <= one.modified_ms < until_ms:
                old.setdefault(wal_in(one.key), []).append(one.key)
        if old:
            for head in await self._reader.heads(range(floor, tail)):
                old.pop(head.id, None)
        if old:  # after the entries: the seal is there before they go
            async for id in self._seals.referenced():
                old.pop(id, None)
        for keys in old.values():
            await asyncio.gather(*map(self._store.delete, keys))
        self._judged_ms = until_ms
        return len(old)

    async def store_now_ms(self) -> int:
        """The store's time: that of an object put right now."""
        return await store_now_ms(self._store, self._keys.clock(self._random.token(TOKEN_BYTES)))

    async def _forget_floors(self, floor: Floor) -> None:
        for one in [found.key async for found in self._store.list(self._keys.floors)]:
            if floor_in(one).position < floor.position:
                await self._store.delete(one)

    async def _delete_below(self, position: int) -> None:
        """From the oldest on: what a crash leaves is again without a gap. WAL objects go before what names them."""
        entries = [position_in(one.key) async for one in self._store.list(self._keys.entries)]
        below = [one for one in entries if one < position]
        if not below:
            return
        listing = await self._seals.listed()
        for at in range(0, len(below), limits.BUCKET_READS_MAX):
            some = below[at : at + limits.BUCKET_READS_MAX]
            heads = await self._seals.spent(await self._reader.heads(some), listing)
            await asyncio.gather(*(self._delete_wal(head.id, head.apart_bytes) for head in heads))
            await asyncio.gather(*(self._store.delete(self._keys.entry(one)) for one in some))

    async def _delete_wal(self, id: bytes, length: int) -> None:
        await self._wal.delete(partial(self._keys.wal_part, id), length)
