"""Blobs: the bytes of users' objects, as files of the object store.

Bytes are stored before the ledger refers to them, and deleted after it stops. A crash in between leaves a blob that
nothing refers to, which `collect` finds in the store.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass

from mainstem import events
from mainstem.errors import NotFound, described
from mainstem.ledger.buckets import BLOB_COMMIT_MS_MAX, BLOB_TIME_DIGITS, started_ms
from mainstem.log.log import Log
from mainstem.ports.clock import Clock, Random
from mainstem.ports.objectstore.local import LocalObjectStore
from mainstem.ports.objectstore.port import ObjectStore

BLOBS = "buckets/"  # the folder of all blobs
BLOB_DELETE_AFTER_MS = 60_000  # so that a reader that has begun can finish
BLOB_SWEEP_EVERY_MS = 3_600_000
READ_CHUNK_BYTES = 1 << 20

_FOLDER_DIGITS = 2  # of the end of an id, which is random: no folder gets large

_events = events.named("buckets")


@dataclass(frozen=True, slots=True)
class Span:
    """A range of bytes of one object of the store."""

    key: str
    start: int
    length: int


class OpenSpan:
    """A range of bytes of an open file. Close it."""

    __slots__ = ("fd", "length", "start")

    def __init__(self, fd: int, start: int, length: int) -> None:
        self.fd = fd
        self.start = start
        self.length = length

    def close(self) -> None:
        """Idempotent."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)


def blob_key(id: str) -> str:
    return f"{BLOBS}{id[-_FOLDER_DIGITS:]}/{id}"


class Blobs:
    def __init__(self, log: Log, store: ObjectStore, clock: Clock, random: Random) -> None:
        self._log = log
        self._store = store
        self._clock = clock
        self._random = random
        self._freed: deque[tuple[int, str]] = deque()  # when, and which; the oldest first
        self._swept_ms = clock.now_ms()

    def new_id(self) -> str:
        return f"{self._log.now_ms():0{BLOB_TIME_DIGITS}x}{self._random.token(8).hex()}"

    async def write(self, chunks: AsyncIterator[bytes]) -> tuple[str, int]:
        """Store the chunks as a new blob. Returns its id and size."""
        id = self.new_id()
        return id, await self._store.put_stream(blob_key(id), chunks)

    async def open_files(self, spans: Sequence[Span]) -> list[OpenSpan] | None:
        """The spans as ranges of local files; None: the store is not a local directory. Raises NotFound."""
        store = self._store
        if not isinstance(store, LocalObjectStore):
            return None
        return await asyncio.to_thread(_opened, store, spans)

    async def chunks(self, spans: Sequence[Span]) -> AsyncIterator[bytes]:
        """The bytes of the spans. Raises NotFound if they end early."""
        for span in spans:
            at, end = span.start, span.start + span.length
            while at < end:
                size = min(READ_CHUNK_BYTES, end - at)
                (chunk,) = await self._store.get_ranges(span.key, [(at, size)])
                if len(chunk) != size:
                    raise NotFound(f"the object {span.key!r} ends at byte {at + len(chunk)}")
                yield chunk
                at += size

    def free(self, blobs: Iterable[str]) -> None:
        """Nothing refers to these any more: delete them soon."""
        now = self._clock.now_ms()
        self._freed.extend((now, id) for id in blobs)

    async def collect(self) -> int:
        """Delete freed blobs and, once in a while, those that a crash left. Returns how many."""
        if self._log.store_copies:
            return 0
        now = self._clock.now_ms()
        if self._freed:
            await self._log.sync()  # the ledger's state must survive a crash
        deleted = 0
        while self._freed and self._freed[0][0] + BLOB_DELETE_AFTER_MS <= now and not self._log.store_copies:
            _, id = self._freed.popleft()
            if not self._log.ledger.buckets.knows(id):
                deleted += await self._delete(blob_key(id))
        if now - self._swept_ms >= BLOB_SWEEP_EVERY_MS:
            self._swept_ms = now
            deleted += await self.sweep()
        return deleted

    async def sweep(self) -> int:
        """Delete the blobs that nothing refers to, and that nothing can refer to any more."""
        deleted = 0
        async for found in self._store.list(BLOBS):
            id = found.key.rpartition("/")[2]
            if self._log.store_copies:
                break
            if self._log.ledger.buckets.knows(id):
                continue
            # A command that is applied after this moment has this ledger time or a later one.
            expired = _time_of(id) + BLOB_COMMIT_MS_MAX <= self._log.ledger.time_ms
            if expired and not self._log.ledger.buckets.knows(id):
                deleted += await self._delete(found.key)
        return deleted

    async def _delete(self, key: str) -> int:
        try:
            await self._store.delete(key)
        except Exception as error:  # noqa: BLE001 - the next sweep finds it
            _events.warning("blob not deleted", key=key, error=described(error))
            return 0
        return 1


def _time_of(id: str) -> int:
    try:
        return started_ms(id)
    except ValueError:
        return 0


def _opened(store: LocalObjectStore, spans: Sequence[Span]) -> list[OpenSpan] | None:
    found: list[OpenSpan] = []
    try:
        for span in spans:
            fd = store.open_file(span.key)
            if fd is None:
                return None
            found.append(OpenSpan(fd, span.start, span.length))
    except BaseException:
        for one in found:
            one.close()
        raise
    return found
