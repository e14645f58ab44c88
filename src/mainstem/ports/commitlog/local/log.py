"""The local commit log: files in one directory, owned by one process.

| path                              | what it is                                                     |
|-----------------------------------|----------------------------------------------------------------|
| FORMAT                            | format version and log id, see identity.py                     |
| LOCK                              | held (flock) by the process that owns the directory; its pid   |
| wal/<20 digits number>.wal        | segments, see segments.py and frames.py                        |
| checkpoints/<20 digits>.ckpt      | checkpoints by position, see checkpoints.py                    |
| cold/<20 digits number>.cold      | notes of objects in an object store, see cold.py               |
| SUSPECT                           | an fsync failed: writes may be missing, even without a reboot  |
| quarantine/                       | copies of bytes that recovery cut; never read again            |

Three threads: one writes commits, one syncs what the kernel cannot sync without a thread (see `AsyncSync`), and one
does the work that no caller waits for (seals, drops, checkpoints). `append_now` and `sync_now` run in the thread of
their caller instead: the event loop calls them while that is fast (see `Shortcut`), and the embedded log calls them in
the threads of its users.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from copy import copy
from functools import partial
from pathlib import Path
from typing import Self

from mainstem import limits
from mainstem.errors import LogDamaged, MainstemError, NoDescriptors, NoSpace, ReadOnly, invariant
from mainstem.ports.async_sync import AsyncSync
from mainstem.ports.commitlog.local import identity, segments
from mainstem.ports.commitlog.local.checkpoints import LocalCheckpoints
from mainstem.ports.commitlog.local.identity import LogId
from mainstem.ports.commitlog.local.layout import CHECKPOINTS, FORMAT, LOCK, SUSPECT, TEMPORARY_SUFFIX, WAL
from mainstem.ports.commitlog.local.reader import LogReader, open_reader
from mainstem.ports.commitlog.local.recovery import RecoveredSegments, Recovery, RecoveryReport
from mainstem.ports.commitlog.local.segments import Segment, segment_path
from mainstem.ports.commitlog.local.serial_executor import SerialExecutor
from mainstem.ports.commitlog.local.writer import SegmentWriter
from mainstem.ports.commitlog.port import Buffer, Checkpoint, Committed, LogObject, Piece, Placement
from mainstem.ports.files import File, Files, Lock, OsFiles, make_directories

DESCRIPTOR_RETRY_S = 0.05  # a sync that gets no file descriptor is tried again after this long …
DESCRIPTOR_RETRIES = 600  # … this many times

SHORTCUT_BYTES_MAX = 32 * limits.KIB  # commits up to this size may be written on the event loop
SHORTCUT_SLOW_S = 0.001  # writes and syncs may run there while they take less on average; after slower ones …
SHORTCUT_CLOSED_FACTOR = 20  # … none does for this many times as long: it is blocked 5 % of the time at most
_NEWEST_WEIGHT = 1 / 8  # of the newest write or sync in the average

__all__ = ["LocalCommitLog", "RecoveryReport", "open_reader"]


class Shortcut:
    """Small commits are written on the event loop, while that is fast.

    Handing a write to a thread and back costs two switches, about 100 µs: more than a small write into the kernel's
    memory takes. But a kernel short of clean pages makes the writer wait, and that must not be the loop: slow writes
    close the shortcut for a while. A single one does not, unless it is very slow: it also takes long when another
    process gets the processor meanwhile.

    The same holds for the sync of a commit that nothing else waits behind. All syncs are timed, on whatever thread they
    run, and the loop runs them only while they are fast. At first they are taken to be slow."""

    def __init__(self) -> None:
        self._write_s = 0.0  # moving average
        self._closed_until = 0.0
        self._sync_s = 10 * SHORTCUT_SLOW_S  # moving average
        self._syncs_closed_until = 0.0

    def synced(self, seconds: float) -> None:
        """A sync took so long."""
        self._sync_s += (seconds - self._sync_s) * _NEWEST_WEIGHT
        if seconds > SHORTCUT_SLOW_S:
            self._syncs_closed_until = time.perf_counter() + seconds * SHORTCUT_CLOSED_FACTOR

    @property
    def open_to_syncs(self) -> bool:
        return self._sync_s <= SHORTCUT_SLOW_S and time.perf_counter() >= self._syncs_closed_until

    def open(self, size: int) -> bool:
        return size <= SHORTCUT_BYTES_MAX and time.perf_counter() >= self._closed_until

    def wrote(self, seconds: float) -> None:
        """A write on the loop took so long."""
        self._write_s += (seconds - self._write_s) * _NEWEST_WEIGHT
        if seconds > SHORTCUT_SLOW_S and self._write_s > SHORTCUT_SLOW_S:
            self._closed_until = time.perf_counter() + self._write_s * SHORTCUT_CLOSED_FACTOR


class LocalCommitLog:
    """A commit log in a local directory."""

    def __init__(
        self,
        files: Files,
        directory: Path,
        lock: Lock,
        log: LogId,
        found: RecoveredSegments,
        writer: SegmentWriter,
        checkpoints: LocalCheckpoints,
    ) -> None:
        self._files = files
        self._directory = directory
        self._wal = directory / WAL
        self._lock = lock
        self._log = log
        self._recovered = found.report
        self._segments = found.segments
        self._checkpoints = checkpoints
        self._reader = LogReader(files, directory, log, found.segments, checkpoints)
        self._writer = writer
        self._synced = found.end
        self._shortcut = Shortcut()
        self._write_lane = SerialExecutor("mainstem-write")
        self._sync_lane = SerialExecutor("mainstem-sync")
        self._chore_lane = SerialExecutor("mainstem-chores")
        self._async_sync = AsyncSync.open()
        self._syncing = (
            threading.Lock()
        )  # by the kernel, on the sync thread, or after a write on the write thread
        self._closed = False

    @classmethod
    async def open(
        cls,
        directory: Path,
        *,
        files: Files | None = None,
        segment_bytes: int = limits.SEGMENT_BYTES,
        checkpoints_kept: int = limits.CHECKPOINTS_KEPT,
        prepare_ahead: bool = True,
    ) -> Self:
        """Lock the directory, create it if needed, and recover it.

        Raises DirectoryLocked, DirectoryUnusable, NewerVersion, LogDamaged or NoSpace."""
        return await asyncio.to_thread(
            cls._open, directory, files or OsFiles(), segment_bytes, checkpoints_kept, prepare_ahead
        )

    @classmethod
    def _open(
        cls, directory: Path, files: Files, segment_bytes: int, checkpoints_kept: int, prepare_ahead: bool
    ) -> Self:
        make_directories(files, directory)
        lock = files.lock(directory / LOCK)
        try:
            for folder in (WAL, CHECKPOINTS):
                make_directories(files, directory / folder)
            log = _identify(files, directory)
            for folder in (WAL, CHECKPOINTS):
                _remove_temporaries(files, directory / folder)
            checkpoints = LocalCheckpoints(files, directory / CHECKPOINTS, checkpoints_kept)
            found = Recovery(files, directory, log, checkpoints.newest_position()).run()
            writer = SegmentWriter(
                files,
                directory / WAL,
                log,
                found.segments,
                current=found.current,
                end=found.end,
                segment_bytes=segment_bytes,
                prepare_ahead=prepare_ahead,
            )
            return cls(files, directory, lock, log, found, writer, checkpoints)
        except BaseException:
            lock.release()
            raise

    @property
    def identity(self) -> bytes:
        return self._log.whole

    @property
    def end(self) -> int:
        """The position the next commit will take."""
        return self._writer.end

    @property
    def synced(self) -> int:
        """The position below which all is known to be durable."""
        return self._synced

    @property
    def failure(self) -> ReadOnly | None:
        """Why nothing more is written, if so."""
        return self._writer.failure

    @property
    def recovered(self) -> RecoveryReport:
        """What recovery found and did."""
        return self._recovered

    @property
    def suspect(self) -> bool:
        """Whether an fsync failed in an earlier process, so that what it wrote may be missing."""
        return self._files.exists(self._directory / SUSPECT)

    async def clear_suspicion(self) -> None:
        """The ledger has recorded the failure."""
        await self._chore_lane.run(self._clear_suspicion)

    def _clear_suspicion(self) -> None:
        self._files.unlink(self._directory / SUSPECT)
        self._files.fsync_dir(self._directory)

    async def append(self, entry: Buffer, slices: Sequence[Buffer], crc: int | None = None) -> Placement:
        """Write one commit. Raises NoSpace (nothing was written) or ReadOnly.

        A commit whose caller was cancelled may still be written."""
        placement = self._append_quickly(entry, slices, crc)
        if placement is not None:
            return placement
        return await self._write_lane.run(lambda: self._writer.append(entry, slices, self._synced, crc))

    async def append_synced(
        self, entry: Buffer, slices: Sequence[Buffer], crc: int | None = None
    ) -> tuple[Placement, float | None]:
        placement = self._append_quickly(entry, slices, crc)
        if placement is not None:
            return placement, None
        if (
            not self._sync_lane.idle or self._syncing.locked()
        ):  # it syncs older commits: the write need not wait for them
            return await self.append(entry, slices, crc), None
        return await self._write_lane.run(lambda: self._append_synced(entry, slices, crc))

    def _append_quickly(self, entry: Buffer, slices: Sequence[Buffer], crc: int | None) -> Placement | None:
        """On the event loop, if that is likely to be fast."""
        if self.writes_now(len(entry) + sum(map(len, slices))):
            return self.append_now(entry, slices, crc)
        return None

    def writes_now(self, size: int, *, may_block: bool = False) -> bool:
        return (
            self._write_lane.idle and (may_block or self._shortcut.open(size)) and self._writer.has_room(size)
        )

    def append_now(self, entry: Buffer, slices: Sequence[Buffer], crc: int | None = None) -> Placement:
        began = time.perf_counter()
        try:
            return self._writer.append(entry, slices, self._synced, crc)
        finally:
            self._shortcut.wrote(time.perf_counter() - began)

    def syncs_now(self) -> bool:
        return (
            self._sync_lane.idle
            and self._shortcut.open_to_syncs
            and not self._syncing.locked()
            and self._writer.syncs_one_file
        )

    def sync_now(self, position: int) -> float | None:
        # Threads that wait for the lock find their commits synced by the one that held it: one sync covers them all.
        with self._syncing:
            if position < self._synced:
                return None
            return self._sync_written()

    def _append_synced(
        self, entry: Buffer, slices: Sequence[Buffer], crc: int | None
    ) -> tuple[Placement, float]:
        placement = self._writer.append(entry, slices, self._synced, crc)
        with self._syncing:
            return placement, self._sync_written()

    async def sync(self) -> int:
        """Make everything written so far durable. Raises ReadOnly, permanently."""
        synced: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def ended(end: int, error: Exception | None) -> None:
            if synced.done():
                return  # the caller was cancelled
            if error is None:
                synced.set_result(end)
            else:
                synced.set_exception(error)

        return await (synced if self.sync_soon(ended) else self._sync_lane.run(self._sync))

    def sync_soon(self, ended: Callable[[int, Exception | None], None]) -> bool:
        """The kernel syncs, without a thread. False where that is not possible."""
        if self._async_sync is None or not self._sync_lane.idle or not self._syncing.acquire(blocking=False):
            return False
        started = False
        try:
            found = self._writer.begin_sync()
            if found is not None:
                end, file = found
                if file.descriptor is not None:
                    began = time.perf_counter()
                    receive = partial(self._synced_by_kernel, end, file, began, ended)
                    started = self._async_sync.start(file.descriptor, receive)
        finally:
            if not started:
                self._syncing.release()
        return started

    def _synced_by_kernel(
        self,
        end: int,
        file: File,
        began: float,
        ended: Callable[[int, Exception | None], None],
        error: OSError | None,
    ) -> None:
        self._shortcut.synced(time.perf_counter() - began)
        refusal: ReadOnly | None = None
        try:
            self._writer.end_sync(file, error)
            self._synced = end
        except ReadOnly as failed:
            refusal = failed
        except (MainstemError, OSError) as failed:
            refusal = self._writer.fail(failed)
        finally:
            self._syncing.release()
        ended(end, refusal)

    def _sync(self) -> int:
        with self._syncing:
            self._sync_written()
            return self._synced

    def _sync_written(self) -> float:
        """Returns the seconds it took. The caller holds `_syncing`."""
        began = time.perf_counter()
        # Without a descriptor for the directory nothing was synced yet, so nothing failed: try again.
        for _ in range(DESCRIPTOR_RETRIES):
            try:
                self._synced = self._writer.sync()
                break
            except NoDescriptors:
                time.sleep(DESCRIPTOR_RETRY_S)
        else:
            self._synced = self._writer.sync(last=True)
        seconds = time.perf_counter() - began
        self._shortcut.synced(seconds)
        return seconds

    async def probe(self, size: int) -> None:
        """Try to take `size` bytes of the disk, and release them. Raises NoSpace, ReadOnly, OSError."""
        await self._chore_lane.run(lambda: self._probe(size))

    def _probe(self, size: int) -> None:
        self._writer.check()
        path = self._wal / f"probe{TEMPORARY_SUFFIX}"
        file = self._files.create(path)
        try:
            file.posix_fallocate(0, size)
        finally:
            file.close()
            self._files.unlink(path)

    def follow(self, position: int) -> AsyncIterator[list[Committed]]:
        """The commits from `position` up to the tail, in chunks. Raises LogDamaged."""
        return self._reader.follow(position)

    def read(self, object: int, start: int, length: int) -> bytearray:
        """Payload bytes in a new, writable buffer. Blocks: call it on a thread. Raises FileNotFoundError if dropped."""
        return self._reader.read(object, start, length)

    async def roll(self) -> None:
        """Finish the current object; the next append starts a new one. No-op on an empty object."""
        await self._write_lane.run(self._writer.roll)

    async def seal(self, object: int, index: bytes) -> None:
        """Attach the index to a finished object, durably. Repeating it with the same index is a no-op.

        Raises NoSpace (the object stays unsealed) or ReadOnly."""
        segment = self._segment(object)
        invariant(object != self._writer.current_number, "only a finished object is sealed: roll first")
        if self._synced < segment.end:
            # A seal says that everything up to its end is durable, so make it durable first.
            await self.sync()
        await self._chore_lane.run(lambda: self._seal(segment, index))

    def _seal(self, segment: Segment, index: bytes) -> None:
        if segment.sealed:
            invariant(self.read_index(segment.number) == index, "a sealed object keeps its index")
            return
        self._writer.check()
        file = self._files.open(segment_path(self._wal, segment.number), write=True)
        try:
            segments.write_seal(file, self._log, segment, index)
        except NoSpace:
            file.ftruncate(segment.data_end)
            raise
        except (MainstemError, OSError) as error:
            raise self._writer.fail(error) from error
        finally:
            file.close()

    def read_index(self, object: int) -> bytes:
        """The index of a sealed object. Blocks: call it on a thread. Raises LogDamaged if no copy is intact."""
        return self._reader.read_index(object)

    def url(self, object: int) -> str | None:
        """Where a reader on this machine finds the object's bytes."""
        return segment_path(self._wal, object).absolute().as_uri()

    async def pieces(self, object: int, ranges: Sequence[tuple[int, int]]) -> list[Piece]:
        """None: every object is a file."""
        return []

    def link_files(self, into: Path) -> list[tuple[Path, int]]:
        """Hard-link the files that hold the log up to `end` into another folder of the same disk, where they stay.

        Returns their paths below it, and how many bytes of each belong to this moment: the last ones still grow."""
        found = [Path(FORMAT), *(self._checkpoints.path(at) for at in self._checkpoints.positions())]
        lengths = {path.relative_to(self._directory) if path.is_absolute() else path: -1 for path in found}
        for segment in self._segments.values():
            lengths[segment_path(Path(WAL), segment.number)] = segment.described().size_bytes
        return self._link(into, list(lengths.items()))

    def _link(self, into: Path, lengths: Sequence[tuple[Path, int]]) -> list[tuple[Path, int]]:
        """Link files; -1 means the whole file."""
        linked = []
        for path, length in lengths:
            make_directories(self._files, (into / path).parent)
            try:
                self._files.link(self._directory / path, into / path)
            except FileNotFoundError:  # replaced or dropped meanwhile
                continue
            linked.append((path, length if length >= 0 else _size(self._files, into / path)))
        return linked

    async def distrust(self, object: int, start: int, length: int) -> None:
        """Do nothing: the local log has no cache."""

    def objects(self) -> list[LogObject]:
        """Every object that holds a commit, by number."""
        return self._reader.objects()

    def segments(self) -> list[Segment]:
        """Every file, by number, as it is now."""
        return [copy(one) for _, one in sorted(self._segments.copy().items())]

    async def drop(self, object: int) -> None:
        """Delete a sealed object. Idempotent."""
        segment = self._segments.get(object)
        if segment is None:
            return
        invariant(segment.sealed, "only a sealed object is dropped")
        await self._write_lane.run(lambda: self._writer.leave(segment.number))
        await self.sync()
        await self._chore_lane.run(lambda: self._drop(segment))

    def _drop(self, segment: Segment) -> None:
        self._reader.forget(segment.number)
        if self._files.exists(segment_path(self._wal, segment.number)):
            self._files.unlink(segment_path(self._wal, segment.number))
            self._files.fsync_dir(self._wal)

    async def save_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Store a checkpoint of synced commits durably and delete all but the newest few."""
        invariant(checkpoint.position <= self._synced, "a checkpoint is never ahead of what is durable")
        await self._chore_lane.run(lambda: self._checkpoints.save(checkpoint))

    def load_checkpoint(self) -> Checkpoint | None:
        """The newest intact checkpoint."""
        return self._reader.load_checkpoint()

    async def close(self) -> None:
        """Sync, release the preallocated space and unlock the directory. Idempotent."""
        if self._closed:
            return
        self._closed = True
        try:
            if self._writer.failure is None:
                await self.sync()
        finally:
            try:
                if self._async_sync is not None:
                    self._async_sync.close()
                await self._write_lane.run(self._writer.close)
            finally:
                await asyncio.to_thread(self._release)

    def _release(self) -> None:
        for lane in (self._write_lane, self._sync_lane, self._chore_lane):
            lane.close()
        self._reader.close_files()
        self._lock.release()

    def _segment(self, number: int) -> Segment:
        segment = self._segments.get(number)
        if segment is None:
            raise FileNotFoundError(f"{segment_path(self._wal, number)} was dropped or never existed")
        return segment


def _remove_temporaries(files: Files, directory: Path) -> None:
    """Files that an earlier process did not finish writing."""
    for name in files.listdir(directory):
        if name.endswith(TEMPORARY_SUFFIX):
            files.unlink(directory / name)


def _identify(files: Files, directory: Path) -> LogId:
    """The log's id. A damaged FORMAT file is rewritten from the segment headers."""
    log = identity.read_format(files, directory)
    if log is not None:
        return log
    names = [name for name in files.listdir(directory / WAL) if segments.number_of(name)]
    for name in names:
        file = files.open(directory / WAL / name)
        try:
            header = segments.read_header(file)
        finally:
            file.close()
        if header is not None:
            log = LogId(header.log)
            break
    else:
        if names:
            raise LogDamaged(
                f"{directory} has lost its {FORMAT} file and every segment header: "
                "restore the directory from a backup"
            )
        log = LogId.new()
    identity.write_format(files, directory, log)
    return log


def _size(files: Files, path: Path) -> int:
    file = files.open(path)
    try:
        return file.size()
    finally:
        file.close()
