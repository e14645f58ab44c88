"""Build a batch from Python values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mainstem import limits
from mainstem.errors import TooLarge
from mainstem.records.columns import NO_SPANS, RecordColumns, Spans, encode_columns
from mainstem.records.compiled import compiled, octets
from mainstem.records.compression import Codec
from mainstem.records.header import HEADER_BYTES, seal
from mainstem.records.interpreted import (
    Headers,
    Value,
    build_interpreted,
    check_count,
    check_lengths,
    check_section,
)
from mainstem.records.writing_kernels import PLAIN_OVERHEAD_BYTES, RECORD_TOO_LARGE, write_plain


def build_batch(
    values: Sequence[Value],
    *,
    keys: Sequence[Value] | None = None,
    headers: Sequence[Headers] | None = None,
    timestamps_ms: int | Sequence[int],
    codec: Codec = "none",
    producer: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
) -> bytearray:
    """Build one batch of the values, in order. Raises InvalidBatch or TooLarge."""
    if len(values) <= limits.INTERPRETED_RECORDS_MAX:
        return build_interpreted(
            values,
            keys=keys,
            headers=headers,
            timestamps_ms=timestamps_ms,
            codec=codec,
            producer=producer,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            transactional=transactional,
        )
    check_count(len(values))
    check_lengths(len(values), keys, headers, timestamps_ms)
    return encode_columns(
        _columns(values, keys, headers, timestamps_ms),
        codec=codec,
        producer=producer,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        transactional=transactional,
    )


def build_plain(values: Sequence[Value], timestamp_ms: int) -> bytearray:
    """Like `build_batch` for many values of one time without keys and headers, the most common large write.

    It makes one pass over one column, where `build_batch` measures and then writes seven."""
    count = len(values)
    check_count(count)
    try:
        data = b"".join(values)  # type: ignore[arg-type]
    except TypeError:  # some are null
        return build_batch(values, timestamps_ms=timestamp_ms)
    lengths = np.fromiter(map(len, values), np.int64, count)  # type: ignore[arg-type]
    batch = bytearray(HEADER_BYTES + len(data) + count * PLAIN_OVERHEAD_BYTES)
    out = np.frombuffer(batch, np.uint8)
    end = compiled(write_plain)(out, HEADER_BYTES, limits.RECORD_BYTES_MAX, octets(data), lengths)
    if end == RECORD_TOO_LARGE:
        raise TooLarge(f"a record is over the limit of {limits.RECORD_BYTES_MAX} bytes")
    check_section(end - HEADER_BYTES)
    del out  # a bytearray with an exported buffer cannot be resized
    del batch[end:]
    return seal(
        batch,
        attributes=0,
        last_offset_delta=count - 1,
        base_timestamp=timestamp_ms,
        max_timestamp=timestamp_ms,
        count=count,
    )


def _columns(
    values: Sequence[Value],
    keys: Sequence[Value] | None,
    headers: Sequence[Headers] | None,
    timestamps_ms: int | Sequence[int],
) -> RecordColumns:
    count = len(values)
    times = np.empty(count, np.int64)
    times[:] = timestamps_ms
    columns = RecordColumns(_spans(values), times, NO_SPANS if keys is None else _spans(keys))
    if headers is None or not any(headers):
        return columns
    return RecordColumns(
        columns.values,
        times,
        columns.keys,
        np.fromiter(map(len, headers), np.int64, count),
        _spans([name.encode() for record in headers for name, _ in record]),
        _spans([content for record in headers for _, content in record]),
    )


def _spans(values: Sequence[Value]) -> Spans:
    try:
        lengths = np.fromiter(map(len, values), np.int64, len(values))  # type: ignore[arg-type]
        joined = b"".join(values)  # type: ignore[arg-type]
        taken = lengths
    except TypeError:  # some are null, which len and join reject
        lengths = np.fromiter((-1 if v is None else len(v) for v in values), np.int64, len(values))
        joined = b"".join(v for v in values if v is not None)
        taken = np.maximum(lengths, 0)
    return Spans(octets(joined), np.cumsum(taken) - taken, lengths)
