"""Read the records of a range from the log's objects and the parts' data files, without the broker."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from mainstem import limits
from mainstem.api.lake import DataFile, Part, Sources, StoredPiece, WalExtents
from mainstem.errors import LogDamaged, SliceDamaged
from mainstem.log.read.extents import EXTENT
from mainstem.ports.objectstore.open import redacted_url
from mainstem.records.header import stamp
from mainstem.records.merging import RowRun, merged_rows
from mainstem.records.parquet import RowFile
from mainstem.records.rewrite import Ranges, in_ranges
from mainstem.records.rows import decodable_rows
from mainstem.records.slices import coalesce, cut, is_intact, salvage
from mainstem.tables.parts.object_readers import (
    Content,
    ObjectReader,
    open_object_reader,
    open_pieces,
    open_seekable,
    url_of,
)

if TYPE_CHECKING:
    import pyarrow as pa

LAKE_READ_BYTES = 8 * limits.MIB  # bytes of the log that a worker reads and decodes at a time
LAKE_READ_GAP_BYTES_MAX = 16 * limits.KIB  # one read covers slices closer than this

Rows = npt.NDArray[Any]

_LEADER_EPOCH = 0  # rows do not include it


def source_rows(
    sources: Sources,
    topic: str,
    partition: int,
    *,
    typed: bool = False,
    undecodable: list[tuple[int, int]] | None = None,
) -> Iterator[pa.RecordBatch]:
    """The records of a range in offset order, in bounded batches, without the offsets to leave out.

    Parts come before the log. Adds the offsets of batches that cannot be decoded to `undecodable`. Raises LogDamaged
    with the offsets, and NotFound if an object is missing."""
    undecodable = [] if undecodable is None else undecodable
    name = f"topic {topic!r}, partition {partition}"
    parts = (_part_rows(part, sources, name, typed) for part in sources.parts)
    with _LastObjectReader() as readers:
        lost = [(start, end) for start, end, _ in sources.lost]
        wal = (
            _wal_rows(extents, lost, sources, readers, partition, name, undecodable)
            for extents in sources.wal
        )
        for rows in chain.from_iterable(chain(parts, wal)):
            kept = _rows_in_range(rows, sources)
            if kept.num_rows:
                yield kept


# The log's objects


class _LastObjectReader:
    """Keeps the last object open: the extents of an alias stream refer to the same few objects many times."""

    def __init__(self) -> None:
        self._opened: tuple[str, tuple[StoredPiece, ...]] = ("", ())
        self._reader: ObjectReader | None = None

    def __enter__(self) -> _LastObjectReader:
        return self

    def __exit__(self, *_: object) -> None:
        if self._reader is not None:
            self._reader.close()

    def open(self, extents: WalExtents) -> ObjectReader:
        wanted = (extents.url, extents.pieces)
        if self._reader is None or wanted != self._opened:
            reader = open_pieces(*wanted) if extents.pieces else open_object_reader(extents.url)
            if self._reader is not None:
                self._reader.close()
            self._opened, self._reader = wanted, reader
        return self._reader


def _wal_rows(
    extents: WalExtents,
    lost: Ranges,
    sources: Sources,
    readers: _LastObjectReader,
    partition: int,
    name: str,
    undecodable: list[tuple[int, int]],
) -> Iterator[pa.RecordBatch]:
    rows = np.frombuffer(extents.rows, EXTENT)
    bases = rows["base"] + extents.shift
    rows = rows[~(in_ranges(bases, lost) & in_ranges(bases + rows["count"] - 1, lost))]  # known to be damaged
    reader = readers.open(extents)
    for first, last in _read_groups(rows):
        batches = _read_slices(reader, rows[first:last], extents, (lost, sources.leave_out), name)
        for decoded in decodable_rows(batches, partition, undecodable, timestamp_ms=extents.timestamp_ms):
            low, high = decoded.column("_offset").to_numpy().searchsorted((extents.first, extents.last))
            yield decoded.slice(int(low), int(high - low))


def _read_groups(rows: Rows) -> Iterator[tuple[int, int]]:
    """Groups of extents that are read and decoded together: bounded in bytes, and far more than one slice."""
    filled = np.cumsum(rows["length"], dtype=np.int64)
    first = 0
    while first < len(rows):
        before = int(filled[first - 1]) if first else 0
        full = int(np.searchsorted(filled, before + LAKE_READ_BYTES, side="right"))
        last = max(full, first + 1)
        yield first, last
        first = last


def _read_slices(
    reader: ObjectReader, rows: Rows, extents: WalExtents, unwanted: tuple[Ranges, Ranges], name: str
) -> Content:
    """The slices, checked and with their base offsets, contiguous. Skips damaged batches whose offsets are all
    `unwanted`."""
    slices: list[memoryview] = []
    bases: list[int] = []
    places = list(zip(rows["start"].tolist(), rows["length"].tolist(), strict=True))
    runs = coalesce(places, LAKE_READ_GAP_BYTES_MAX)
    blocks = reader.read([(run.start, run.length) for run in runs])
    for slice, row in zip(cut(runs, blocks, places), rows.tolist(), strict=True):
        _, count, base, _, length, crc, _ = row
        base += extents.shift
        if is_intact(slice, length, crc):
            slices.append(slice)
            bases.append(base)
            continue
        intact = _salvage_slices(slice, base, count, unwanted) if len(slice) == length else []
        if not intact:
            raise SliceDamaged(
                f"{name}: the bytes of offsets [{base}, {base + count}) in {_location_text(extents, row[3])} "
                "do not match their checksum",
                base,
                base + count,
            )
        slices += [piece for piece, _ in intact]
        bases += [first for _, first in intact]
    joined = memoryview(blocks[0])
    # The slices of a stream in a repacked object are contiguous: no copy is necessary.
    if len(blocks) > 1 or joined.readonly or len(joined) != sum(map(len, slices)):
        joined = memoryview(bytearray().join(slices))
    at = 0
    for slice, base in zip(slices, bases, strict=True):
        stamp(joined[at : at + len(slice)], base, _LEADER_EPOCH)
        at += len(slice)
    return joined


def _salvage_slices(
    slice: memoryview, base: int, count: int, unwanted: tuple[Ranges, Ranges]
) -> list[tuple[memoryview, int]]:
    """The intact parts of a damaged slice with their first offsets; none if a damaged offset is wanted."""
    found = salvage(slice, base, count)
    offsets = np.arange(found.first, found.end)
    if not np.all(in_ranges(offsets, unwanted[0]) | in_ranges(offsets, unwanted[1])):
        return []
    return [(piece, at) for piece, at in ((found.before, base), (found.after, found.end)) if piece]


def _location_text(extents: WalExtents, start: int) -> str:
    """The URL of the object with this byte, for error texts."""
    within = [piece.key for piece in extents.pieces if piece.start <= start < piece.start + piece.length]
    return redacted_url(url_of(extents.url, within[0]) if within else extents.url)


# Parts


def _part_rows(part: Part, sources: Sources, name: str, typed: bool) -> Iterator[pa.RecordBatch]:
    def rows_of(file: DataFile) -> Iterator[pa.RecordBatch]:
        url = url_of(sources.store, file.key)
        with open_seekable(url, file.bytes) as source:
            try:
                yield from RowFile(source).rows(sources.base, sources.end, typed=typed)
            except LogDamaged as damage:
                raise LogDamaged(
                    f"{name}: cannot read the file {redacted_url(url)} of offsets [{part.base}, {part.end}): {damage}"
                ) from damage

    wanted = [file for file in part.files if file.base < sources.end and file.end > sources.base]
    yield from merged_rows(RowRun(file.base, partial(rows_of, file)) for file in wanted)


def _rows_in_range(rows: pa.RecordBatch, sources: Sources) -> pa.RecordBatch:
    """The rows in the range, without the offsets to leave out and the lost ones."""
    import pyarrow as pa

    if not rows.num_rows:
        return rows
    offsets = rows.column("_offset").to_numpy()
    first, last = (int(at) for at in np.searchsorted(offsets, [sources.base, sources.end]))
    inside, offsets = rows.slice(first, last - first), offsets[first:last]
    unwanted = in_ranges(offsets, sources.leave_out) | in_ranges(
        offsets, [(start, end) for start, end, _ in sources.lost]
    )
    return inside.filter(pa.array(~unwanted)) if unwanted.any() else inside
