"""Compact batches: find the newest record of each key, and leave out the others. Offsets do not change.

An index of keys is filled from the records that were never compacted, in the order of their offsets. It holds a hash
and an offset a key, within a bounded number of bytes: once it is full, only what it was filled from is compacted.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from mainstem import limits
from mainstem.errors import InvalidBatch, TooLarge
from mainstem.records import compaction_kernels as kernel
from mainstem.records import kernels
from mainstem.records.compiled import compiled, octets
from mainstem.records.compression import CODECS, compress, decompress
from mainstem.records.header import CRC_AT, CRC_COVERS_FROM, HEADER_BYTES, RECORD_BYTES_MIN

KEY_INDEX_BYTES = 96 * limits.MIB  # of an index of keys: four million of them
KEY_INDEX_SLOTS_MIN = 1 << 14
COMPACTED_OFFSETS_MAX = 64 * limits.MIB  # never compacted, of one stream, that one compaction looks at
DECODED_AT_ONCE_BYTES = 64 * limits.MIB  # decompressed records, unless a single slice has more
UNDECODABLE_BATCHES_MAX = 64  # in slices that are decoded together; slices with more stay as they are
_LOAD_MAX = 0.8  # share of used slots

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Bytes = bytes | bytearray | memoryview


class KeyIndex:
    """The offset of the newest record of each key of some streams."""

    def __init__(self, max_bytes: int = KEY_INDEX_BYTES) -> None:
        slot_bytes = kernel.SLOT_WORDS * 8
        self._slots_max = 1 << (max(max_bytes // slot_bytes, 2).bit_length() - 1)
        self._seeds = np.frombuffer(secrets.token_bytes(16), np.uint64)
        self._table = self._empty(min(KEY_INDEX_SLOTS_MIN, self._slots_max))
        self._used = 0

    @staticmethod
    def _empty(slots: int) -> npt.NDArray[np.uint64]:
        return np.zeros(slots * kernel.SLOT_WORDS, np.uint64)

    def __len__(self) -> int:
        return self._used

    @property
    def memory_bytes(self) -> int:
        return self._table.nbytes

    def add(
        self, data: Bytes, fields: Int64s, wanted: Bools, stream: int, superseded: Bools, base: int
    ) -> int | None:
        """Add records of a stream, later ones than before. Marks older ones in `superseded`, which begins at the offset
        `base`. Returns the offset of the first record that found no room."""
        row = 0
        while True:
            slots = len(self._table) // kernel.SLOT_WORDS
            row, self._used = compiled(kernel.add_newest)(
                octets(data),
                fields,
                wanted,
                row,
                np.uint64(stream),
                self._seeds,
                self._table,
                self._used,
                int(slots * _LOAD_MAX),
                superseded,
                base,
            )
            if row == fields.shape[1]:
                return None
            if slots >= self._slots_max:
                return int(fields[kernels.OFFSET, row])
            self._grow()

    def keep_last(self, data: Bytes, fields: Int64s, wanted: Bools, stream: int, kept: Bools) -> None:
        """Add wanted records of a stream, earlier ones than before. Unmarks those in `kept` that have a newer one."""
        row = fields.shape[1]
        while row:
            slots = len(self._table) // kernel.SLOT_WORDS
            row, self._used = compiled(kernel.keep_last)(
                octets(data),
                fields,
                wanted,
                row,
                np.uint64(stream),
                self._seeds,
                self._table,
                self._used,
                int(slots * _LOAD_MAX),
                slots < self._slots_max,
                kept,
            )
            if row:
                self._grow()

    def _grow(self) -> None:
        larger = self._empty(2 * len(self._table) // kernel.SLOT_WORDS)
        compiled(kernel.rehash)(self._table, larger)
        self._table = larger

    def older(self, data: Bytes, fields: Int64s, stream: int, end: int) -> Bools:
        """A mask of the records below the offset `end` that have a newer one in the index."""
        older = np.zeros(fields.shape[1], np.bool_)
        compiled(kernel.mark_older)(
            octets(data), fields, end, np.uint64(stream), self._seeds, self._table, older
        )
        return older


@dataclass(slots=True)
class StreamCompaction:
    """What to remove of one stream: everything below `base` was compacted before."""

    stream: int
    base: int
    end: int  # records from here on stay, and remove nothing
    before_ms: int | None = None  # from the first record of this time or later on, all records stay
    floor: int = 0  # records below it are deleted
    tombstones_end: int = 0  # tombstones below it have been kept long enough
    holes: Sequence[tuple[int, int]] = ()  # deleted and aborted records
    last: int = -1  # a batch that ends here stays, even if it is empty
    apart: bool = False  # its slices stay apart
    superseded: Bools = field(default_factory=lambda: np.zeros(0, np.bool_))  # from `base` on
    tombstones: int = 0  # kept, that can go later
    unsure: bool = False  # some of its slices are damaged: older records of a tombstone's key may be in them

    def gone(self, offsets: Int64s) -> Bools:
        """A mask of the records that nobody can read."""
        gone: Bools = offsets < self.floor
        if self.holes:
            starts, ends = np.array(self.holes, np.int64).T
            at = np.searchsorted(starts, offsets, side="right") - 1
            gone |= (at >= 0) & (offsets < ends[at])
        return gone

    def add_to(self, keys: KeyIndex, slices: DecodedSlices) -> bool:
        """Add the records that were never compacted. False: no later ones can be added, and `end` is lower now."""
        offsets = slices.fields[kernels.OFFSET]
        reach = min(self.end, self.base + COMPACTED_OFFSETS_MAX)
        if self.before_ms is not None:
            young = (slices.fields[kernels.TIMESTAMP] >= self.before_ms) & (offsets >= self.base)
            if young.any():
                reach = min(reach, int(offsets[young.argmax()]))
        if len(offsets):
            needed = min(int(offsets[-1]) + 1, reach) - self.base
            if needed > len(self.superseded):
                grown = np.zeros(max(needed, 2 * len(self.superseded)), np.bool_)
                grown[: len(self.superseded)] = self.superseded
                self.superseded = grown
        wanted = (offsets >= self.base) & (offsets < reach) & ~self.gone(offsets)
        full_at = keys.add(slices.data, slices.fields, wanted, self.stream, self.superseded, self.base)
        if full_at is None and len(offsets) and int(offsets[-1]) >= reach:
            full_at = reach
        if full_at is not None:
            self.end = min(self.end, full_at)
        return full_at is None

    def keep(self, keys: KeyIndex, slices: DecodedSlices) -> tuple[Bools, int]:
        """A mask of the records that stay, and how many live ones do not."""
        offsets = slices.fields[kernels.OFFSET]
        gone = self.gone(offsets)
        older = keys.older(slices.data, slices.fields, self.stream, self.base)
        at = offsets - self.base
        inside = (at >= 0) & (at < len(self.superseded))
        older[inside] |= self.superseded[at[inside]]
        tombstone = (slices.fields[kernels.VALUE_LENGTH] < 0) & (slices.fields[kernels.KEY_LENGTH] >= 0)
        if not self.unsure:
            older |= tombstone & (offsets < self.tombstones_end)
        kept = ~(gone | older)
        self.tombstones += int((kept & tombstone & (offsets < self.end)).sum())
        return kept, int((older & ~gone).sum())

    def keep_last(self, keys: KeyIndex, slices: DecodedSlices) -> tuple[Bools, int]:
        """As `keep`, of slices that come before those of earlier calls: whatever has a newer one in these goes."""
        offsets = slices.fields[kernels.OFFSET]
        gone = self.gone(offsets)
        kept = ~gone
        keys.keep_last(slices.data, slices.fields, kept & (offsets < self.end), self.stream, kept)
        return kept, int((~kept & ~gone).sum())


class CompactedSlices(NamedTuple):
    data: bytes | bytearray | memoryview
    batches: Int64s  # as named in compaction_kernels: OUT_…


@dataclass(slots=True)
class DecodedSlices:
    """Slices of one stream, and the positions of their records. Slices that are not whole batches are `opaque`."""

    stored: memoryview
    data: Bytes  # what the positions refer to
    fields: Int64s
    batches: Int64s
    places: Int64s
    opaque: Bools

    @property
    def compressed(self) -> bool:
        return bool((self.places[:, kernel.CODEC] * (1 - self.places[:, kernel.OPAQUE])).any())

    def rewritten(self, kept: Bools, last: int) -> CompactedSlices:
        """The batches without the records that are not kept, but without opaque slices."""
        if self.compressed:
            return self._recompressed(kept, last)
        out = np.empty(
            int((self.places[:, kernel.BATCH_END] - self.places[:, kernel.POSITION]).sum()), np.uint8
        )
        written = np.empty((len(self.batches), kernel.OUT_FIELDS), np.int64)
        rows = compiled(kernel.write_kept)(
            octets(self.data), self.batches, self.places, self.fields, kept, last, out, written
        )
        written = written[:rows]
        data = memoryview(out).cast("B")  # type: ignore[arg-type]
        changed = written[written[:, kernel.OUT_CHANGED] != 0]
        for start, end in zip(
            changed[:, kernel.OUT_START].tolist(), changed[:, kernel.OUT_END].tolist(), strict=True
        ):
            _put_crc(data, start, end)
        end = int(written[-1, kernel.OUT_END]) if rows else 0
        return CompactedSlices(data[:end], written)

    def _recompressed(self, kept: Bools, last: int) -> CompactedSlices:
        out = bytearray()
        written: list[tuple[int, ...]] = []
        record = 0
        for batch, place in zip(self.batches.tolist(), self.places.tolist(), strict=True):
            count, base, offsets = (
                batch[kernels.COUNT],
                batch[kernels.BASE_OFFSET],
                batch[kernels.LAST_DELTA] + 1,
            )
            some = kept[record : record + count]
            rows = slice(record, record + count)
            record += count
            left = int(some.sum())
            if not left and base + offsets != last and not place[kernel.OPAQUE]:
                continue
            begin, time = len(out), batch[kernels.FIXED_TIMESTAMP]
            position = place[kernel.POSITION]
            if left == count:
                out += self.stored[position : place[kernel.BATCH_END]]
            else:
                if left and not batch[kernels.TIME_IS_FIXED]:
                    time = int(self.fields[kernels.TIMESTAMP, rows][some].max())
                    time = max(time, batch[kernels.BASE_TIMESTAMP])
                out += self.stored[position : position + HEADER_BYTES]
                out += compress(CODECS[place[kernel.CODEC]], self._records(rows, some)) if left else b""
                out[begin + 35 : begin + 43] = time.to_bytes(8, "big", signed=True)
                out[begin + 8 : begin + 12] = (len(out) - begin - 12).to_bytes(4, "big")
                out[begin + 57 : begin + 61] = left.to_bytes(4, "big")
                _put_crc(out, begin, len(out))
            out[begin : begin + 8] = base.to_bytes(8, "big")
            written.append((begin, len(out), base, offsets, time, left < count, place[kernel.SLICE]))
        rows_written = np.array(written, np.int64).reshape(-1, kernel.OUT_FIELDS)
        return CompactedSlices(out, rows_written)

    def _records(self, rows: slice, kept: Bools) -> bytes:
        edges = np.flatnonzero(np.diff(kept.astype(np.int8), prepend=0, append=0))
        starts = self.fields[kernels.START, rows][edges[::2]].tolist()
        ends = self.fields[kernels.END, rows][edges[1::2] - 1].tolist()
        data = memoryview(self.data)
        return b"".join(data[start:end] for start, end in zip(starts, ends, strict=True))


def _put_crc(data: bytearray | memoryview, start: int, end: int) -> None:
    crc = crc32c(memoryview(data)[start + CRC_COVERS_FROM : end])
    data[start + CRC_AT : start + CRC_AT + 4] = crc.to_bytes(4, "big")


def decode_slices(stored: memoryview, starts: Int64s, lengths: Int64s, bases: Int64s) -> DecodedSlices:
    """Decode slices of one stream, which begin at these bytes and offsets. Raises TooLarge for too many of them."""
    opaque = np.zeros(len(starts), np.bool_)
    room = int(lengths.sum()) // HEADER_BYTES + 1
    batches = np.empty((room, kernels.BATCH_FIELDS), np.int64)
    places = np.empty((room, kernel.PLACE_FIELDS), np.int64)
    source = octets(stored)
    count = compiled(kernel.list_batches)(source, starts, lengths, bases, batches, places, opaque)
    batches, places = batches[:count].copy(), places[:count].copy()
    for _ in range(UNDECODABLE_BATCHES_MAX):
        data, faulty = _lay_out(stored, batches, places)
        if faulty is None:
            records = int(batches[:, kernels.COUNT].sum())
            fields = np.empty((kernels.RECORD_FIELDS, records), np.int64)
            status, at = compiled(kernels.index_records)(
                octets(data), batches, fields, limits.HEADERS_PER_RECORD_MAX
            )
            if status == 0:
                return DecodedSlices(stored, data, fields, batches, places, opaque)
            faulty = at
        places[faulty, kernel.OPAQUE] = 1  # nobody can decode its records: it stays as it is
    nothing = np.empty((kernels.RECORD_FIELDS, 0), np.int64)
    return DecodedSlices(stored, stored, nothing, batches[:0], places[:0], np.ones(len(starts), np.bool_))


def _lay_out(stored: memoryview, batches: Int64s, places: Int64s) -> tuple[Bytes, int | None]:
    """The bytes that hold the records of batches, whose rows are set to them; or the batch that cannot be decoded."""
    batches[:, kernels.SECTION_START] = places[:, kernel.POSITION] + HEADER_BYTES
    batches[:, kernels.SECTION_END] = places[:, kernel.BATCH_END]
    opaque = places[:, kernel.OPAQUE] != 0
    batches[opaque, kernels.COUNT] = 0
    sizes = places[:, kernel.BATCH_END] - places[:, kernel.POSITION] - HEADER_BYTES
    plain = places[:, kernel.CODEC] == 0
    short = np.flatnonzero(plain & (batches[:, kernels.COUNT] * RECORD_BYTES_MIN > sizes))
    if len(short):
        return b"", int(short[0])
    batches[opaque, kernels.SECTION_END] = batches[opaque, kernels.SECTION_START]
    if (plain | opaque).all():
        return stored, None
    sections: list[Bytes] = []
    at = 0
    for row, (position, end, codec, skipped, _) in enumerate(places.tolist()):
        section: Bytes = stored[position + HEADER_BYTES : end]
        if skipped:
            section = b""
        elif codec:
            try:
                section = decompress(CODECS[codec], section, limits.BATCH_DECODED_BYTES_MAX)
            except (InvalidBatch, TooLarge, IndexError):
                return b"", row
            if batches[row, kernels.COUNT] * RECORD_BYTES_MIN > len(section):
                return b"", row
        sections.append(section)
        batches[row, kernels.SECTION_START] = at
        at += len(section)
        if at > DECODED_AT_ONCE_BYTES and places[row, kernel.SLICE] > places[0, kernel.SLICE]:
            raise TooLarge(
                f"slices of more than {DECODED_AT_ONCE_BYTES} bytes of records: decode fewer at once"
            )
        batches[row, kernels.SECTION_END] = at
    return b"".join(sections), None
