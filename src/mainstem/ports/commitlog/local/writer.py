"""Write a local log: to the current segment, and from one segment to the next.

Runs on the write thread; `sync` runs on the sync thread, or on the write thread, one call at a time.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mainstem.errors import MainstemError, NoDescriptors, NoSpace, ReadOnly
from mainstem.ports.commitlog.local import frames, segments
from mainstem.ports.commitlog.local.identity import LogId
from mainstem.ports.commitlog.local.layout import SUSPECT
from mainstem.ports.commitlog.local.preallocation import ZEROED_AHEAD_BYTES, Preallocation, ZeroedAhead
from mainstem.ports.commitlog.local.segments import FIRST_NUMBER, HEADER_BYTES, Segment
from mainstem.ports.commitlog.port import Buffer, Placement
from mainstem.ports.files import File, Files, write_all, write_whole

SYNCS_BEFORE_ZEROING = 64  # of little data


@dataclass(slots=True)
class WritableSegment:
    """A segment with its file open for writing, until it is finished and synced."""

    segment: Segment
    file: File
    named: bool  # its directory entry is durable
    preparation: Preallocation | None = None  # which made the file and may still be syncing it
    zeroed: ZeroedAhead | None = None
    zeroes: bool = False  # ahead of its end, from the next append on
    _syncs: int = 0  # since the data ended at `_syncs_from`
    _syncs_from: int = 0

    def synced(self) -> None:
        """A sync ended. Where each brings little data, clients wait for the syncs themselves: zero the file ahead."""
        self._syncs += 1
        if self._syncs == SYNCS_BEFORE_ZEROING and self.preparation is None:
            end = self.segment.data_end
            self.zeroes = self.zeroes or end - self._syncs_from < ZEROED_AHEAD_BYTES // 2
            self._syncs, self._syncs_from = 0, end

    def stop_zeroing(self) -> None:
        """Appends no longer change the file, or something else does."""
        self.zeroes = False
        if self.zeroed is not None:
            self.zeroed.pause()

    def close(self) -> None:
        if self.zeroed is not None:
            self.zeroed.finish()
        if self.preparation is not None:
            self.preparation.finish()
        self.file.close()


class SegmentWriter:
    def __init__(
        self,
        files: Files,
        wal: Path,
        log: LogId,
        known: dict[int, Segment],
        *,
        current: WritableSegment | None,
        end: int,
        segment_bytes: int,
        prepare_ahead: bool,
    ) -> None:
        self.end = end  # set after the segment's own end, so that a reader that sees it finds the commit
        self.failure: ReadOnly | None = None
        self._files = files
        self._wal = wal
        self._log = log
        self._log_low = log.low
        self._known = known  # shared with the reader
        self._segment_bytes = segment_bytes
        self._prepare_ahead = prepare_ahead
        self._current = current
        self._unsynced = [current] if current else []
        self._lock = threading.Lock()
        self._next: Preallocation | None = None
        self._last_number = max(known, default=FIRST_NUMBER - 1)

    @property
    def current_number(self) -> int | None:
        """The segment that takes the next commit; None if a new one will."""
        return self._current.segment.number if self._current else None

    def has_room(self, size: int) -> bool:
        """Whether a commit of about `size` bytes fits into the current segment."""
        return self._current is not None and self._current.segment.data_end + 2 * size < self._segment_bytes

    @property
    def syncs_one_file(self) -> bool:
        """Whether a sync is one fdatasync: it need not finish an older segment, nor sync the directory."""
        unsynced = self._unsynced
        return len(unsynced) == 1 and unsynced[0].named

    def append(
        self, entry: Buffer, slices: Sequence[Buffer], synced: int, crc: int | None = None
    ) -> Placement:
        """Write one commit. Raises NoSpace or ReadOnly; then nothing was written."""
        if self.failure is not None:
            self.check()
        current = self._current
        if current is None or current.segment.data_end >= self._segment_bytes:
            current = self.start_segment()
        segment = current.segment
        start, position = segment.data_end, self.end
        buffers = frames.encode(
            entry,
            slices,
            start=start,
            position=position,
            log=self._log_low,
            synced=synced,
            crc=crc,
        )
        if current.zeroes and self._prepare_ahead:
            self._zero_ahead(current, start + sum(map(len, buffers)))
        try:
            end = write_all(current.file, buffers, start)
        except (MainstemError, OSError) as error:
            self._take_back(current, error)
        segment.data_end = end
        segment.end = self.end = position + 1
        if end * 2 >= self._segment_bytes and self._next is None and self._prepare_ahead:
            self._next = self._prepare()
        return Placement(position, segment.number, start + frames.HEAD_BYTES + len(entry))

    def _zero_ahead(self, current: WritableSegment, end: int) -> None:
        """Before an append that ends there."""
        zeroed = current.zeroed
        if zeroed is None:
            current.zeroed = ZeroedAhead(current.file, end, self._segment_bytes, self)
        elif zeroed.active:
            zeroed.before(end)
            current.zeroes = zeroed.active
        else:
            zeroed.resume(end)

    def leave(self, number: int) -> None:
        """Before a segment is dropped: the newest one records the log's end, so make one after it."""
        if number == self._last_number:
            self.check()
            self.start_segment()

    def roll(self) -> None:
        """The next append starts a new segment. No-op if the current one is empty."""
        if self._current is not None and self._current.segment.end > self._current.segment.first:
            self._current.stop_zeroing()
            self._current = None

    def start_segment(self) -> WritableSegment:
        """Make the next segment the current one, with the position it starts at."""
        if self._current is not None and not self._current.file.in_place():
            raise self._replaced(self._current.file)
        if self._current is not None:
            self._current.stop_zeroing()
        number = self._last_number + 1
        path = segments.segment_path(self._wal, number)
        preparation, self._next = self._next, None
        taken = preparation.take() if preparation else None
        file, named = taken or (self._files.create(path), False)
        segment = Segment(number, self.end, self.end, HEADER_BYTES)
        current = WritableSegment(segment, file, named, preparation if taken else None)
        try:
            write_all(file, [segments.pack_header(self._log, number, self.end)], 0)
        except (MainstemError, OSError):
            current.close()
            with contextlib.suppress(MainstemError, OSError):  # recovery removes it too
                self._files.unlink(path)
            raise
        self._last_number = number
        with self._lock:
            self._unsynced.append(current)
        self._known[number] = segment
        self._current = current
        return current

    def sync(self, *, last: bool = False) -> int:
        """Make everything written so far durable, older segments first. Calls do not overlap. A failure is final, but
        for NoDescriptors, unless this is the `last` try.

        Returns the position below which all is durable."""
        found = self.begin_sync()
        if found is None:
            return self._sync_several(last=last)
        end, file = found
        try:
            file.fdatasync()
            self.end_sync(file, None)
        except ReadOnly:
            raise
        except (MainstemError, OSError) as error:
            raise self.fail(error) from error
        return end

    def _sync_several(self, *, last: bool) -> int:
        end = self.end  # read before the segments, which then hold at least this much
        with self._lock:
            dirty = list(self._unsynced)
        try:
            for one in dirty:
                if not one.named:
                    self._files.fsync_dir(self._wal)
                    one.named = True
                one.file.fdatasync()
                if not one.file.in_place():
                    raise self._replaced(one.file)
        except ReadOnly:
            raise
        except NoDescriptors as error:
            if last:
                raise self.fail(error) from error
            raise
        except (MainstemError, OSError) as error:
            raise self.fail(error) from error
        self.check()  # another sync may have failed meanwhile
        with self._lock:
            del self._unsynced[: len(dirty) - 1]
        for finished in dirty[:-1]:
            finished.close()
        if dirty:
            dirty[-1].synced()
        return end

    def begin_sync(self) -> tuple[int, File] | None:
        """The file whose fdatasync makes everything written so far durable, and the position below which that is.
        None: it takes more than that, use `sync`. Then call `end_sync`."""
        if self.failure is not None:
            self.check()
        end = self.end  # read before the segments, as in `_sync_several`
        unsynced = self._unsynced  # only syncs remove any
        return (end, unsynced[0].file) if len(unsynced) == 1 and unsynced[0].named else None

    def end_sync(self, file: File, error: OSError | None) -> None:
        """The fdatasync of `begin_sync` ended. Raises ReadOnly if it failed, or another one did meanwhile, which is
        final."""
        if error is not None:
            raise self.fail(error) from error
        if self.failure is not None:
            self.check()
        if not file.in_place():
            raise self._replaced(file)
        current = self._current
        if current is not None and current.file is file:
            current.synced()

    def fail(self, error: Exception) -> ReadOnly:
        """Stop writing: which of our pages the kernel still has is unknown."""
        if self.failure is None:
            # First of all: the kernel reports lost pages once, so the sync of an append may succeed on another thread.
            self.failure = failure = ReadOnly(
                f"writing to {self._wal} failed ({error}): reads still work; repair the disk, then restart"
            )
            with contextlib.suppress(MainstemError, OSError):  # a failing disk may refuse this too
                write_whole(self._files, self._wal.parent / SUSPECT, [b""])
            return failure
        return self.failure

    def _replaced(self, file: File) -> ReadOnly:
        """Stop writing. Unlike `fail`, write nothing to the directory: it may belong to another process by now."""
        self.failure = ReadOnly(
            f"{file.path} was deleted, moved or replaced while this process wrote to it: nothing more is written; "
            "find out which program did it, put the file back, then restart"
        )
        return self.failure

    def check(self) -> None:
        if self.failure is not None:
            raise ReadOnly(str(self.failure))

    def close(self) -> None:
        """Release the preallocated space and close the files."""
        try:
            if self._next is not None:
                self._next.discard()
            if self._current is not None and self.failure is None:
                self._current.stop_zeroing()
                self._current.file.ftruncate(self._current.segment.data_end)
        finally:
            for one in self._unsynced:
                one.close()

    def _take_back(self, current: WritableSegment, error: Exception) -> None:
        """After a failed write: remove what was written of it, or a restart could take it for a commit."""
        current.stop_zeroing()
        if not isinstance(error, NoSpace):
            with contextlib.suppress(MainstemError, OSError):  # the disk is failing; this may work
                current.file.ftruncate(current.segment.data_end)
            raise self.fail(error) from error
        try:
            current.file.ftruncate(current.segment.data_end)
            current.file.fdatasync()
        except (MainstemError, OSError) as second:
            raise self.fail(second) from second
        raise error

    def _prepare(self) -> Preallocation:
        return Preallocation(
            self._files, self._wal, self._log, self._last_number + 1, self._segment_bytes, self
        )
