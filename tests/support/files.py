"""A file system in memory that crashes, tears, fails and fills up on demand.

It keeps the weakest rules that a real disk keeps: a file's bytes are durable after `fdatasync`;
creating, renaming, linking and unlinking are durable after `fsync_dir` of the parent; nothing else is.
"""

from __future__ import annotations

import errno
import random
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from mainstem.errors import DirectoryLocked, DirectoryUnusable, NoSpace
from mainstem.ports.commitlog.port import Buffer
from mainstem.ports.files import File, FileStatus, Lock
from tests.support.files_disk import Content, Inode, Resize, Write

Policy = Literal["lost", "kept", "torn"]
_Target = Inode | Literal["directory"]
_ROOT = Path("/")


class SimulatedCrash(Exception):
    """The machine is down. Not a MainstemError, so that no code handles it, but every waiter gets it."""


@dataclass(frozen=True, slots=True)
class _NameChange:
    """A directory entry set to a file or a directory (None: removed)."""

    path: Path
    target: _Target | None


class SimFiles:
    """Implements `Files`. Thread-safe. At first there is nothing but the directory `/`."""

    def __init__(self) -> None:
        self.calls = 0  # mutating calls made so far
        self._lock = threading.RLock()
        self._names: dict[Path, _Target] = {_ROOT: "directory"}
        self._durable_names: dict[Path, _Target] = {_ROOT: "directory"}
        self._pending: list[_NameChange] = []
        self._locks: set[Path] = set()
        self._crash_after: int | None = None
        self._crashed = False
        self._space: int | None = None
        self._sync_failures = 0
        self._short_writes = 0
        self._syncs_held: threading.Event | None = None
        self.syncs_waiting = 0

    # Faults

    def crash_after(self, calls: int) -> None:
        """Let the mutating call of that number happen; it and all calls after it raise SimulatedCrash."""
        self._crash_after = calls

    def crash(self) -> None:
        """From now on every call raises SimulatedCrash."""
        self._crashed = True

    @property
    def down(self) -> bool:
        return self._crashed

    def reboot(self, policy: Policy, seed: int = 0) -> SimFiles:
        """A new file system with what the disk may hold now. This one is down from now on."""
        with self._lock:
            self._crashed = True
            randomness = random.Random(seed)
            after = SimFiles()
            copies: dict[int, Inode] = {}
            for path, target in self._names_after(policy, randomness).items():
                if target == "directory":
                    after._names[path] = target
                    continue
                if id(target) not in copies:
                    copies[id(target)] = Inode(_content_after(target, policy, randomness))
                after._names[path] = copies[id(target)]
            after._durable_names = dict(after._names)
            return after

    def no_space_after(self, size: int) -> None:
        """This many more bytes can be written, then NoSpace."""
        self._space = size

    def space_returns(self) -> None:
        self._space = None

    def fail_next_fdatasync(self) -> None:
        """EIO, once: the pages not yet synced are lost, though still seen by readers."""
        self._sync_failures = 1

    def shorten_next_writes(self, count: int) -> None:
        """This many writes store only the first half of their bytes."""
        self._short_writes = count

    def hold_syncs(self) -> threading.Event:
        """Every fdatasync waits until the event is set."""
        self._syncs_held = threading.Event()
        return self._syncs_held

    def flip_bit(self, path: Path, byte: int, bit: int) -> None:
        """Damage a file durably, without any call."""
        with self._lock:
            self._inode(path).flip(byte, bit)

    def contents(self) -> dict[Path, bytes]:
        """Every file, as readers see it now."""
        with self._lock:
            inodes = {path: target for path, target in self._names.items() if isinstance(target, Inode)}
            return {path: bytes(inode.now.data) for path, inode in inodes.items()}

    # Files

    def create(self, path: Path) -> File:
        with self._lock:
            self._enter()
            self._parent_of(path)
            found = self._names.get(path)
            if found == "directory":
                raise DirectoryUnusable(f"cannot use {path}: it is a directory")
            if found is None:
                found = Inode()
                self._rename_to(path, found)
            elif found.now.size:
                found.change(Resize(0))
            self._leave()
            return SimFile(self, path, found)

    def open(self, path: Path, *, write: bool = False) -> File:
        with self._lock:
            self._check()
            return SimFile(self, path, self._inode(path), writable=write)

    def rename(self, source: Path, target: Path) -> None:
        with self._lock:
            self._enter()
            inode = self._inode(source)
            self._parent_of(target)
            self._rename_to(target, inode)
            self._rename_to(source, None)
            self._leave()

    def link(self, source: Path, target: Path) -> None:
        with self._lock:
            self._enter()
            inode = self._inode(source)
            if target in self._names:
                raise FileExistsError(errno.EEXIST, "exists", str(target))
            self._parent_of(target)
            self._rename_to(target, inode)
            self._leave()

    def unlink(self, path: Path) -> None:
        with self._lock:
            self._enter()
            self._inode(path)
            self._rename_to(path, None)
            self._leave()

    def mkdir(self, path: Path) -> None:
        with self._lock:
            self._enter()
            if path in self._names:
                raise FileExistsError(errno.EEXIST, "exists", str(path))
            self._parent_of(path)
            self._rename_to(path, "directory")
            self._leave()

    def fsync_dir(self, path: Path) -> None:
        with self._lock:
            self._enter()
            for change in self._pending:
                if change.path.parent == path:
                    _set(self._durable_names, change)
            self._pending = [change for change in self._pending if change.path.parent != path]
            self._leave()

    def listdir(self, path: Path) -> list[str]:
        with self._lock:
            self._check()
            if self._names.get(path) != "directory":
                raise FileNotFoundError(errno.ENOENT, "no such directory", str(path))
            return sorted(known.name for known in self._names if known.parent == path != known)

    def exists(self, path: Path) -> bool:
        with self._lock:
            self._check()
            return path in self._names

    def facts(self, path: Path) -> FileStatus:
        with self._lock:
            self._check()
            if self._names.get(path) == "directory":
                return FileStatus(0, 0, is_directory=True)
            return FileStatus(self._inode(path).now.size, 0, is_directory=False)

    def lock(self, path: Path) -> Lock:
        with self._lock:
            self._check()
            if path in self._locks:
                raise DirectoryLocked(
                    f"{path.parent} is in use by process 1: stop it, or choose another directory"
                )
            self._locks.add(path)
            return SimLock(self, path)

    # What the open files call

    def _pwritev(self, inode: Inode, buffers: Sequence[Buffer], offset: int, path: Path) -> int:
        with self._lock:
            self._enter()
            data = b"".join(buffers)
            if self._short_writes and len(data) > 1:
                self._short_writes -= 1
                data = data[: len(data) // 2]
            if self._space is not None:
                if data and self._space == 0:
                    raise NoSpace(f"no space left for {path}")
                data = data[: self._space]
                self._space -= len(data)
            inode.change(Write(offset, data))
            self._leave()
            return len(data)

    def _allocate(self, inode: Inode, size: int, path: Path) -> None:
        with self._lock:
            self._enter()
            if self._space is not None and size - inode.now.size > self._space:
                raise NoSpace(f"no space left for {path}")
            if size > inode.now.size:
                inode.change(Resize(size))
            self._leave()

    def _fdatasync(self, inode: Inode) -> None:
        held = self._syncs_held
        if held is not None:
            self.syncs_waiting += 1
            held.wait()
            self.syncs_waiting -= 1
        with self._lock:
            self._enter()
            if self._sync_failures:
                self._sync_failures -= 1
                inode.lose_pending()
                raise OSError(errno.EIO, "simulated input/output error")
            inode.sync()
            self._leave()

    def _ftruncate(self, inode: Inode, size: int) -> None:
        with self._lock:
            self._enter()
            inode.change(Resize(size))
            self._leave()

    def _unlock(self, path: Path) -> None:
        with self._lock:
            self._locks.discard(path)

    # Bookkeeping

    def _check(self) -> None:
        if self._crashed:
            raise SimulatedCrash

    def _enter(self) -> None:
        self._check()
        self.calls += 1

    def _leave(self) -> None:
        """The call took effect; now it may be the last one."""
        if self._crash_after is not None and self.calls >= self._crash_after:
            self._crashed = True
            raise SimulatedCrash

    def _parent_of(self, path: Path) -> None:
        parent = path.parent
        if parent not in self._names:
            raise FileNotFoundError(errno.ENOENT, "no such directory", str(parent))
        if self._names[parent] != "directory":
            raise DirectoryUnusable(f"cannot use {path}: {parent} is a file; move it away")

    def _inode(self, path: Path) -> Inode:
        found = self._names.get(path)
        if found == "directory":
            raise DirectoryUnusable(f"cannot use {path}: it is a directory")
        if found is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
        return found

    def _rename_to(self, path: Path, target: _Target | None) -> None:
        change = _NameChange(path, target)
        _set(self._names, change)
        self._pending.append(change)

    def _names_after(self, policy: Policy, randomness: random.Random) -> dict[Path, _Target]:
        if policy == "kept":
            return dict(self._names)
        names = dict(self._durable_names)
        if policy == "torn":
            for parent in sorted({change.path.parent for change in self._pending}):
                changes = [change for change in self._pending if change.path.parent == parent]
                for change in changes[: randomness.randint(0, len(changes))]:
                    _set(names, change)
        return {
            path: target
            for path, target in names.items()
            if all(names.get(parent) == "directory" for parent in path.parents)
        }


def _set(names: dict[Path, _Target], change: _NameChange) -> None:
    if change.target is None:
        names.pop(change.path, None)
    else:
        names[change.path] = change.target


def _content_after(inode: Inode, policy: Policy, randomness: random.Random) -> Content:
    if policy == "kept":
        return inode.kept()
    return inode.lost() if policy == "lost" else inode.torn(randomness)


class SimLock:
    def __init__(self, files: SimFiles, path: Path) -> None:
        self._files = files
        self._path = path

    def release(self) -> None:
        self._files._unlock(self._path)


class SimFile:
    """An open file of `SimFiles`."""

    def __init__(self, files: SimFiles, path: Path, inode: Inode, *, writable: bool = True) -> None:
        self._files = files
        self._path = path
        self._inode = inode
        self._writable = writable
        self._closed = False

    @property
    def path(self) -> Path:
        return self._path

    @property
    def descriptor(self) -> int | None:
        return None

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> int:
        self._check(write=True)
        return self._files._pwritev(self._inode, buffers, offset, self._path)

    def preadv(self, buffer: bytearray | memoryview, offset: int) -> int:
        self._check()
        with self._files._lock:
            self._files._check()
            found = self._inode.now.read(offset, len(buffer))
        buffer[: len(found)] = found
        return len(found)

    def fdatasync(self) -> None:
        self._check()
        self._files._fdatasync(self._inode)

    def ftruncate(self, size: int) -> None:
        self._check(write=True)
        self._files._ftruncate(self._inode, size)

    def posix_fallocate(self, offset: int, length: int) -> None:
        self._check(write=True)
        self._files._allocate(self._inode, offset + length, self._path)

    def size(self) -> int:
        self._check()
        with self._files._lock:
            self._files._check()
            return self._inode.now.size

    def in_place(self) -> bool:
        with self._files._lock:
            return self._files._names.get(self._path) is self._inode

    def close(self) -> None:
        self._closed = True

    def _check(self, *, write: bool = False) -> None:
        if self._closed or (write and not self._writable):
            raise OSError(errno.EBADF, "the file is closed or read-only", str(self._path))
