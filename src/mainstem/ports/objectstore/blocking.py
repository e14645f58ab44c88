"""An object store for threads, which cannot await."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, TypeVar

from mainstem.errors import Unavailable
from mainstem.ports.commitlog.port import Buffer
from mainstem.ports.loop_thread import LoopThread
from mainstem.ports.objectstore.open import open_store, with_own_options
from mainstem.ports.objectstore.port import ObjectStore, StoredObject
from mainstem.ports.objectstore.range_file import RangeFile

T = TypeVar("T")
Range = tuple[int, int]  # start and length

_STORES_CACHED = 8


class BlockingStore:
    """Every call blocks until `loop` has run it, so the loop's own thread must not use it. Raises the store's errors,
    and Unavailable after `timeout_s`."""

    def __init__(
        self, store: ObjectStore, loop: asyncio.AbstractEventLoop, *, timeout_s: float | None = None
    ) -> None:
        self._store = store
        self._loop = loop
        self._timeout_s = timeout_s

    def get(self, key: str) -> bytes:
        """Raises NotFound."""
        return self._call(self._store.get(key))

    def get_ranges(self, wanted: Mapping[str, Sequence[Range]]) -> list[list[bytes]]:
        """The ranges of several objects, in the order of their keys. Raises NotFound."""
        return self._call(self._get_ranges(wanted))

    async def _get_ranges(self, wanted: Mapping[str, Sequence[Range]]) -> list[list[bytes]]:
        return await asyncio.gather(*(self._store.get_ranges(key, ranges) for key, ranges in wanted.items()))

    def open(self, key: str, size: int) -> RangeFile:
        """An object of `size` bytes as a seekable file."""
        return RangeFile(lambda start, length: self.get_ranges({key: [(start, length)]})[0][0], size)

    def put(self, key: str, data: Buffer) -> None:
        self._call(self._store.put(key, data))

    def delete(self, key: str) -> None:
        self._call(self._store.delete(key))

    def list_objects(self, prefix: str) -> list[StoredObject]:
        return self._call(self._list(prefix))

    async def _list(self, prefix: str) -> list[StoredObject]:
        return [found async for found in self._store.list(prefix)]

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        call = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return call.result(self._timeout_s)
        except TimeoutError:
            if call.done():  # the store's own error
                raise
            call.cancel()
            raise Unavailable(f"the object store did not answer in {self._timeout_s:.0f} s") from None


def open_blocking(url: str) -> BlockingStore:
    """Open the store of a URL without secrets, with this process's own credentials. Raises InvalidConfig."""
    return _open_cached(with_own_options(url, os.environ))


@lru_cache(_STORES_CACHED)
def _open_cached(url: str) -> BlockingStore:
    """Cached, because a new client opens new connections."""
    return BlockingStore(open_store(url), shared_loop())


@cache
def shared_loop() -> asyncio.AbstractEventLoop:
    """One loop for all stores of a process that has none of its own. Its thread ends with the process."""
    return LoopThread("this process is ending", name="mainstem-stores").loop
