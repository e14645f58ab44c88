"""A block cache in front of an object store: memory first, then a local folder, then the store.

Objects never change, so a cached block stays valid; a put or delete through this store still removes it. A store can
be replaced by another, and the folder outlives that: its blocks carry an `origin`, and a caller that finds wrong bytes
calls `forget`.

Blocks have one size; an object's last block is shorter, which marks its end. Concurrent requests for one block share
one fetch, across event loops.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from mainstem import limits
from mainstem.errors import invariant
from mainstem.metrics import Metric
from mainstem.ports.commitlog.port import Buffer
from mainstem.ports.files import Files, OsFiles
from mainstem.ports.objectstore.blocks import BlockFolder
from mainstem.ports.objectstore.port import ObjectStore, StoredObject

BLOCK_BYTES = 1 * limits.MIB  # of the block cache
BLOCK_CACHE_MEMORY_BYTES = 64 * limits.MIB
BLOCK_CACHE_DISK_BYTES = 4 * limits.GIB

_BLOCKS_AT_ONCE = 16  # of one read


class Block(NamedTuple):
    """Which block of which object."""

    key: str
    number: int


@dataclass(slots=True)
class CacheCounts:
    """What the cache did since it was created."""

    memory_hits: int = 0
    disk_hits: int = 0
    misses: int = 0
    hit_bytes: int = 0
    fetched_bytes: int = 0


class CachedObjectStore:
    """An object store that caches range reads, up to a size."""

    def __init__(
        self,
        inner: ObjectStore,
        folder: Path | None = None,
        *,
        origin: bytes = b"",
        block_bytes: int = BLOCK_BYTES,
        memory_bytes: int = BLOCK_CACHE_MEMORY_BYTES,
        disk_bytes: int = BLOCK_CACHE_DISK_BYTES,
        files: Files | None = None,
    ) -> None:
        invariant(block_bytes > 0, "a block has at least one byte")
        self._inner = inner
        self._block_bytes = block_bytes
        self._memory = _MemoryBlocks(memory_bytes)
        self._disk = BlockFolder(files or OsFiles(), folder, disk_bytes, block_bytes) if folder else None
        self._origin = f"{origin.hex()}/" if origin else ""  # before every key, in the folder
        self._lock = threading.Lock()
        self._flights: dict[Block, Future[bytes]] = {}
        self._forgotten = 0  # puts and deletes so far: a fetch that began before one is not cached
        self.counts = CacheCounts()

    @property
    def memory_bytes(self) -> int:
        """Bytes of the blocks in memory."""
        return self._memory.held_bytes

    async def put(self, key: str, data: Buffer | Sequence[Buffer], *, if_absent: bool = False) -> bool:
        """As the store behind it."""
        stored = await self._inner.put(key, data, if_absent=if_absent)
        if stored and not if_absent:
            await self.forget(key)
        return stored

    async def put_stream(self, key: str, chunks: AsyncIterator[bytes]) -> int:
        """As the store behind it."""
        size = await self._inner.put_stream(key, chunks)
        await self.forget(key)
        return size

    async def get(self, key: str) -> bytes:
        """As the store behind it, without the cache: whole objects are read once. Raises NotFound."""
        return await self._inner.get(key)

    async def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Byte ranges as (start, length); a range past the end is cut short. Raises NotFound."""
        numbers = sorted({number for start, length in ranges for number in self._numbers(start, length)})
        if not numbers:
            return await self._inner.get_ranges(key, ranges)
        blocks: dict[int, bytes] = {}
        for at in range(0, len(numbers), _BLOCKS_AT_ONCE):
            some = numbers[at : at + _BLOCKS_AT_ONCE]
            found = await asyncio.gather(*(self._block(Block(key, number)) for number in some))
            blocks.update(zip(some, found, strict=True))
            if len(found[-1]) < self._block_bytes:
                break  # the object ends there
        return [self._cut(blocks, start, length) for start, length in ranges]

    async def head(self, key: str) -> StoredObject:
        """As the store behind it."""
        return await self._inner.head(key)

    async def delete(self, key: str) -> None:
        """As the store behind it."""
        await self._inner.delete(key)
        await self.forget(key)

    async def forget(self, key: str) -> None:
        """Remove every block of an object."""
        with self._lock:
            self._forgotten += 1
            self._memory.forget(key)
        if self._disk is not None:
            await asyncio.to_thread(self._disk.forget, self._origin + key)

    def metrics(self) -> list[Metric]:
        """Hits and misses by source, bytes read, bytes held."""
        counts = self.counts
        served = (
            ((("from", "memory"),), float(counts.memory_hits)),
            ((("from", "disk"),), float(counts.disk_hits)),
            ((("from", "store"),), float(counts.misses)),
        )
        moved = (
            ((("from", "cache"),), float(counts.hit_bytes)),
            ((("from", "store"),), float(counts.fetched_bytes)),
        )
        held = (
            ((("in", "memory"),), float(self._memory.held_bytes)),
            ((("in", "disk"),), float(self._disk.held_bytes if self._disk else 0)),
        )
        return [
            Metric("mainstem_block_cache_blocks_total", "counter", "Blocks read through the cache.", served),
            Metric("mainstem_block_cache_bytes_total", "counter", "Bytes read through the cache.", moved),
            Metric("mainstem_block_cache_held_bytes", "gauge", "Bytes in the cache.", held),
        ]

    def list(self, prefix: str = "") -> AsyncIterator[StoredObject]:
        """As the store behind it."""
        return self._inner.list(prefix)

    def _numbers(self, start: int, length: int) -> range:
        if length <= 0:
            return range(0)
        return range(start // self._block_bytes, (start + length - 1) // self._block_bytes + 1)

    def _cut(self, blocks: dict[int, bytes], start: int, length: int) -> bytes:
        pieces = []
        for number in self._numbers(start, length):
            origin = number * self._block_bytes
            pieces.append(blocks.get(number, b"")[max(0, start - origin) : start + length - origin])
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def _block(self, block: Block) -> bytes:
        """From memory, from a fetch that is running, from disk, or from the store."""
        while True:
            with self._lock:
                held = self._memory.get(block)
                if held is not None:
                    self.counts.memory_hits += 1
                    self.counts.hit_bytes += len(held)
                    return held
                flight = self._flights.get(block)
                if flight is None:
                    mine = self._flights[block] = Future[bytes]()
                    began = self._forgotten
            if flight is None:
                return await self._fly(block, mine, began)
            try:
                return await asyncio.wrap_future(flight)
            except _FetchCancelled:
                continue

    async def _fly(self, block: Block, flight: Future[bytes], began: int) -> bytes:
        flight.set_running_or_notify_cancel()  # a waiter that is cancelled does not cancel it
        try:
            content, kept = await self._fetch(block)
        except BaseException as error:
            with self._lock:
                del self._flights[block]
            # If this caller was cancelled, the waiters fetch again; an error of the store is theirs too.
            flight.set_exception(error if isinstance(error, Exception) else _FetchCancelled())
            raise
        with self._lock:
            del self._flights[block]
            if began == self._forgotten:
                self._memory.add(block, content)
        flight.set_result(content)
        if self._disk is not None and not kept and began == self._forgotten:
            await asyncio.to_thread(self._disk.store, self._origin + block.key, block.number, content)
        return content

    async def _fetch(self, block: Block) -> tuple[bytes, bool]:
        """The block, and whether it is already on disk."""
        if self._disk is not None:
            stored = await asyncio.to_thread(self._disk.load, self._origin + block.key, block.number)
            if stored is not None:
                self.counts.disk_hits += 1
                self.counts.hit_bytes += len(stored)
                return stored, True
        asked = (block.number * self._block_bytes, self._block_bytes)
        (content,) = await self._inner.get_ranges(block.key, [asked])
        self.counts.misses += 1
        self.counts.fetched_bytes += len(content)
        return content, False


class _FetchCancelled(Exception):
    """The caller that fetched the block was cancelled."""


class _MemoryBlocks:
    """Blocks in memory; the least recently used are dropped. The caller holds a lock."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._blocks: OrderedDict[Block, bytes] = OrderedDict()
        self.held_bytes = 0

    def get(self, block: Block) -> bytes | None:
        content = self._blocks.get(block)
        if content is not None:
            self._blocks.move_to_end(block)
        return content

    def add(self, block: Block, content: bytes) -> None:
        if len(content) > self._bytes_max:
            return
        self._drop(block)
        self._blocks[block] = content
        self.held_bytes += len(content)
        while self.held_bytes > self._bytes_max:
            self._drop(next(iter(self._blocks)))

    def forget(self, key: str) -> None:
        for block in [block for block in self._blocks if block.key == key]:
            self._drop(block)

    def _drop(self, block: Block) -> None:
        content = self._blocks.pop(block, None)
        if content is not None:
            self.held_bytes -= len(content)
