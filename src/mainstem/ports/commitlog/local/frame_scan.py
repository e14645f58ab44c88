"""Find frames where the chain from one to the next is broken: by magic, alignment and checksum."""

from __future__ import annotations

import re
from collections.abc import Iterator

from mainstem.ports.commitlog.local import frames
from mainstem.ports.commitlog.local.frames import ALIGN, HEAD_MAGIC, TAIL_BYTES, TAIL_MAGIC, Frame
from mainstem.ports.files import File, read_up_to

_WINDOW_BYTES = 1 << 20  # a multiple of the alignment, so no magic spans two windows
# No magic can overlap another (their first bytes occur nowhere else in them), so the search misses none.
_MAGIC = re.compile(
    b"|".join(re.escape(magic.to_bytes(4, "little")) for magic in (HEAD_MAGIC, TAIL_MAGIC)), re.DOTALL
)
_ZEROS = bytes(_WINDOW_BYTES)
_TAIL_MAGIC_BYTES = TAIL_MAGIC.to_bytes(4, "little")
_TAIL_MAGIC_AT = TAIL_BYTES - 4  # inside the tail


def find_frames(file: File, start: int, size: int, log: int, above: int) -> Iterator[Frame]:
    """Every intact copy of a frame past position `above`, by offset. One frame may come twice."""
    for at, is_tail in _marks(file, start, size):
        if is_tail:
            found = frames.read_trailing(file, at, log)
        else:
            found = frames.read_leading(file, at, size, log)
        if found and found[0].position > above and found[0].start >= start:
            yield found[0]


def find_tail_of(
    file: File, start: int, size: int, log: int, position: int
) -> tuple[Frame, bytearray] | None:
    """The frame at `start` with `position`, from its trailing copy alone."""
    for at, is_tail in _marks(file, start, size):
        if is_tail:
            found = frames.read_trailing(file, at, log)
            if found and found[0].start == start and found[0].position == position:
                return found
    return None


def _marks(file: File, start: int, size: int) -> Iterator[tuple[int, bool]]:
    """Where heads (False) and tails (True) may be: an aligned magic, not yet checked."""
    base = start & -ALIGN
    while base < size:
        window = read_up_to(file, base, min(_WINDOW_BYTES, size - base))
        if not window:
            return
        if _ZEROS.startswith(window):  # most of the space after the end: a regex would take a second for it
            base += len(window)
            continue
        for match in _MAGIC.finditer(window):
            at = base + match.start()
            if match.group() == _TAIL_MAGIC_BYTES:
                at -= _TAIL_MAGIC_AT
                if at % ALIGN == 0 and at >= start:
                    yield at, True
            elif at % ALIGN == 0 and at >= start:
                yield at, False
        base += len(window)
