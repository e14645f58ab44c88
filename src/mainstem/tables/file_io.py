"""PyIceberg's FileIO on our object store: a file appears complete and durable when it is closed.

PyIceberg's own local FileIO does not fsync; a table must not reference manifests that a crash can lose.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from types import TracebackType

from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile, OutputStream

from mainstem.errors import NotFound
from mainstem.ports.loop_thread import LoopThread
from mainstem.ports.objectstore.port import ObjectStore, StoredObject
from mainstem.ports.objectstore.range_file import RangeFile
from mainstem.tables.parts.store_access import open_named


class StoreIO(FileIO):
    """`locations` is the prefix of objects' locations in front of their keys in the store."""

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
        """An object as a seekable file that reads byte ranges."""
        return io.BufferedReader(
            RangeFile(lambda start, length: self._range(key, start, length), size), 64 << 10
        )

    def _range(self, key: str, start: int, length: int) -> bytes:
        return self._thread.call(self._store.get_ranges(key, [(start, length)]))[0]

    def list_objects(self, location: str) -> list[StoredObject]:
        """Objects whose location starts with this prefix."""
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
    """Buffers bytes and stores them on close. An exception in its `with` block discards them."""

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
