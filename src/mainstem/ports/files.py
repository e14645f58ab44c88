"""The file port: every call the local backends make to the operating system.

Tests replace it with `tests.support.files.SimFiles`, which can crash, tear writes and run out of space. Errors that
a user can act on are raised as Mainstem's own; the rest stay `OSError`.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from mainstem.errors import (
    DirectoryLocked,
    DirectoryUnusable,
    MainstemError,
    NoDescriptors,
    NoSpace,
    invariant,
)
from mainstem.ports.commitlog.port import Buffer

IOVECS_MAX = 1024  # buffers in one pwritev, the kernel's IOV_MAX

_NO_SPACE = {errno.ENOSPC, errno.EDQUOT}
_NO_DESCRIPTORS = {errno.EMFILE, errno.ENFILE}
_NO_DIRECTORY_LOCKS = {errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.EOPNOTSUPP}
_UNUSABLE = {
    errno.EACCES: "give the user that runs Mainstem read and write access, or choose another directory",
    errno.EPERM: "give the user that runs Mainstem read and write access, or choose another directory",
    errno.ENOTDIR: "a part of this path is a file: move it away, or choose another directory",
    errno.EISDIR: "there is a directory where a file should be: move it away, or choose another directory",
    errno.EROFS: "the file system is mounted read-only: mount it writable, or choose another directory",
}


@dataclass(frozen=True, slots=True)
class FileStatus:
    """What the file system says about a path."""

    size_bytes: int
    modified_ms: int
    is_directory: bool


class File(Protocol):
    """One open file. Safe to use from several threads, except for `close`."""

    @property
    def path(self) -> Path: ...

    @property
    def descriptor(self) -> int | None:
        """The operating system's number for it; None for a file that a test simulates."""
        ...

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> int:
        """Write at most `IOVECS_MAX` buffers. Returns how many bytes were written: maybe not all."""
        ...

    def preadv(self, buffer: bytearray | memoryview, offset: int) -> int:
        """Fill the buffer from `offset`. Returns how many bytes were read: 0 at the end of the file."""
        ...

    def fdatasync(self) -> None: ...

    def ftruncate(self, size: int) -> None: ...

    def posix_fallocate(self, offset: int, length: int) -> None: ...

    def size(self) -> int: ...

    def in_place(self) -> bool:
        """Whether the path still names this file: nobody deleted, moved or replaced it."""
        ...

    def close(self) -> None:
        """Idempotent."""
        ...


class Lock(Protocol):
    def release(self) -> None:
        """Idempotent."""
        ...


class Files(Protocol):
    """A file system. Creating, renaming and unlinking are durable once `fsync_dir` of the parent returned."""

    def create(self, path: Path) -> File:
        """A new empty file, readable and writable. Truncates an existing one."""
        ...

    def open(self, path: Path, *, write: bool = False) -> File:
        """An existing file. Raises FileNotFoundError."""
        ...

    def rename(self, source: Path, target: Path) -> None:
        """Replace `target` atomically."""
        ...

    def link(self, source: Path, target: Path) -> None:
        """A second name for a file. Raises FileExistsError."""
        ...

    def unlink(self, path: Path) -> None:
        """Raises FileNotFoundError."""
        ...

    def mkdir(self, path: Path) -> None:
        """Raises FileExistsError."""
        ...

    def fsync_dir(self, path: Path) -> None: ...

    def listdir(self, path: Path) -> list[str]: ...

    def exists(self, path: Path) -> bool: ...

    def facts(self, path: Path) -> FileStatus:
        """Raises FileNotFoundError."""
        ...

    def lock(self, path: Path) -> Lock:
        """Hold `path` until released or until this process ends. Raises DirectoryLocked."""
        ...


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Raise what a user can act on as Mainstem's own error, with the path and what to do."""
    try:
        yield
    except OSError as error:
        _explain(path, error)
        raise


def _explain(path: Path, error: OSError) -> None:
    """Raises Mainstem's own error, if there is one for this."""
    if error.errno in _NO_SPACE:
        raise NoSpace(f"no space left for {path}: free some; writes then resume by themselves") from error
    if error.errno in _NO_DESCRIPTORS:
        raise NoDescriptors(
            f"no free file descriptor for {path}: writes resume when one is; raise the limit of open files "
            "(ulimit -n, LimitNOFILE)"
        ) from error
    advice = _UNUSABLE.get(error.errno or 0)
    if advice:
        raise DirectoryUnusable(f"cannot use {path} ({error.strerror}): {advice}") from error


class OsFile:
    """A file of the operating system. Python retries calls that a signal interrupts (PEP 475)."""

    __slots__ = ("_fd", "_identity", "_name", "_path")

    def __init__(self, path: Path, fd: int) -> None:
        self._path = path
        self._name = str(path)
        self._fd = fd
        self._identity: tuple[int, int] | None = None  # inode and device, which stay its own while it is open

    @property
    def path(self) -> Path:
        return self._path

    @property
    def descriptor(self) -> int | None:
        return self._fd

    # The calls of every commit: a context manager would cost as much as a small write.

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> int:
        try:
            return os.pwritev(self._fd, buffers, offset)
        except OSError as error:
            _explain(self._path, error)
            raise

    def preadv(self, buffer: bytearray | memoryview, offset: int) -> int:
        with _explained(self._path):
            return os.preadv(self._fd, [buffer], offset)

    def fdatasync(self) -> None:
        try:
            os.fdatasync(self._fd)
        except OSError as error:
            _explain(self._path, error)
            raise

    def ftruncate(self, size: int) -> None:
        with _explained(self._path):
            os.ftruncate(self._fd, size)

    def posix_fallocate(self, offset: int, length: int) -> None:
        with _explained(self._path):
            os.posix_fallocate(self._fd, offset, length)

    def size(self) -> int:
        with _explained(self._path):
            return os.fstat(self._fd).st_size

    def in_place(self) -> bool:
        identity = self._identity
        if identity is None:
            held = os.fstat(self._fd)
            identity = self._identity = (held.st_ino, held.st_dev)
        try:
            named = os.stat(self._name)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return (named.st_ino, named.st_dev) == identity

    def close(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)


class OsLock:
    """Two flocks: of the file with the owner's pid, and of its directory, which holds even if the file is deleted. The
    kernel releases them when the process ends, even by a crash."""

    def __init__(self, *fds: int) -> None:
        self._fds = fds

    def release(self) -> None:
        fds, self._fds = self._fds, ()
        for fd in fds:
            os.close(fd)


class OsFiles:
    """The file system of the operating system."""

    def create(self, path: Path) -> File:
        with _explained(path):
            return OsFile(path, os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o640))

    def open(self, path: Path, *, write: bool = False) -> File:
        with _explained(path):
            return OsFile(path, os.open(path, (os.O_RDWR if write else os.O_RDONLY) | os.O_CLOEXEC))

    def rename(self, source: Path, target: Path) -> None:
        with _explained(target):
            os.rename(source, target)

    def link(self, source: Path, target: Path) -> None:
        with _explained(target):
            os.link(source, target)

    def unlink(self, path: Path) -> None:
        with _explained(path):
            os.unlink(path)

    def mkdir(self, path: Path) -> None:
        with _explained(path):
            os.mkdir(path, 0o750)

    def fsync_dir(self, path: Path) -> None:
        with _explained(path):
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    def listdir(self, path: Path) -> list[str]:
        with _explained(path):
            return sorted(os.listdir(path))

    def exists(self, path: Path) -> bool:
        try:
            self.facts(path)
        except FileNotFoundError:
            return False
        return True

    def facts(self, path: Path) -> FileStatus:
        with _explained(path):
            found = os.stat(path)
        return FileStatus(found.st_size, found.st_mtime_ns // 1_000_000, stat.S_ISDIR(found.st_mode))

    def lock(self, path: Path) -> Lock:
        with _explained(path):
            directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if not lock_directory(directory, fcntl.LOCK_EX):
                raise _locked(path)
            with _explained(path):
                fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                os.close(fd)
                raise _locked(path) from error
        except BaseException:
            os.close(directory)
            raise
        os.ftruncate(fd, 0)
        # The pid only serves the error message. The flocks are the lock, so a full disk does not matter.
        with contextlib.suppress(OSError):
            os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        return OsLock(fd, directory)


def lock_directory(fd: int, kind: int) -> bool:
    """Try to flock an open directory. True also where the file system cannot lock directories, as NFS."""
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_DIRECTORY_LOCKS:
            raise
    return True


def _locked(path: Path) -> DirectoryLocked:
    try:
        owner = path.read_text("ascii", "replace")[:32].strip()
    except OSError:
        owner = ""  # the file was deleted, but the lock is held
    return DirectoryLocked(
        f"{path.parent} is in use by {f'process {owner}' if owner else 'another process'}: "
        "stop it, or choose another directory"
    )


def write_all(file: File, buffers: Sequence[Buffer], offset: int) -> int:
    """Write every byte, in order, in as many calls as the kernel needs. Returns the offset after them."""
    if len(buffers) == 1:
        written = file.pwritev(buffers, offset)
        if written == len(buffers[0]):
            return offset + written
        buffers, offset = [memoryview(buffers[0])[written:]], offset + written
    pending = list(buffers)
    first = 0
    while first < len(pending):
        batch = pending[first : first + IOVECS_MAX]
        written = file.pwritev(batch, offset)
        invariant(written > 0 or not any(map(len, batch)), "a write without an error makes progress")
        offset += written
        while first < len(pending) and written >= len(pending[first]):
            written -= len(pending[first])
            first += 1
        if written:
            pending[first] = memoryview(pending[first])[written:]
    return offset


def read_up_to(file: File, offset: int, length: int) -> bytearray:
    """The bytes at `offset`; fewer if the file ends there."""
    buffer = bytearray(length)
    count = read_into(file, offset, memoryview(buffer))
    del buffer[count:]
    return buffer


def read_into(file: File, offset: int, view: memoryview) -> int:
    """Fill `view` as far as the file goes. Returns how many bytes were read."""
    done = 0
    while done < len(view):
        count = file.preadv(view[done:], offset + done)
        if count == 0:
            break
        done += count
    return done


def make_directories(files: Files, path: Path) -> None:
    """Create a directory and its missing parents, durably."""
    missing = []
    while not files.exists(path):
        missing.append(path)
        path = path.parent
    if not files.facts(path).is_directory:
        raise DirectoryUnusable(f"cannot use {path}: it is a file; move it away, or choose another directory")
    for directory in reversed(missing):
        try:
            with contextlib.suppress(FileExistsError):  # another thread made it
                files.mkdir(directory)
        except FileNotFoundError:  # the answer of file systems such as /proc
            raise DirectoryUnusable(
                f"cannot use {directory}: {directory.parent} does not allow new directories; choose another directory"
            ) from None
        files.fsync_dir(directory.parent)


def write_whole(files: Files, path: Path, buffers: Sequence[Buffer]) -> None:
    """Write a file durably and atomically, replacing an existing one."""
    temporary = path.with_name(path.name + ".tmp")
    write_temporary(files, temporary, buffers)
    files.rename(temporary, path)
    files.fsync_dir(path.parent)


def write_temporary(files: Files, path: Path, buffers: Sequence[Buffer]) -> None:
    """Write a file durably; its name is not durable yet. Leaves nothing behind if it fails."""
    file = files.create(path)
    try:
        write_all(file, buffers, 0)
        file.fdatasync()
    except (MainstemError, OSError):
        with contextlib.suppress(MainstemError, OSError):  # report the first error
            files.unlink(path)
        raise
    finally:
        file.close()
