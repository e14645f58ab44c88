"""An object store on a real S3 server on this machine, and the commit log in it.

The server (seaweedfs) uses the same cores as the benchmark, so the figures include both. The number of requests per GB
and their sizes are exact.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import uvloop

from mainstem import limits
from mainstem.ports.commitlog.port import Buffer
from mainstem.ports.commitlog.shared.bucket.log import BucketCommitLog
from mainstem.ports.commitlog.shared.bucket.references import BUCKET_REFERENCE_BYTES_MIN
from mainstem.ports.objectstore.cache import CachedObjectStore
from mainstem.ports.objectstore.open import open_store
from mainstem.ports.objectstore.port import ObjectStore, StoredObject
from tests.support.s3 import S3Server
from tools.bench.report import Figure, Report, measured

OBJECTS = 32
AT_ONCE = 4
SMALL_COMMITS = 400
LARGE_BYTES = 96 * limits.MIB
PACKED_BYTES, REFERRED_BYTES = 256 * limits.KIB, BUCKET_REFERENCE_BYTES_MIN  # of a commit
_BUCKET = "bench"


class CountedStore:
    """Passes calls on and counts them."""

    def __init__(self, inner: ObjectStore) -> None:
        self._inner = inner
        self.calls: Counter[str] = Counter()

    async def put(self, key: str, data: Buffer | Sequence[Buffer], *, if_absent: bool = False) -> bool:
        self.calls["put"] += 1
        return await self._inner.put(key, data, if_absent=if_absent)

    async def put_stream(self, key: str, chunks: AsyncIterator[bytes]) -> int:
        self.calls["put"] += 1
        return await self._inner.put_stream(key, chunks)

    async def head(self, key: str) -> StoredObject:
        self.calls["head"] += 1
        return await self._inner.head(key)

    async def get(self, key: str) -> bytes:
        self.calls["get"] += 1
        return await self._inner.get(key)

    async def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        self.calls["get"] += 1
        return await self._inner.get_ranges(key, ranges)

    def list(self, prefix: str = "") -> AsyncIterator[StoredObject]:
        self.calls["list"] += 1
        return self._inner.list(prefix)

    async def delete(self, key: str) -> None:
        self.calls["delete"] += 1
        await self._inner.delete(key)


def run(scratch: Path, report: Report) -> None:
    with S3Server(scratch / "s3") as server:
        server.make_bucket(_BUCKET)
        uvloop.run(_objects(server, report))
        uvloop.run(_small_commits(server, report))
        for size, sealed in ((PACKED_BYTES, "payload packed"), (REFERRED_BYTES, "payload left where it is")):
            uvloop.run(_large_commits(server, report, size, sealed))


async def _objects(server: S3Server, report: Report) -> None:
    store = open_store(server.url(_BUCKET, "objects"))
    content = os.urandom(limits.STORE_OBJECT_BYTES_MAX)
    turns = asyncio.Semaphore(AT_ONCE)

    async def put(number: int) -> None:
        async with turns:
            await store.put(f"object/{number}", content)

    async def get(number: int) -> None:
        async with turns:
            if len(await store.get(f"object/{number}")) != len(content):
                raise SystemExit("an object came back short")

    total = OBJECTS * len(content) / 1e6
    for name, call in (("put", put), ("get", get)):
        with measured() as span:
            await asyncio.gather(*map(call, range(OBJECTS)))
        what = f"S3 {name} of 8 MiB objects, {AT_ONCE} at once"
        report.add(Figure(what, total / span.wall_s, "MB/s", cpu_s=span.cpu_s))


async def _small_commits(server: S3Server, report: Report) -> None:
    store = CountedStore(open_store(server.url(_BUCKET, "small")))
    log = await BucketCommitLog.open(store)
    store.calls.clear()
    took: list[float] = []
    payload = os.urandom(1000)
    with measured() as span:
        for number in range(SMALL_COMMITS):
            started = time.perf_counter()
            await log.append(b"%d" % number, [payload])
            took.append(time.perf_counter() - started)
    await log.close()
    took.sort()
    note = f"{store.calls['put'] / SMALL_COMMITS:.2f} puts a commit"
    report.add(Figure("bucket log, 1 kB commits, one writer", SMALL_COMMITS / span.wall_s, "/s", note=note))
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        value = took[int(share * len(took))] * 1000
        report.add(Figure(f"… append {name}", value, "ms", lower_is_better=True))


async def _large_commits(server: S3Server, report: Report, size: int, sealed: str) -> None:
    plain = open_store(server.url(_BUCKET, f"large-{size}"))
    store = CountedStore(plain)
    log = await BucketCommitLog.open(store)
    payload = os.urandom(size)
    store.calls.clear()
    with measured() as span:
        for number in range(LARGE_BYTES // size):
            await log.append(b"%d" % number, [payload])
    note = f"{store.calls['put'] / LARGE_BYTES * 1e9:.0f} puts per GB"
    what = f"bucket log, {size // limits.KIB} KiB commits, one writer"
    report.add(Figure(what, LARGE_BYTES / 1e6 / span.wall_s, "MB/s", note=note))
    await log.roll()
    store.calls.clear()
    with measured() as span:
        for one in log.objects():
            await log.seal(one.number, b"index")
    per_gb = {call: count / LARGE_BYTES * 1e9 for call, count in store.calls.items()}
    note = f"{per_gb['put']:.0f} puts and {per_gb['get']:.0f} gets per GB"
    report.add(Figure(f"… sealed: {sealed}", LARGE_BYTES / 1e6 / span.wall_s, "MB/s", note=note))
    await log.close()
    await _cold_reads(plain, size, report)


async def _cold_reads(plain: ObjectStore, size: int, report: Report) -> None:
    """A reader that was not there when it was written, going through all of it a commit at a time."""
    store = CountedStore(plain)
    log = await BucketCommitLog.open(plain, reads=CachedObjectStore(store))
    with measured() as span:
        for one in log.objects():
            for start in range(0, one.size_bytes, size):
                await asyncio.to_thread(log.read, one.number, start, size)
    note = f"{store.calls['get'] / LARGE_BYTES * 1e9:.0f} gets per GB"
    report.add(
        Figure("… cold read through the block cache", LARGE_BYTES / 1e6 / span.wall_s, "MB/s", note=note)
    )
    await log.close()
