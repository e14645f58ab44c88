"""Read a segment frame by frame: fast where it is intact, carefully where it is damaged."""

from __future__ import annotations

from crc32c import crc32c

from mainstem import limits
from mainstem.ports.commitlog.local import frame_scan as searches
from mainstem.ports.commitlog.local import frames
from mainstem.ports.commitlog.local.frames import HEAD, HEAD_BYTES, HEAD_MAGIC, TAIL_BYTES, VERSION, Frame
from mainstem.ports.commitlog.port import Committed, Placement
from mainstem.ports.files import File, read_up_to


class SegmentCursor:
    """A cursor over the frames of a segment.

    `at` and `position` name the next frame; both move only past frames that are valid."""

    def __init__(self, file: File, number: int, log: int, *, at: int, position: int, limit: int) -> None:
        self.at = at
        self.position = position
        self._file = file
        self._number = number
        self._log = log
        self._limit = limit  # no frame extends past this byte
        self._window = b""
        self._base = at  # where the window starts in the file

    def run(self, end_position: int) -> list[Committed]:
        """The next intact frames, up to one chunk. Empty: the next one needs `examine`."""
        found: list[Committed] = []
        budget = limits.FOLLOW_CHUNK_COMMITS
        while len(found) < budget and self.position < end_position:
            if not self._parse(found, min(budget, len(found) + end_position - self.position)):
                break
        return found

    def examine(self) -> tuple[Frame, Committed] | None:
        """The next frame if one of its copies is intact. Does not move; see `step`."""
        found = frames.read_leading(self._file, self.at, self._limit, self._log)
        if found is None or found[0].position != self.position:
            found = searches.find_tail_of(self._file, self.at, self._limit, self._log, self.position)
        if found is None:
            return None
        frame, entry = found
        intact = frames.payload_is_intact(self._file, frame)
        placement = Placement(frame.position, self._number, frame.payload_start)
        return frame, Committed(placement, bytes(entry), frame.payload_length, intact)

    def step(self, frame: Frame) -> None:
        """Move past a frame that `examine` returned."""
        self.at = frame.end
        self.position += 1

    def _parse(self, found: list[Committed], budget: int) -> bool:
        """Parse the window. False if the next frame needs `examine` or is not there."""
        window, filled, base = self._window, len(self._window), self._base
        view = memoryview(window)
        number, log, position = self._number, self._log, self.position
        place = self.at - base  # in the window
        unpack, crc_of = HEAD.unpack_from, crc32c
        new = tuple.__new__  # the classes' own constructors cost more than everything else here
        wanted = 0  # bytes that the next frame needs in the window; 0: it is there and not valid
        while len(found) < budget:
            entry_start = place + HEAD_BYTES
            if entry_start > filled:
                wanted = HEAD_BYTES
                break
            magic, crc, version, _, entry_length, length, payload_crc, found_position, found_log, _ = unpack(
                window, place
            )
            if magic != HEAD_MAGIC or found_position != position or found_log != log or version != VERSION:
                break
            start = entry_start + entry_length
            end = start + length
            if end > filled:
                wanted = end - place
                break
            if crc_of(view[place + 8 : start]) != crc or crc_of(view[start:end]) != payload_crc:
                break
            placement = new(Placement, (position, number, base + start))
            found.append(new(Committed, (placement, window[entry_start:start], length, True)))
            position += 1
            place = ((end + entry_length + 7) & -8) + TAIL_BYTES
        self.position = position
        self.at = base + place
        return len(found) >= budget or (wanted > 0 and self._refill(wanted))

    def _refill(self, wanted: int) -> bool:
        """Move the window to the next frame. False if the file is too short."""
        if self.at + wanted > self._limit:
            return False
        size = min(max(wanted, limits.FOLLOW_WINDOW_BYTES), self._limit - self.at)
        self._base = self.at
        self._window = bytes(read_up_to(self._file, self.at, size))
        return len(self._window) >= wanted
