"""PyIceberg's FileIO on our object store: a file appears complete and durable when it is closed.

PyIceberg's own local FileIO does not fsync; a table must not reference manifests that a crash can lose.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from types import TracebackType

from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile, OutputStream

from mainstem.errors import NotFound
from mainstem.ports.objectstore.blocking import BlockingStore
from mainstem.ports.objectstore.port import StoredObject

_BUFFER_BYTES = 64 << 10


class StoreIO(FileIO):
    """`locations` is the prefix of objects' locations in front of their keys in the store. Blocks: for threads."""

    def __init__(self, store: BlockingStore, locations: str) -> None:
        super().__init__()
        self._store = store
        self._prefix = f"{locations}/"

    def new_input(self, location: str) -> InputFile:
        return _StoreInputFile(location, self)

    def new_output(self, location: str) -> OutputFile:
        return _StoreOutputFile(location, self)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        self._store.delete(self.key(location if isinstance(location, str) else location.location))

    def key(self, location: str) -> str:
        return location.removeprefix(self._prefix)

    def location(self, key: str) -> str:
        return self._prefix + key

    def get(self, location: str) -> bytes:
        """Raises NotFound."""
        return self._store.get(self.key(location))

    def put(self, location: str, data: bytes) -> None:
        self._store.put(self.key(location), data)

    def ranged(self, key: str, size: int) -> io.BufferedReader:
        """An object as a seekable file that reads byte ranges."""
        return io.BufferedReader(self._store.open(key, size), _BUFFER_BYTES)

    def list_objects(self, location: str) -> list[StoredObject]:
        """Objects whose location starts with this prefix."""
        return self._store.list_objects(self.key(location))


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
    """Buffers bytes and stores them on close. An exception in its `with` block discards them, and so does a writer that
    never closes it."""

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

    def __del__(self) -> None:
        # BytesIO would call `close`, which blocks, on the thread that collects garbage: maybe that of the store's loop.
        super().close()
