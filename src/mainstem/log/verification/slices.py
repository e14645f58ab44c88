"""Check the slices of a commit: where each is in the file, and whether its bytes are intact."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from crc32c import crc32c

from mainstem.errors import InvalidInput
from mainstem.ledger.entry import SLICE_PACK, AppendRun
from mainstem.log.read.extents import EXTENT, Rows
from mainstem.records.header import crc_matches, stamp, walk


class SliceRow(NamedTuple):
    """A slice as its entry describes it, and the byte of the file where it starts."""

    start: int
    stream: int
    count: int  # type: ignore[assignment]  # offsets taken; hides tuple.count
    length: int
    crc: int
    max_timestamp: int
    producer: int
    base_sequence: int
    producer_epoch: int
    flags: int
    size: int
    batches: int


def slice_rows(run: AppendRun, start: int) -> Iterator[SliceRow]:
    """The slices of a run whose payload starts at byte `start`."""
    for row in SLICE_PACK.iter_unpack(run.slices.tobytes()):
        yield SliceRow(start, *row)
        start += row[2]


def slice_fault(data: memoryview, row: SliceRow) -> str | None:
    """What is wrong with the bytes of a slice, or None. Stamps offsets into `data`."""
    if len(data) != row.length or crc32c(data) != row.crc:
        return "do not match their checksum"
    offsets = batches = 0
    try:
        stamp(data, 0, 0)
        for header in walk(data):
            if not crc_matches(data, header):
                return "hold a batch that does not match its own checksum"
            offsets += header.last_offset_delta + 1
            batches += 1
    except InvalidInput as error:
        return f"are not record batches ({error})"
    if (offsets, batches) != (row.count, row.batches):
        return f"hold {offsets} offsets in {batches} batches, not {row.count} in {row.batches}"
    return None


def written_rows(run: AppendRun, start: int) -> Rows:
    """The slices of a run as extents, with base -1: only a replay knows which are accepted, and at which offset."""
    rows = np.zeros(len(run.slices), EXTENT)
    for name in ("stream", "count", "length", "crc", "max_timestamp"):
        rows[name] = run.slices[name]
    rows["base"] = -1
    lengths = run.slices["length"].astype(np.int64)
    rows["start"] = start + lengths.cumsum() - lengths
    return rows
