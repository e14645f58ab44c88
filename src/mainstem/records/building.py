"""Build a batch from Python values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mainstem import limits
from mainstem.errors import InvalidBatch, TooLarge
from mainstem.records.columns import (
    NO_SPANS,
    RecordColumns,
    Spans,
    check_count,
    check_section,
    check_times,
    encode_columns,
)
from mainstem.records.compiled import compiled, octets
from mainstem.records.compression import Codec, codec_id, compress
from mainstem.records.header import HEADER_BYTES, TRANSACTIONAL, seal, seal_lone
from mainstem.records.writing_kernels import (
    PLAIN_OVERHEAD_BYTES,
    RECORD_TOO_LARGE,
    write_plain,
    write_varint,
)

Value = bytes | None
Headers = Sequence[tuple[str, Value]]

_NULL = b"\x01"  # the varint of length -1
_HEADER_SPACE = bytes(HEADER_BYTES)
_LONE_PREFIX = b"\x00\x00\x00" + _NULL  # no attributes, both deltas 0, no key


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
    count = len(values)
    check_count(count)
    _check_lengths(count, keys, headers, timestamps_ms)
    if count > limits.INTERPRETED_RECORDS_MAX:
        return encode_columns(
            _columns(values, keys, headers, timestamps_ms),
            codec=codec,
            producer=producer,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            transactional=transactional,
        )
    if isinstance(timestamps_ms, int):
        first = latest = timestamps_ms
    else:
        first, latest = timestamps_ms[0], max(timestamps_ms)
        check_times(first, min(timestamps_ms), latest)
    if count == 1:
        records = _record(0, 0, keys[0] if keys else None, values[0], headers[0] if headers else ())
    else:
        times = [first] * count if isinstance(timestamps_ms, int) else timestamps_ms
        records = b"".join(
            _record(i, times[i] - first, keys[i] if keys else None, values[i], headers[i] if headers else ())
            for i in range(count)
        )
    check_section(len(records))
    if codec != "none":
        records = compress(codec, records)
    batch = bytearray(_HEADER_SPACE)
    batch += records
    return seal(
        batch,
        attributes=codec_id(codec) | (TRANSACTIONAL if transactional else 0),
        last_offset_delta=count - 1,
        base_timestamp=first,
        max_timestamp=latest,
        producer=producer,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        count=count,
    )


def build_lone(value: bytes, timestamp_ms: int) -> bytearray:
    """Like `build_batch` for one value without key and headers, the most common single append."""
    length = _length(len(value))
    section = _length(len(_LONE_PREFIX) + len(length) + len(value) + 1)
    return seal_lone(b"".join((section, _LONE_PREFIX, length, value, b"\x00")), timestamp_ms)


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


def _check_lengths(
    count: int,
    keys: Sequence[Value] | None,
    headers: Sequence[Headers] | None,
    timestamps_ms: int | Sequence[int],
) -> None:
    if keys is not None and len(keys) != count:
        raise InvalidBatch(f"{len(keys)} keys for {count} values")
    if headers is not None and len(headers) != count:
        raise InvalidBatch(f"headers of {len(headers)} records for {count} values")
    if not isinstance(timestamps_ms, int) and len(timestamps_ms) != count:
        raise InvalidBatch(f"{len(timestamps_ms)} timestamps for {count} values")


def _varint(value: int) -> bytes:
    out = bytearray(10)
    return bytes(out[: write_varint(out, 0, value)])


_SMALL_VARINTS = tuple(_varint(value) for value in range(2048))  # covers most lengths


def _length(length: int) -> bytes:
    return _SMALL_VARINTS[length] if length < 2048 else _varint(length)


def _record(delta: int, elapsed: int, key: Value, value: Value, headers: Headers) -> bytes:
    parts = [b"\x00\x00" if elapsed == 0 else b"\x00" + _varint(elapsed), _length(delta)]
    if key is None:
        parts.append(_NULL)
    else:
        parts += (_length(len(key)), key)
    if value is None:
        parts.append(_NULL)
    else:
        parts += (_length(len(value)), value)
    if headers:
        _add_headers(parts, headers)
    else:
        parts.append(b"\x00")
    body = b"".join(parts)
    if len(body) > limits.RECORD_BYTES_MAX:
        raise TooLarge(f"record of {len(body)} bytes: the limit is {limits.RECORD_BYTES_MAX}")
    return _length(len(body)) + body


def _add_headers(parts: list[bytes], headers: Headers) -> None:
    if len(headers) > limits.HEADERS_PER_RECORD_MAX:
        raise TooLarge(f"{len(headers)} headers in a record: the limit is {limits.HEADERS_PER_RECORD_MAX}")
    parts.append(_length(len(headers)))
    for name, content in headers:
        encoded = name.encode()
        parts += (_length(len(encoded)), encoded)
        if content is None:
            parts.append(_NULL)
        else:
            parts += (_length(len(content)), content)


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
