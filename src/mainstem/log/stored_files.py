"""Files of the object store as Python files, for libraries that read where and when they like, on a thread."""

from __future__ import annotations

import asyncio
import io

from mainstem import limits
from mainstem.errors import Unavailable
from mainstem.ports.objectstore.port import ObjectStore


class StoredFile(io.RawIOBase):
    """One object, open for reading. Blocks: not for the loop's own thread. Raises NotFound, Unavailable."""

    def __init__(
        self, store: ObjectStore, loop: asyncio.AbstractEventLoop, key: str, size_bytes: int
    ) -> None:
        self._store = store
        self._loop = loop
        self._key = key
        self._size = size_bytes
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        origin = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, origin + offset)
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int | None = -1, /) -> bytes:
        left = max(0, self._size - self._at)
        wanted = left if size is None or size < 0 else min(size, left)
        if not wanted:
            return b""
        getting = asyncio.run_coroutine_threadsafe(self._get(self._at, wanted), self._loop)
        try:
            found = getting.result(limits.PART_READ_S)
        except TimeoutError:
            getting.cancel()
            raise Unavailable(f"the object store did not answer in {limits.PART_READ_S:.0f} s") from None
        self._at += len(found)
        return found

    def readall(self) -> bytes:
        return self.read()

    async def _get(self, start: int, length: int) -> bytes:
        return (await self._store.get_ranges(self._key, [(start, length)]))[0]
