"""A commit log that several brokers write to, whatever stores it.

The store alone decides the order: the writer that claims position N first has it, whatever anyone's clock says. The
others read what it wrote and claim N + 1. What is written is durable, so `sync` only moves the mark.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from typing import Generic

from mainstem.errors import Closed, NotFound, ObjectMissing, invariant
from mainstem.ports.commitlog.port import (
    Buffer,
    Checkpoint,
    Committed,
    LogObject,
    Overtaken,
    Piece,
    Placement,
)
from mainstem.ports.commitlog.shared.core.backend import (
    CheckpointBackend,
    CommitBackend,
    Floor,
    H,
    ObjectBackend,
    S,
    Truncated,
    TruncationBackend,
)
from mainstem.ports.commitlog.shared.core.checkpoints import SharedCheckpoints
from mainstem.ports.commitlog.shared.core.freshness import Freshness
from mainstem.ports.commitlog.shared.core.objects import ObjectTable, OpenObject
from mainstem.ports.commitlog.shared.core.writer import CommitWriter
from mainstem.ports.loop_thread import LoopThread
from mainstem.ports.objectstore.cache import CachedObjectStore


class SharedLog(Generic[H, S]):
    """One broker's view of a shared log. Owned by one event loop; reads may come from any thread.

    An append comes after everything that `follow` and Overtaken gave the caller. So after opening, follow up to `end`
    before the first append."""

    def __init__(
        self,
        identity: bytes,
        table: ObjectTable[H, S],
        commits: CommitBackend[H],
        objects: ObjectBackend[H, S],
        checkpoints: CheckpointBackend,
        truncation: TruncationBackend[S],
        freshness: Freshness,
        *,
        checkpoints_kept: int,
        blocking: LoopThread | None,
        cache: CachedObjectStore | None = None,
    ) -> None:
        self._identity = identity
        self._table = table
        self._commits = commits
        self._objects = objects
        self._checkpoints = SharedCheckpoints(checkpoints, commits, checkpoints_kept)
        self._truncation = truncation
        self._freshness = freshness
        self._writer = CommitWriter(commits, table, freshness)
        self._blocking = blocking or LoopThread(
            "the log is closed", name="mainstem-store", left_over_wait_s=0
        )
        self._cache = cache
        self._synced = 0
        self._appending: asyncio.Task[Placement] | None = None
        self._closed = False

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

    @property
    def inline_bytes(self) -> int:
        return self._commits.payload_bytes_max

    async def prepare(self, entry: Buffer, slices: Sequence[Buffer], *, by_reference: bool = False) -> object:
        """Upload the large parts of a commit for `append` to use. Raises TooLarge or Unavailable."""
        self._check_open()
        return await self._writer.upload(entry, slices, by_reference=by_reference)

    async def append(
        self, entry: Buffer, slices: Sequence[Buffer], prepared: object | None = None
    ) -> Placement:
        """Write one commit. Raises Overtaken, BrokerFenced, Stale, BehindCheckpoint, TooLarge, NoSpace or Unavailable.

        A commit whose caller was cancelled, or got Unavailable, may still be written. The next append or `follow`
        tells."""
        self._check_open()
        while self._appending is not None and not self._appending.done():
            await asyncio.wait([self._appending])
        task = self._appending = asyncio.ensure_future(self._writer.append(entry, slices, prepared))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(self._abandoned)
            raise

    def _abandoned(self, task: asyncio.Task[Placement]) -> None:
        """Nobody waits for this append any more. Every error but Overtaken comes up again with the next one."""
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Overtaken):
            self._table.undelivered += error.commits

    async def append_synced(
        self, entry: Buffer, slices: Sequence[Buffer], crc: int | None = None
    ) -> tuple[Placement, float | None]:
        return await self.append(entry, slices), None  # what is written is durable

    def writes_now(self, size: int, *, may_block: bool = False) -> bool:
        return False  # every commit waits for the network

    def append_now(self, entry: Buffer, slices: Sequence[Buffer], crc: int | None = None) -> Placement:
        raise NotImplementedError("a shared log writes on its event loop")

    def syncs_now(self) -> bool:
        return False

    def sync_now(self, position: int) -> float | None:
        return None  # what is written is durable

    def sync_soon(self, ended: Callable[[int, Exception | None], None]) -> bool:
        return False

    async def sync(self) -> int:
        """What is written is durable already, and so is what another broker's checkpoint holds."""
        self._check_open()
        self._synced = max(self._table.end, self._checkpoints.newest_position)
        return self._synced

    async def rejoin(self) -> int:
        """Read up to the tail after Stale. Returns its position: follow up to there, then append again.

        Raises BehindCheckpoint if the next commits were truncated: open the log again."""
        self._check_open()
        floor = await self._refresh()
        if floor.position > self._table.end:
            raise Truncated(floor)
        async for _ in self.follow(self._table.end):
            pass
        self._freshness.renew()
        return self._table.end

    async def refresh(self) -> None:
        """Learn what other brokers sealed and dropped."""
        self._check_open()
        await self._refresh()

    async def follow(self, position: int, *, wait: bool = False) -> AsyncIterator[list[Committed]]:
        """The commits from `position` on, in chunks: up to the tail, or with `wait` past it, until the log is closed.

        Raises BehindCheckpoint, LogDamaged or Unavailable."""
        at = min(position, self._table.end)  # the table learns every commit in order
        while True:
            try:
                async with aclosing(self._commits.follow(at)) as chunks:
                    async for known in chunks:
                        if not known and (self._closed or not wait):
                            return
                        at += len(known)
                        for one in known:
                            self._table.learn_commit(one.head)
                        if wanted := [one.commit for one in known if one.head.position >= position]:
                            yield wanted
                        if self._closed:
                            return
            except Truncated as truncated:
                await self._refresh()
                if truncated.floor.position > position:
                    raise
                at = truncated.floor.position  # the caller's state already holds what is truncated
                self._table.skip_to(at, truncated.floor.object)

    async def tail(self) -> int:
        """One past the last commit of any broker, read now."""
        self._check_open()
        return await self._commits.tail()

    def read(self, object: int, start: int, length: int) -> bytearray:
        """Payload bytes, fresh and writable. Blocks: call it on a thread.

        Raises FileNotFoundError if the object was dropped, ObjectMissing if the store has lost it."""
        return self._blocking.call(self._read(object, start, length))

    async def _read(self, number: int, start: int, length: int) -> bytearray:
        source = self._source(number)
        try:
            return await self._objects.read(source, start, length)
        except NotFound as error:
            if await self._objects.is_lost(source):
                raise ObjectMissing(f"the store has lost bytes of object {number}: {error}") from error
            raise FileNotFoundError(f"object {number} was dropped: {error}") from error

    async def roll(self) -> None:
        """Finish the current object; the next append of this process starts a new one. No-op on an empty object."""
        self._check_open()
        self._table.rolled = True

    async def seal(self, object: int, index: bytes) -> None:
        """Attach the index to a finished object. Repeating it with the same index is a no-op.

        Raises Overtaken if another broker has written to the object since, FileNotFoundError if it was dropped."""
        self._check_open()
        current = self._table.current
        invariant(current is None or current.number != object, "only a finished object is sealed: roll first")
        sealed, ours = self._table.sealed(object), False
        if sealed is None:
            unsealed = self._table.open_object(object)
            if unsealed is None:
                raise FileNotFoundError(f"object {object} was dropped or never existed")
            sealed, ours = await self._objects.seal(unsealed, index)
        if not ours:
            try:
                found = await self._objects.index(sealed)
            except NotFound as error:
                raise FileNotFoundError(f"object {object} was dropped: {error}") from error
            invariant(found == index, "a sealed object keeps its index")
        known = self._table.open_object(object)
        if known is None or known.end == sealed.end:  # else it has grown since
            self._table.learn_seal(sealed)

    def read_index(self, object: int) -> bytes:
        """The index of a sealed object. Blocks: call it on a thread. Raises LogDamaged if it is damaged."""
        sealed = self._table.sealed(object)
        if sealed is None:
            raise FileNotFoundError(f"object {object} was dropped, is not sealed or never existed")
        try:
            return self._blocking.call(self._objects.index(sealed))
        except NotFound as error:
            raise FileNotFoundError(f"object {object} was dropped: {error}") from error

    def url(self, object: int) -> str | None:
        """None: the bytes of an object are in several places of the store."""
        return None

    async def pieces(self, object: int, ranges: Sequence[tuple[int, int]]) -> list[Piece]:
        """Which keys of the store hold these bytes. Raises FileNotFoundError if the object was dropped."""
        try:
            return await self._objects.pieces(self._source(object), ranges)
        except NotFound as error:
            raise FileNotFoundError(f"object {object} was dropped: {error}") from error

    async def distrust(self, object: int, start: int, length: int) -> None:
        """Bytes of an object came back damaged: read them from the store next time. Raises as `pieces`."""
        if self._cache is not None:
            for piece in await self.pieces(object, [(start, length)]):
                await self._cache.forget(piece.key)

    def objects(self) -> list[LogObject]:
        """Every object that holds a commit, by number."""
        return self._table.described()

    async def drop(self, object: int) -> None:
        """Delete a sealed object. Idempotent. Its commits stay until they are truncated behind a checkpoint."""
        self._check_open()
        sealed = self._table.sealed(object)
        if sealed is None:
            invariant(self._table.open_object(object) is None, "only a sealed object is dropped")
            return
        await self._objects.drop(sealed)
        self._table.learn_drop(sealed)

    async def save_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Store a checkpoint, delete all but the newest few, and truncate what all of them hold."""
        self._check_open()
        invariant(checkpoint.position <= self._synced, "a checkpoint is never ahead of what is durable")
        await self._checkpoints.save(checkpoint, self._commits.new_token())
        await self.truncate()

    def load_checkpoint(self) -> Checkpoint | None:
        """The newest checkpoint that is intact and not void. Blocks: call it on a thread."""
        return self._blocking.call(self._checkpoints.load())

    async def checkpoints(self) -> list[int]:
        """Positions of the checkpoints that are kept, whichever broker saved them, rising."""
        self._check_open()
        return await self._checkpoints.positions()

    async def truncate(self) -> int:
        """Delete old commits that sealed objects and all kept checkpoints replace. Returns the lowest position left."""
        self._check_open()
        floor = await self._refresh()
        limit = min(await self._checkpoints.covered(), self._table.end)
        settled = [one for one in await self._settled(floor) if one.end <= limit]
        count = await self._truncation.old_enough(settled) if settled else 0
        target = Floor(settled[count - 1].end, settled[count - 1].number) if count else floor
        floor = await self._truncation.truncate(floor, target)
        forgotten = [one for one in self._table.dropped() if one.end <= floor.position]
        if forgotten:
            await self._objects.forget(forgotten)
            for one in forgotten:
                self._table.forget_drop(one)
        return floor.position

    async def collect_orphans(self) -> int:
        """Delete uploads that never became commits, once no writer can still use them. Returns how many."""
        self._check_open()
        return await self._truncation.collect_orphans()

    async def close(self) -> None:
        """Wait for the running append, then close the connections; followers end. Idempotent."""
        if self._closed:
            return
        self._closed = True
        if self._appending is not None:
            await asyncio.wait([self._appending])
        await self._commits.close()
        await asyncio.to_thread(self._blocking.close)

    async def _join(self) -> None:
        """Learn the log: sealed objects from their seals, the commits after them one by one."""
        floor = await self._refresh()
        self._table.skip_to(floor.position, floor.object)
        if settled := await self._settled(floor):
            self._table.skip_to(settled[-1].end, settled[-1].number)
        async for _ in self.follow(self._table.end):
            pass
        self._synced = self._table.end
        self._freshness.renew()

    async def _settled(self, floor: Floor) -> list[S]:
        """The sealed objects from the floor on that can grow no more."""
        settled = self._table.settled(floor)
        if settled and settled[-1].end >= self._table.end:
            last = settled[-1].end
            if not await self._commits.starts_object(last):
                settled.pop()
        return settled

    async def _refresh(self) -> Floor:
        """Learn what other brokers sealed and dropped, and where the log starts."""
        listing = await self._objects.refresh()
        self._table.learn_listing(listing.sealed, listing.dropped)
        return listing.floor

    def _source(self, number: int) -> OpenObject[H] | S:
        source = self._table.open_object(number) or self._table.sealed(number)
        if source is None:
            raise FileNotFoundError(f"object {number} was dropped or never existed")
        return source

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("the log is closed")
