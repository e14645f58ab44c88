"""Salvage the intact batches of a damaged slice.

Every batch has its own checksum, so the batches that match it are intact, wherever the damage is. Their offsets are
known too: batches before the damage count from the first offset, batches after it from the last, because the offsets
in a damaged batch's header cannot be trusted. Batches between two damaged ones are lost with them. The length field of
each batch leads to the next one; if a length is damaged, the rest is lost.
"""

from __future__ import annotations

from typing import NamedTuple

from crc32c import crc32c

from mainstem import limits
from mainstem.records.header import CRC_COVERS_FROM, HEADER, HEADER_BYTES, LENGTH_COVERS_FROM, MAGIC


class Salvaged(NamedTuple):
    """The intact bytes at both ends of a slice, and the number of offsets they cover."""

    front_bytes: int
    front_offsets: int
    back_bytes: int
    back_offsets: int


def salvage(data: memoryview, offsets: int) -> Salvaged:
    """The intact batches at both ends of a slice that covers this number of offsets. All at the front if only the
    fields that readers overwrite are damaged."""
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
        return Salvaged(0, 0, 0, 0)  # not the original batches
    return Salvaged(front_bytes, front_offsets, len(data) - back_at, back_offsets)


def _batch(data: memoryview, at: int) -> tuple[int | None, int | None]:
    """The end of a batch, if it is known, and the offsets it covers, if it is intact."""
    if len(data) - at < HEADER_BYTES:
        return None, None
    _, length, _, magic, crc, _, delta, *_ = HEADER.unpack_from(data, at)
    end = at + LENGTH_COVERS_FROM + length
    if length < HEADER_BYTES - LENGTH_COVERS_FROM or end > len(data):
        return None, None
    plausible = magic == MAGIC and 0 <= delta < limits.BATCH_RECORDS_MAX
    intact = plausible and crc32c(data[at + CRC_COVERS_FROM : end]) == crc
    return end, delta + 1 if intact else None
