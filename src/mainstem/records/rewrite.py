"""Rewrite batches: remove records, change the time or the codec. Remaining records keep their offsets."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from mainstem.errors import InvalidBatch, TooLarge
from mainstem.records import kernels
from mainstem.records.compression import CODECS, Bytes, Codec, codec_id, compress
from mainstem.records.header import CODEC_MASK, HEADER_BYTES, LOG_APPEND_TIME, BatchHeader, seal, walk
from mainstem.records.index import RecordIndex, index_batch, section

Offsets = npt.NDArray[np.int64]
Ranges = Sequence[tuple[int, int]]  # half-open, sorted, not overlapping


def without_offsets(batch: memoryview, offsets: Offsets | Ranges) -> bytearray | None:
    """The batch without the records at these sorted offsets, or in these sorted ranges; None if none is left.

    baseOffset and lastOffsetDelta stay, so the batch covers the same offsets, now with gaps."""
    header = _only_header(batch)
    index = index_batch(batch, header)
    stored = index.fields[kernels.OFFSET]
    kept = ~(_offset_mask(stored, offsets) if isinstance(offsets, np.ndarray) else in_ranges(stored, offsets))
    if not kept.any():
        return None
    if kept.all():
        return bytearray(batch)
    return _repack(header, _kept_bytes(index, kept), CODECS[header.codec_id], int(kept.sum()))


def without_ranges(slice: memoryview, deleted: Ranges) -> memoryview:
    """The batches without the records in these ranges. Only batches with such records are encoded again."""
    kept = bytearray()
    for header in walk(slice):
        batch = slice[header.position : header.end]
        if any(first < header.next_offset and last > header.base_offset for first, last in deleted):
            try:
                rewritten = without_offsets(batch, deleted)
            except (InvalidBatch, TooLarge):
                rewritten = bytearray(
                    batch
                )  # its records cannot be separated: whatever decodes it reports that
            if rewritten is not None:
                kept += rewritten
        else:
            kept += batch
    return memoryview(kept).toreadonly()


def with_append_time(batch: memoryview, timestamp_ms: int) -> bytearray:
    """The batch with this time for every record (LogAppendTime). The records are not changed."""
    header = _only_header(batch)
    attributes = header.attributes | LOG_APPEND_TIME
    return _seal_as(header, bytearray(batch), attributes, timestamp_ms, header.count)


def in_codec(slice: memoryview, codec: Codec) -> bytearray | None:
    """The batches compressed with this codec; None if all are already. Raises InvalidBatch, TooLarge."""
    wanted = codec_id(codec)
    headers = list(walk(slice))
    if all(header.codec_id == wanted for header in headers):
        return None
    packed = bytearray()
    for header in headers:
        if header.codec_id == wanted:
            packed += slice[header.position : header.end]
        else:
            packed += _repack(header, section(slice, header), codec, header.count)
    return packed


def _only_header(batch: memoryview) -> BatchHeader:
    headers = list(walk(batch))
    if len(headers) != 1:
        raise InvalidBatch(f"{len(headers)} batches to rewrite: pass one at a time")
    return headers[0]


def _offset_mask(stored: Offsets, offsets: Offsets) -> npt.NDArray[np.bool_]:
    if not len(offsets):
        return np.zeros(len(stored), np.bool_)
    at = np.minimum(np.searchsorted(offsets, stored), len(offsets) - 1)
    return np.asarray(offsets[at] == stored)


def in_ranges(stored: Offsets, ranges: Ranges) -> npt.NDArray[np.bool_]:
    """A mask of the offsets that lie in one of the ranges."""
    if not len(ranges):
        return np.zeros(len(stored), np.bool_)
    starts, ends = np.array(ranges, np.int64).T
    at = np.searchsorted(starts, stored, side="right") - 1
    return np.asarray((at >= 0) & (stored < ends[at]))


def _kept_bytes(index: RecordIndex, kept: npt.NDArray[np.bool_]) -> bytes:
    """The bytes of the kept records, copied in runs: records only hold deltas to the header, which stays."""
    edges = np.flatnonzero(np.diff(kept.astype(np.int8), prepend=0, append=0))
    starts = index.fields[kernels.START][edges[::2]]
    ends = index.fields[kernels.END][edges[1::2] - 1]
    return b"".join(index.data[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True))


def _repack(header: BatchHeader, records: Bytes, codec: Codec, count: int) -> bytearray:
    batch = bytearray(HEADER_BYTES)
    batch += compress(codec, records)
    attributes = header.attributes & ~CODEC_MASK | codec_id(codec)
    return _seal_as(header, batch, attributes, header.max_timestamp, count)


def _seal_as(header: BatchHeader, batch: bytearray, attributes: int, latest: int, count: int) -> bytearray:
    return seal(
        batch,
        base_offset=header.base_offset,
        leader_epoch=header.leader_epoch,
        attributes=attributes,
        last_offset_delta=header.last_offset_delta,
        base_timestamp=header.base_timestamp,
        max_timestamp=latest,
        producer=header.producer,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        count=count,
    )
