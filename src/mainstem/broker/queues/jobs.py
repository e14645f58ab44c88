"""Reads the records of claimed jobs, and caches what one claim read for the next, which usually continues there."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mainstem import limits
from mainstem.broker.decoding import decode_bounded
from mainstem.broker.streams import StreamService
from mainstem.errors import OffsetOutOfRange, RecordsLost
from mainstem.records import kernels
from mainstem.records.decoding import Headers, StoredRecord
from mainstem.records.index import RecordIndex, index_slices

QUEUE_PIECES_MAX = 256  # ranges of records cached after a claim, for the next one
QUEUE_PIECES_BYTES_MAX = 32 * limits.MIB

_READ_BYTES_MIN = 64 * limits.KIB
_READ_BYTES_PER_RECORD = 512  # an estimate; if it is too low, the rest needs another read
_FEW = 4  # records below which array calls cost more than they save


class _CachedBatches(NamedTuple):
    """Batches that were read together: all records of [first, end)."""

    first: int
    end: int
    records: RecordIndex | None  # None if the range has no records

    @property
    def bytes(self) -> int:
        return self.records.data.nbytes + self.records.fields.nbytes if self.records else 0


class JobReader:
    """Records by offset, with a bounded least-recently-used cache."""

    def __init__(self, streams: StreamService) -> None:
        self._streams = streams
        self._pieces: OrderedDict[tuple[int, int], _CachedBatches] = (
            OrderedDict()
        )  # by stream and first offset
        self._firsts: dict[int, list[int]] = {}  # first offsets of a stream's cached pieces, rising
        self.cached_bytes = 0

    def __len__(self) -> int:
        """The number of cached pieces."""
        return len(self._pieces)

    async def read(self, stream: int, offsets: Sequence[int]) -> list[StoredRecord | None]:
        """The records at these rising offsets, as written; None where the record does not exist (any more)."""
        found: list[StoredRecord | None] = []
        while len(found) < len(offsets):
            at = len(found)
            piece = self._piece(stream, offsets[at])
            if piece is None:
                try:
                    piece = await self._load(stream, offsets[at], len(offsets) - at)
                except RecordsLost as loss:
                    found += [None] * _count_below(offsets, at, loss.end)
                    continue
                except OffsetOutOfRange as moved:
                    found += [None] * max(1, _count_below(offsets, at, moved.start))
                    continue
            found += _pick(piece, offsets[at : at + _count_below(offsets, at, piece.end)])
        return found

    def forget(self, stream: int) -> None:
        """Drop the cached records of a stream."""
        for first in self._firsts.pop(stream, []):
            self.cached_bytes -= self._pieces.pop((stream, first)).bytes

    def _piece(self, stream: int, offset: int) -> _CachedBatches | None:
        firsts = self._firsts.get(stream, [])
        at = bisect_right(firsts, offset) - 1
        if at < 0:
            return None
        piece = self._pieces[stream, firsts[at]]
        if offset >= piece.end:
            return None
        self._pieces.move_to_end((stream, piece.first))
        return piece

    async def _load(self, stream: int, offset: int, wanted: int) -> _CachedBatches:
        max_bytes = min(max(_READ_BYTES_MIN, wanted * _READ_BYTES_PER_RECORD), limits.READ_BYTES_DEFAULT)
        chunk = await self._streams.read_undeleted(stream, offset, max_bytes)
        index, reached = await decode_bounded(
            asyncio.to_thread, chunk.batches, offset, chunk.next_offset, _index_of
        )
        # The first batch may begin before the offset; its records are cached too.
        first = min(offset, int(index.fields[kernels.OFFSET, 0])) if index else offset
        piece = _CachedBatches(first, max(reached, offset + 1), index)
        self._keep(stream, piece)
        return piece

    def _keep(self, stream: int, piece: _CachedBatches) -> None:
        old = self._pieces.pop((stream, piece.first), None)
        if old is None:
            firsts = self._firsts.setdefault(stream, [])
            firsts.insert(bisect_right(firsts, piece.first), piece.first)
        else:
            self.cached_bytes -= old.bytes
        self._pieces[stream, piece.first] = piece
        self.cached_bytes += piece.bytes
        while len(self._pieces) > 1 and (
            self.cached_bytes > QUEUE_PIECES_BYTES_MAX or len(self._pieces) > QUEUE_PIECES_MAX
        ):
            (gone, first), dropped = self._pieces.popitem(last=False)
            self.cached_bytes -= dropped.bytes
            self._firsts[gone].remove(first)
            if not self._firsts[gone]:
                del self._firsts[gone]


def _count_below(offsets: Sequence[int], start: int, end: int) -> int:
    at = start
    while at < len(offsets) and offsets[at] < end:
        at += 1
    return at - start


def _index_of(batches: Sequence[memoryview], decoded_max: int) -> RecordIndex | None:
    """All records of some batches under one index. Raises FAULTS."""
    parts = list(index_slices(batches, decoded_max=decoded_max))
    if not parts:
        return None
    if len(parts) == 1:
        return parts[0]
    data = memoryview(b"".join(part.data for part in parts))
    fields, base = [], 0
    for part in parts:
        moved = part.fields.copy()
        for row in (kernels.START, kernels.END, kernels.KEY_AT, kernels.VALUE_AT, kernels.HEADERS_AT):
            moved[row] += base
        fields.append(moved)
        base += part.data.nbytes
    return RecordIndex(data, np.concatenate(fields, axis=1), sum(part.headers for part in parts))


def _pick(piece: _CachedBatches, offsets: Sequence[int]) -> list[StoredRecord | None]:
    index = piece.records
    if index is None or not len(index):
        return [None] * len(offsets)
    if len(offsets) <= _FEW:
        return [_pick_one(index, offset) for offset in offsets]
    stored = index.fields[kernels.OFFSET]
    at = np.minimum(np.searchsorted(stored, np.array(offsets, np.int64)), len(stored) - 1)
    rows = index.fields[:, at].tolist()
    data = index.data
    values = _spans(data, rows[kernels.VALUE_AT], rows[kernels.VALUE_LENGTH])
    keys = _spans(data, rows[kernels.KEY_AT], rows[kernels.KEY_LENGTH])
    headers: list[Headers] = [()] * len(offsets)
    if index.headers:
        headers = [
            _headers(data, start, end, count)
            for start, end, count in zip(
                rows[kernels.HEADERS_AT], rows[kernels.END], rows[kernels.HEADERS], strict=True
            )
        ]
    records: list[StoredRecord | None] = list(
        map(StoredRecord._make, zip(offsets, rows[kernels.TIMESTAMP], keys, values, headers, strict=True))
    )
    if rows[kernels.OFFSET] != list(offsets):  # a marker, or compacted away
        for position, offset in enumerate(rows[kernels.OFFSET]):
            if offset != offsets[position]:
                records[position] = None
    return records


def _pick_one(index: RecordIndex, offset: int) -> StoredRecord | None:
    stored = index.fields[kernels.OFFSET]
    row = offset - int(stored[0])
    if not 0 <= row < len(stored) or stored[row] != offset:  # there are gaps before it
        row = min(int(np.searchsorted(stored, offset)), len(stored) - 1)
    found, time_ms, _, end, key_at, key_length, value_at, value_length, headers_at, headers = index.fields[
        :, row
    ].tolist()
    if found != offset:
        return None
    data = index.data
    return StoredRecord(
        offset,
        time_ms,
        None if key_length < 0 else bytes(data[key_at : key_at + key_length]),
        None if value_length < 0 else bytes(data[value_at : value_at + value_length]),
        _headers(data, headers_at, end, headers) if headers else (),
    )


def _spans(data: memoryview, starts: list[int], lengths: list[int]) -> list[bytes | None]:
    return [
        None if length < 0 else bytes(data[start : start + length])
        for start, length in zip(starts, lengths, strict=True)
    ]


def _headers(data: memoryview, at: int, end: int, count: int) -> Headers:
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name_at, name_length, content_at, content_length, at = kernels.read_header(data, at, end)
        name = bytes(data[name_at : name_at + name_length]).decode("utf-8", "replace")
        content = None if content_length < 0 else bytes(data[content_at : content_at + content_length])
        headers.append((name, content))
    return tuple(headers)
