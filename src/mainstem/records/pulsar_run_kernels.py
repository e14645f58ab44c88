"""Kernels for Pulsar messages that are entries of their own: many at once, to and from the form of the wire.

They follow the rules of `kernels.py`, and always run compiled.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mainstem.records.pulsar_kernels import (
    copy_bytes,
    has_name,
    is_ascii,
    is_reserved,
    read_record_header,
    read_unsigned,
    skip_field,
    unsigned_bytes,
    write_unsigned,
)

Octets = Any  # a uint8 array
Column = Any  # an int64 array; checksums are uint32
Table = Any  # a 2-D int64 array

_1, _2, _3, _4, _5, _6, _7 = (np.uint64(k) for k in range(1, 8))

SLOW = -2  # something that these kernels do not handle

# Rows of the record index, as in kernels.py.
_OFFSET, _TIME, _END, _KEY_AT, _KEY_LENGTH, _VALUE_AT, _VALUE_LENGTH, _HEADERS_AT, _HEADERS = (
    0,
    1,
    3,
    4,
    5,
    6,
    7,
    8,
    9,
)


def checksum(data: Octets, at: int, end: int, table: Column) -> int:
    """CRC32C, eight bytes a step. `table`: eight tables of 256 numbers, one after another."""
    crc = np.uint32(0xFFFFFFFF)
    i = np.uint64(at)  # unsigned, or each index would be checked for its sign
    stop = np.uint64(end)
    byte = np.uint32(255)
    while stop - i >= np.uint64(8):
        low = crc ^ (
            np.uint32(data[i])
            | np.uint32(data[i + _1]) << np.uint32(8)
            | np.uint32(data[i + _2]) << np.uint32(16)
            | np.uint32(data[i + _3]) << np.uint32(24)
        )
        crc = (
            table[np.uint64(1792) + np.uint64(low & byte)]
            ^ table[np.uint64(1536) + np.uint64((low >> np.uint32(8)) & byte)]
            ^ table[np.uint64(1280) + np.uint64((low >> np.uint32(16)) & byte)]
            ^ table[np.uint64(1024) + np.uint64(low >> np.uint32(24))]
            ^ table[np.uint64(768) + np.uint64(data[i + _4])]
            ^ table[np.uint64(512) + np.uint64(data[i + _5])]
            ^ table[np.uint64(256) + np.uint64(data[i + _6])]
            ^ table[np.uint64(data[i + _7])]
        )
        i += np.uint64(8)
    while i < stop:
        crc = table[np.uint64((crc ^ np.uint32(data[i])) & byte)] ^ (crc >> np.uint32(8))
        i += _1
    return int(crc ^ np.uint32(0xFFFFFFFF))


def put_u32(out: Octets, at: int, value: int) -> int:
    """Big-endian. Returns the position after it."""
    out[at] = (value >> 24) & 255
    out[at + 1] = (value >> 16) & 255
    out[at + 2] = (value >> 8) & 255
    out[at + 3] = value & 255
    return at + 4


def put_entry(data: Octets, at: int, stop: int, out: Octets, to: int) -> tuple[int, bool, bool]:
    """Copy the contents of a `pulsar.entry` header. Returns (the position after it or SLOW, whether it has a producer
    name, whether it has a sequence id)."""
    named = False
    numbered = False
    step = at
    while step < stop:
        tag, step = read_unsigned(data, step, stop)
        if step < 0:
            return SLOW, False, False
        field = tag >> 3
        if field == 4 or field == 6 or field == 8 or field == 17:
            return SLOW, False, False  # properties, key, compression, key in base64
        if field == 9 or field == 11 or (field >= 27 and field <= 29):
            return SLOW, False, False  # of a payload that only clients can read, or not to be trusted
        if tag == 0x0A:
            named = True
        elif tag == 0x10:
            numbered = True
        _, _, step = skip_field(data, tag, step, stop)
        if step < 0:
            return SLOW, False, False
    return copy_bytes(out, to, data, at, stop - at), named, numbered


def put_properties(
    data: Octets, at: int, end: int, count: int, out: Octets, to: int, entry: Octets, ordering: Octets
) -> tuple[int, int, int]:
    """Write headers of a record as properties and the ordering key. Returns (the position after them or SLOW, start and
    length of the contents of `pulsar.entry`, -1 if there is none)."""
    entry_at = 0
    entry_length = -1
    ordered = False
    for _ in range(count):
        name_at, name_length, content_at, content_length, at = read_record_header(data, at, end)
        if at < 0:
            return SLOW, 0, 0
        content_length = max(content_length, 0)
        if is_reserved(data, name_at, name_length, entry):
            if has_name(data, name_at, name_length, entry):
                if entry_length < 0:
                    entry_at, entry_length = content_at, content_length
            elif has_name(data, name_at, name_length, ordering) and not ordered:
                ordered = True
                out[to] = 0x92
                out[to + 1] = 0x01
                to = write_unsigned(out, to + 2, content_length)
                to = copy_bytes(out, to, data, content_at, content_length)
            else:
                return SLOW, 0, 0  # a message of a batch, or a delayed one
            continue
        if not is_ascii(data, name_at, name_length):
            return SLOW, 0, 0
        out[to] = 0x22
        inner = (
            2 + unsigned_bytes(name_length) + name_length + unsigned_bytes(content_length) + content_length
        )
        to = write_unsigned(out, to + 1, inner)
        out[to] = 0x0A
        to = write_unsigned(out, to + 1, name_length)
        to = copy_bytes(out, to, data, name_at, name_length)
        out[to] = 0x12
        to = write_unsigned(out, to + 1, content_length)
        to = copy_bytes(out, to, data, content_at, content_length)
    return to, entry_at, entry_length


def put_message(
    data: Octets,
    fields: Table,
    i: int,
    out: Octets,
    to: int,
    entry: Octets,
    ordering: Octets,
    producer: Octets,
    table: Column,
) -> int:
    """Write one record as magic, checksum, size of the metadata, metadata and payload. Returns the position after it,
    or SLOW."""
    sizes_at = to + 2
    out[to] = 0x0E
    out[to + 1] = 0x01
    start = to + 10
    to, entry_at, entry_length = put_properties(
        data,
        int(fields[_HEADERS_AT, i]),
        int(fields[_END, i]),
        int(fields[_HEADERS, i]),
        out,
        start,
        entry,
        ordering,
    )
    if to < 0:
        return SLOW
    named = False
    numbered = False
    if entry_length >= 0:
        to, named, numbered = put_entry(data, entry_at, entry_at + entry_length, out, to)
        if to < 0:
            return SLOW
    if not named:
        out[to] = 0x0A
        to = write_unsigned(out, to + 1, len(producer))
        to = copy_bytes(out, to, producer, 0, len(producer))
    if not numbered:
        out[to] = 0x10
        to = write_unsigned(out, to + 1, int(fields[_OFFSET, i]))
    out[to] = 0x18
    to = write_unsigned(out, to + 1, max(int(fields[_TIME, i]), 0))
    key_length = int(fields[_KEY_LENGTH, i])
    if key_length >= 0:
        key_at = int(fields[_KEY_AT, i])
        if not is_ascii(data, key_at, key_length):
            return SLOW
        out[to] = 0x32
        to = write_unsigned(out, to + 1, key_length)
        to = copy_bytes(out, to, data, key_at, key_length)
    value_length = int(fields[_VALUE_LENGTH, i])
    if value_length < 0:
        out[to] = 0xC8
        out[to + 1] = 0x01
        out[to + 2] = 1
        to += 3
    put_u32(out, sizes_at + 4, to - start)
    if value_length > 0:
        to = copy_bytes(out, to, data, int(fields[_VALUE_AT, i]), value_length)
    put_u32(out, sizes_at, checksum(out, sizes_at + 4, to, table))
    return to


def any_compressed(data: Octets) -> bool:
    """Whether one of some batches, laid out as in header.py, is compressed."""
    at = 0
    while len(data) - at >= 61:
        if data[at + 22] & 0x07:
            return True
        size = 0
        for k in range(8, 12):
            size = (size << 8) | int(data[at + k])
        at += 12 + size
    return False


def pack_lone_messages(
    data: Octets,
    fields: Table,
    first: int,
    out: Octets,
    borders: Column,
    entry: Octets,
    ordering: Octets,
    producer: Octets,
    table: Column,
) -> int:
    """Write records from column `first` on, up to one that these kernels do not handle, or that is not an entry of its
    own. `borders` gets the position after each. Returns their number.

    `entry` and `ordering` are the names of reserved headers, `producer` the name of those who have none."""
    to = 0
    for i in range(first, fields.shape[1]):
        after = put_message(data, fields, i, out, to, entry, ordering, producer, table)
        if after < 0:
            return i - first
        to = after
        borders[i - first + 1] = to
    return int(fields.shape[1]) - first


def frame_messages(
    bodies: Octets,
    borders: Column,
    base: int,
    prefix: Octets,
    ledger: Octets,
    suffix: Octets,
    tail: Octets,
    indexed: bool,
    out: Octets,
) -> int:
    """Write MESSAGE frames of entries at offsets from `base` on. Returns the bytes written.

    The command is `prefix` (consumer), a message id (`ledger`, the offset, `suffix`) and `tail`. `indexed`: a
    BrokerEntryMetadata with the offset follows it."""
    to = 0
    for i in range(len(borders) - 1):
        offset = base + i
        id_size = len(ledger) + unsigned_bytes(offset) + len(suffix)
        size = len(prefix) + 1 + unsigned_bytes(id_size) + id_size + len(tail)
        command = 3 + unsigned_bytes(size) + size
        start = int(borders[i])
        length = int(borders[i + 1]) - start
        index = 1 + unsigned_bytes(offset)
        to = put_u32(out, to, 4 + command + length + (6 + index if indexed else 0))
        to = put_u32(out, to, command)
        out[to] = 0x08
        out[to + 1] = 0x09
        out[to + 2] = 0x4A
        to = write_unsigned(out, to + 3, size)
        to = copy_bytes(out, to, prefix, 0, len(prefix))
        out[to] = 0x12
        to = write_unsigned(out, to + 1, id_size)
        to = copy_bytes(out, to, ledger, 0, len(ledger))
        to = write_unsigned(out, to, offset)
        to = copy_bytes(out, to, suffix, 0, len(suffix))
        to = copy_bytes(out, to, tail, 0, len(tail))
        if indexed:
            out[to] = 0x0E
            out[to + 1] = 0x02
            to = put_u32(out, to + 2, index)
            out[to] = 0x10
            to = write_unsigned(out, to + 1, offset)
        to = copy_bytes(out, to, bodies, start, length)
    return to


def parse_ack(data: Octets, at: int, facts: Column, entries: Column) -> int:
    """Read a CommandAck. Returns the number of message ids, whose entries are in `entries`, or SLOW.

    `facts` gets consumer, type, request (-1: none) and ledger, which is the same in all ids."""
    end = len(data)
    count = 0
    facts[0], facts[1], facts[2], facts[3] = -1, 0, -1, -1
    while at < end:
        tag, at = read_unsigned(data, at, end)
        if at < 0:
            return SLOW
        if tag == 0x1A:
            length, at = read_unsigned(data, at, end)
            if at < 0 or length > end - at or count >= len(entries):
                return SLOW
            stop = at + length
            ledger = -1
            entry = -1
            while at < stop:
                inner, at = read_unsigned(data, at, stop)
                if at < 0 or inner & 7 or inner == 0x28:
                    return SLOW  # an ack set, or something unknown
                value, at = read_unsigned(data, at, stop)
                if at < 0:
                    return SLOW
                if inner == 0x08:
                    ledger = value
                elif inner == 0x10:
                    entry = value
            if ledger < 0 or entry < 0 or entry >= 1 << 62 or (count > 0 and ledger != facts[3]):
                return SLOW
            facts[3] = ledger
            entries[count] = entry
            count += 1
        else:
            value, at = read_unsigned(data, at, end)
            if at < 0 or value >= 1 << 62:
                return SLOW
            if tag == 0x08:
                facts[0] = value
            elif tag == 0x10:
                facts[1] = value
            elif tag == 0x40:
                facts[2] = value
            else:
                return SLOW
    return count
