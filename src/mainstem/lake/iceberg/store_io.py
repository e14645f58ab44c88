"""PyIceberg's files in our object store: whole and durable once they are closed, or not there.

PyIceberg's own access to local files does not sync them; a table must not outlive its manifests.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from types import TracebackType
from typing import Any

from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile, OutputStream

from mainstem.client.loop import LoopThread
from mainstem.errors import NotFound
from mainstem.lake.store_access import open_named
from mainstem.ports.objectstore.port import ObjectStore, StoredObject


class StoreIO(FileIO):
    """`locations` is what the locations of objects start with, where the store has just the rest as their key."""

    def __init__(self, store: ObjectStore, locations: str, thread: LoopThread | None = None) -> None:
        super().__init__()
        self._store = store
        self._prefix = f"{locations}/"
        self._thread = thread or LoopThread("this store is closed")

    @classmethod
    def open(cls, url: str, locations: str) -> StoreIO:
        """Raises InvalidConfig."""
        return cls(open_named(url), locations)

    def close(self) -> None:
        self._thread.close()

    def new_input(self, location: str) -> InputFile:
        return _StoreInputFile(location, self)

    def new_output(self, location: str) -> OutputFile:
        return _StoreOutputFile(location, self)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        name = location if isinstance(location, str) else location.location
        self._thread.call(self._store.delete(self.key(name)))

    def key(self, location: str) -> str:
        return location.removeprefix(self._prefix)

    def location(self, key: str) -> str:
        return self._prefix + key

    def get(self, location: str) -> bytes:
        """Raises NotFound."""
        return self._thread.call(self._store.get(self.key(location)))

    def put(self, location: str, data: bytes) -> None:
        self._thread.call(self._store.put(self.key(location), data))

    def ranged(self, key: str, size: int) -> io.BufferedReader:
        """An object read piece by piece."""
        return io.BufferedReader(
            _RangedReader(lambda start, length: self._range(key, start, length), size), 64 << 10
        )

    def _range(self, key: str, start: int, length: int) -> bytes:
        return self._thread.call(self._store.get_ranges(key, [(start, length)]))[0]

    def listed(self, location: str) -> list[StoredObject]:
        """Objects whose location starts with this."""
        return self._thread.call(self._list(self.key(location)))

    async def _list(self, prefix: str) -> list[StoredObject]:
        return [found async for found in self._store.list(prefix)]


class _StoreInputFile(InputFile):
    def __init__(self, location: str, files: StoreIO) -> None:
        super().__init__(location)
        self._files = files

    def __len__(self) -> int:
        return len(self._files.get(self.location))

    def exists(self) -> bool:
        try:
            self._files.get(self.location)
        except NotFound:
            return False
        return True

    def open(self, seekable: bool = True) -> InputStream:
        return io.BytesIO(self._files.get(self.location))


class _StoreOutputFile(OutputFile):
    def __init__(self, location: str, files: StoreIO) -> None:
        super().__init__(location)
        self._files = files
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def exists(self) -> bool:
        return self.to_input_file().exists()

    def to_input_file(self) -> InputFile:
        return _StoreInputFile(self.location, self._files)

    def create(self, overwrite: bool = False) -> OutputStream:
        return _Upload(self._finish)

    def _finish(self, data: bytes) -> None:
        self._files.put(self.location, data)
        self._size = len(data)


class _Upload(io.BytesIO):
    """Bytes that are stored when it is closed; if what wrote them failed, they are not."""

    def __init__(self, finish: Callable[[bytes], None]) -> None:
        super().__init__()
        self._finish = finish

    def close(self) -> None:
        if not self.closed:
            data = self.getvalue()
            super().close()
            self._finish(data)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            super().close()
        else:
            self.close()


class _RangedReader(io.RawIOBase):
    def __init__(self, read: Callable[[int, int], bytes], size: int) -> None:
        self._read = read
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        data = self._read(self._at, min(len(view), max(0, self._size - self._at)))
        view[: len(data)] = data
        self._at += len(data)
        return len(data)
