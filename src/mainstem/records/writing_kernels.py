"""Kernels that write records and columns: the counterpart of `kernels.py`, with the same rules.

A column of spans has three arrays: bytes, starts and lengths (-1 = null). Empty starts mean null in every record, empty
header counts no headers, empty offset deltas offsets without gaps.
"""

from __future__ import annotations

from typing import Any

Octets = Any  # a uint8 array
Column = Any  # a 1-D int64 array

_SHIFT_7_MASK = (1 << 57) - 1  # clears the sign bits that a right shift by 7 copies in

PLAIN_OVERHEAD_BYTES = 20  # maximum that `write_plain` adds to a value

BAD_COLUMN = -1
BAD_HEADERS = -2
RECORD_TOO_LARGE = -3

FAULTS = {
    BAD_COLUMN: "a column points outside its bytes",
    BAD_HEADERS: "a record has a negative number of headers, or over the limit",
    RECORD_TOO_LARGE: "a record is over the size limit",
}


def copy(out: Octets, to: int, data: Octets, start: int, length: int) -> None:
    """Copy bytes between arrays."""
    # Indices from 0 within two slices let the compiler prove that none is negative: 20 times faster.
    source = data[start : start + length]
    target = out[to : to + length]
    for i in range(length):
        target[i] = source[i]


def gather(data: Octets, starts: Column, lengths: Column, out: Octets) -> None:
    """Copy spans one after another; nulls take no space."""
    to = 0
    for i in range(len(starts)):
        length = int(lengths[i])
        if length > 0:
            copy(out, to, data, int(starts[i]), length)
            to += length


def zigzag_bytes(value: int) -> int:
    """The size of the varint of `value`."""
    raw = (value << 1) ^ (value >> 63)
    size = 1
    while raw & -128:
        raw = (raw >> 7) & _SHIFT_7_MASK
        size += 1
    return size


def write_varint(out: Octets, at: int, value: int) -> int:
    """Returns the position after it."""
    raw = (value << 1) ^ (value >> 63)
    while raw & -128:
        out[at] = (raw & 0x7F) | 0x80
        raw = (raw >> 7) & _SHIFT_7_MASK
        at += 1
    out[at] = raw
    return at + 1


def span_bytes(data: Octets, starts: Column, lengths: Column, i: int) -> int:
    """Size of a span with its length prefix, or BAD_COLUMN."""
    if len(starts) == 0 or lengths[i] == -1:
        return 1
    start = int(starts[i])
    length = int(lengths[i])
    if length < -1 or start < 0 or length > len(data) or start > len(data) - length:
        return BAD_COLUMN
    return zigzag_bytes(length) + length


def write_span(out: Octets, at: int, data: Octets, starts: Column, lengths: Column, i: int) -> int:
    """Returns the position after it."""
    if len(starts) == 0 or lengths[i] == -1:
        out[at] = 1  # the varint of -1
        return at + 1
    length = int(lengths[i])
    at = write_varint(out, at, length)
    copy(out, at, data, int(starts[i]), length)
    return at + length


def measure_records(
    headers_max: int,
    record_bytes_max: int,
    body_lengths: Column,
    elapsed: Column,
    deltas: Column,
    keys: Octets,
    key_starts: Column,
    key_lengths: Column,
    values: Octets,
    value_starts: Column,
    value_lengths: Column,
    header_counts: Column,
    names: Octets,
    name_starts: Column,
    name_lengths: Column,
    contents: Octets,
    content_starts: Column,
    content_lengths: Column,
) -> int:
    """Compute each record's length field. Returns the bytes of all records, or a fault."""
    total = 0
    header = 0
    for i in range(len(elapsed)):
        key = span_bytes(keys, key_starts, key_lengths, i)
        value = span_bytes(values, value_starts, value_lengths, i)
        headers = header_counts[i] if len(header_counts) > 0 else 0
        if key < 0 or value < 0:
            return BAD_COLUMN
        if headers < 0 or headers > headers_max:
            return BAD_HEADERS
        if headers > len(name_starts) - header:
            return BAD_COLUMN
        delta = deltas[i] if len(deltas) > 0 else i
        body = 1 + zigzag_bytes(elapsed[i]) + zigzag_bytes(delta) + key + value + zigzag_bytes(headers)
        for _ in range(headers):
            name = span_bytes(names, name_starts, name_lengths, header)
            content = span_bytes(contents, content_starts, content_lengths, header)
            if name < 0 or content < 0 or name_lengths[header] < 0:
                return BAD_COLUMN
            body += name + content
            header += 1
        if body > record_bytes_max:
            return RECORD_TOO_LARGE
        body_lengths[i] = body
        total += zigzag_bytes(body) + body
    return total


def write_records(
    out: Octets,
    at: int,
    body_lengths: Column,
    elapsed: Column,
    deltas: Column,
    keys: Octets,
    key_starts: Column,
    key_lengths: Column,
    values: Octets,
    value_starts: Column,
    value_lengths: Column,
    header_counts: Column,
    names: Octets,
    name_starts: Column,
    name_lengths: Column,
    contents: Octets,
    content_starts: Column,
    content_lengths: Column,
) -> int:
    """Write records that `measure_records` measured. Returns the position after them."""
    header = 0
    for i in range(len(elapsed)):
        at = write_varint(out, at, body_lengths[i])
        out[at] = 0
        at = write_varint(out, at + 1, elapsed[i])
        at = write_varint(out, at, deltas[i] if len(deltas) > 0 else i)
        at = write_span(out, at, keys, key_starts, key_lengths, i)
        at = write_span(out, at, values, value_starts, value_lengths, i)
        headers = header_counts[i] if len(header_counts) > 0 else 0
        at = write_varint(out, at, headers)
        for _ in range(headers):
            at = write_span(out, at, names, name_starts, name_lengths, header)
            at = write_span(out, at, contents, content_starts, content_lengths, header)
            header += 1
    return at


def write_plain(out: Octets, at: int, record_bytes_max: int, data: Octets, lengths: Column) -> int:
    """Write records that only have a value and the batch's time; `data` has the values in order.

    Returns the position after them, or a fault."""
    start = 0
    for i in range(len(lengths)):
        length = int(lengths[i])
        body = 4 + zigzag_bytes(i) + zigzag_bytes(length) + length
        if body > record_bytes_max:
            return RECORD_TOO_LARGE
        at = write_varint(out, at, body)
        out[at] = 0  # attributes
        out[at + 1] = 0  # timestamp delta
        at = write_varint(out, at + 2, i)
        out[at] = 1  # the varint of -1: no key
        at = write_varint(out, at + 1, length)
        copy(out, at, data, start, length)
        out[at + length] = 0  # no headers
        at += length + 1
        start += length
    return at
