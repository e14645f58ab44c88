"""The commit log in etcd: one key a commit. Small payloads are in etcd until their object is sealed, large ones in an
object store. keys.py lists both.
"""

from __future__ import annotations

import asyncio
import math

from mainstem import limits
from mainstem.errors import InvalidConfig, NotFound
from mainstem.ports.clock import Clock, Random, SystemClock, SystemRandom
from mainstem.ports.commitlog.shared.bucket.identity import OF_ETCD, pack, unpack
from mainstem.ports.commitlog.shared.bucket.keys import LOG_FOLDER, BucketKeys
from mainstem.ports.commitlog.shared.core.backend import Floor
from mainstem.ports.commitlog.shared.core.freshness import Freshness
from mainstem.ports.commitlog.shared.core.log import SharedLog
from mainstem.ports.commitlog.shared.core.objects import ObjectTable
from mainstem.ports.commitlog.shared.etcd.checkpoints import EtcdCheckpoints
from mainstem.ports.commitlog.shared.etcd.client import Connect, EtcdClient, EtcdOptions, absent, get, put
from mainstem.ports.commitlog.shared.etcd.commits import (
    ETCD_POSITIONS_TRIED,
    EtcdCommits,
    TokenSource,
    take_epoch,
)
from mainstem.ports.commitlog.shared.etcd.inline import ETCD_INLINE_BYTES_MAX, InlinePayloads, ReadingClient
from mainstem.ports.commitlog.shared.etcd.keys import EtcdKeys, StoreKeys
from mainstem.ports.commitlog.shared.etcd.objects import EtcdObjects
from mainstem.ports.commitlog.shared.etcd.payloads import Payloads
from mainstem.ports.commitlog.shared.etcd.records import CommitRecord, Seal, pack_floor
from mainstem.ports.loop_thread import LoopThread
from mainstem.ports.objectstore.port import ObjectStore

ETCD_OBJECT_COMMITS_MAX = 16 * limits.KIB  # commits in one object, which bounds the memory for an open one
ETCD_RETENTION_MS = 3_600_000  # of commits after their object is sealed: longer than any retry or lag

__all__ = ["EtcdCommitLog", "EtcdOptions", "own_store"]


class EtcdCommitLog(SharedLog[CommitRecord, Seal]):
    """Use `open`."""

    epoch: int  # of this broker; 0 if the log was opened for reading
    _client: EtcdClient
    _keys: EtcdKeys
    _tokens: TokenSource
    _etcd_objects: EtcdObjects
    _reads: ReadingClient

    @classmethod
    async def open(
        cls,
        options: EtcdOptions,
        store: ObjectStore,
        *,
        broker: str | None,
        prefix: str = "mainstem/",
        folder: str = LOG_FOLDER,
        object_bytes: int = limits.SEGMENT_BYTES,
        checkpoints_kept: int = limits.CHECKPOINTS_KEPT,
        retention_ms: int = ETCD_RETENTION_MS,
        inline_bytes: int = ETCD_INLINE_BYTES_MAX,
        positions_tried: int = ETCD_POSITIONS_TRIED,
        clock: Clock | None = None,
        random: Random | None = None,
        connect: Connect | None = None,
        blocking: LoopThread | None = None,
    ) -> EtcdCommitLog:
        """Join the log as `broker`, and fence earlier processes of that name; None: for reading. Creates the log.

        `inline_bytes`: a larger payload is uploaded to the store before its commit; a smaller one is in etcd first.
        `positions_tried`: by one transaction, before the caller learns of the others' commits.
        `connect` and `blocking` are for tests that replace the network and threads.
        Raises Unavailable, LogDamaged or NewerVersion."""
        clock = clock or SystemClock()
        tokens = TokenSource(clock, random or SystemRandom())
        keys, names = EtcdKeys.under(prefix), StoreKeys(folder)
        client = EtcdClient(options, connect)
        try:
            identity = await _identify(client, keys, tokens)
            guard = await take_epoch(client, keys, broker, tokens.new()) if broker is not None else None
            table: ObjectTable[CommitRecord, Seal] = ObjectTable(object_bytes, ETCD_OBJECT_COMMITS_MAX)
            payloads = Payloads(store, names)
            commits = EtcdCommits(
                client,
                keys,
                payloads,
                table,
                tokens,
                broker=broker,
                guard=guard,
                log=int.from_bytes(identity[:8], "little"),
                retry_s=options.retry_s,
                inline_bytes=inline_bytes,
                positions_tried=positions_tried,
            )
            reads = ReadingClient(options, connect)
            checkpoints = EtcdCheckpoints(client, keys, store, names)
            objects = EtcdObjects(
                client,
                keys,
                payloads,
                InlinePayloads(keys),
                reads,
                commits,
                checkpoints,
                table,
                tokens,
                retention_ms,
            )
            log = cls(
                identity,
                table,
                commits,
                objects,
                checkpoints,
                objects,
                Freshness(clock, math.inf),  # etcd checks the floor in the transaction itself
                checkpoints_kept=checkpoints_kept,
                blocking=blocking,
            )
            log.epoch = guard.epoch if guard else 0
            log._client, log._keys, log._tokens, log._etcd_objects = client, keys, tokens, objects
            log._reads = reads
            if guard is not None:
                await commits.learn_last()
            await log._join()
        except BaseException:
            await client.close()
            raise
        return log

    async def collect_orphans(self, older_than_ms: int = limits.PAYLOAD_ORPHAN_MS) -> int:
        """Delete uploads of that age, by the store's clock, that never became commits. Returns how many."""
        self._check_open()
        return await self._etcd_objects.collect_orphans(older_than_ms)

    async def close(self) -> None:
        if self._reads.is_open and not self._closed:
            await asyncio.to_thread(self._blocking.call, self._reads.close())
        await super().close()

    async def expel(self, broker: str) -> None:
        """No process can write as that broker until one joins again."""
        self._check_open()
        await take_epoch(self._client, self._keys, broker, self._tokens.new())


async def _identify(client: EtcdClient, keys: EtcdKeys, tokens: TokenSource) -> bytes:
    """The log's id. The first process to come makes it, and the floor."""
    first = [put(keys.id, tokens.new()), put(keys.floor, pack_floor(Floor()))]
    found = await client.txn([absent(keys.id)], [*first, get(keys.id)], [get(keys.id)])
    identity: bytes = found.responses[-1].response_range.kvs[0].value
    return identity


async def own_store(store: ObjectStore, log: bytes, *, folder: str = LOG_FOLDER) -> None:
    """Record in the store that it holds the payloads of this log. Raises InvalidConfig if it holds another's.

    Otherwise two logs could share one prefix, through an etcd that was set up again or a broker without its `--etcd`.
    Each would delete what the other needs, as uploads that none of its own commits names."""
    key = BucketKeys(folder).id
    try:
        stored = await store.get(key)
    except NotFound:
        await store.put(
            key, pack(log, OF_ETCD)
        )  # unconditional: this log works where conditional puts do not
        stored = await store.get(key)
    if unpack(stored, OF_ETCD) != log:
        raise InvalidConfig(
            "this store holds the payloads of a log in another etcd: name that one with --etcd, restore it if it was "
            "lost, or name another --store"
        )
