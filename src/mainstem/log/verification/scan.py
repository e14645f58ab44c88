"""Scan the frames of a WAL file: whether each of their copies is intact, and the gaps where neither is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from mainstem.errors import LogDamaged
from mainstem.ports.commitlog.local import frame_scan as searches
from mainstem.ports.commitlog.local import frames
from mainstem.ports.commitlog.local.frames import Frame
from mainstem.ports.files import File


class FoundFrame(NamedTuple):
    """A frame with at least one intact copy of its entry."""

    frame: Frame
    entry: bytes
    leading_whole: bool
    trailing_whole: bool


class FrameGap(NamedTuple):
    """Bytes without an intact copy of the next frame."""

    start: int
    end: int
    position: int | None  # of the first frame lost in it, if known
    next_position: int | None  # of the frame after it, if there is one


def scan_frames(
    file: File, log: int, *, at: int, limit: int, position: int | None = None
) -> Iterator[FoundFrame | FrameGap]:
    """Frames from byte `at` on, none past `limit`. The first frame must have `position`, if given."""
    while at < limit:
        found = _at(file, log, at, limit, position)
        if found is None:
            above = -1 if position is None else position - 1
            # In file order, so the second copy of the frame here comes before any copy of a later frame.
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
    """The frame at `at`, by its leading copy."""
    leading = frames.read_leading(file, at, limit, log)
    if leading is None or position not in (None, leading[0].position):
        return None
    frame, entry = leading
    return FoundFrame(frame, bytes(entry), True, frames.read_trailing(file, frame.tail_start, log) == leading)


def _trailing(file: File, log: int, frame: Frame) -> FoundFrame:
    """A frame that was found by its trailing copy."""
    trailing = frames.read_trailing(file, frame.tail_start, log)
    if trailing is None:
        raise LogDamaged(f"{file.path} changed while it was read: is a server writing to it?")
    return FoundFrame(frame, bytes(trailing[1]), False, True)
