"""What is whole of stored batches of which something is damaged.

Every batch carries a checksum of its own, so those that match it are whole, wherever the damage is. Their offsets are
known as well: those in front of the damage count from the first offset, those behind it from the last one, since what a
damaged batch says of its own offsets is worth nothing. What lies between two damaged batches is given up with them.
Batches are found by the lengths of those before them; where one of those is damaged, the rest is given up.
"""

from __future__ import annotations

from typing import NamedTuple

from crc32c import crc32c

from mainstem import limits
from mainstem.records.header import CRC_COVERS_FROM, HEADER, HEADER_BYTES, LENGTH_COVERS_FROM, MAGIC


class Salvaged(NamedTuple):
    """The first bytes and the last bytes of a run of batches, and how many offsets they cover."""

    front_bytes: int
    front_offsets: int
    back_bytes: int
    back_offsets: int


def salvage(data: memoryview, offsets: int) -> Salvaged:
    """The whole batches at both ends of a run that covers so many offsets. All of it at the front: only what readers
    stamp anyway is damaged."""
    at = front_bytes = front_offsets = back_offsets = 0
    back_at, damaged = len(data), False
    while at < len(data):
        end, covered = _batch(data, at)
        if end is None:
            back_at, back_offsets, damaged = len(data), 0, True
            break
        if covered is None:
            back_at, back_offsets, damaged = end, 0, True
        elif damaged:
            back_offsets += covered
        else:
            front_bytes, front_offsets = end, front_offsets + covered
        at = end
    if front_offsets + back_offsets + damaged > offsets or (not damaged and front_offsets != offsets):
        return Salvaged(0, 0, 0, 0)  # they are not the batches that they were
    return Salvaged(front_bytes, front_offsets, len(data) - back_at, back_offsets)


def _batch(data: memoryview, at: int) -> tuple[int | None, int | None]:
    """Where a batch ends, if that can be told, and the offsets it covers, if it is whole."""
    if len(data) - at < HEADER_BYTES:
        return None, None
    _, length, _, magic, crc, _, delta, *_ = HEADER.unpack_from(data, at)
    end = at + LENGTH_COVERS_FROM + length
    if length < HEADER_BYTES - LENGTH_COVERS_FROM or end > len(data):
        return None, None
    plausible = magic == MAGIC and 0 <= delta < limits.BATCH_RECORDS_MAX
    whole = plausible and crc32c(data[at + CRC_COVERS_FROM : end]) == crc
    return end, delta + 1 if whole else None
