"""Recover a log after a crash or damage.

What was durable is kept, or its loss is reported. What was never durable may be cut; nothing of it remains that could
be mistaken for a later commit. Every step can be repeated after a crash.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from mainstem.errors import LogDamaged, invariant
from mainstem.ports.commitlog.local import frame_scan as searches
from mainstem.ports.commitlog.local import segments
from mainstem.ports.commitlog.local.frames import Frame
from mainstem.ports.commitlog.local.identity import LogId
from mainstem.ports.commitlog.local.layout import QUARANTINE, WAL
from mainstem.ports.commitlog.local.segment_scan import SegmentScan, survey
from mainstem.ports.commitlog.local.segments import FIRST_NUMBER, HEADER_BYTES, Segment, segment_path
from mainstem.ports.commitlog.local.writer import WritableSegment
from mainstem.ports.files import File, Files, read_up_to, write_all, write_temporary


@dataclass(slots=True)
class RecoveryReport:
    """What recovery found and did."""

    cut_bytes: int = (
        0  # at the end: a torn write, or writes that went to disk out of order and were never durable
    )
    quarantined: list[Path] = field(default_factory=list)  # copies of intact commits that had to be cut
    damaged_positions: list[int] = field(default_factory=list)  # commits whose payload fails its checksum
    repaired_copies: int = 0  # entries, headers and footers rewritten from their other copy


@dataclass(slots=True)
class RecoveredSegments:
    segments: dict[int, Segment]
    current: WritableSegment | None  # takes the next commit; None: a new segment will
    end: int
    report: RecoveryReport


@dataclass(slots=True)
class _Break:
    """Where the chain of positions breaks although intact frames follow."""

    index: int  # in the survey
    at: int
    position: int


class Recovery:
    def __init__(self, files: Files, directory: Path, log: LogId, checkpoint_position: int) -> None:
        self._files = files
        self._directory = directory
        self._wal = directory / WAL
        self._quarantine = directory / QUARANTINE
        self._log = log
        self._checkpoint_position = checkpoint_position  # everything before it was durable
        self._report = RecoveryReport()

    def run(self) -> RecoveredSegments:
        """Raises LogDamaged, before it changes anything, if something durable is lost."""
        found = survey(self._files, self._wal, self._log)
        gap = self._link(found)
        if gap is not None:
            self._refuse_if_durable(found, gap)
            found = self._cut(found, gap)
        end = self._end_of(found)
        kept = [one for one in found if not one.empty]
        self._report.cut_bytes += sum(one.litter_bytes for one in found)
        for one in kept:
            self._report.damaged_positions += one.damaged
            self._repair(one)
        current = self._current(found, kept, end)
        self._files.fsync_dir(self._wal)
        known = {one.number: one.segment() for one in kept}
        if current is not None:
            known[current.segment.number] = current.segment
        return RecoveredSegments(known, current, end, self._report)

    def _link(self, found: list[SegmentScan]) -> _Break | None:
        """Check that positions continue from file to file; decide frames that need to know what follows them."""
        present = {one.number for one in found if not one.empty}
        emptied = {one.number for one in found if one.empty}
        previous: SegmentScan | None = None
        previous_index = 0
        for index, one in enumerate(found):
            if one.empty:
                continue
            if one.first is None:
                return _Break(index, HEADER_BYTES, self._start_of(one, previous))
            if previous is not None:
                between = range(previous.number + 1, one.number)
                dropped = any(n not in present for n in between)
                if self._checkpoint_position < one.first:
                    # What an unreadable file held may never have been durable.
                    dropped = any(n not in present and n not in emptied for n in between)
                if one.first < previous.end:
                    raise LogDamaged(
                        f"{self._path(one)} starts at position {one.first}, but the file before it ends at "
                        f"{previous.end}: {self._advice()}"
                    )
                if one.first > previous.end and not dropped:
                    return _Break(previous_index, previous.data_end, previous.end)
            if one.doubtful is not None:
                self._settle(one, one.doubtful, followed=any(not later.empty for later in found[index + 1 :]))
            if one.beyond:
                return _Break(index, one.data_end, one.end)
            previous, previous_index = one, index
        return None

    def _start_of(self, one: SegmentScan, previous: SegmentScan | None) -> int:
        if previous is None and one.number == FIRST_NUMBER:
            return 0
        if previous is None:
            # The segment before was dropped, and that waits until this one's header is durable.
            raise LogDamaged(
                f"{self._path(one)} is damaged from its start to byte {one.beyond[0].start}: {self._advice()}"
            )
        return previous.end

    def _settle(self, one: SegmentScan, frame: Frame, *, followed: bool) -> None:
        """An intact entry, a damaged payload and no second copy: torn if it was written last, otherwise damaged."""
        one.doubtful = None
        if not followed and self._checkpoint_position <= frame.position:
            return
        one.damaged.append(frame.position)
        one.end = frame.position + 1
        one.data_end = frame.end

    def _refuse_if_durable(self, found: list[SegmentScan], gap: _Break) -> None:
        """A gap below what was synced is damage; to start would hide it."""
        durable = self._checkpoint_position
        for frame in found[gap.index].beyond:
            durable = max(durable, frame.synced)
        for one in found[gap.index + 1 :]:
            durable = max(durable, one.end if one.sealed else self._highest_synced(one))
        if durable > gap.position:
            broken = found[gap.index]
            next_frame = min(broken.beyond, default=None)
            byte_end = next_frame.start if next_frame else broken.size
            lost_end = next_frame.position if next_frame else durable
            unreadable = self._unreadable_after(found, gap.index)
            if unreadable is not None and not broken.beyond:
                raise LogDamaged(
                    f"{self._path(unreadable)} holds no commit that can be read: positions {gap.position} to "
                    f"{lost_end - 1} were durable: {self._advice()}"
                )
            raise LogDamaged(
                f"{self._path(broken)} is damaged from byte {gap.at} to {byte_end} in both copies: positions "
                f"{gap.position} to {lost_end - 1} were durable and cannot be read: {self._advice()}"
                f"{self._way_out(found, gap.index)}"
            )

    @staticmethod
    def _unreadable_after(found: list[SegmentScan], index: int) -> SegmentScan | None:
        """The next file, if it holds nothing and others follow that do."""
        later = found[index + 1 :]
        return later[0] if len(later) > 1 and later[0].empty else None

    def _way_out(self, found: list[SegmentScan], index: int) -> str:
        """What else can be done, if a checkpoint covers the whole damaged file."""
        following = next((one for one in found[index + 1 :] if not one.empty), None)
        if following is None or following.first is None or following.first > self._checkpoint_position:
            return ""
        return "; to start without it, move this file elsewhere: its records are lost until it is back"

    def _highest_synced(self, one: SegmentScan) -> int:
        file = self._files.open(self._path(one))
        try:
            whole = searches.find_frames(file, HEADER_BYTES, one.size, self._log.low, -1)
            return max((frame.synced for frame in whole), default=0)
        finally:
            file.close()

    def _cut(self, found: list[SegmentScan], gap: _Break) -> list[SegmentScan]:
        """End the log at the gap: copy what follows to quarantine, then remove it durably."""
        broken, later = found[gap.index], found[gap.index + 1 :]
        if broken.beyond:
            self._set_aside(broken, gap.at, max(frame.end for frame in broken.beyond))
        for one in later:
            if not one.empty:
                ends = [frame.end for frame in one.beyond]
                self._set_aside(one, 0, max([one.data_end, *ends]))
                self._report.cut_bytes += one.litter_end
        for one in reversed(later):
            self._files.unlink(self._path(one))
        self._files.fsync_dir(self._wal)
        if not broken.sealed:
            broken.beyond = []
            broken.first = gap.position if broken.first is None else broken.first
            broken.end = max(broken.end, broken.first)
        return found[: gap.index + 1]

    def _set_aside(self, one: SegmentScan, start: int, end: int) -> None:
        """Copy bytes of a segment to a quarantine file, durably."""
        file = self._files.open(self._path(one))
        try:
            content = read_up_to(file, start, min(end, one.size) - start)
        finally:
            file.close()
        if not self._files.exists(self._quarantine):
            self._files.mkdir(self._quarantine)
            self._files.fsync_dir(self._directory)
        target = self._unused_name(f"{one.number:020d}-{start:012d}")
        write_temporary(self._files, target, [content])
        self._files.fsync_dir(self._quarantine)
        self._report.quarantined.append(target)

    def _unused_name(self, stem: str) -> Path:
        taken = set(self._files.listdir(self._quarantine))
        copy = 0
        while f"{stem}-{copy}.wal" in taken:
            copy += 1
        return self._quarantine / f"{stem}-{copy}.wal"

    def _end_of(self, found: list[SegmentScan]) -> int:
        """One past the last commit. Raises LogDamaged if a checkpoint is ahead of it."""
        kept = [one for one in found if not one.empty]
        named = [one.first for one in found if one.empty and one.first is not None]
        if kept:
            end = kept[-1].end
        elif named:
            end = named[-1]
        elif found and found[-1].number > FIRST_NUMBER:
            # The files before were dropped, which requires a checkpoint that covers them.
            return self._checkpoint_position
        else:
            end = 0
        if end < self._checkpoint_position:
            raise LogDamaged(
                f"{self._wal} ends at position {end}, but a checkpoint covers all before "
                f"{self._checkpoint_position}: {self._advice()}"
            )
        return end

    def _repair(self, one: SegmentScan) -> None:
        """Rewrite damaged copies from the intact ones, and make the file durable."""
        if one.sealed:
            return
        file = self._files.open(self._path(one), write=True)
        try:
            invariant(one.first is not None, "a segment with commits has a first position")
            if not one.header_whole:
                write_all(file, [segments.pack_header(self._log, one.number, one.first or 0)], 0)
                self._report.repaired_copies += 1
            for at, copy in one.repairs:
                write_all(file, [copy], at)
                self._report.repaired_copies += 1
            if one.index is not None:
                segment = one.segment()
                segments.write_seal(file, self._log, segment, one.index)
                one.sealed, one.size = True, segment.size_bytes
                self._report.repaired_copies += 1
            else:
                self._clear_after(file, one)
            file.fdatasync()
        finally:
            file.close()

    def _clear_after(self, file: File, one: SegmentScan) -> None:
        """Remove what follows the last frame: it could be taken for a frame later."""
        if one.litter_bytes:
            file.ftruncate(one.data_end)

    def _current(self, found: list[SegmentScan], kept: list[SegmentScan], end: int) -> WritableSegment | None:
        """The segment that takes the next commit. Files without commits are removed, or become it."""
        empty = [one for one in found if one.empty]
        spare = empty.pop() if empty and not kept and end > 0 else None
        last = kept[-1].number if kept else 0
        for one in empty:
            if one.number < last and one.litter_bytes:  # damaged: what it holds may still be of use
                self._set_aside(one, 0, one.size)
            self._files.unlink(self._path(one))
        if spare is not None:
            return self._restart(spare, end)
        if not kept or kept[-1].sealed:
            return None
        newest = kept[-1]
        return WritableSegment(newest.segment(), self._files.open(self._path(newest), write=True), named=True)

    def _restart(self, spare: SegmentScan, end: int) -> WritableSegment:
        """The only file holds no commit, but it alone records the position: keep it."""
        file = self._files.open(self._path(spare), write=True)
        if not spare.header_whole or spare.first != end:
            write_all(file, [segments.pack_header(self._log, spare.number, end)], 0)
            self._report.repaired_copies += 1
        file.ftruncate(HEADER_BYTES)
        file.fdatasync()
        return WritableSegment(Segment(spare.number, end, end, HEADER_BYTES), file, named=True)

    def _path(self, one: SegmentScan) -> Path:
        return segment_path(self._wal, one.number)

    def _advice(self) -> str:
        return (
            f"run `mainstem check --data-dir {self._directory}` to see what is intact, "
            "and restore the rest from a backup"
        )
