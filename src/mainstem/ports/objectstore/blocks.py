"""Cached blocks, one file each in a folder: `<hash of the key>-<number>.blk`. Version 1, little-endian.

| field      | type | meaning                                    |
|------------|------|--------------------------------------------|
| magic      | s8   | `MNSTMBLK`                                 |
| version    | u4   | 1                                          |
| crc        | u4   | CRC32C of all that follows                 |
| number     | u8   | which block of the object                  |
| size       | u4   | bytes of a whole block, as they were cut   |
| key_length | u4   |                                            |
| key        |      | of the object                              |
| content    |      | up to the end of the file                  |

Files are not synced. One that a crash tore fails its checksum, which counts as a miss.
"""

from __future__ import annotations

import hashlib
import struct
import threading
from collections import OrderedDict
from pathlib import Path

from crc32c import crc32c

from mainstem import events
from mainstem.errors import MainstemError
from mainstem.ports.files import Files, make_directories, read_up_to, write_all

HEADER = struct.Struct("<8sIIQII")
MAGIC = b"MNSTMBLK"
VERSION = 1
SUFFIX = ".blk"
_COVERED = 16  # the crc covers what comes after it
_TEMPORARY = ".tmp"
_log = events.named("cache")


class BlockFolder:
    """Blocks on disk; the least recently used are deleted. Thread-safe; one process owns the folder."""

    def __init__(self, files: Files, folder: Path, bytes_max: int, block_bytes: int) -> None:
        self._files = files
        self._folder = folder
        self._bytes_max = bytes_max
        self._block_bytes = block_bytes
        self._lock = threading.Lock()
        self._sizes: OrderedDict[str, int] = OrderedDict()  # by file name, the most recently used last
        self._failing = False
        self.held_bytes = 0
        self._survey()

    def load(self, key: str, number: int) -> bytes | None:
        """The block, if it is there, readable and intact."""
        name = _name(key, number)
        with self._lock:
            if name not in self._sizes:
                return None
            self._sizes.move_to_end(name)
        try:
            content = self._read(name, key, number)
        except (MainstemError, OSError) as error:
            _log.warning("cached block unreadable", file=str(self._folder / name), error=str(error))
            content = None
        if content is None:
            with self._lock:
                self._remove(name)
        return content

    def store(self, key: str, number: int, content: bytes) -> None:
        """Keep a block if the disk has room. A full disk does not fail the read."""
        name = _name(key, number)
        size = HEADER.size + len(key.encode()) + len(content)
        if size > self._bytes_max:
            return
        with self._lock:
            self._forget(name)
            while self.held_bytes + size > self._bytes_max:
                self._remove(next(iter(self._sizes)))
            try:
                self._write(name, key, number, content)
            except (MainstemError, OSError) as error:
                self._fails(error)
                return
            self._failing = False
            self._sizes[name] = size
            self.held_bytes += size

    def forget(self, key: str) -> None:
        """Drop every block of an object."""
        start = _stem(key)
        with self._lock:
            for name in [name for name in self._sizes if name.startswith(start)]:
                self._remove(name)

    def _survey(self) -> None:
        """Load what an earlier process left, oldest first."""
        make_directories(self._files, self._folder)
        found = []
        for name in self._files.listdir(self._folder):
            if name.endswith(_TEMPORARY):
                self._unlink(name)
            elif name.endswith(SUFFIX):
                facts = self._files.facts(self._folder / name)
                found.append((facts.modified_ms, name, facts.size_bytes))
        for _, name, size in sorted(found):
            self._sizes[name] = size
            self.held_bytes += size
        while self.held_bytes > self._bytes_max:
            self._remove(next(iter(self._sizes)))

    def _read(self, name: str, key: str, number: int) -> bytes | None:
        try:
            file = self._files.open(self._folder / name)
        except FileNotFoundError:  # deleted meanwhile
            return None
        try:
            whole = read_up_to(file, 0, file.size())
        finally:
            file.close()
        if len(whole) < HEADER.size:
            return None
        magic, version, crc, found_number, size, key_length = HEADER.unpack_from(whole)
        if magic != MAGIC or version != VERSION or crc32c(memoryview(whole)[_COVERED:]) != crc:
            return None
        start = HEADER.size + key_length
        ours = (
            found_number == number
            and size == self._block_bytes
            and whole[HEADER.size : start] == key.encode()
        )
        return bytes(memoryview(whole)[start:]) if ours else None

    def _write(self, name: str, key: str, number: int, content: bytes) -> None:
        named = key.encode()
        header = HEADER.pack(MAGIC, VERSION, 0, number, self._block_bytes, len(named))
        crc = crc32c(content, crc32c(named, crc32c(header[_COVERED:])))
        header = HEADER.pack(MAGIC, VERSION, crc, number, self._block_bytes, len(named))
        temporary = self._folder / (name + _TEMPORARY)
        file = self._files.create(temporary)
        try:
            write_all(file, [header, named, content], 0)
        except (MainstemError, OSError):
            self._unlink(temporary.name)
            raise
        finally:
            file.close()
        self._files.rename(temporary, self._folder / name)

    def _remove(self, name: str) -> None:
        if name in self._sizes:
            self._forget(name)
            self._unlink(name)

    def _forget(self, name: str) -> None:
        self.held_bytes -= self._sizes.pop(name, 0)

    def _unlink(self, name: str) -> None:
        """A file that cannot be deleted, as on a read-only disk, is found by the next process."""
        try:
            self._files.unlink(self._folder / name)
        except FileNotFoundError:
            return
        except (MainstemError, OSError) as error:
            self._fails(error)

    def _fails(self, error: Exception) -> None:
        """Log it once, until a write succeeds again."""
        if not self._failing:
            _log.warning("block cache not writable", folder=str(self._folder), error=str(error))
        self._failing = True


def _stem(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()[:32] + "-"


def _name(key: str, number: int) -> str:
    return f"{_stem(key)}{number}{SUFFIX}"
