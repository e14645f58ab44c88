"""Reading parts: encode rows of Parquet files as the batches that readers of the log expect, off the loop."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from mainstem import extras, limits
from mainstem.api.lake import DataFile, Part
from mainstem.errors import MainstemError, RecordsLost, Unavailable
from mainstem.log.read.part_cache import PartCache, PartChunk, PartKey
from mainstem.log.write.delivery import LEADER_EPOCH
from mainstem.ports.objectstore.blocking import BlockingStore
from mainstem.ports.objectstore.port import ObjectStore
from mainstem.records.header import seal, stamp_lone, walk

if TYPE_CHECKING:
    import pyarrow as pa

    from mainstem.log.read.part_rows import PartRows
    from mainstem.records.parquet import RowFile

PART_CHUNKS_AHEAD = 2  # read-ahead for a reader that reads a part in order
PART_CACHE_BYTES = 64 * limits.MIB  # cache of batches encoded from rows
PART_CURSORS_BYTES = 192 * limits.MIB  # row groups of files that readers are in the middle of
PART_CURSORS_MAX = 64
PART_THREADS = 2
PART_READ_S = 60.0  # one read of the object store


def key_of(stream: int, part: Part) -> PartKey:
    return stream, part.base, part.end, part.generation


class PartReader:
    """Keeps files open for sequential readers: opening a file again costs reading a row group."""

    def __init__(self, store: ObjectStore | None) -> None:
        self._store = store
        self._cache = PartCache(PART_CACHE_BYTES)
        self._cursors: OrderedDict[tuple[PartKey, int], PartRows] = OrderedDict()  # by their next offset
        self._ahead: dict[tuple[PartKey, int], asyncio.Task[None]] = {}
        self._threads: ThreadPoolExecutor | None = None
        self._closed = False

    @property
    def cached_bytes(self) -> int:
        return self._cache.held_bytes

    @property
    def open_cursors(self) -> int:
        """How many files are open for sequential readers."""
        return len(self._cursors)

    @property
    def reads_ahead(self) -> list[asyncio.Task[None]]:
        """Reads in progress that no reader has asked for yet."""
        return list(self._ahead.values())

    def cached(self, stream: int, part: Part, offset: int, end: int) -> PartChunk | None:
        """The cached chunk of the part at `offset`, if it does not go past `end`."""
        key = key_of(stream, part)
        found = self._cache.get(key, offset)
        if found is None or found.end > end:
            return None
        self._read_ahead(key, part, found.end, end)
        return found

    async def read(self, stream: int, part: Part, offset: int, max_bytes: int, end: int) -> list[PartChunk]:
        """The part from `offset` to `end`: at least one chunk, at most about `max_bytes` in all.

        Raises RecordsLost, also for files that were deleted since the caller looked up the part; Unavailable."""
        key = key_of(stream, part)
        ahead = self._ahead.get((key, offset))
        if ahead is not None:
            await asyncio.wait((ahead,))
        found = self.cached(stream, part, offset, end)
        if found is not None:
            return [found]
        reads_on = (key, offset) in self._cursors
        chunks = await self._read(key, part, offset, min(max_bytes, 2 * limits.PART_CHUNK_BYTES), end)
        if reads_on:
            self._read_ahead(key, part, chunks[-1].end, end)
        return chunks

    def _read_ahead(self, key: PartKey, part: Part, offset: int, end: int) -> None:
        """Read the next chunks before they are requested, if a file is open at their offset."""
        for _ in range(PART_CHUNKS_AHEAD - 1):
            ready = self._cache.peek(key, offset)
            if ready is None:
                break
            offset = ready.end
        at = (key, offset)
        if offset >= min(end, part.end) or at not in self._cursors or at in self._ahead or self._closed:
            return
        task = asyncio.get_running_loop().create_task(self._read_quietly(key, part, offset, end))
        self._ahead[at] = task
        task.add_done_callback(lambda _: self._ahead.pop(at, None))

    async def _read_quietly(self, key: PartKey, part: Part, offset: int, end: int) -> None:
        with contextlib.suppress(MainstemError):  # a reader at this offset gets the same error
            await self._read(key, part, offset, 1, end)

    async def _read(self, key: PartKey, part: Part, offset: int, max_bytes: int, end: int) -> list[PartChunk]:
        loop = asyncio.get_running_loop()
        cursor = self._cursors.pop((key, offset), None) or await self._cursor(part, offset, loop)
        try:
            chunks = await loop.run_in_executor(self._executor(), _read, cursor, offset, max_bytes, end)
        except Exception:
            cursor.close()
            raise
        for chunk in chunks:
            self._cache.put(key, chunk)
        if chunks[-1].end < part.end and not self._closed:
            self._keep(key, chunks[-1].end, cursor)
        else:
            cursor.close()
        return chunks

    def close(self) -> None:
        """Close files and threads. A read in progress may fail."""
        self._closed = True
        for task in list(self._ahead.values()):
            task.cancel()
        while self._cursors:
            self._cursors.popitem()[1].close()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    async def _cursor(self, part: Part, offset: int, loop: asyncio.AbstractEventLoop) -> PartRows:
        if self._store is None:
            raise Unavailable("the log was opened without its object store")
        store = BlockingStore(self._store, loop, timeout_s=PART_READ_S)
        open_file = functools.partial(_open, store)
        return await loop.run_in_executor(self._executor(), _start, part, offset, open_file)

    def _executor(self) -> ThreadPoolExecutor:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(PART_THREADS, "mainstem-parts")
        return self._threads

    def _keep(self, key: PartKey, offset: int, cursor: PartRows) -> None:
        before = self._cursors.pop((key, offset), None)
        if before is not None:
            before.close()
        self._cursors[key, offset] = cursor
        held = sum(one.held_bytes for one in self._cursors.values())
        while len(self._cursors) > 1 and (held > PART_CURSORS_BYTES or len(self._cursors) > PART_CURSORS_MAX):
            _, oldest = self._cursors.popitem(last=False)
            held -= oldest.held_bytes
            oldest.close()


def _start(part: Part, offset: int, open_file: functools.partial[RowFile]) -> PartRows:
    extras.require("lake", "reading records that are in Parquet", "pyarrow")
    from mainstem.log.read.part_rows import PartRows  # imports Arrow, so not before the first read of a part

    return PartRows(part, offset, open_file)


def _open(store: BlockingStore, file: DataFile) -> RowFile:
    from mainstem.records.parquet import RowFile

    return RowFile(store.open(file.key, file.bytes))


def _read(cursor: PartRows, offset: int, max_bytes: int, end: int) -> list[PartChunk]:
    chunks: list[PartChunk] = []
    size = 0
    at = offset
    while at < min(end, cursor.part.end) and (not chunks or size < max_bytes):
        try:
            rows = cursor.next(end)
        except RecordsLost:
            if chunks:
                break  # return the intact chunks first; the next read raises
            raise
        chunk = PartChunk(at, rows.reach, () if rows.table is None else _batches(rows.table, rows.reach))
        chunks.append(chunk)
        size += chunk.bytes
        at = rows.reach
    return chunks


def _batches(rows: pa.Table, reach: int) -> tuple[memoryview, ...]:
    from mainstem.records.rebatching import encode_rows

    batches = encode_rows(rows)
    for batch in batches:
        _stamp_epoch(batch)
    if batches:
        batches[-1] = _stretched(batches[-1], reach)
    return tuple(memoryview(batch).toreadonly() for batch in batches)


def _stamp_epoch(batch: bytearray) -> None:
    stamp_lone(batch, next(walk(batch)).base_offset, LEADER_EPOCH)


def _stretched(batch: bytearray, reach: int) -> bytearray:
    """The batch, extended over the empty offsets up to `reach`. Kafka consumers continue after the last offset of a
    batch, and would wait at such a gap forever."""
    header = next(walk(batch))
    delta = reach - 1 - header.base_offset
    if delta <= header.last_offset_delta or delta >= 1 << 31:
        return batch
    return seal(
        batch,
        base_offset=header.base_offset,
        leader_epoch=header.leader_epoch,
        attributes=header.attributes,
        last_offset_delta=delta,
        base_timestamp=header.base_timestamp,
        max_timestamp=header.max_timestamp,
        producer=header.producer,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        count=header.count,
    )
