"""Objects as files of a local directory: complete and durable, or absent.

The parts of a key are folders, so a key cannot also be a folder of other keys. Files are written in `.staging`, which
no key can name, and then moved.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from mainstem.errors import DirectoryUnusable, InvalidName, NotFound
from mainstem.ports.commitlog.port import Buffer
from mainstem.ports.files import Files, OsFiles, make_directories, read_up_to, write_all, write_temporary
from mainstem.ports.objectstore.port import StoredObject, check_key

STAGING = ".staging"


class LocalObjectStore:
    """An object store in a local directory. Several processes may share it."""

    def __init__(self, directory: Path, *, files: Files | None = None) -> None:
        self._directory = directory
        self._files = files or OsFiles()
        self._numbers = itertools.count()
        self._owner = os.urandom(8).hex()  # so that two processes never use one staging name

    async def put(self, key: str, data: Buffer | Sequence[Buffer], *, if_absent: bool = False) -> bool:
        """Store an object durably and atomically. With `if_absent`: False if the key was taken."""
        path = self._path(key)
        buffers = [data] if isinstance(data, bytes | bytearray | memoryview) else data
        return await asyncio.to_thread(self._put, path, buffers, if_absent)

    async def put_stream(self, key: str, chunks: AsyncIterator[bytes]) -> int:
        """Store an object durably and atomically from chunks. Returns its size."""
        path = self._path(key)
        staged = await asyncio.to_thread(self._new_staged)
        try:
            file = await asyncio.to_thread(self._files.create, staged)
            try:
                size = 0
                async for chunk in chunks:
                    size = await asyncio.to_thread(write_all, file, [chunk], size)
                await asyncio.to_thread(file.fdatasync)
            finally:
                file.close()
        except BaseException:
            await asyncio.to_thread(self._discard, staged)
            raise
        await asyncio.to_thread(self._publish, staged, path, False)
        return size

    async def get(self, key: str) -> bytes:
        """Raises NotFound."""
        return await asyncio.to_thread(self._get, key, self._path(key))

    async def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Byte ranges as (start, length); a range past the end is cut short. Raises NotFound."""
        return await asyncio.to_thread(self._get_ranges, key, self._path(key), ranges)

    async def head(self, key: str) -> StoredObject:
        """Raises NotFound."""
        return await asyncio.to_thread(self._found, key, self._path(key))

    async def delete(self, key: str) -> None:
        """Idempotent."""
        await asyncio.to_thread(self._delete, self._path(key))

    def _put(self, path: Path, buffers: Sequence[Buffer], if_absent: bool) -> bool:
        staged = self._new_staged()
        write_temporary(self._files, staged, buffers)
        return self._publish(staged, path, if_absent)

    def _new_staged(self) -> Path:
        staging = self._directory / STAGING
        make_directories(self._files, staging)
        return staging / f"{self._owner}-{next(self._numbers)}"

    async def staged_files(self) -> list[tuple[Path, int]]:
        """Files that are not complete yet, or that a killed process left: each with the time it last changed."""
        return await asyncio.to_thread(self._staged_files)

    def _staged_files(self) -> list[tuple[Path, int]]:
        staging = self._directory / STAGING
        found = []
        for name in self._files.listdir(staging) if self._files.exists(staging) else ():
            with contextlib.suppress(FileNotFoundError):
                found.append((staging / name, self._files.facts(staging / name).modified_ms))
        return found

    async def discard(self, staged: Path) -> None:
        """Delete a file that a killed process left."""
        await asyncio.to_thread(self._discard, staged)

    def _discard(self, staged: Path) -> None:
        if self._files.exists(staged):
            self._files.unlink(staged)

    def _publish(self, staged: Path, path: Path, if_absent: bool) -> bool:
        """Move a complete file to its place."""
        try:
            make_directories(self._files, path.parent)
            if if_absent:
                self._files.link(staged, path)
            else:
                self._files.rename(staged, path)
        except FileExistsError:
            return False
        except DirectoryUnusable as error:
            raise InvalidName(
                f"{path} cannot be both an object and a folder of objects: choose another key"
            ) from error
        finally:
            self._discard(staged)
        self._files.fsync_dir(path.parent)
        return True

    def open_file(self, key: str) -> int | None:
        """A descriptor of the object's file, for sendfile; the caller closes it. None: it is not a file of the system.

        Blocks. Raises NotFound."""
        if not isinstance(self._files, OsFiles):
            return None
        try:
            return os.open(self._path(key), os.O_RDONLY | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise NotFound(f"no object {key!r}") from error

    def _get(self, key: str, path: Path) -> bytes:
        size = self._found(key, path).size_bytes
        return self._get_ranges(key, path, [(0, size)])[0]

    def _get_ranges(self, key: str, path: Path, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        self._found(key, path)
        try:
            file = self._files.open(path)
        except FileNotFoundError as error:
            raise NotFound(f"no object {key!r}") from error
        try:
            size = file.size()
            return [
                bytes(read_up_to(file, start, max(0, min(length, size - start)))) for start, length in ranges
            ]
        finally:
            file.close()

    def _delete(self, path: Path) -> None:
        try:
            self._files.unlink(path)
        except (FileNotFoundError, DirectoryUnusable):
            return
        self._files.fsync_dir(path.parent)

    def _inside(self, folder: str) -> list[str]:
        """Keys directly in a folder, by key bytes; those of folders end in "/"."""
        directory = self._directory / folder
        try:
            if not self._files.facts(directory).is_directory:
                return []
        except (FileNotFoundError, DirectoryUnusable):
            return []
        keys = []
        for name in self._files.listdir(directory):
            if not name.startswith("."):
                is_folder = self._files.facts(directory / name).is_directory
                keys.append(f"{folder}{name}/" if is_folder else f"{folder}{name}")
        return sorted(keys, key=str.encode)

    def _facts(self, key: str) -> StoredObject | None:
        try:
            found = self._files.facts(self._directory / key)
        except FileNotFoundError:  # deleted since it was listed
            return None
        return StoredObject(key, found.size_bytes, found.modified_ms)

    def _found(self, key: str, path: Path) -> StoredObject:
        try:
            found = self._files.facts(path)
        except (FileNotFoundError, DirectoryUnusable) as error:
            raise NotFound(f"no object {key!r}") from error
        if found.is_directory:
            raise NotFound(f"no object {key!r}")
        return StoredObject(key, found.size_bytes, found.modified_ms)

    def _path(self, key: str) -> Path:
        return self._directory.joinpath(*check_key(key))

    async def list(self, prefix: str = "") -> AsyncIterator[StoredObject]:
        """Objects whose key starts with `prefix`, by key bytes."""
        folders = [_folder_of(prefix)]  # keys of folders yet to list, and of objects; the next one is last
        while folders:
            key = folders.pop()
            if key and not key.endswith("/"):
                found = await asyncio.to_thread(self._facts, key)
                if found is not None:
                    yield found
                continue
            inside = await asyncio.to_thread(self._inside, key)
            folders += [
                name for name in reversed(inside) if name.startswith(prefix) or _leads_to(name, prefix)
            ]


def _folder_of(prefix: str) -> str:
    """The folder that holds every key with this prefix: a store may have many others."""
    folder = prefix[: prefix.rfind("/") + 1]
    hidden = any(not name or name.startswith(".") for name in folder.split("/")[:-1])
    return "" if hidden else folder


def _leads_to(folder: str, prefix: str) -> bool:
    return folder.endswith("/") and prefix.startswith(folder)
