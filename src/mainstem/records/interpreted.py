"""Batches of a few records, built in plain Python: without numpy, so that clients need neither it nor the kernels."""

from __future__ import annotations

from collections.abc import Sequence

from mainstem import limits
from mainstem.errors import InvalidBatch, TooLarge
from mainstem.records.compression import Codec, codec_id, compress
from mainstem.records.header import HEADER_BYTES, TRANSACTIONAL, seal, seal_lone
from mainstem.records.writing_kernels import write_varint

Value = bytes | None
Headers = Sequence[tuple[str, Value]]

_NULL = b"\x01"  # the varint of length -1
_HEADER_SPACE = bytes(HEADER_BYTES)
_LONE_PREFIX = b"\x00\x00\x00" + _NULL  # no attributes, both deltas 0, no key


def build_interpreted(
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
    check_lengths(count, keys, headers, timestamps_ms)
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


def check_count(count: int) -> None:
    """Raise unless a batch may hold this number of records."""
    if not count:
        raise InvalidBatch("0 records: a batch has at least one")
    if count > limits.BATCH_RECORDS_MAX:
        raise TooLarge(f"{count} records in one batch: the limit is {limits.BATCH_RECORDS_MAX}")


def check_section(size: int) -> None:
    """Raise if a record section of this size could not be decompressed again, were it compressed."""
    if size > limits.BATCH_DECODED_BYTES_MAX:
        raise TooLarge(f"records of {size} bytes in one batch: the limit is {limits.BATCH_DECODED_BYTES_MAX}")


def check_times(first: int, earliest: int, latest: int) -> None:
    """Raise unless every time is within a 64-bit delta of the first."""
    if latest - first >= 1 << 63 or earliest - first < -(1 << 63):
        raise InvalidBatch(f"record times from {earliest} to {latest} are too far apart for one batch")


def check_lengths(
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
