"""Scan the WAL files without changing them: what is intact, what is damaged, where the log ends."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from mainstem import limits
from mainstem.ports.commitlog.local import frame_scan as searches
from mainstem.ports.commitlog.local import frames, segments
from mainstem.ports.commitlog.local.frames import HEAD_BYTES, Frame
from mainstem.ports.commitlog.local.identity import LogId
from mainstem.ports.commitlog.local.segment_cursor import SegmentCursor
from mainstem.ports.commitlog.local.segments import HEADER_BYTES, INDEX_MAGIC, UNUSED, Segment
from mainstem.ports.commitlog.port import Committed
from mainstem.ports.files import File, Files, read_up_to

_POSITION_MAX = (1 << 64) - 1


@dataclass(slots=True)
class SegmentScan:
    """What a scan found in one WAL file."""

    number: int
    size: int
    first: int | None  # position of its first commit; None if nothing in the file says
    header_whole: bool
    end: int = 0  # one past the last commit of the unbroken run from the start
    data_end: int = HEADER_BYTES  # where that run ends
    sealed: bool = False
    index: bytes | None = None  # found after the frames, if the footer is damaged
    doubtful: Frame | None = None  # after the run: intact entry, damaged payload, no second copy
    beyond: list[Frame] = field(default_factory=list)  # intact frames after a break in the run
    damaged: list[int] = field(default_factory=list)  # positions whose payload fails its checksum
    repairs: list[tuple[int, bytes]] = field(default_factory=list)  # entry copies to rewrite: (offset, copy)
    litter_end: int = HEADER_BYTES  # after the last byte that is not zero

    @property
    def litter_bytes(self) -> int:
        """Bytes after the run that are neither zeros nor an index."""
        return 0 if self.sealed or self.index is not None else max(0, self.litter_end - self.data_end)

    @property
    def empty(self) -> bool:
        """The file never held a commit."""
        return not (self.sealed or self.beyond or self.doubtful or self.end > (self.first or 0))

    def segment(self) -> Segment:
        return Segment(
            self.number,
            self.first or 0,
            self.end,
            self.data_end,
            self.sealed,
            self.size if self.sealed else 0,
        )


def survey(files: Files, wal: Path, log: LogId) -> list[SegmentScan]:
    """Every WAL file, by number."""
    named = map(segments.number_of, files.listdir(wal))
    numbers = sorted(number for number in named if number is not None)
    return [scan_segment(files, wal, log, number) for number in numbers]


def scan_segment(files: Files, wal: Path, log: LogId, number: int) -> SegmentScan:
    """A sealed file is trusted by its footer; any other file is read completely."""
    file = files.open(segments.segment_path(wal, number))
    try:
        header = segments.read_header(file)
        if header is not None and (header.log != log.whole or header.number != number):
            header = None
        footer = segments.read_footer(file, log, number)
        if footer is not None:
            return SegmentScan(
                number,
                file.size(),
                footer.first,
                header is not None,
                end=footer.end,
                data_end=footer.index_a,
                sealed=True,
            )
        first = header.first if header and header.first != UNUSED else _first_position(file, log)
        found = SegmentScan(number, file.size(), first, header is not None and header.first == first)
        if first is None:
            found.beyond = _beyond(file, HEADER_BYTES, found.size, log, -1)
            found.litter_end = _litter_end(file, HEADER_BYTES, found.size)
        else:
            found.end = first
            _read_through(file, log, found, first)
        return found
    finally:
        file.close()


def _first_position(file: File, log: LogId) -> int | None:
    """The position of the frame right after the header, from either copy."""
    found = frames.read_leading(file, HEADER_BYTES, file.size(), log.low)
    if found is not None:
        return found[0].position
    for frame in searches.find_frames(file, HEADER_BYTES, file.size(), log.low, -1):
        if frame.start == HEADER_BYTES:
            return frame.position
    return None


def _read_through(file: File, log: LogId, found: SegmentScan, first: int) -> None:
    """Follow the frames from the start until neither copy of the next one is intact."""
    walk = SegmentCursor(file, found.number, log.low, at=HEADER_BYTES, position=first, limit=found.size)
    last: Committed | None = None
    while True:
        run = walk.run(_POSITION_MAX)
        if run:
            last = run[-1]
            continue
        seen = walk.examine()
        if seen is None:
            found.beyond = _beyond(file, walk.at, found.size, log, walk.position)
            break
        frame, last = seen
        second = frames.read_trailing(file, frame.tail_start, log.low)
        alone = second is None or second[0] != frame
        if not last.payload_intact and alone and not _beyond(file, walk.at, found.size, log, walk.position):
            found.doubtful = frame
            break
        if not last.payload_intact:
            found.damaged.append(frame.position)
            if alone:  # this commit is kept, and must still be once what follows it is cut
                found.repairs.append((frame.payload_end, frames.trailing_copy(frame, last.entry, log.low)))
        if frames.read_leading(file, frame.start, found.size, log.low) is None:
            found.repairs.append((frame.start, frames.leading_copy(frame, last.entry, log.low)))
        walk.step(frame)
    found.end = walk.position
    found.data_end = walk.at
    if last is not None and found.end > first and last.placement.position == found.end - 1:
        _check_last_tail(file, log, found, last)
    found.litter_end = _litter_end(file, found.data_end, found.size)
    if found.litter_end > found.data_end and not found.beyond:
        found.index = _index_after(file, log, found)


def _beyond(file: File, start: int, size: int, log: LogId, above: int) -> list[Frame]:
    return list(searches.find_frames(file, start, size, log.low, above))


def _check_last_tail(file: File, log: LogId, found: SegmentScan, last: Committed) -> None:
    """The write of the last frame may have been cut off in its second copy; no later frame shows that."""
    start = last.placement.start - len(last.entry) - HEAD_BYTES
    leading = frames.read_leading(file, start, found.size, log.low)
    if leading is None:
        return
    frame, entry = leading
    if frames.read_trailing(file, frame.tail_start, log.low) is None:
        found.repairs.append((frame.payload_end, frames.trailing_copy(frame, entry, log.low)))


def _index_after(file: File, log: LogId, found: SegmentScan) -> bytes | None:
    """An index made for exactly these frames: the file was sealed and its footer is damaged."""
    tail = read_up_to(file, found.data_end, min(found.size - found.data_end, limits.ENTRY_BYTES_MAX))
    at = tail.find(INDEX_MAGIC)
    while at >= 0:
        copy = segments.read_index_at(file, found.data_end + at, log, found.number)
        if copy is not None and copy[1:] == (found.first, found.end):
            return copy[0]
        at = tail.find(INDEX_MAGIC, at + 1)
    return None


def _litter_end(file: File, start: int, size: int) -> int:
    """After the last non-zero byte from `start` on; `start` if there is none."""
    end = start
    zeros = bytes(limits.FOLLOW_WINDOW_BYTES)
    while start < size:
        window = read_up_to(file, start, min(len(zeros), size - start))
        if not window:
            break
        if not zeros.startswith(window):
            end = start + len(window.rstrip(b"\0"))
        start += len(window)
    return end
