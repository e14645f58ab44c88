"""Records as columns, and encoding of columns to one batch."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from mainstem import limits
from mainstem.errors import InvalidBatch, TooLarge, invariant
from mainstem.records import writing_kernels
from mainstem.records.compiled import compiled
from mainstem.records.compression import Codec, codec_id, compress
from mainstem.records.header import HEADER_BYTES, LOG_APPEND_TIME, TRANSACTIONAL, seal
from mainstem.records.interpreted import check_count, check_section, check_times

Integers = npt.NDArray[np.int64]

_NO_BYTES = np.empty(0, np.uint8)
_NO_BYTES.flags.writeable = False
_NO_INTEGERS = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Spans:
    """A column of byte strings that may be null."""

    data: npt.NDArray[np.uint8] = field(default_factory=lambda: _NO_BYTES)
    starts: Integers = field(default_factory=lambda: _NO_INTEGERS)
    lengths: Integers = field(default_factory=lambda: _NO_INTEGERS)  # -1 = null

    def __len__(self) -> int:
        return len(self.starts)


NO_SPANS = Spans()


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """Records to encode. Empty `keys` mean null keys, empty `header_counts` no headers, empty `offset_deltas` offsets
    without gaps."""

    values: Spans
    timestamps_ms: Integers
    keys: Spans = NO_SPANS
    header_counts: Integers = field(default_factory=lambda: _NO_INTEGERS)  # headers of each record
    header_names: Spans = NO_SPANS  # of all records, concatenated
    header_values: Spans = NO_SPANS
    offset_deltas: Integers = field(default_factory=lambda: _NO_INTEGERS)  # rising, from 0

    def __len__(self) -> int:
        return len(self.timestamps_ms)


def encode_columns(
    columns: RecordColumns,
    *,
    codec: Codec = "none",
    producer: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    base_offset: int = 0,
    log_append_time: bool = False,
) -> bytearray:
    """Encode all records as one batch, in order. Raises InvalidBatch or TooLarge."""
    count = len(columns)
    check_count(count)
    _check_shapes(columns, count)
    first, latest = _time_range(columns.timestamps_ms)
    arguments = _kernel_arguments(columns, first)
    body_lengths = np.empty(count, np.int64)
    size = compiled(writing_kernels.measure_records)(
        limits.HEADERS_PER_RECORD_MAX, limits.RECORD_BYTES_MAX, body_lengths, *arguments
    )
    if size == writing_kernels.RECORD_TOO_LARGE:
        raise TooLarge(f"a record is over the limit of {limits.RECORD_BYTES_MAX} bytes")
    if size < 0:
        raise InvalidBatch(writing_kernels.FAULTS[size])
    check_section(size)
    batch = bytearray(HEADER_BYTES + size)
    out = np.frombuffer(batch, np.uint8)
    end = compiled(writing_kernels.write_records)(out, HEADER_BYTES, body_lengths, *arguments)
    invariant(end == len(batch), "records fill the measured size exactly")
    if codec != "none":
        batch = batch[:HEADER_BYTES] + compress(codec, memoryview(batch)[HEADER_BYTES:])
    attributes = codec_id(codec)
    if transactional:
        attributes |= TRANSACTIONAL
    if log_append_time:
        attributes |= LOG_APPEND_TIME
    return seal(
        batch,
        base_offset=base_offset,
        attributes=attributes,
        last_offset_delta=int(columns.offset_deltas[-1]) if len(columns.offset_deltas) else count - 1,
        base_timestamp=first,
        max_timestamp=latest,
        producer=producer,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        count=count,
    )


def _time_range(times: Integers) -> tuple[int, int]:
    first, earliest, latest = int(times[0]), int(times.min()), int(times.max())
    check_times(first, earliest, latest)
    return first, latest


def _check_shapes(columns: RecordColumns, count: int) -> None:
    headers = int(columns.header_counts.sum()) if len(columns.header_counts) else 0
    consistent = (
        len(columns.values) == len(columns.values.lengths) == count
        and len(columns.keys) == len(columns.keys.lengths)
        and len(columns.keys) in (0, count)
        and len(columns.header_counts) in (0, count)
        and len(columns.offset_deltas) in (0, count)
        and len(columns.header_names) == len(columns.header_names.lengths) == headers
        and len(columns.header_values) == len(columns.header_values.lengths) == headers
    )
    if not consistent:
        raise InvalidBatch(f"columns of different lengths for {count} records")


def _kernel_arguments(columns: RecordColumns, first: int) -> tuple[npt.NDArray[np.generic], ...]:
    return (
        _integers(columns.timestamps_ms) - first,
        _integers(columns.offset_deltas),
        *_span_arrays(columns.keys),
        *_span_arrays(columns.values),
        _integers(columns.header_counts),
        *_span_arrays(columns.header_names),
        *_span_arrays(columns.header_values),
    )


def _span_arrays(spans: Spans) -> tuple[npt.NDArray[np.uint8], Integers, Integers]:
    if spans is NO_SPANS:
        return _NO_BYTES, _NO_INTEGERS, _NO_INTEGERS
    data = np.ascontiguousarray(spans.data, np.uint8).view()
    data.flags.writeable = False
    return data, _integers(spans.starts), _integers(spans.lengths)


def _integers(column: Integers) -> Integers:
    """Contiguous and writable for kernels: numba compiles a kernel again for each kind of array."""
    flags = column.flags
    if flags.c_contiguous and flags.writeable and column.dtype == np.int64:
        return column
    return np.require(column, np.int64, ("C", "W"))
