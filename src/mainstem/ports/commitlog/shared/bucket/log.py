"""The commit log in a bucket: an object store with conditional puts is all it needs.

keys.py lists the objects. Entry N is one object, and the writer that puts it first has position N.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from mainstem import limits
from mainstem.ports.clock import Clock, Random, SystemClock, SystemRandom
from mainstem.ports.commitlog.shared.bucket.checkpoints import BucketCheckpoints
from mainstem.ports.commitlog.shared.bucket.commits import BucketCommits, Wait
from mainstem.ports.commitlog.shared.bucket.entries import EntryHead
from mainstem.ports.commitlog.shared.bucket.identity import identify
from mainstem.ports.commitlog.shared.bucket.keys import LOG_FOLDER, BucketKeys, SealName
from mainstem.ports.commitlog.shared.bucket.reading import EntryReader
from mainstem.ports.commitlog.shared.bucket.seals import BucketObjects
from mainstem.ports.commitlog.shared.bucket.truncation import BucketTruncation
from mainstem.ports.commitlog.shared.core.freshness import Freshness
from mainstem.ports.commitlog.shared.core.log import SharedLog
from mainstem.ports.commitlog.shared.core.objects import ObjectTable
from mainstem.ports.loop_thread import LoopThread
from mainstem.ports.objectstore.cache import CachedObjectStore
from mainstem.ports.objectstore.port import ObjectStore

BUCKET_OBJECT_BYTES = 64 * limits.MIB  # payload after which a bucket log's object is sealed …
BUCKET_OBJECT_COMMITS_MAX = 4096  # … or this many commits, which bounds a search for one
BUCKET_ENTRIES_KEPT_MS = 3_600_000  # by the store's clock; far longer than a stalled put can last


class BucketCommitLog(SharedLog[EntryHead, SealName]):
    """Use `open`."""

    @classmethod
    async def open(
        cls,
        store: ObjectStore,
        *,
        folder: str = LOG_FOLDER,
        reads: ObjectStore | None = None,
        cache: Path | None = None,
        object_bytes: int = BUCKET_OBJECT_BYTES,
        checkpoints_kept: int = limits.CHECKPOINTS_KEPT,
        entries_kept_ms: int = BUCKET_ENTRIES_KEPT_MS,
        clock: Clock | None = None,
        random: Random | None = None,
        wait: Wait = asyncio.sleep,
        blocking: LoopThread | None = None,
    ) -> BucketCommitLog:
        """Join the log in the store, or create it. `cache`: a folder for cached blocks.

        `reads`, the same store behind something else, `wait` and `blocking` are for tests.

        Raises Unavailable, StoreRefused, LogDamaged or NewerVersion."""
        keys = BucketKeys(folder)
        random = random or SystemRandom()
        identity = await identify(store, keys, random)
        if cache is not None:
            # The bucket may hold another log than before, with other bytes under the same keys.
            reads = CachedObjectStore(store, cache, origin=identity)
        reads = reads or store
        number = int.from_bytes(identity[:8], "little")
        table: ObjectTable[EntryHead, SealName] = ObjectTable(object_bytes, BUCKET_OBJECT_COMMITS_MAX)
        freshness = Freshness(clock or SystemClock(), limits.BUCKET_STALE_S)
        reader = EntryReader(store, reads, keys, number)
        commits = BucketCommits(store, keys, reader, table, freshness, random, number, wait)
        objects = BucketObjects(store, reads, keys, reader, table)
        log = cls(
            identity,
            table,
            commits,
            objects,
            BucketCheckpoints(store, keys),
            BucketTruncation(store, keys, reader, commits, objects, entries_kept_ms),
            freshness,
            checkpoints_kept=checkpoints_kept,
            blocking=blocking,
            cache=reads if isinstance(reads, CachedObjectStore) else None,
        )
        await log._join()
        return log
