"""Decode batches to records one by one, and the sizes and times that an append needs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mainstem import limits
from mainstem.errors import InvalidBatch, InvalidRecords
from mainstem.records import kernels
from mainstem.records.header import (
    HEADER,
    HEADER_BYTES,
    LENGTH_COVERS_FROM,
    MAGIC,
    RECORD_BYTES_MIN,
    BatchHeader,
    walk,
)
from mainstem.records.index import Buffer, RecordIndex, copied, index_slices, section

Headers = tuple[tuple[str, bytes | None], ...]

_LONE_PREFIX = b"\x00\x00\x00\x01"  # no attributes, both deltas 0, no key
_LONE_BYTES_MIN = HEADER_BYTES + RECORD_BYTES_MIN
_META = "meta"  # the header that counts towards a record's size


class StoredRecord(NamedTuple):
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers


def decode_records(
    buf: Buffer, from_offset: int = 0, decoded_max: int = limits.BATCH_DECODED_BYTES_MAX
) -> Iterator[StoredRecord]:
    """The records of stamped batches from `from_offset` on, one by one: for small numbers of records.

    In header names that are not UTF-8, invalid bytes are replaced. Raises InvalidBatch, and TooLarge for a
    compressed batch of more than `decoded_max` bytes."""
    data = memoryview(buf).cast("B")
    for header in walk(data):
        if header.control or header.next_offset <= from_offset:
            continue
        yield from _decode_batch(header, _as_bytes(section(data, header, decoded_max)), from_offset)


def record_at(index: RecordIndex, column: int) -> StoredRecord:
    """One record of an index."""
    offset, timestamp, _, end, key_at, key_length, value_at, value_length, headers_at, headers = index.fields[
        :, column
    ].tolist()
    data = index.data
    return StoredRecord(
        offset,
        timestamp,
        None if key_length < 0 else bytes(data[key_at : key_at + key_length]),
        None if value_length < 0 else bytes(data[value_at : value_at + value_length]),
        _decode_headers(bytes(data[headers_at:end]), 0, end - headers_at, headers) if headers else (),
    )


def first_record(header: BatchHeader, records: memoryview) -> StoredRecord:
    """The first record of a batch; `records` is its section. Raises InvalidBatch."""
    end, delta, timestamp, key_at, key_length, value_at, value_length, headers_at, headers = (
        kernels.read_record(
            records,
            0,
            len(records),
            0,
            header.last_offset_delta,
            header.base_timestamp,
            limits.HEADERS_PER_RECORD_MAX,
        )
    )
    if end < 0:
        raise InvalidBatch(f"{kernels.FAULTS[end]} (in the batch at offset {header.base_offset})")
    return StoredRecord(
        header.base_offset + delta,
        header.max_timestamp if header.log_append_time else timestamp,
        None if key_length < 0 else bytes(records[key_at : key_at + key_length]),
        None if value_length < 0 else bytes(records[value_at : value_at + value_length]),
        _decode_headers(bytes(records[headers_at:end]), 0, end - headers_at, headers) if headers else (),
    )


def lone_record(data: memoryview) -> StoredRecord | None:
    """The record, if that is all: one stamped batch without codec and attributes, its record without headers. None: use
    `decode_records`."""
    if len(data) < _LONE_BYTES_MIN:
        return None
    base, length, _, magic, _, attributes, delta, base_timestamp, _, _, _, _, count = HEADER.unpack_from(data)
    end = LENGTH_COVERS_FROM + length
    if magic != MAGIC or attributes or delta or count != 1 or end != len(data):
        return None
    reached, _, timestamp, key_at, key_length, value_at, value_length, _, _ = kernels.read_record(
        data, HEADER_BYTES, end, 0, 0, base_timestamp, 0
    )
    if reached != end:
        return None  # headers, or a fault that `decode_records` reports
    return StoredRecord(
        base,
        timestamp,
        None if key_length < 0 else bytes(data[key_at : key_at + key_length]),
        None if value_length < 0 else bytes(data[value_at : value_at + value_length]),
        (),
    )


def lone_values(data: memoryview, from_offset: int) -> list[tuple[int, bytes]] | None:
    """Offset and value of each record from `from_offset` on, if all batches are as `build_lone` makes them: one record,
    no key, no headers, no codec. None: use `decode_records`."""
    found: list[tuple[int, bytes]] = []
    at, size = 0, len(data)
    while at < size:
        if size - at < _LONE_BYTES_MIN:
            return None
        base, length, _, magic, _, attributes, delta, _, _, _, _, _, count = HEADER.unpack_from(data, at)
        end = at + LENGTH_COVERS_FROM + length
        if magic != MAGIC or attributes or delta or count != 1 or length < 0 or end > size:
            return None
        at += HEADER_BYTES
        while data[at] > 127 and at < end - 7:  # the length of the record, which follows from the others
            at += 1
        if data[at + 1 : at + 5] != _LONE_PREFIX:
            return None
        at += 5
        length = shift = 0
        while (octet := data[at]) > 127 and at < end - 2:
            length |= (octet & 127) << shift
            shift += 7
            at += 1
        length |= octet << shift
        if length & 1 or at + 2 + (length >> 1) != end or data[end - 1]:
            return None  # a null value, or headers
        if base >= from_offset:
            found.append((base, bytes(data[at + 1 : end - 1])))
        at = end
    return found


def _as_bytes(decoded: memoryview) -> bytes:
    """Without a copy, if that is what it views: a decompressed section may be large."""
    owner = decoded.obj
    return owner if isinstance(owner, bytes) and len(owner) == len(decoded) else bytes(decoded)


def check_records(buf: Buffer, *, keys: bool = False) -> int:
    """Decode every record and raise InvalidBatch at the first invalid one. Returns the number of records.

    `keys`: a record without a key is invalid, and InvalidRecords names those of the batch."""
    count = 0
    for index in index_slices([buf], control=True):
        if keys:
            keyless = np.flatnonzero(index.fields[kernels.KEY_LENGTH] < 0)
            if len(keyless):
                raise InvalidRecords(
                    "a record has no key: a compacted topic takes records with keys alone",
                    (count + keyless[: limits.INVALID_RECORDS_NAMED_MAX]).tolist(),
                )
        count += len(index)
    return count


def record_sizes_and_times(buf: Buffer) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
    """The logical size (value, and value of the "meta" header) and the time in ms of each record."""
    data = memoryview(buf).cast("B")
    headers = list(walk(data))
    if sum(header.count for header in headers) <= limits.INTERPRETED_RECORDS_MAX:
        few = [
            facts for header in headers for facts in _sizes_and_times(header, bytes(section(data, header)))
        ]
        return np.array([size for size, _ in few], np.uint32), np.array([time for _, time in few], np.int64)
    sizes, times = [], []
    for index in index_slices([data], control=True):
        size = np.maximum(index.fields[kernels.VALUE_LENGTH], 0)
        if index.headers:
            index.run(kernels.add_header_sizes, index.fields, _META.encode(), size)
        sizes.append(size.astype(np.uint32))
        times.append(index.fields[kernels.TIMESTAMP])
    return np.concatenate(sizes), np.concatenate(times)


class _RecordFields(NamedTuple):
    """Positions of a record and its fields in the section; a length of -1 is null."""

    end: int
    delta: int
    timestamp_ms: int
    key_at: int
    key_length: int
    value_at: int
    value_length: int
    headers_at: int
    headers: int


def _read_batch(header: BatchHeader, data: bytes) -> Iterator[_RecordFields]:
    at, end, least_delta = 0, len(data), 0
    last_delta, base_timestamp, headers_max = (
        header.last_offset_delta,
        header.base_timestamp,
        limits.HEADERS_PER_RECORD_MAX,
    )
    for _ in range(header.count):
        fields = _RecordFields._make(
            kernels.read_record(data, at, end, least_delta, last_delta, base_timestamp, headers_max)
        )
        at = fields.end
        if at < 0:
            raise InvalidBatch(f"{kernels.FAULTS[at]} (in the batch at offset {header.base_offset})")
        least_delta = fields.delta + 1
        yield fields
    if at != end:
        raise InvalidBatch(
            f"{kernels.FAULTS[kernels.BYTES_LEFT]} (in the batch at offset {header.base_offset})"
        )


def _decode_batch(header: BatchHeader, data: bytes, from_offset: int) -> Iterator[StoredRecord]:
    fixed_time = header.max_timestamp if header.log_append_time else None
    for end, delta, timestamp, key_at, key_length, value_at, value_length, headers_at, headers in _read_batch(
        header, data
    ):
        if header.base_offset + delta < from_offset:
            continue
        yield StoredRecord(
            header.base_offset + delta,
            timestamp if fixed_time is None else fixed_time,
            None if key_length < 0 else copied(data, key_at, key_length),
            None if value_length < 0 else copied(data, value_at, value_length),
            _decode_headers(data, headers_at, end, headers) if headers else (),
        )


def _sizes_and_times(header: BatchHeader, data: bytes) -> Iterator[tuple[int, int]]:
    fixed_time = header.max_timestamp if header.log_append_time else None
    for fields in _read_batch(header, data):
        size = max(fields.value_length, 0)
        if fields.headers:
            decoded = _decode_headers(data, fields.headers_at, fields.end, fields.headers)
            size += len(next((content for name, content in decoded if name == _META), None) or b"")
        yield size, fields.timestamp_ms if fixed_time is None else fixed_time


def _decode_headers(data: bytes, at: int, end: int, count: int) -> Headers:
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name_at, name_length, content_at, content_length, at = kernels.read_header(data, at, end)
        name = data[name_at : name_at + name_length].decode("utf-8", "replace")
        content = None if content_length < 0 else data[content_at : content_at + content_length]
        headers.append((name, content))
    return tuple(headers)
