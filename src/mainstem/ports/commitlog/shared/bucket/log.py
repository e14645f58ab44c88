"""The commit log in a bucket: nothing but an object store with conditional puts, any number of brokers writing.

See keys.py for what stands where. Entry N is the object of that number, and whoever puts it first has position N, so
the order of the log is decided by the store alone, whoever's clock says what. Who comes second reads what the first
one wrote and goes for N + 1. What is written is durable: `sync` only moves the mark.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

from mainstem import limits
from mainstem.errors import BehindCheckpoint, Closed, LogDamaged, NotFound, ObjectMissing, invariant
from mainstem.ports.blocking import BlockingCalls
from mainstem.ports.clock import Clock, Random, SystemClock, SystemRandom
from mainstem.ports.commitlog.port import (
    Buffer,
    Checkpoint,
    Committed,
    LogObject,
    Overtaken,
    Piece,
    Placement,
)
from mainstem.ports.commitlog.shared.bucket.checkpoints import BucketCheckpoints
from mainstem.ports.commitlog.shared.bucket.identity import identify
from mainstem.ports.commitlog.shared.bucket.keys import LOG_FOLDER, TOKEN_BYTES, Floor, Keys
from mainstem.ports.commitlog.shared.bucket.objects import ObjectTable
from mainstem.ports.commitlog.shared.bucket.reading import EntryReader, Known
from mainstem.ports.commitlog.shared.bucket.recent import RecentEntries
from mainstem.ports.commitlog.shared.bucket.seals import Seals
from mainstem.ports.commitlog.shared.bucket.truncation import Truncation
from mainstem.ports.commitlog.shared.bucket.writing import EntryWriter
from mainstem.ports.commitlog.shared.core.freshness import Freshness
from mainstem.ports.objectstore.cache import CachedObjectStore
from mainstem.ports.objectstore.port import ObjectStore

__all__ = ["BucketCommitLog"]

Wait = Callable[[float], Awaitable[None]]


class BucketCommitLog:
    """One broker's view of a log in a bucket. Owned by one event loop; reads may come from any thread."""

    def __init__(
        self,
        store: ObjectStore,
        reads: ObjectStore,
        keys: Keys,
        identity: bytes,
        *,
        object_bytes: int,
        checkpoints_kept: int,
        entries_kept_ms: int,
        clock: Clock,
        random: Random,
        wait: Wait,
        blocking: BlockingCalls,
    ) -> None:
        log = int.from_bytes(identity[:8], "little")
        self._identity = identity
        self._reads = reads
        self._random = random
        self._wait = wait
        recent = RecentEntries()
        self._freshness = Freshness(clock)
        self._reader = EntryReader(store, reads, keys, log, recent)
        self._table = ObjectTable(Floor(), object_bytes)
        self._writer = EntryWriter(
            store, keys, self._reader, self._table, recent, self._freshness, random, log
        )
        self._seals = Seals(store, reads, keys, self._reader, self._table)
        self._checkpoints = BucketCheckpoints(store, keys, checkpoints_kept, self._boundary)
        self._truncation = Truncation(store, keys, self._reader, self._seals, random, entries_kept_ms)
        self._blocking = blocking
        self._synced = 0
        self._appending: asyncio.Task[Placement] | None = None
        self._undelivered: list[Committed] = []  # of an append that was cancelled and then overtaken
        self._closed = False

    @classmethod
    async def open(
        cls,
        store: ObjectStore,
        *,
        folder: str = LOG_FOLDER,
        reads: ObjectStore | None = None,
        cache: Path | None = None,
        object_bytes: int = limits.BUCKET_OBJECT_BYTES,
        checkpoints_kept: int = limits.CHECKPOINTS_KEPT,
        entries_kept_ms: int = limits.BUCKET_ENTRIES_KEPT_MS,
        clock: Clock | None = None,
        random: Random | None = None,
        wait: Wait = asyncio.sleep,
        blocking: BlockingCalls | None = None,
    ) -> BucketCommitLog:
        """Join the log in the store, creating it if need be. `cache`: a folder for blocks of what is read.

        `reads`, the same store in another guise, and `blocking` are for tests.

        Raises Unavailable, StoreRefused, LogDamaged or NewerVersion."""
        keys = Keys(folder)
        chance = random or SystemRandom()
        identity = await identify(store, keys, chance)
        if cache is not None:
            # A bucket may hold another log than it did, which has other bytes under the same keys.
            reads = CachedObjectStore(store, cache, origin=identity)
        log = cls(
            store,
            reads or store,
            keys,
            identity,
            object_bytes=object_bytes,
            checkpoints_kept=checkpoints_kept,
            entries_kept_ms=entries_kept_ms,
            clock=clock or SystemClock(),
            random=chance,
            wait=wait,
            blocking=blocking or BlockingCalls("mainstem-store"),
        )
        await log._survey()
        return log

    @property
    def identity(self) -> bytes:
        return self._identity

    @property
    def end(self) -> int:
        """The position the next commit will take, unless another broker is first."""
        return self._table.end

    @property
    def synced(self) -> int:
        return self._synced

    @property
    def suspect(self) -> bool:
        return False  # what the store confirmed is durable

    async def clear_suspicion(self) -> None:
        """There never is any."""

    async def prepare(self, entry: Buffer, slices: Sequence[Buffer]) -> object:
        """Upload what is large of a commit, for `append` to take. Raises TooLarge or Unavailable."""
        self._check_open()
        return await self._writer.upload(entry, slices)

    async def append(
        self, entry: Buffer, slices: Sequence[Buffer], prepared: object | None = None
    ) -> Placement:
        """Write one commit. Raises Overtaken, Stale (see `rejoin`), TooLarge or Unavailable.

        If the caller is cancelled the commit may be written all the same, and so it may be after Unavailable; in
        both cases the next append, or `follow`, tells."""
        self._check_open()
        while self._appending is not None and not self._appending.done():
            await asyncio.wait([self._appending])
        if self._undelivered:
            commits, self._undelivered = self._undelivered, []
            raise Overtaken(commits)
        task = self._appending = asyncio.ensure_future(self._writer.append(entry, slices, prepared))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(self._left_alone)
            raise

    def _left_alone(self, task: asyncio.Task[Placement]) -> None:
        """Nobody waits for the append any more. All but Overtaken comes up again with the next one."""
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Overtaken):
            self._undelivered += error.commits

    async def append_synced(
        self, entry: Buffer, slices: Sequence[Buffer], crc: int | None = None
    ) -> tuple[Placement, float | None]:
        return await self.append(entry, slices), None  # what is written is durable

    async def sync(self) -> int:
        """All that is written is durable already."""
        self._check_open()
        self._synced = self._table.end
        return self._synced

    async def rejoin(self) -> int:
        """Read up to the tail after being Stale. Returns its position: follow up to there, then append again.

        Raises BehindCheckpoint if what comes next was truncated: open the log anew."""
        self._check_open()
        await self._check_floor(self._table.end)
        async for _ in self.follow(self._table.end):
            pass
        self._freshness.renew()
        return self._table.end

    async def refresh(self) -> None:
        """Learn what other brokers sealed and dropped."""
        self._check_open()
        await self._refresh()

    async def follow(self, position: int, *, wait: bool = False) -> AsyncIterator[list[Committed]]:
        """The commits from `position` on, in chunks: up to the tail, or with `wait` past it, until it is closed.

        Raises BehindCheckpoint, LogDamaged or Unavailable."""
        at = min(position, self._table.end)  # the table learns commits in order, without a gap
        pause = limits.BUCKET_POLL_S
        count = 1
        while not self._closed:
            end = self._table.end
            known = await self._reader.window(at, max(count, min(end - at, limits.BUCKET_READS_MAX)))
            at += len(known)
            if wanted := self._learn(known, position):
                yield wanted
            if at > end:  # others write: there may be more already, and more to come
                count = min(2 * len(known), limits.BUCKET_READS_MAX)
                pause = limits.BUCKET_POLL_S
            if known:
                continue
            await self._tail_reached(at, end)
            if at < self._table.end:
                continue  # an append beside this came by meanwhile
            if not wait:
                return
            await self._wait(pause)
            pause = min(2 * pause, limits.BUCKET_POLL_MAX_S)
            count = 1

    async def tail(self) -> int:
        """One past the last commit of anybody, as of now."""
        self._check_open()
        end = self._table.end
        tail = await self._reader.tail(end)
        await self._tail_reached(tail, end)
        return tail

    def read(self, object: int, start: int, length: int) -> bytearray:
        """Payload bytes, fresh and writable. Blocks: call it on a thread.

        Raises FileNotFoundError if it was dropped, ObjectMissing if the store has lost it."""
        return bytearray(self._blocking.run(self._read(object, start, length)))

    async def _read(self, number: int, start: int, length: int) -> bytes:
        run = self._table.run(number)
        seal = self._table.seal(number) if run is None else None
        try:
            if run is not None:
                return await self._reader.payload(run, start, length)
            if seal is not None:
                return await self._seals.payload(seal, start, length)
        except NotFound as error:
            listing = await self._seals.listed()
            if number not in listing.gone and listing.sealed.get(number) == seal:
                raise ObjectMissing(f"the bucket has lost bytes of object {number}: {error}") from error
        raise FileNotFoundError(f"object {number} was dropped, or never was")

    async def roll(self) -> None:
        """Finish the current object; the next append of this process starts a new one. No-op on an empty object."""
        self._check_open()
        self._table.rolled = True

    async def seal(self, object: int, index: bytes) -> None:
        """Attach the index to a finished object, and pack what is small of its payload.

        Repeating it with the same index is a no-op."""
        self._check_open()
        current = self._table.current
        invariant(current is None or current.number != object, "only a finished object is sealed: roll first")
        await self._seals.seal(object, index)

    def read_index(self, object: int) -> bytes:
        """The index of a sealed object. Blocks: call it on a thread. LogDamaged if it is not whole."""
        seal = self._table.seal(object)
        if seal is None:
            raise FileNotFoundError(f"object {object} was dropped, or is not sealed, or never was")
        try:
            return self._blocking.run(self._seals.index(seal))
        except NotFound as error:
            raise FileNotFoundError(f"object {object} was dropped: {error}") from error

    def url(self, object: int) -> str | None:
        """Nowhere: an object's bytes lie in several places of the bucket."""
        return None

    async def pieces(self, object: int, ranges: Sequence[tuple[int, int]]) -> list[Piece]:
        """Which objects of the bucket hold these bytes. Raises FileNotFoundError if they were dropped."""
        run = self._table.run(object)
        if run is not None:
            return self._reader.pieces(run, ranges)
        seal = self._table.seal(object)
        if seal is None:
            raise FileNotFoundError(f"object {object} was dropped or never was")
        try:
            return await self._seals.pieces(seal, ranges)
        except NotFound as error:
            raise FileNotFoundError(f"object {object} was dropped: {error}") from error

    async def distrust(self, object: int, start: int, length: int) -> None:
        """Bytes of an object came back damaged: the next read of them is the store's answer. Raises as `pieces`."""
        if isinstance(self._reads, CachedObjectStore):
            for piece in await self.pieces(object, [(start, length)]):
                await self._reads.forget(piece.key)

    def objects(self) -> list[LogObject]:
        """Every object that holds a commit, by number."""
        return self._table.described()

    async def drop(self, object: int) -> None:
        """Delete a sealed object. Idempotent. Its entries stay until they are truncated behind a checkpoint."""
        self._check_open()
        await self._seals.drop(object)

    async def save_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Store a checkpoint, forget all but the newest few, and truncate what all of them hold."""
        self._check_open()
        invariant(checkpoint.position <= self._synced, "a checkpoint is never ahead of what is durable")
        await self._checkpoints.save(checkpoint, self._random.token(TOKEN_BYTES))
        await self.truncate()

    def load_checkpoint(self) -> Checkpoint | None:
        """The newest checkpoint that stands and is whole. Blocks."""
        return self._blocking.run(self._checkpoints.load())

    async def checkpoints(self) -> list[int]:
        """Positions of the checkpoints that stand, by whomever they were saved, rising."""
        self._check_open()
        return await self._checkpoints.positions()

    async def truncate(self) -> int:
        """Delete entries that sealed objects and all kept checkpoints replace. Returns the lowest position left."""
        self._check_open()
        floor = await self._refresh()
        settled = [seal for seal in self._table.settled(floor) if seal.end < self._table.end]
        floor = await self._truncation.run(floor, settled, await self._checkpoints.covered())
        await self._seals.forget([seal for seal in self._table.gone() if seal.end <= floor.position])
        return floor.position

    async def collect_orphans(self) -> int:
        """Delete uploads that never became commits and are as old as an entry may get. Returns how many."""
        self._check_open()
        floor = await self._reader.floor()
        return await self._truncation.collect_orphans(floor.position, await self.tail())

    async def store_now_ms(self) -> int:
        """The store's clock, to tell how far off one's own is. Many stores count whole seconds."""
        self._check_open()
        return await self._truncation.store_now_ms()

    async def close(self) -> None:
        """Wait for the append that runs; whoever follows comes to an end. Idempotent."""
        if self._closed:
            return
        self._closed = True
        if self._appending is not None:
            await asyncio.wait([self._appending])
        await self._writer.close()
        await asyncio.to_thread(self._blocking.close)

    async def _survey(self) -> None:
        """Learn what there is: sealed objects by their seals, the commits after them one by one."""
        floor = await self._refresh()
        self._table.skip_to(floor.position, floor.object)
        settled = self._table.settled(floor)
        after = await self._reader.head(settled[-1].end) if settled else None
        if settled and (after is None or after.object == settled[-1].number):
            # The last one may still grow, or has grown, under another writer: its commits say how far.
            settled.pop()
        if settled:
            self._table.skip_to(settled[-1].end, settled[-1].number)
        async for _ in self.follow(self._table.end):
            pass
        self._synced = self._table.end
        self._freshness.renew()

    async def _refresh(self) -> Floor:
        """Learn what other brokers sealed and dropped, and where the log starts."""
        listing = await self._seals.listed()
        self._table.learn_seals(listing.sealed, listing.gone)
        return await self._reader.floor()

    async def _tail_reached(self, at: int, end: int) -> None:
        """There is no entry at the position: because nobody wrote it yet, or because it is gone?

        `end` is what was known before it was looked for: meanwhile others may have learnt more."""
        if at < end or self._freshness.look():
            await self._check_floor(at)
        if at < end:
            raise LogDamaged(f"the entry at position {at} is missing: restore it from the bucket's versions")
        self._freshness.seen()

    async def _check_floor(self, position: int) -> None:
        floor = await self._reader.floor()
        if floor.position > position:
            raise BehindCheckpoint(f"commits before {floor.position} are in a checkpoint only: load it")

    async def _boundary(self, position: int) -> bool | None:
        """Whether an object starts at the position; None where no commit is yet."""
        head = await self._reader.head(position)
        if head is not None:
            return head.first == position
        return True if position <= (await self._reader.floor()).position else None

    def _learn(self, known: Sequence[Known], position: int) -> list[Committed]:
        """Note the commits. Returns those from the position on."""
        for one in known:
            self._table.learn_commit(one.head)
        return [one.commit for one in known if one.head.position >= position]

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("the log is closed")
