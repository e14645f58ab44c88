"""Kernels that read records: the loops over every record, in the subset of Python that numba compiles.

They are plain functions of integers and indexable buffers: `compiled.py` compiles them for many records, and they run
interpreted for a few. Both must agree, so arithmetic stays within 64 signed bits, and bounds are checked before bytes
are read: a record with a false length gives a fault, never an out-of-bounds read. `int(...)` around an array element is
free when compiled; interpreted, it avoids numpy scalars, which are slow and overflow.

The module imports only types, and limits are arguments: numba's cache of compiled code notices changes of the file with
the kernel, and of no other file.

A record, version 2 (varints are zigzag-encoded, at most 10 bytes):

| field          | type        | meaning                                        |
|----------------|-------------|------------------------------------------------|
| length         | varint      | bytes after this field                         |
| attributes     | u1          | unused                                         |
| timestampDelta | varint      | ms after the batch's baseTimestamp             |
| offsetDelta    | varint      | after the batch's baseOffset                   |
| keyLength, key | varint, ... | -1 = null                                      |
| valueLength, value | varint, ... | -1 = null                                  |
| headersCount   | varint      |                                                |
| headers        |             | per header: keyLength, key, valueLength (-1 = null), value |
"""

from __future__ import annotations

from typing import Any

Octets = Any  # bytes, a memoryview or a uint8 array: indexable by byte
Table = Any  # a 2-D int64 array
Column = Any  # a 1-D integer array
Flags = Any  # a 1-D boolean array

_I64_MAX = (1 << 63) - 1
_I64_MIN = -(1 << 63)

# Faults are negative, so that a position can hold one.
CUT_SHORT = -1
BAD_VARINT = -2
BAD_LENGTH = -3
BAD_OFFSET = -4
BAD_TIMESTAMP = -5
BAD_HEADERS = -6
BYTES_LEFT = -7

FAULTS = {
    CUT_SHORT: "a record runs past the end of its batch",
    BAD_VARINT: "a number in a record has more than 64 bits",
    BAD_LENGTH: "a length inside a record is negative or runs past the record",
    BAD_OFFSET: "record offsets do not rise, or run past lastOffsetDelta",
    BAD_TIMESTAMP: "a record time does not fit 64 bits",
    BAD_HEADERS: "a record has a negative number of headers, or over the limit",
    BYTES_LEFT: "bytes are left over after the last record or inside one",
}

# Columns of the batch table: what a kernel needs to know of each batch, one row a batch.
SECTION_START, SECTION_END, COUNT, BASE_OFFSET, LAST_DELTA, BASE_TIMESTAMP, FIXED_TIMESTAMP, TIME_IS_FIXED = (
    range(8)
)
BATCH_FIELDS = 8

# Rows of the record index: positions of each record and its fields. A null has length -1.
OFFSET, TIMESTAMP, START, END, KEY_AT, KEY_LENGTH, VALUE_AT, VALUE_LENGTH, HEADERS_AT, HEADERS = range(10)
RECORD_FIELDS = 10

# Rows of the header index.
NAME_AT, NAME_LENGTH, CONTENT_AT, CONTENT_LENGTH = range(4)
HEADER_FIELDS = 4


def read_varint(data: Octets, at: int, end: int) -> tuple[int, int]:
    """(value, position after it); the position is a fault if the number is invalid."""
    if at < end:
        byte = int(data[at])
        if byte < 0x80:
            return (byte >> 1) ^ -(byte & 1), at + 1
    return read_long_varint(data, at, end)


def read_long_varint(data: Octets, at: int, end: int) -> tuple[int, int]:
    """The general case, in its own function so that the common case is small enough to be inlined."""
    raw = 0
    shift = 0
    while at < end:
        byte = int(data[at])
        at += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            if shift == 63 and byte > 1:
                return 0, BAD_VARINT
            return ((raw >> 1) & _I64_MAX) ^ -(raw & 1), at
        shift += 7
        if shift > 63:
            return 0, BAD_VARINT
    return 0, CUT_SHORT


def read_span(data: Octets, at: int, end: int) -> tuple[int, int, int]:
    """(start, length or -1 for null, position after it) of length-prefixed bytes."""
    length, at = read_varint(data, at, end)
    if at < 0:
        return 0, 0, at
    if length < -1 or length > end - at:
        return 0, 0, BAD_LENGTH
    if length == -1:
        return at, length, at
    return at, length, at + length


def read_header(data: Octets, at: int, end: int) -> tuple[int, int, int, int, int]:
    """(name start, name length, content start, content length, position after it) of one record header."""
    name_at, name_length, at = read_span(data, at, end)
    if at < 0:
        return 0, 0, 0, 0, at
    if name_length < 0:
        return 0, 0, 0, 0, BAD_LENGTH
    content_at, content_length, at = read_span(data, at, end)
    return name_at, name_length, content_at, content_length, at


def read_record(
    data: Octets,
    at: int,
    section_end: int,
    least_delta: int,
    last_delta: int,
    base_timestamp: int,
    headers_max: int,
) -> tuple[int, int, int, int, int, int, int, int, int]:
    """(position after it, offset delta, timestamp, key start, key length, value start, value length,
    headers start, header count). The position is a fault if any part of the record is invalid."""
    length, at = read_varint(data, at, section_end)
    if at < 0:
        return at, 0, 0, 0, 0, 0, 0, 0, 0
    if length < 1 or length > section_end - at:
        return CUT_SHORT, 0, 0, 0, 0, 0, 0, 0, 0
    end = at + length
    elapsed, at = read_varint(data, at + 1, end)
    if at < 0:
        return at, 0, 0, 0, 0, 0, 0, 0, 0
    if elapsed > 0:
        if base_timestamp > _I64_MAX - elapsed:
            return BAD_TIMESTAMP, 0, 0, 0, 0, 0, 0, 0, 0
    elif base_timestamp < _I64_MIN - elapsed:
        return BAD_TIMESTAMP, 0, 0, 0, 0, 0, 0, 0, 0
    delta, at = read_varint(data, at, end)
    if at < 0:
        return at, 0, 0, 0, 0, 0, 0, 0, 0
    if delta < least_delta or delta > last_delta:
        return BAD_OFFSET, 0, 0, 0, 0, 0, 0, 0, 0
    key_at, key_length, at = read_span(data, at, end)
    if at < 0:
        return at, 0, 0, 0, 0, 0, 0, 0, 0
    value_at, value_length, at = read_span(data, at, end)
    if at < 0:
        return at, 0, 0, 0, 0, 0, 0, 0, 0
    headers, at = read_varint(data, at, end)
    if at < 0:
        return at, 0, 0, 0, 0, 0, 0, 0, 0
    if headers < 0 or headers > headers_max:
        return BAD_HEADERS, 0, 0, 0, 0, 0, 0, 0, 0
    headers_at = at
    for _ in range(headers):
        _, _, _, _, at = read_header(data, at, end)
        if at < 0:
            return at, 0, 0, 0, 0, 0, 0, 0, 0
    if at != end:
        return BYTES_LEFT, 0, 0, 0, 0, 0, 0, 0, 0
    return (
        end,
        delta,
        base_timestamp + elapsed,
        key_at,
        key_length,
        value_at,
        value_length,
        headers_at,
        headers,
    )


def index_records(data: Octets, batches: Table, index: Table, headers_max: int) -> tuple[int, int]:
    """Fill the record index of many batches. Returns (0, number of headers) or (fault, its batch)."""
    row = 0
    total_headers = 0
    for batch in range(len(batches)):
        at = int(batches[batch, SECTION_START])
        end = int(batches[batch, SECTION_END])
        base_offset = int(batches[batch, BASE_OFFSET])
        base_timestamp = int(batches[batch, BASE_TIMESTAMP])
        last_delta = int(batches[batch, LAST_DELTA])
        fixed = batches[batch, TIME_IS_FIXED]
        least_delta = 0
        for _ in range(batches[batch, COUNT]):
            start = at
            at, delta, timestamp, key_at, key_length, value_at, value_length, headers_at, headers = (
                read_record(data, at, end, least_delta, last_delta, base_timestamp, headers_max)
            )
            if at < 0:
                return at, batch
            if fixed:
                timestamp = int(batches[batch, FIXED_TIMESTAMP])
            least_delta = delta + 1
            index[OFFSET, row] = base_offset + delta
            index[TIMESTAMP, row] = timestamp
            index[START, row] = start
            index[END, row] = at
            index[KEY_AT, row] = key_at
            index[KEY_LENGTH, row] = key_length
            index[VALUE_AT, row] = value_at
            index[VALUE_LENGTH, row] = value_length
            index[HEADERS_AT, row] = headers_at
            index[HEADERS, row] = headers
            total_headers += headers
            row += 1
        if at != end:
            return BYTES_LEFT, batch
    return 0, total_headers


def read_int(data: Octets, at: int, size: int) -> int:
    """A big-endian signed number."""
    value = int(data[at])
    if value > 127:
        value -= 256
    for i in range(1, size):
        value = (value << 8) | int(data[at + i])
    return value


def list_plain_batches(
    data: Octets, at: int, size: int, batches: Table, batch_records_max: int, records_max: int, bytes_max: int
) -> tuple[int, int, int]:
    """Fill the batch table from consecutive uncompressed batches (laid out as in header.py) without markers.

    Stops at the limits, and before a batch that is compressed or invalid. Returns (rows, records, position reached)."""
    row = 0
    records = 0
    start = at
    while size - at >= 61 and row < len(batches):
        end = at + 12 + read_int(data, at + 8, 4)
        base_offset = read_int(data, at, 8)
        attributes = read_int(data, at + 21, 2)
        last_delta = read_int(data, at + 23, 4)
        count = read_int(data, at + 57, 4)
        if data[at + 16] != 2 or attributes & 0x07 or end < at + 61 or end > size:
            break
        if count < 0 or count > last_delta + 1 or count > batch_records_max or count * 7 > end - at - 61:
            break
        if base_offset < 0 or base_offset > _I64_MAX - 1 - last_delta:
            break
        if row > 0 and (records + count > records_max or end - start > bytes_max):
            break
        if not attributes & 0x20:
            batches[row, SECTION_START] = at + 61
            batches[row, SECTION_END] = end
            batches[row, COUNT] = count
            batches[row, BASE_OFFSET] = base_offset
            batches[row, LAST_DELTA] = last_delta
            batches[row, BASE_TIMESTAMP] = read_int(data, at + 27, 8)
            batches[row, FIXED_TIMESTAMP] = read_int(data, at + 35, 8)
            batches[row, TIME_IS_FIXED] = attributes & 0x08
            records += count
            row += 1
        at = end
    return row, records, at


def index_headers(data: Octets, index: Table, header_index: Table) -> None:
    """Fill the header index of records that passed `index_records`."""
    row = 0
    for record in range(index.shape[1]):
        at = int(index[HEADERS_AT, record])
        end = int(index[END, record])
        for _ in range(index[HEADERS, record]):
            name_at, name_length, content_at, content_length, at = read_header(data, at, end)
            header_index[NAME_AT, row] = name_at
            header_index[NAME_LENGTH, row] = name_length
            header_index[CONTENT_AT, row] = content_at
            header_index[CONTENT_LENGTH, row] = content_length
            row += 1


def matches(data: Octets, at: int, length: int, wanted: Octets) -> bool:
    """Whether the span begins with `wanted`."""
    if length < len(wanted):
        return False
    for i in range(len(wanted)):  # noqa: SIM110 - numba does not support generator expressions
        if data[at + i] != wanted[i]:
            return False
    return True


def find_keys(data: Octets, index: Table, wanted: Octets, whole: bool, found: Column) -> int:
    """Collect the offsets of records whose key equals, or starts with, `wanted`. Returns their number."""
    count = 0
    for record in range(index.shape[1]):
        length = index[KEY_LENGTH, record]
        if length < 0 or (whole and length != len(wanted)):
            continue
        if matches(data, index[KEY_AT, record], length, wanted):
            found[count] = index[OFFSET, record]
            count += 1
    return count


def add_header_sizes(data: Octets, index: Table, wanted: Octets, sizes: Column) -> None:
    """Add to each record's size the content length of its first header named `wanted`."""
    for record in range(index.shape[1]):
        at = int(index[HEADERS_AT, record])
        end = int(index[END, record])
        for _ in range(index[HEADERS, record]):
            name_at, name_length, _, content_length, at = read_header(data, at, end)
            if name_length == len(wanted) and matches(data, name_at, name_length, wanted):
                if content_length > 0:
                    sizes[record] += content_length
                break


def find_header(data: Octets, index: Table, wanted: Octets, at: Column, length: Column) -> None:
    """Position and length of the content of each record's first header named `wanted`; length -1 if missing."""
    for record in range(index.shape[1]):
        position = int(index[HEADERS_AT, record])
        end = int(index[END, record])
        for _ in range(index[HEADERS, record]):
            name_at, name_length, content_at, content_length, position = read_header(data, position, end)
            if name_length == len(wanted) and matches(data, name_at, name_length, wanted):
                at[record] = content_at
                length[record] = content_length
                break


def mark_equal(data: Octets, at: Column, length: Column, wanted: Octets, found: Flags) -> None:
    """Mark the rows whose span equals `wanted`."""
    for row in range(len(at)):
        if length[row] == len(wanted) and matches(data, at[row], length[row], wanted):
            found[row] = True
