"""Writing and following commits: one object per entry, put under a key that only one writer can take."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from functools import partial

from mainstem import limits
from mainstem.errors import LogDamaged, MainstemError, Stale, StoreUnreachable, Unavailable
from mainstem.ports.clock import Random
from mainstem.ports.commitlog.port import Buffer
from mainstem.ports.commitlog.shared.bucket.entries import (
    ENTRY_APART,
    PAYLOAD_APART,
    EntryHead,
    pack_head,
)
from mainstem.ports.commitlog.shared.bucket.keys import TOKEN_BYTES, BucketKeys, SealName
from mainstem.ports.commitlog.shared.bucket.parts import Parts
from mainstem.ports.commitlog.shared.bucket.reading import EntryReader
from mainstem.ports.commitlog.shared.core.backend import (
    Attempt,
    DecodedCommit,
    Floor,
    NextPlace,
    Truncated,
    Upload,
)
from mainstem.ports.commitlog.shared.core.fairness import Fairness
from mainstem.ports.commitlog.shared.core.freshness import Freshness
from mainstem.ports.commitlog.shared.core.objects import ObjectTable
from mainstem.ports.objectstore.port import ObjectStore

BUCKET_INLINE_BYTES_MAX = 128 * limits.KIB  # a larger payload has its own objects, put before the entry
BUCKET_POLL_S = 0.025  # shortest poll interval of a follower at the end …
BUCKET_POLL_MAX_S = 0.25  # … and the longest, while there is nothing new
BUCKET_PUT_S = 5.0  # an entry without a response for this long, and not in the bucket, is put again

Wait = Callable[[float], Awaitable[None]]

_ATTEMPTS_MAX = 4  # at one key; each of them stays within the store's own retry budget
_LOOK_AHEAD = 4  # entries that a loser reads at once: during every further round trip others win
_APPENDS_WATCHED = 4_096  # since another writer was seen; a lone writer need not look for requests


class BucketCommits:
    """One process's access to the entries of a log."""

    def __init__(
        self,
        store: ObjectStore,
        keys: BucketKeys,
        reader: EntryReader,
        table: ObjectTable[EntryHead, SealName],
        freshness: Freshness,
        random: Random,
        log: int,
        wait: Wait,
    ) -> None:
        self._store = store
        self._keys = keys
        self._reader = reader
        self._table = table
        self._freshness = freshness
        self._random = random
        self._log = log
        self._wait = wait
        self._wal = Parts(store)
        self._own_end = -1  # where the log ended after our last commit
        self._watched = 0  # appends for which we still look for requests
        self._looking: asyncio.Task[None] | None = None
        self._asking: asyncio.Task[None] | None = None

    @property
    def entry_bytes_max(self) -> int:
        return BUCKET_INLINE_BYTES_MAX

    @property
    def payload_bytes_max(self) -> int:
        return BUCKET_INLINE_BYTES_MAX

    @property
    def cheap_payload_bytes_max(self) -> int:
        return self.payload_bytes_max  # one put costs less than two

    @property
    def upload_s_max(self) -> float:
        return limits.BUCKET_STALE_S

    def check_writable(self) -> None:
        """Every process that can open the bucket may write."""

    def new_token(self) -> bytes:
        return self._random.token(TOKEN_BYTES)

    async def put_upload(self, id: bytes, content: Sequence[Buffer]) -> None:
        await self._wal.put(partial(self._keys.wal_part, id), content)

    async def delete_upload(self, id: bytes, length: int) -> None:
        await self._wal.delete(partial(self._keys.wal_part, id), length)

    async def claim(
        self, place: NextPlace, entry: Buffer, upload: Upload, fairness: Fairness
    ) -> Attempt[EntryHead]:
        self._freshness.check()
        began = self._freshness.mark()
        head = self._head(place, len(entry), upload)
        inline_entry = () if upload.entry is not None else (entry,)
        inline_payload = () if upload.payload_apart else upload.slices
        stored = b"".join((pack_head(head, entry), *inline_entry, *inline_payload))
        self._look_for_requests(fairness)
        others = await self._take(head, stored)
        if others:
            fairness.lost()
            if (self._asking is None or self._asking.done()) and (request := fairness.request(upload.id)):
                self._asking = asyncio.ensure_future(self._ask(request))
            return Attempt(None, await self._complete(others))
        fairness.won()
        if self._freshness.passed(began):
            await self._check_not_truncated(head.position)
        self._reader.recent.add(head.position, stored)
        self._freshness.seen()
        self._own_end = head.position + 1
        return Attempt(head)

    async def newer(self, position: int) -> Sequence[DecodedCommit[EntryHead]]:
        found = await self._reader.window(position, _LOOK_AHEAD)
        return await self._complete(found) if found else []

    async def follow(self, position: int) -> AsyncGenerator[Sequence[DecodedCommit[EntryHead]], None]:
        at = position
        pause = BUCKET_POLL_S
        count = 1
        while True:
            end = self._table.end
            known = await self._reader.window(at, max(count, min(end - at, limits.BUCKET_READS_MAX)))
            at += len(known)
            if known:
                yield known
                if at > end:  # others write: there may be more already, and more to come
                    count = min(2 * len(known), limits.BUCKET_READS_MAX)
                    pause = BUCKET_POLL_S
                continue
            await self._tail_reached(at, end)
            if at < self._table.end:
                continue  # our own append got ahead meanwhile
            yield ()
            await self._wait(pause)
            pause = min(2 * pause, BUCKET_POLL_MAX_S)
            count = 1

    async def tail(self) -> int:
        end = self._table.end
        tail = await self._reader.tail(end)
        await self._tail_reached(tail, end)
        return tail

    async def floor(self) -> Floor:
        return await self._reader.floor()

    async def starts_object(self, position: int) -> bool | None:
        head = await self._reader.head(position)
        if head is not None:
            return head.first == position
        return True if position <= (await self._reader.floor()).position else None

    async def close(self) -> None:
        tasks = [task for task in (self._looking, self._asking) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _head(self, place: NextPlace, entry_length: int, upload: Upload) -> EntryHead:
        flags = (PAYLOAD_APART if upload.payload_apart else 0) | (
            ENTRY_APART if upload.entry is not None else 0
        )
        return EntryHead(
            flags,
            place.position,
            self._log,
            upload.id,
            place.object,
            place.first,
            place.start,
            place.weight,
            entry_length,
            upload.length,
            upload.crc,
        )

    async def _take(self, head: EntryHead, stored: bytes) -> list[DecodedCommit[EntryHead]]:
        """Put the entry. Returns the commit that has the key instead, and some that follow, if another writer won.

        Raises Unavailable: the entry may still be written.

        A lost answer is settled by reading the key. While nothing is there, the same bytes are put again. That is safe:
        of all puts of this entry and of others, the store lets one through."""
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
            f"the store neither stores nor shows the entry at position {head.position}: try again later"
        )

    async def _put(self, position: int, stored: bytes) -> bool:
        """False: another commit has the position, or ours has it and we did not wait for the answer.

        Some stores make the loser of a race wait a second or more. That is unnecessary: a commit read at the position
        settles it, and the rest of our put finds the key taken. If no answer comes for long while the store shows an
        empty key, the connection is dead. Raises StoreUnreachable then, so that another one is tried."""
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + BUCKET_PUT_S
        arrival = self._table.arrival()
        putting = asyncio.ensure_future(self._store.put(self._keys.entry(position), stored, if_absent=True))
        try:
            while True:
                await asyncio.wait(
                    (putting, arrival), timeout=BUCKET_POLL_MAX_S, return_when=asyncio.FIRST_COMPLETED
                )
                if putting.done():
                    return putting.result()
                if arrival.done() or await self._is_taken(position):
                    return False
                if loop.time() > give_up_at:
                    raise StoreUnreachable(f"the store did not answer the put of entry {position} in time")
        finally:
            putting.cancel()

    async def _is_taken(self, position: int) -> bool:
        """Whether a commit is visible there. A store that does not answer this may still answer the put."""
        try:
            return await self._reader.head(position) is not None
        except Unavailable:
            return False

    async def _complete(self, known: list[DecodedCommit[EntryHead]]) -> list[DecodedCommit[EntryHead]]:
        """These commits of other writers and all that follow them."""
        self._watched = _APPENDS_WATCHED
        found = list(known)
        count = _LOOK_AHEAD
        while len(known) == count:
            count = min(2 * count, limits.BUCKET_READS_MAX)
            known = await self._reader.window(found[-1].head.position + 1, count)
            found += known
        self._freshness.seen()
        return found

    async def _tail_reached(self, at: int, end: int) -> None:
        """No entry is at the position: it is not written yet, or it is missing.

        `end` is what the table knew before the look; it may know more now."""
        if at < end or self._freshness.is_stale():
            floor = await self._reader.floor()
            if floor.position > at:
                raise Truncated(floor)
        if at < end:
            raise LogDamaged(f"the entry at position {at} is missing: restore it from the bucket's versions")
        self._freshness.seen()

    async def _check_not_truncated(self, position: int) -> None:
        floor = await self._reader.floor()
        if position < floor.position:
            self._freshness.spoil()
            raise Stale(
                f"position {position} was truncated while the commit was being written, so it does not count: "
                "load the newest checkpoint, then append again"
            )

    # Requests of writers that lose races (fairness.py) are under one key. They are read and put in the background.

    def _look_for_requests(self, fairness: Fairness) -> None:
        if self._own_end not in (-1, self._table.end):
            self._watched = _APPENDS_WATCHED  # others have written since
        if self._watched and (self._looking is None or self._looking.done()):
            self._watched -= 1
            self._looking = asyncio.ensure_future(self._look(fairness))

    async def _look(self, fairness: Fairness) -> None:
        with contextlib.suppress(MainstemError):  # usually no request exists; an outage shows elsewhere
            fairness.heard(await self._store.get(self._keys.turn))

    async def _ask(self, request: bytes) -> None:
        with contextlib.suppress(MainstemError):  # an outage shows elsewhere
            await self._store.put(self._keys.turn, request)
