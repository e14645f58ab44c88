"""Reading commits: entry objects by position, many at once, and the payloads that go with them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from crc32c import crc32c

from mainstem import limits
from mainstem.errors import LogDamaged, NotFound
from mainstem.ports.commitlog.port import Buffer, Committed, Piece
from mainstem.ports.commitlog.shared.bucket.entries import HEAD, Commit, check_entry, unpack_head
from mainstem.ports.commitlog.shared.bucket.keys import Floor, Keys, floor_in
from mainstem.ports.commitlog.shared.bucket.objects import Run
from mainstem.ports.commitlog.shared.bucket.parts import Parts, whole
from mainstem.ports.commitlog.shared.bucket.recent import RecentEntries
from mainstem.ports.objectstore.port import ObjectStore


class Known(NamedTuple):
    """A commit with what its head says."""

    head: Commit
    commit: Committed


class EntryReader:
    """The entries of one log. Any event loop may use it."""

    def __init__(
        self, store: ObjectStore, reads: ObjectStore, keys: Keys, log: int, recent: RecentEntries
    ) -> None:
        self._store = store
        self._reads = reads  # the same store, maybe with a cache in front: for what surely is there
        self._keys = keys
        self._log = log
        self._recent = recent
        self._wal = Parts(store)
        self._cached_wal = Parts(reads)

    async def window(self, position: int, count: int) -> list[Known]:
        """The commits from the position on, at most so many; fewer, or none, at the tail."""
        asked = range(position, position + count)
        found: list[Known] = []
        for stored in await asyncio.gather(*map(self._stored, asked)):
            if stored is None:
                # What was put after we looked may stand behind it: the next look goes on here.
                break
            found.append(await self._decode(position + len(found), stored))
        return found

    async def one(self, position: int) -> Known | None:
        """The commit at the position, if there is one."""
        found = await self.window(position, 1)
        return found[0] if found else None

    async def head(self, position: int) -> Commit | None:
        """What the entry at the position says about itself, if there is one. Its entry is not checked."""
        try:
            (stored,) = await self._store.get_ranges(self._keys.entry(position), [(0, HEAD.size)])
        except NotFound:
            return None
        return unpack_head(stored, position, self._log)

    async def heads(self, positions: Sequence[int]) -> list[Commit]:
        """Those of many, without the ones that are gone."""
        found: list[Commit] = []
        for at in range(0, len(positions), limits.BUCKET_READS_MAX):
            some = await asyncio.gather(*map(self.head, positions[at : at + limits.BUCKET_READS_MAX]))
            found += [head for head in some if head is not None]
        return found

    async def tail(self, position: int) -> int:
        """One past the last commit, from one that is there or the end before: leaps ahead, then halves."""
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
        """Where the log starts now."""
        floors = [floor_in(one.key) async for one in self._store.list(self._keys.floors)]
        return floors[-1] if floors else Floor()

    async def payload(self, run: Run, start: int, length: int, *, once: bool = False) -> bytes:
        """Payload bytes of an object whose commits are known one by one. `once`: nobody will ask for them again soon,
        so they come in large pieces and past the cache. Raises NotFound."""
        asked = list(run.pieces(start, length))
        found: list[bytes] = []
        for at in range(0, len(asked), limits.BUCKET_READS_MAX):
            some = asked[at : at + limits.BUCKET_READS_MAX]
            found += await asyncio.gather(*(self._piece(*piece, once=once) for piece in some))
        return b"".join(found)

    def pieces(self, run: Run, ranges: Sequence[tuple[int, int]]) -> list[Piece]:
        """The objects that hold these ranges of it: entries, or what was put apart from them."""
        found: set[Piece] = set()
        for start, length in ranges:
            for commit, skipped, taken in run.pieces(start, length):
                if commit.payload_apart:
                    parts = self._wal.covering(commit.payload_length, skipped, taken)
                    found.update(
                        Piece(commit.start + first, size, self._keys.wal_part(commit.id, part), 0)
                        for part, first, size in parts
                    )
                else:
                    key = self._keys.entry(commit.position)
                    found.add(Piece(commit.start, commit.payload_length, key, commit.payload_in_object))
        return sorted(found)

    async def _piece(self, commit: Commit, skipped: int, taken: int, *, once: bool) -> bytes:
        if commit.payload_apart:
            wal = self._wal if once else self._cached_wal
            return await wal.read(lambda part: self._keys.wal_part(commit.id, part), skipped, taken)
        start = commit.payload_in_object + skipped
        recent = self._recent.get(commit.position)
        if recent is not None:
            return bytes(memoryview(recent)[start : start + taken])
        store = self._store if once else self._reads
        (found,) = await store.get_ranges(self._keys.entry(commit.position), [(start, taken)])
        return found

    async def _stored(self, position: int) -> Buffer | None:
        recent = self._recent.get(position)
        if recent is not None:
            return recent
        try:
            stored = await self._store.get(self._keys.entry(position))
        except NotFound:
            return None
        self._recent.add(position, stored)
        return stored

    async def _decode(self, position: int, stored: Buffer) -> Known:
        """Raises LogDamaged or NewerVersion. A payload apart is checked by whoever reads its slices."""
        head = unpack_head(stored, position, self._log)
        view = memoryview(stored)
        entry: Buffer
        if head.entry_apart:
            entry = await self._entry_apart(head)
        else:
            entry = bytes(view[HEAD.size : HEAD.size + head.entry_length])
        check_entry(stored, entry, position)
        intact = True
        if not head.payload_apart:
            payload = view[head.payload_in_object :]
            intact = len(payload) == head.payload_length and crc32c(payload) == head.payload_crc
            if not intact:
                self._recent.forget(position)  # who wants to be sure reads it again
        return Known(head, Committed(head.placement, entry, head.payload_length, intact))

    async def _entry_apart(self, head: Commit) -> bytes:
        try:
            found = await self._wal.read(
                lambda part: self._keys.wal_part(head.id, part), head.entry_in_wal, head.entry_length
            )
        except NotFound as error:
            raise LogDamaged(f"the commit at {head.position} has lost its entry: {error}") from error
        return whole(found, head.entry_length, f"the entry of the commit at {head.position}")
