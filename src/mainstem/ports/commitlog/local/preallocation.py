"""Allocate the next segment on a thread while the current one fills."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path

from mainstem import limits
from mainstem.errors import MainstemError
from mainstem.ports.commitlog.local import segments
from mainstem.ports.commitlog.local.identity import LogId
from mainstem.ports.files import File, Files, write_all

# The next WAL file is zeroed in steps that an append can wait for
SEGMENT_ZEROING_STEP_BYTES = 1 * limits.MIB
SEGMENT_ZEROING_PAUSE_S = 0.01  # between two steps


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
        on_sync_failure: Callable[[Exception], None],
    ) -> None:
        self.number = number
        self._files = files
        self._wal = wal
        self._log = log
        self._segment_bytes = segment_bytes
        self._on_sync_failure = on_sync_failure
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
                self._on_sync_failure(error)
            raise
        self._durable = True

    def _remove(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
        with contextlib.suppress(FileNotFoundError, MainstemError):
            self._files.unlink(segments.segment_path(self._wal, self.number))
