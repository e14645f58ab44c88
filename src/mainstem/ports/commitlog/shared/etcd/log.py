"""The commit log in etcd: one key a commit, payloads in an object store, any number of brokers writing.

See keys.py for what stands where. A commit is one transaction that takes the next position; it goes through only
if the position is free, not truncated, and the broker's epoch still stands. So the order of the log is decided by
etcd alone, whoever's clock says what. What is written is durable: `sync` only moves the mark.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from mainstem import limits
from mainstem.errors import BehindCheckpoint, Closed, NotFound, ObjectMissing, Unavailable, invariant
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
from mainstem.ports.commitlog.shared.etcd import truncation
from mainstem.ports.commitlog.shared.etcd.checkpoints import StoredCheckpoints
from mainstem.ports.commitlog.shared.etcd.client import Connect, EtcdClient, EtcdOptions, absent, get, put
from mainstem.ports.commitlog.shared.etcd.directory import Directory
from mainstem.ports.commitlog.shared.etcd.guards import take_epoch
from mainstem.ports.commitlog.shared.etcd.keys import EtcdKeys, StoreKeys
from mainstem.ports.commitlog.shared.etcd.objects import ObjectTable
from mainstem.ports.commitlog.shared.etcd.payloads import Payloads
from mainstem.ports.commitlog.shared.etcd.reading import CommitReader, Known, Patience
from mainstem.ports.commitlog.shared.etcd.records import Floor, Guard, Seal
from mainstem.ports.commitlog.shared.etcd.sealing import Sealing
from mainstem.ports.commitlog.shared.etcd.writing import CommitWriter, Tokens
from mainstem.ports.objectstore.port import ObjectStore

__all__ = ["EtcdCommitLog", "EtcdOptions"]


class EtcdCommitLog:
    """One broker's view of a log in etcd. Owned by one event loop; reads may come from any thread.

    An append comes after all that `follow` and Overtaken gave to the caller. So after opening, follow up to `end`
    before the first one."""

    def __init__(
        self,
        client: EtcdClient,
        keys: EtcdKeys,
        store: ObjectStore,
        names: StoreKeys,
        identity: bytes,
        floor: Floor,
        *,
        broker: str | None,
        guard: Guard | None,
        tokens: Tokens,
        object_bytes: int,
        checkpoints_kept: int,
        retention_ms: int,
        retry_s: float,
        blocking: BlockingCalls,
    ) -> None:
        log = int.from_bytes(identity[:8], "little")
        self._client = client
        self._keys = keys
        self._identity = identity
        self._guard = guard
        self._tokens = tokens
        self._retention_ms = retention_ms
        self._retry_s = retry_s
        self._table = ObjectTable(floor, object_bytes)
        self._payloads = Payloads(store, names)
        self._reader = CommitReader(client, keys, self._payloads, log)
        self._checkpoints = StoredCheckpoints(client, keys, store, names, checkpoints_kept)
        self._undelivered: list[Committed] = []  # that were learnt while nobody was there to be told
        self._sealing = Sealing(
            client, keys, self._payloads, self._reader, self._table, tokens, self._undelivered
        )
        self._writer = CommitWriter(
            client,
            keys,
            self._payloads,
            self._reader,
            self._table,
            tokens,
            self._undelivered,
            broker=broker,
            guard=guard,
            log=log,
        )
        self._blocking = blocking
        self._synced = 0
        self._refreshes = 0
        self._absent: dict[int, int] = {}  # objects of which bytes were not there, and after which refresh
        self._appending: asyncio.Task[Placement] | None = None
        self._closed = False

    @classmethod
    async def open(
        cls,
        options: EtcdOptions,
        store: ObjectStore,
        *,
        broker: str | None,
        prefix: str = "mainstem/",
        folder: str = "log",
        object_bytes: int = limits.SEGMENT_BYTES,
        checkpoints_kept: int = limits.CHECKPOINTS_KEPT,
        retention_ms: int = limits.ETCD_RETENTION_MS,
        clock: Clock | None = None,
        random: Random | None = None,
        connect: Connect | None = None,
        blocking: BlockingCalls | None = None,
    ) -> EtcdCommitLog:
        """Join the log as `broker`, fencing its earlier lives; None: only to read. Created if it is not there.

        `connect` and `blocking` are for tests that put something in the place of the network and of threads.
        Raises Unavailable, LogDamaged or NewerVersion."""
        tokens = Tokens(clock or SystemClock(), random or SystemRandom())
        keys = EtcdKeys.under(prefix)
        client = EtcdClient(options, connect)
        try:
            identity, floor = await _identify(client, keys, tokens)
            guard = await take_epoch(client, keys, broker, tokens.new()) if broker is not None else None
            log = cls(
                client,
                keys,
                store,
                StoreKeys(folder),
                identity,
                floor,
                broker=broker,
                guard=guard,
                tokens=tokens,
                object_bytes=object_bytes,
                checkpoints_kept=checkpoints_kept,
                retention_ms=retention_ms,
                retry_s=options.retry_s,
                blocking=blocking or BlockingCalls("mainstem-store"),
            )
            await log._survey(floor)
        except BaseException:
            await client.close()
            raise
        return log

    @property
    def identity(self) -> bytes:
        return self._identity

    @property
    def epoch(self) -> int:
        """Which life of its broker this is; 0 if it only reads."""
        return self._guard.epoch if self._guard else 0

    @property
    def end(self) -> int:
        """The position the next commit will take, unless another broker is first."""
        return self._table.end

    @property
    def synced(self) -> int:
        return self._synced

    @property
    def suspect(self) -> bool:
        return False  # what etcd confirmed is on the disks of a majority

    async def clear_suspicion(self) -> None:
        """There never is any."""

    async def prepare(self, entry: Buffer, slices: Sequence[Buffer]) -> object:
        """Upload what is large of a commit, for `append` to take. Raises TooLarge or Unavailable."""
        self._check_open()
        return await self._writer.upload(entry, slices)

    async def append(
        self, entry: Buffer, slices: Sequence[Buffer], prepared: object | None = None
    ) -> Placement:
        """Write one commit. Raises Overtaken, BrokerFenced, BehindCheckpoint, NoSpace or Unavailable.

        If the caller is cancelled the commit may be written all the same, and so it may be after Unavailable; in
        both cases the next append, or `follow`, tells."""
        self._check_open()
        if self._appending is not None:
            await asyncio.wait([self._appending])
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
        """All that is written is durable already, and so is what a checkpoint of another broker holds."""
        self._check_open()
        self._synced = max(self._table.end, self._checkpoints.newest_position)
        return self._synced

    async def rejoin(self) -> int:
        """Read up to the tail. Returns its position: follow up to there, then append again."""
        self._check_open()
        async for commits in self.follow(self._table.end):
            self._undelivered += commits
        return self._table.end

    async def refresh(self) -> None:
        """Learn what other brokers sealed and dropped."""
        self._check_open()
        await self._refresh()

    async def follow(self, position: int, *, wait: bool = False) -> AsyncIterator[list[Committed]]:
        """The commits from `position` on, in chunks: up to the tail, or with `wait` past it, without an end.

        Raises BehindCheckpoint, LogDamaged or Unavailable."""
        at = min(position, self._table.end)  # the table learns commits in order, without a gap
        patience = Patience(self._retry_s)
        while True:
            chunk = await self._reader.chunk(at)
            if chunk.floor.position > at:
                await self._refresh()
                if chunk.floor.position > position:
                    raise BehindCheckpoint(f"commits before {chunk.floor.position} are in a checkpoint only")
                at = chunk.floor.position  # the caller has a state that holds what is truncated
                self._table.skip_to(at, chunk.floor.object)
                continue
            at += len(chunk.known)
            if wanted := self._learn(chunk.known, position):
                yield wanted
            if chunk.known:
                continue
            if not wait:
                return
            try:
                async for known in self._reader.watch(at, chunk.revision + 1):
                    patience.answered()
                    at += len(known)
                    if wanted := self._learn(known, position):
                        yield wanted
            except Closed:
                raise
            except Unavailable as error:
                await patience.lost(error)

    async def tail(self) -> int:
        """One past the last commit of anybody, as of now."""
        self._check_open()
        return await self._reader.tail()

    def read(self, object: int, start: int, length: int) -> bytearray:
        """Payload bytes, fresh and writable. Blocks: call it on a thread.

        Raises FileNotFoundError if it was dropped, ObjectMissing if the store has lost it."""
        try:
            content = self._blocking.run(self._read(object, start, length))
            self._absent.pop(object, None)
            return content
        except NotFound as error:
            # Etcd says that it is dropped before anything of it is deleted: whoever was not told so by a refresh that
            # began after this finds that it is not.
            if self._absent.setdefault(object, self._refreshes) < self._refreshes - 1:
                raise ObjectMissing(f"the store has lost bytes of object {object}: {error}") from error
            raise FileNotFoundError(f"object {object} was dropped: {error}") from error

    async def _read(self, number: int, start: int, length: int) -> bytearray:
        return await self._payloads.read(await self._directory(number), start, length)

    async def _directory(self, number: int) -> Directory:
        unsealed = self._table.open_object(number)
        if unsealed is not None:
            return unsealed.directory
        return await self._payloads.directory(self._sealed(number))

    async def roll(self) -> None:
        """Finish the current object; the next append starts a new one. No-op on an empty object."""
        self._check_open()
        self._table.roll()

    async def seal(self, object: int, index: bytes) -> None:
        """Attach the index to a finished object. Repeating it with the same index is a no-op.

        Raises Overtaken if another broker has written to the object since."""
        self._check_open()
        await self._sealing.seal(object, index)

    def read_index(self, object: int) -> bytes:
        """The index of a sealed object. Blocks: call it on a thread. LogDamaged if it is not whole."""
        seal = self._sealed(object)
        try:
            return self._blocking.run(self._payloads.index(seal))
        except NotFound as error:
            raise FileNotFoundError(f"object {object} was dropped: {error}") from error

    def url(self, object: int) -> str | None:
        """None: an object's payloads are stored one by one."""
        return None

    async def pieces(self, object: int, ranges: Sequence[tuple[int, int]]) -> list[Piece]:
        """The payloads that hold these bytes. Raises FileNotFoundError if they were dropped."""
        try:
            directory = await self._directory(object)
        except NotFound as error:
            raise FileNotFoundError(f"object {object} was dropped: {error}") from error
        return self._payloads.pieces(directory, ranges)

    async def distrust(self, object: int, start: int, length: int) -> None:
        """Nothing is kept of what was read."""

    def objects(self) -> list[LogObject]:
        """Every object that holds a commit, by number."""
        return self._table.described()

    async def drop(self, object: int) -> None:
        """Delete a sealed object. Idempotent. Its commits stay until they are truncated behind a checkpoint."""
        self._check_open()
        await self._sealing.drop(object)

    async def save_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Store a checkpoint, forget all but the newest few, and truncate what all of them hold."""
        self._check_open()
        invariant(checkpoint.position <= self._synced, "a checkpoint is never ahead of what is durable")
        await self._checkpoints.save(checkpoint, self._tokens.new())
        await self.truncate()

    def load_checkpoint(self) -> Checkpoint | None:
        """The newest checkpoint that is whole. Blocks."""
        return self._blocking.run(self._checkpoints.load())

    async def checkpoints(self) -> list[int]:
        """Positions of the checkpoints that are kept, by whomever they were saved, rising."""
        self._check_open()
        await self._checkpoints.refresh()
        return self._checkpoints.positions

    async def truncate(self) -> int:
        """Delete commits that every kept checkpoint holds, after their retention. Returns the lowest one left."""
        self._check_open()
        await self._refresh()
        floor = await truncation.truncate(
            self._client,
            self._keys,
            self._table,
            self._payloads,
            behind=self._checkpoints.oldest_position,
            sealed_before_ms=self._tokens.now_ms() - self._retention_ms,
        )
        return floor.position

    async def collect_orphans(self, older_than_ms: int = limits.PAYLOAD_ORPHAN_MS) -> int:
        """Delete uploads that never became commits, of that age by the store's clock. Returns how many."""
        self._check_open()
        before_ms = await self._payloads.now_ms(self._tokens.new()) - older_than_ms
        async for commits in self.follow(self._table.end):  # so that all that uploads became is known
            self._undelivered += commits
        await self._refresh()
        named: set[bytes] = set()
        for one in self._table.described():
            named.update((await self._directory(one.number)).ids)
        orphans = await self._payloads.orphans(named, before_ms)
        await self._payloads.delete(orphans)
        return len(orphans)

    async def expel(self, broker: str) -> None:
        """Whoever writes as that broker now writes no more, until it joins again."""
        self._check_open()
        await take_epoch(self._client, self._keys, broker, self._tokens.new())

    async def close(self) -> None:
        """Wait for the append that runs, then let go of the connections. Idempotent."""
        if self._closed:
            return
        self._closed = True
        if self._appending is not None:
            await asyncio.wait([self._appending])
        await self._client.close()
        await asyncio.to_thread(self._blocking.close)

    async def _survey(self, floor: Floor) -> None:
        """Learn what there is: sealed objects by their seals, the commits after them one by one."""
        await self._refresh()
        settled = self._table.settled(floor)
        if settled:
            self._table.skip_to(settled[-1].end, settled[-1].number)
        async for _ in self.follow(self._table.end):
            pass
        self._synced = self._table.end

    async def _refresh(self) -> None:
        """Learn what other brokers sealed, dropped, truncated and saved."""
        seals = await self._client.range(self._keys.object(0), self._keys.objects_end)
        there = [Seal.unpack(pair.value) for pair in seals.kvs]
        for gone in {seal.number for seal in self._table.seals()} - {seal.number for seal in there}:
            self._table.forget(gone)
        for seal in there:
            self._table.learn_seal(seal)
        await self._checkpoints.refresh()
        self._refreshes += 1

    def _learn(self, known: Sequence[Known], position: int) -> list[Committed]:
        """Note the commits. Returns those from the position on."""
        for one in known:
            self._table.learn_commit(one.record)
        return [one.commit for one in known if one.record.position >= position]

    def _sealed(self, number: int) -> Seal:
        seal = self._table.seal_of(number)
        if seal is None or seal.dropped:
            raise FileNotFoundError(f"object {number} was dropped, or is not sealed, or never was")
        return seal

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("the log is closed")


async def _identify(client: EtcdClient, keys: EtcdKeys, tokens: Tokens) -> tuple[bytes, Floor]:
    """The log's id and floor, made by whoever comes first."""
    there = [get(keys.id), get(keys.floor)]
    first = [put(keys.id, tokens.new()), put(keys.floor, Floor(0, 0).pack())]
    found = await client.txn([absent(keys.id)], first + there, there)
    identity, floor = (response.response_range.kvs for response in found.responses[-2:])
    return identity[0].value, Floor.unpack(floor[0].value)
