"""Writing a commit: what is large first, then the entry, under a key that only one writer can take."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from crc32c import crc32c

from mainstem import limits
from mainstem.errors import Stale, StoreUnreachable, TooLarge, Unavailable
from mainstem.ports.clock import Random
from mainstem.ports.commitlog.bucket.entries import Commit, apart_flags, pack_head
from mainstem.ports.commitlog.bucket.freshness import Freshness
from mainstem.ports.commitlog.bucket.keys import TOKEN_BYTES, Keys
from mainstem.ports.commitlog.bucket.objects import ObjectTable
from mainstem.ports.commitlog.bucket.parts import Parts
from mainstem.ports.commitlog.bucket.reading import EntryReader, Known
from mainstem.ports.commitlog.bucket.recent import RecentEntries
from mainstem.ports.commitlog.bucket.turns import Turns
from mainstem.ports.commitlog.courtesy import LOSSES_MAX
from mainstem.ports.commitlog.port import Buffer, Committed, Overtaken, Placement
from mainstem.ports.objectstore.port import ObjectStore

_U4_MAX = (1 << 32) - 1
_ATTEMPTS_MAX = 4  # at one key; each is one within the store's own budget
_LOOK_AHEAD = 4  # entries read at once by a loser: every further round trip is one more that others win


class Upload(NamedTuple):
    """What of a commit was put before its entry."""

    id: bytes
    flags: int
    entry: bytes
    slices: tuple[Buffer, ...]
    payload_length: int
    payload_crc: int
    since: tuple[float, float]  # when it was begun, by the clocks of freshness.py

    def holds(self, entry: Buffer, slices: Sequence[Buffer], crc: int) -> bool:
        """Whether it is just what shall be put now."""
        return crc == self.payload_crc and self.entry == entry and self.slices == tuple(slices)

    @property
    def apart_bytes(self) -> int:
        return sum(map(len, self.apart()))

    def apart(self) -> list[Buffer]:
        return self._chosen(apart=True, payload_first=True)

    def inline(self) -> list[Buffer]:
        return self._chosen(apart=False, payload_first=False)

    def _chosen(self, *, apart: bool, payload_first: bool) -> list[Buffer]:
        head = Commit(self.flags, 0, 0, self.id, 0, 0, 0, 0, 0, 0, 0)
        payload = self.slices if head.payload_apart is apart else ()
        entry = (self.entry,) if head.entry_apart is apart else ()
        return [*payload, *entry] if payload_first else [*entry, *payload]


class EntryWriter:
    """One process's hand at the log. Calls do not overlap."""

    def __init__(
        self,
        store: ObjectStore,
        keys: Keys,
        reader: EntryReader,
        table: ObjectTable,
        recent: RecentEntries,
        freshness: Freshness,
        random: Random,
        log: int,
    ) -> None:
        self._store = store
        self._keys = keys
        self._reader = reader
        self._table = table
        self._recent = recent
        self._freshness = freshness
        self._random = random
        self._log = log
        self._wal = Parts(store)
        self._kept: Upload | None = None  # of an append that lost its race: the next one may bring the same
        self._turns = Turns(store, keys.turn, table.newest)
        self._own_end = -1  # where the log ended after the last append
        self._losses = 0  # in a row

    async def append(
        self, entry: Buffer, slices: Sequence[Buffer], prepared: object | None = None
    ) -> Placement:
        """Raises Overtaken, Stale, TooLarge or Unavailable."""
        self._freshness.check()
        if not isinstance(prepared, Upload) or self._freshness.passed(prepared.since):
            prepared = None  # an old one may be taken for an orphan at any moment
        upload = prepared or await self._upload(entry, slices)
        self._freshness.check()  # large uploads take their time
        mark = self._freshness.mark()
        others = await self._let_pass(upload)
        if not others:
            head = self._head(upload)
            stored = b"".join((pack_head(head, upload.entry), *upload.inline()))
            self._turns.look()
            others = await self._take(head, stored)
            self._losses = self._losses + 1 if others else 0
            if self._losses >= LOSSES_MAX:
                self._turns.ask(upload.id)
        if others:
            self._kept = upload if prepared is None else None  # else the caller brings it again
            raise Overtaken(await self._overtaken(others))
        if self._freshness.passed(mark):
            await self._check_floor(head.position)
        self._recent.add(head.position, stored)
        self._table.learn_commit(head)
        self._freshness.seen()
        self._own_end = self._table.end
        return head.placement

    async def close(self) -> None:
        await self._turns.close()

    async def _let_pass(self, upload: Upload) -> list[Known]:
        """Wait for the commit of a writer that asked for it. Returns what came instead of ours, if anything did."""
        if self._own_end not in (-1, self._table.end):
            self._turns.others_seen()
        while self._turns.lets_pass(upload.id):
            if others := await self._reader.window(self._table.end, _LOOK_AHEAD):
                return others
        return []

    async def _upload(self, entry: Buffer, slices: Sequence[Buffer]) -> Upload:
        """Put what stands apart, unless the append before this one did and then lost its race."""
        kept, self._kept = self._kept, None
        if kept is not None:
            # An old one may be taken for an orphan at any moment.
            if kept.holds(entry, slices, _checksum(slices)) and not self._freshness.passed(kept.since):
                return kept
            await self._wal.delete(lambda part: self._keys.wal_part(kept.id, part), kept.apart_bytes)
        return await self.upload(entry, slices)

    async def upload(self, entry: Buffer, slices: Sequence[Buffer]) -> Upload:
        """Put what stands apart. Calls may overlap."""
        length = sum(map(len, slices))
        if len(entry) > limits.ENTRY_BYTES_MAX or length > _U4_MAX:
            raise TooLarge(f"a commit of {len(entry)} + {length} bytes is over the limit of the log")
        id = self._random.token(TOKEN_BYTES)
        flags = apart_flags(len(entry), length)
        since = self._freshness.mark()
        upload = Upload(id, flags, bytes(entry), tuple(slices), length, _checksum(slices), since)
        await self._wal.put(lambda part: self._keys.wal_part(id, part), upload.apart())
        return upload

    def _head(self, upload: Upload) -> Commit:
        object, first, start, weight = self._table.next_place()
        return Commit(
            upload.flags,
            self._table.end,
            self._log,
            upload.id,
            object,
            first,
            start,
            weight,
            len(upload.entry),
            upload.payload_length,
            upload.payload_crc,
        )

    async def _take(self, head: Commit, stored: bytes) -> list[Known]:
        """Put the entry. Returns what has the key instead, and some that follow, if it was lost to another one.

        Raises Unavailable: it may still come to be written.

        An answer that was lost is settled by reading the key. While nothing is there the same bytes are put again,
        which is safe: of all the puts of this entry, and of others, the store lets one through."""
        failure: Unavailable | None = None
        for _ in range(_ATTEMPTS_MAX):
            try:
                if await self._put(head.position, stored):
                    return []
            except Unavailable as error:
                failure = error
            if found := await self._reader.window(head.position, _LOOK_AHEAD):
                return [] if found[0].head.id == head.id else found
        raise failure or Unavailable(
            f"the store neither takes nor shows the entry at {head.position}: try later"
        )

    async def _put(self, position: int, stored: bytes) -> bool:
        """False: another commit has the position, or ours has and the answer was not waited for.

        A store may have the loser of a race wait long for it, some a second or more. Nobody need: a commit that was
        read settles it, by whoever follows the log or by a look of our own, and what is left of our put finds the
        key taken. And who gets no answer for long, though the store shows that there is nothing, has lost a connection
        without being told: Raises StoreUnreachable, for another to be tried."""
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + limits.BUCKET_PUT_S
        learnt = self._table.watch_page()
        putting = asyncio.ensure_future(self._store.put(self._keys.entry(position), stored, if_absent=True))
        try:
            while True:
                await asyncio.wait(
                    (putting, learnt), timeout=limits.BUCKET_POLL_MAX_S, return_when=asyncio.FIRST_COMPLETED
                )
                if putting.done():
                    return putting.result()
                if learnt.done() or await self._taken(position):
                    return False
                if loop.time() > give_up_at:
                    raise StoreUnreachable(f"the entry at {position}: no answer in time")
        finally:
            putting.cancel()

    async def _taken(self, position: int) -> bool:
        """Whether a commit is seen there; a store that gives no answer may yet answer the put."""
        try:
            return await self._reader.head(position) is not None
        except Unavailable:
            return False

    async def _overtaken(self, known: list[Known]) -> list[Committed]:
        """Take in what others committed, all of it."""
        self._turns.others_seen()
        found: list[Committed] = []
        count = _LOOK_AHEAD
        while True:
            for one in known:
                self._table.learn_commit(one.head)
                found.append(one.commit)
            if len(known) < count:
                break
            count = min(2 * count, limits.BUCKET_READS_MAX)
            known = await self._reader.window(found[-1].placement.position + 1, count)
        self._freshness.seen()
        return found

    async def _check_floor(self, position: int) -> None:
        floor = await self._reader.floor()
        if position < floor.position:
            self._freshness.spoil()
            raise Stale(
                f"position {position} was truncated while the commit was being written, so it counts for "
                "nothing: load the newest checkpoint, then append again"
            )


def _checksum(slices: Sequence[Buffer]) -> int:
    crc = 0
    for part in slices:
        crc = crc32c(part, crc)
    return crc
