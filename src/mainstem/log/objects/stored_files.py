"""Objects of the store as Python files, for libraries that read where they like, on a thread."""

from __future__ import annotations

import asyncio

from mainstem import limits
from mainstem.errors import Unavailable
from mainstem.ports.objectstore.port import ObjectStore
from mainstem.ports.objectstore.range_file import RangeFile


class StoredFile(RangeFile):
    """One object, open for reading. Blocks: not for the loop's own thread. Raises NotFound, Unavailable."""

    def __init__(
        self, store: ObjectStore, loop: asyncio.AbstractEventLoop, key: str, size_bytes: int
    ) -> None:
        super().__init__(self._get_blocking, size_bytes)
        self._store = store
        self._loop = loop
        self._key = key

    def _get_blocking(self, start: int, length: int) -> bytes:
        getting = asyncio.run_coroutine_threadsafe(self._get(start, length), self._loop)
        try:
            return getting.result(limits.PART_READ_S)
        except TimeoutError:
            getting.cancel()
            raise Unavailable(f"the object store did not answer in {limits.PART_READ_S:.0f} s") from None

    async def _get(self, start: int, length: int) -> bytes:
        return (await self._store.get_ranges(self._key, [(start, length)]))[0]
