"""Where records stand to the records: workers read the log's objects and the parts' files themselves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from mainstem import limits
from mainstem.broker.plans import Sources, StoredPiece, WalExtents
from mainstem.errors import LogDamaged, SliceDamaged
from mainstem.lake.object_readers import (
    Content,
    ObjectReader,
    open_object_reader,
    open_pieces,
    open_seekable,
    url_of,
)
from mainstem.ledger.parts import DataFile, Part
from mainstem.log.extents import EXTENT
from mainstem.ports.objectstore.open import shown
from mainstem.records.header import stamp
from mainstem.records.merging import RowRun, merged_rows
from mainstem.records.parquet import RowFile
from mainstem.records.rewrite import Ranges, in_ranges
from mainstem.records.rows import decode_rows
from mainstem.records.salvage import salvage

if TYPE_CHECKING:
    import pyarrow as pa

Rows = npt.NDArray[Any]

_LEADER_EPOCH = 0  # of no meaning in rows


def source_rows(
    sources: Sources, topic: str, partition: int, *, typed: bool = False
) -> Iterator[pa.RecordBatch]:
    """The records of a range in offset order, without those to leave out, a bounded amount at a time.

    Parts come before the log. Raises LogDamaged, naming the offsets, and NotFound if an object is gone."""
    name = f"topic {topic!r}, partition {partition}"
    parts = (_part_rows(part, sources, name, typed) for part in sources.parts)
    with _LastObjectReader() as places:
        lost = [(start, end) for start, end, _ in sources.lost]
        wal = (_wal_rows(extents, lost, sources, places, partition, name) for extents in sources.wal)
        for rows in chain.from_iterable(chain(parts, wal)):
            kept = _rows_in_range(rows, sources)
            if kept.num_rows:
                yield kept


# The log's objects


class _LastObjectReader:
    """The object read last, left open: a stream of copies names the same few objects over and over."""

    def __init__(self) -> None:
        self._of: tuple[str, tuple[StoredPiece, ...]] = ("", ())
        self._place: ObjectReader | None = None

    def __enter__(self) -> _LastObjectReader:
        return self

    def __exit__(self, *_: object) -> None:
        if self._place is not None:
            self._place.close()

    def of(self, extents: WalExtents) -> ObjectReader:
        wanted = (extents.url, extents.pieces)
        if self._place is None or wanted != self._of:
            fresh = open_pieces(*wanted) if extents.pieces else open_object_reader(extents.url)
            if self._place is not None:
                self._place.close()
            self._of, self._place = wanted, fresh
        return self._place


def _wal_rows(
    extents: WalExtents, lost: Ranges, sources: Sources, places: _LastObjectReader, partition: int, name: str
) -> Iterator[pa.RecordBatch]:
    rows = np.frombuffer(extents.rows, EXTENT)
    bases = rows["base"] + extents.shift
    rows = rows[~(in_ranges(bases, lost) & in_ranges(bases + rows["count"] - 1, lost))]  # known to be damaged
    place = places.of(extents)
    for first, last in _pieces(rows):
        batches = _read_slices(place, rows[first:last], extents, (lost, sources.leave_out), name)
        for decoded in decode_rows([batches], partition, timestamp_ms=extents.timestamp_ms):
            low, high = decoded.column("_offset").to_numpy().searchsorted((extents.first, extents.last))
            yield decoded.slice(int(low), int(high - low))


def _pieces(rows: Rows) -> Iterator[tuple[int, int]]:
    """Runs of extents that are fetched and decoded at once: not too many bytes, and far more than one slice."""
    filled = np.cumsum(rows["length"], dtype=np.int64)
    first = 0
    while first < len(rows):
        before = int(filled[first - 1]) if first else 0
        full = int(np.searchsorted(filled, before + limits.LAKE_READ_BYTES, side="right"))
        last = max(full, first + 1)
        yield first, last
        first = last


def _read_slices(
    place: ObjectReader, rows: Rows, extents: WalExtents, gone: tuple[Ranges, Ranges], name: str
) -> Content:
    """The slices, checked and stamped, one after another; without damaged batches, if all in them is `gone`."""
    slices: list[memoryview] = []
    bases: list[int] = []
    blocks, found = _slices(place, rows)
    for slice, row in zip(found, rows.tolist(), strict=True):
        _, count, base, _, length, crc, _ = row
        base += extents.shift
        if len(slice) == length and crc32c(slice) == crc:
            slices.append(slice)
            bases.append(base)
            continue
        whole = _salvage_slices(slice, base, count, gone) if len(slice) == length else []
        if not whole:
            raise SliceDamaged(
                f"{name}: the bytes of offsets [{base}, {base + count}) in {_location_text(extents, row[3])} "
                "do not match their checksum",
                base,
                base + count,
            )
        slices += [piece for piece, _ in whole]
        bases += [first for _, first in whole]
    joined = memoryview(blocks[0])
    # Where a stream's slices stand together, as in repacked files, nothing has to be moved.
    if len(blocks) > 1 or joined.readonly or len(joined) != sum(map(len, slices)):
        joined = memoryview(bytearray().join(slices))
    at = 0
    for slice, base in zip(slices, bases, strict=True):
        stamp(joined[at : at + len(slice)], base, _LEADER_EPOCH)
        at += len(slice)
    return joined


def _salvage_slices(
    slice: memoryview, base: int, count: int, gone: tuple[Ranges, Ranges]
) -> list[tuple[memoryview, int]]:
    """What is whole of joined slices, and its first offsets, if nobody asks for the rest any more."""
    found = salvage(slice, count)
    first, end = base + found.front_offsets, base + count - found.back_offsets
    offsets = np.arange(first, end)
    if not np.all(in_ranges(offsets, gone[0]) | in_ranges(offsets, gone[1])):
        return []
    pieces = [(slice[: found.front_bytes], base), (slice[len(slice) - found.back_bytes :], end)]
    return [(piece, at) for piece, at in pieces if len(piece)]


def _location_text(extents: WalExtents, start: int) -> str:
    """Where the byte of the log's object is, for people."""
    within = [piece.key for piece in extents.pieces if piece.start <= start < piece.start + piece.length]
    return shown(url_of(extents.url, within[0]) if within else extents.url)


def _slices(place: ObjectReader, rows: Rows) -> tuple[Sequence[Content], list[memoryview]]:
    """What was read, and the bytes of each extent in it. Extents near each other come by one read."""
    starts = rows["start"].astype(np.int64)
    ends = starts + rows["length"]
    gaps = starts[1:] - ends[:-1]
    cuts = np.flatnonzero((gaps < 0) | (gaps > limits.LAKE_READ_GAP_BYTES_MAX)) + 1
    firsts = [0, *cuts.tolist()]
    lasts = [*cuts.tolist(), len(rows)]
    blocks = place.read(
        [
            (int(starts[first]), int(ends[last - 1] - starts[first]))
            for first, last in zip(firsts, lasts, strict=True)
        ]
    )
    slices: list[memoryview] = []
    for first, last, block in zip(firsts, lasts, blocks, strict=True):
        view, origin = memoryview(block), int(starts[first])
        for start, end in zip(starts[first:last].tolist(), ends[first:last].tolist(), strict=True):
            slices.append(view[start - origin : end - origin])
    return blocks, slices


# Parts


def _part_rows(part: Part, sources: Sources, name: str, typed: bool) -> Iterator[pa.RecordBatch]:
    def rows_of(file: DataFile) -> Iterator[pa.RecordBatch]:
        url = url_of(sources.store, file.key)
        with open_seekable(url, file.bytes) as source:
            try:
                yield from RowFile(source).rows(sources.base, sources.end, typed=typed)
            except LogDamaged as damage:
                raise LogDamaged(
                    f"{name}: the file {shown(url)}, of offsets [{part.base}, {part.end}), cannot be read: {damage}"
                ) from damage

    wanted = [file for file in part.files if file.base < sources.end and file.end > sources.base]
    yield from merged_rows(RowRun(file.base, partial(rows_of, file)) for file in wanted)


def _rows_in_range(rows: pa.RecordBatch, sources: Sources) -> pa.RecordBatch:
    """The rows inside the range, and not to be left out."""
    import pyarrow as pa

    if not rows.num_rows:
        return rows
    offsets = rows.column("_offset").to_numpy()
    first, last = (int(at) for at in np.searchsorted(offsets, [sources.base, sources.end]))
    inside, offsets = rows.slice(first, last - first), offsets[first:last]
    gone = in_ranges(offsets, sources.leave_out) | in_ranges(offsets, [(a, b) for a, b, _ in sources.lost])
    return inside.filter(pa.array(~gone)) if gone.any() else inside
