"""Every frame of a WAL file with the state of both its copies, and the gaps where none is whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from mainstem.errors import LogDamaged
from mainstem.ports.commitlog import frames, searches
from mainstem.ports.commitlog.frames import Frame
from mainstem.ports.files import File


class FoundFrame(NamedTuple):
    """A frame of which at least one copy of the entry is whole."""

    frame: Frame
    entry: bytes
    leading_whole: bool
    trailing_whole: bool


class FrameGap(NamedTuple):
    """Bytes in which no whole copy of the next frame is."""

    start: int
    end: int
    position: int | None  # of the first frame lost in it, if it is known
    next_position: int | None  # of the frame after it; None: there is none


def scan_frames(
    file: File, log: int, *, at: int, limit: int, position: int | None = None
) -> Iterator[FoundFrame | FrameGap]:
    """Frames from byte `at` on, none past `limit`. A `position` is the one the first frame must have."""
    while at < limit:
        found = _at(file, log, at, limit, position)
        if found is None:
            above = -1 if position is None else position - 1
            # By place, so the second copy of the frame here comes before any copy of a later one.
            later = next(searches.find_frames(file, at, limit, log, above), None)
            if later is None:
                yield FrameGap(at, limit, position, None)
                return
            if later.start > at or position not in (None, later.position):
                yield FrameGap(at, later.start, position, later.position)
            found = _at(file, log, later.start, limit, later.position) or _trailing(file, log, later)
        yield found
        at = found.frame.end
        position = found.frame.position + 1


def _at(file: File, log: int, at: int, limit: int, position: int | None) -> FoundFrame | None:
    """The frame at `at` by its leading copy."""
    leading = frames.read_leading(file, at, limit, log)
    if leading is None or position not in (None, leading[0].position):
        return None
    frame, entry = leading
    return FoundFrame(frame, bytes(entry), True, frames.read_trailing(file, frame.tail_start, log) == leading)


def _trailing(file: File, log: int, frame: Frame) -> FoundFrame:
    """A frame that was found by its trailing copy."""
    trailing = frames.read_trailing(file, frame.tail_start, log)
    if trailing is None:
        raise LogDamaged(f"{file.path} changes while it is read: is a server writing to it?")
    return FoundFrame(frame, bytes(trailing[1]), False, True)
