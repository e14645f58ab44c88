"""Allocate the next segment on a thread while the current one fills, or the rest of one that was not allocated."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path
from typing import Protocol

from mainstem import limits
from mainstem.errors import MainstemError
from mainstem.ports.commitlog.local import segments
from mainstem.ports.commitlog.local.identity import LogId
from mainstem.ports.files import File, Files, write_all

# The next WAL file is zeroed in steps that an append can wait for
SEGMENT_ZEROING_STEP_BYTES = 1 * limits.MIB
SEGMENT_ZEROING_PAUSE_S = 0.01  # between two steps
ZEROED_AHEAD_BYTES = 2 * limits.MIB  # of a file that is in use; more when half of it is used up


class SegmentOwner(Protocol):
    def fail(self, error: Exception) -> object:
        """Stop writing: a sync failed, and the pages that it lost may be those of an append."""
        ...


class Preallocation:
    """Creates a segment file, allocates and zeroes it, and makes that durable.

    With zeroed blocks a later fdatasync need not write file metadata. Zeroing is slowed down, since every byte then
    goes to disk twice: a log that fills files faster than that needs bandwidth, not short syncs. `take` waits for one
    step at most. If preallocation fails, the file is made when it is needed."""

    def __init__(
        self,
        files: Files,
        wal: Path,
        log: LogId,
        number: int,
        segment_bytes: int,
        owner: SegmentOwner,
    ) -> None:
        self.number = number
        self._files = files
        self._wal = wal
        self._log = log
        self._segment_bytes = segment_bytes
        self._owner = owner
        self._step = threading.Lock()  # held while a step touches the file
        self._created = threading.Event()
        self._file: File | None = None
        self._taken = threading.Event()
        self._durable = False  # the file's name is on disk
        self._bug: Exception | None = None
        self._thread = threading.Thread(target=self._work, name=f"prepare-{number}", daemon=True)
        self._thread.start()

    def take(self) -> tuple[File, bool] | None:
        """The file, and whether its name is durable. None if it could not be created."""
        self._created.wait()
        with self._step:
            if self._bug is not None:
                raise self._bug
            self._taken.set()
            return (self._file, self._durable) if self._file is not None else None

    def finish(self) -> None:
        """Wait until the thread is done with the file; only then may its new owner close it."""
        self._thread.join()

    def discard(self) -> None:
        """Remove the file if nobody took it."""
        with self._step:
            unwanted = not self._taken.is_set()
            self._taken.set()
        self.finish()
        if unwanted:
            self._remove()

    def _work(self) -> None:
        try:
            self._make()
        except (MainstemError, OSError):
            with self._step:
                if not self._taken.is_set():
                    self._remove()
        except Exception as error:  # noqa: BLE001 - `take` raises it
            self._bug = error
        finally:
            self._created.set()

    def _make(self) -> None:
        self._file = self._files.create(segments.segment_path(self._wal, self.number))
        write_all(self._file, [segments.pack_header(self._log, self.number, segments.UNUSED)], 0)
        self._created.set()
        with self._step:
            if self._taken.is_set():
                return
            self._file.posix_fallocate(0, self._segment_bytes)
        zeros = memoryview(bytes(SEGMENT_ZEROING_STEP_BYTES))
        at = segments.HEADER_BYTES
        while at < self._segment_bytes:
            with self._step:
                if self._taken.is_set():
                    return
                at = write_all(self._file, [zeros[: self._segment_bytes - at]], at)
            self._taken.wait(SEGMENT_ZEROING_PAUSE_S)
        self._make_durable(self._file)

    def _make_durable(self, file: File) -> None:
        """Without the lock: an append may take the file and write to it meanwhile."""
        if self._taken.is_set():
            return
        try:
            file.fdatasync()
            self._files.fsync_dir(self._wal)
        except (MainstemError, OSError) as error:
            with self._step:
                taken = self._taken.is_set()
            if taken:
                # The kernel reports lost pages once. They may be the new owner's, whose own sync would then succeed.
                self._owner.fail(error)
            raise
        self._durable = True

    def _remove(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
        with contextlib.suppress(FileNotFoundError, MainstemError):
            self._files.unlink(segments.segment_path(self._wal, self.number))


class ZeroedAhead:
    """Zeroes a file in use ahead of its end, on a thread, so that syncs have no metadata to write.

    The writer calls `before` with the end of each append. An append within the zeroed part touches nothing that is
    being zeroed; one that goes beyond it pauses the zeroing, and `resume` starts it again behind that."""

    def __init__(self, file: File, start: int, end: int, owner: SegmentOwner) -> None:
        self.active = True
        self._reached = start  # zeroed up to here
        self._file = file
        self._end = end
        self._owner = owner
        self._step = threading.Lock()  # held while a step is written
        self._wanted = threading.Event()
        self._wanted.set()
        self._stopped = False
        self._thread = threading.Thread(target=self._work, name="zero-ahead", daemon=True)
        self._thread.start()

    def before(self, end: int) -> None:
        """An append is about to write up to `end`."""
        left = self._reached - end
        if left < 0:
            self.pause()
        elif left < ZEROED_AHEAD_BYTES // 2:
            self._wanted.set()

    def pause(self) -> None:
        """Zero nothing until `resume`."""
        with self._step:
            self.active = False

    def resume(self, start: int) -> None:
        with self._step:
            self.active = True
            self._reached = start
        self._wanted.set()

    def stop(self) -> None:
        """Zero nothing from now on."""
        with self._step:
            self._stopped = True
        self._wanted.set()

    def finish(self) -> None:
        """Stop, and wait until the thread is done with the file; only then may it be closed."""
        self.stop()
        self._thread.join()

    def _work(self) -> None:
        try:
            while self._write_step():
                self._file.fdatasync()
        except Exception as error:  # noqa: BLE001 - the kernel reports lost pages once, and they may be an append's
            self._owner.fail(error)

    def _write_step(self) -> bool:
        """Wait until zeros are wanted, and write them. False: stopped."""
        while True:
            self._wanted.wait()
            self._wanted.clear()
            with self._step:
                if self._stopped:
                    return False
                size = min(ZEROED_AHEAD_BYTES, self._end - self._reached)
                if not self.active or size <= 0:
                    continue
                try:
                    self._reached = write_all(self._file, [bytes(size)], self._reached)
                except (MainstemError, OSError):  # a full disk: appends extend the file themselves
                    self.active = False
                else:
                    return True
