"""Reading entry objects by position, many at once, and the payloads of their commits."""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Sequence
from functools import partial

from crc32c import crc32c

from mainstem import limits
from mainstem.errors import LogDamaged, NotFound
from mainstem.ports.commitlog.port import Buffer, Committed, Piece
from mainstem.ports.commitlog.shared.bucket.entries import HEAD, EntryHead, check_entry, unpack_head
from mainstem.ports.commitlog.shared.bucket.keys import BucketKeys, floor_in
from mainstem.ports.commitlog.shared.bucket.parts import Parts
from mainstem.ports.commitlog.shared.core.backend import DecodedCommit, Floor
from mainstem.ports.commitlog.shared.core.objects import OpenObject
from mainstem.ports.objectstore.port import ObjectStore

BUCKET_RECENT_BYTES = 16 * limits.MIB  # payload of the newest entries, cached for readers


class RecentEntries:
    """The newest entry objects by position, for followers and readers close to the tail. Thread-safe."""

    def __init__(self, bytes_max: int = BUCKET_RECENT_BYTES) -> None:
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        self._entries: OrderedDict[int, Buffer] = OrderedDict()
        self._bytes = 0

    def add(self, position: int, stored: Buffer) -> None:
        with self._lock:
            if position in self._entries or len(stored) > self._bytes_max:
                return
            self._entries[position] = stored
            self._bytes += len(stored)
            while self._bytes > self._bytes_max:
                _, old = self._entries.popitem(last=False)
                self._bytes -= len(old)

    def forget(self, position: int) -> None:
        with self._lock:
            self._bytes -= len(self._entries.pop(position, b""))

    def get(self, position: int) -> Buffer | None:
        with self._lock:
            return self._entries.get(position)


class EntryReader:
    """The entries of one log. Any event loop may use it."""

    def __init__(self, store: ObjectStore, reads: ObjectStore, keys: BucketKeys, log: int) -> None:
        self.recent = RecentEntries()
        self._store = store
        self._reads = reads  # the same store, maybe behind a cache: for objects that are known to be there
        self._keys = keys
        self._log = log
        self._wal = Parts(store)
        self._cached_wal = Parts(reads)

    async def window(self, position: int, count: int) -> list[DecodedCommit[EntryHead]]:
        """At most `count` commits from the position on; fewer, or none, at the tail."""
        asked = range(position, position + count)
        found: list[DecodedCommit[EntryHead]] = []
        for stored in await asyncio.gather(*map(self._stored, asked)):
            if stored is None:
                # An entry after the gap was put after we looked: the next call starts here.
                break
            found.append(await self._decode(position + len(found), stored))
        return found

    async def head(self, position: int) -> EntryHead | None:
        """The head of the entry at the position, if there is one. Its checksum is not checked."""
        try:
            (stored,) = await self._store.get_ranges(self._keys.entry(position), [(0, HEAD.size)])
        except NotFound:
            return None
        return unpack_head(stored, position, self._log)

    async def heads(self, positions: Sequence[int]) -> list[EntryHead]:
        """Those of many entries, without the ones that are gone."""
        found: list[EntryHead] = []
        for at in range(0, len(positions), limits.BUCKET_READS_MAX):
            some = await asyncio.gather(*map(self.head, positions[at : at + limits.BUCKET_READS_MAX]))
            found += [head for head in some if head is not None]
        return found

    async def tail(self, position: int) -> int:
        """One past the last commit, at or after a known end: doubles the step, then bisects."""
        if await self.head(position) is None:
            return position
        there, step = position, 1
        while await self.head(there + step) is not None:
            there += step
            step *= 2
        missing = there + step
        while missing - there > 1:
            middle = (there + missing) // 2
            if await self.head(middle) is None:
                missing = middle
            else:
                there = middle
        return missing

    async def floor(self) -> Floor:
        floors = [floor_in(one.key) async for one in self._store.list(self._keys.floors)]
        return floors[-1] if floors else Floor()

    async def payload(
        self, source: OpenObject[EntryHead], start: int, length: int, *, once: bool = False
    ) -> bytearray:
        """Payload bytes of an object whose commits are known. Raises NotFound.

        `once`: they are not read again soon, so they come in large pieces and bypass the cache."""
        asked = list(source.payloads.pieces(start, length))
        found = bytearray()
        for at in range(0, len(asked), limits.BUCKET_READS_MAX):
            some = asked[at : at + limits.BUCKET_READS_MAX]
            for piece in await asyncio.gather(*(self._piece(*one, once=once) for one in some)):
                found += piece
        return found

    def pieces(self, source: OpenObject[EntryHead], ranges: Sequence[tuple[int, int]]) -> list[Piece]:
        """The objects of the store that hold these ranges: entries, or WAL objects."""
        found: set[Piece] = set()
        for start, length in ranges:
            for head, skipped, taken in source.payloads.pieces(start, length):
                if head.payload_apart:
                    parts = self._wal.covering(head.payload_length, skipped, taken)
                    found.update(
                        Piece(head.start + first, size, self._keys.wal_part(head.id, part), 0)
                        for part, first, size in parts
                    )
                else:
                    key = self._keys.entry(head.position)
                    found.add(Piece(head.start, head.payload_length, key, head.payload_in_object))
        return sorted(found)

    async def _piece(self, head: EntryHead, skipped: int, taken: int, *, once: bool) -> Buffer:
        if head.payload_apart:
            wal = self._wal if once else self._cached_wal
            return await wal.read(partial(self._keys.wal_part, head.id), skipped, taken)
        start = head.payload_in_object + skipped
        recent = self.recent.get(head.position)
        if recent is not None:
            return memoryview(recent)[start : start + taken]
        store = self._store if once else self._reads
        (found,) = await store.get_ranges(self._keys.entry(head.position), [(start, taken)])
        return found

    async def _stored(self, position: int) -> Buffer | None:
        recent = self.recent.get(position)
        if recent is not None:
            return recent
        try:
            stored = await self._store.get(self._keys.entry(position))
        except NotFound:
            return None
        self.recent.add(position, stored)
        return stored

    async def _decode(self, position: int, stored: Buffer) -> DecodedCommit[EntryHead]:
        """Raises LogDamaged or NewerVersion. An uploaded payload is checked when its slices are read."""
        head = unpack_head(stored, position, self._log)
        view = memoryview(stored)
        entry: Buffer
        if head.entry_apart:
            entry = await self._uploaded_entry(head)
        else:
            entry = bytes(view[HEAD.size : HEAD.size + head.entry_length])
        check_entry(stored, entry, position)
        intact = True
        if not head.payload_apart:
            payload = view[head.payload_in_object :]
            intact = len(payload) == head.payload_length and crc32c(payload) == head.payload_crc
            if not intact:
                self.recent.forget(position)  # the next read asks the store again
        return DecodedCommit(head, Committed(head.placement, entry, head.payload_length, intact))

    async def _uploaded_entry(self, head: EntryHead) -> bytes:
        try:
            found = await self._wal.read(
                partial(self._keys.wal_part, head.id), head.entry_in_wal, head.entry_length
            )
        except NotFound as error:
            raise LogDamaged(
                f"the entry of the commit at position {head.position} is lost: {error}"
            ) from error
        if len(found) != head.entry_length:
            raise LogDamaged(
                f"the entry of the commit at position {head.position} has {len(found)} bytes of "
                f"{head.entry_length}: restore it from the bucket's versions"
            )
        return found
