"""Kernels for what Pulsar clients send many of: SENDs of messages that are entries of their own, and their receipts.

They follow the rules of `kernels.py`, and always run compiled.
"""

from __future__ import annotations

from typing import Any

from mainstem.records.pulsar_kernels import (
    copy_bytes,
    is_ascii,
    is_reserved,
    read_unsigned,
    skip_field,
    unsigned_bytes,
    write_unsigned,
    zigzag_size,
)
from mainstem.records.pulsar_run_kernels import checksum, put_u32

Octets = Any  # a uint8 array
Column = Any  # an int64 array; checksums are uint32
Table = Any  # a 2-D int64 array

# Rows of the table of SENDs.
SEQUENCE, HIGHEST, SIZE, TIME = range(4)
SEND_ROWS = 4

_TIME_MAX = 1 << 52


def get_u32(data: Octets, at: int) -> int:
    return int(data[at]) << 24 | int(data[at + 1]) << 16 | int(data[at + 2]) << 8 | int(data[at + 3])


def read_send(data: Octets, at: int, end: int) -> tuple[int, int, int]:
    """(producer, sequence, highest sequence) of a SEND that is neither a part of a transaction nor a chunk; the
    producer is -1 if it is something else."""
    if end - at < 4 or data[at] != 0x08 or data[at + 1] != 0x06 or data[at + 2] != 0x32:
        return -1, 0, 0
    size, at = read_unsigned(data, at + 3, end)
    if at < 0 or size != end - at:
        return -1, 0, 0
    producer = -1
    sequence = -1
    highest = 0
    while at < end:
        tag, at = read_unsigned(data, at, end)
        if at < 0:
            return -1, 0, 0
        value, at = read_unsigned(data, at, end)
        if at < 0 or value >= 1 << 62:
            return -1, 0, 0
        if tag == 0x08:
            producer = value
        elif tag == 0x10:
            sequence = value
        elif tag == 0x30:
            highest = value
        elif tag != 0x18:
            return -1, 0, 0
    return (producer if sequence >= 0 else -1), sequence, highest


def put_record(
    data: Octets,
    at: int,
    stop: int,
    end: int,
    index: int,
    base_time: int,
    out: Octets,
    to: int,
    entry: Octets,
    ordering: Octets,
) -> tuple[int, int]:
    """Write a message as a record: its metadata is at [at, stop), its payload at [stop, end). Returns the position
    after it, -1 if only Python can convert it, and its time. A `base_time` of -1 stands for the time of the message."""
    start = at
    time = -1
    key_at, key_length = 0, -1
    ordering_at, ordering_length = 0, -1
    rest = 0
    headers = 1
    header_bytes = 0
    while at < stop:
        field_at = at
        tag, at = read_unsigned(data, at, stop)
        if at < 0:
            return -1, 0
        inner_at, inner_length, at = skip_field(data, tag, at, stop)
        if at < 0:
            return -1, 0
        if tag == 0x18:
            time, _ = read_unsigned(data, inner_at, stop)
        elif tag == 0x22:
            name_at, name_length, value_at, value_length = read_property(
                data, inner_at, inner_at + inner_length
            )
            if name_length < 0 or is_reserved(data, name_at, name_length, entry):
                return -1, 0
            if not is_ascii(data, name_at, name_length):
                return -1, 0
            headers += 1
            header_bytes += zigzag_size(name_length) + name_length + zigzag_size(value_length) + value_length
        elif tag == 0x32:
            key_at, key_length = inner_at, inner_length
        elif tag == 0x92:
            ordering_at, ordering_length = inner_at, inner_length
        elif is_opaque(tag >> 3):
            return -1, 0
        else:
            rest += at - field_at
    if time < 0 or time > _TIME_MAX:
        return -1, 0
    header_bytes += zigzag_size(len(entry)) + len(entry) + zigzag_size(rest) + rest
    if ordering_length >= 0:
        headers += 1
        header_bytes += (
            zigzag_size(len(ordering)) + len(ordering) + zigzag_size(ordering_length) + ordering_length
        )
    elapsed = 0 if base_time < 0 else time - base_time
    encoded_time = (elapsed << 1) ^ (elapsed >> 63)
    payload = end - stop
    body = 1 + unsigned_bytes(encoded_time) + zigzag_size(index) + zigzag_size(payload) + payload
    body += 1 if key_length < 0 else zigzag_size(key_length) + key_length
    body += zigzag_size(headers) + header_bytes
    if body + 10 > len(out) - to:
        return -1, 0
    to = write_unsigned(out, to, body << 1)
    out[to] = 0
    to = write_unsigned(out, to + 1, encoded_time)
    to = write_unsigned(out, to, index << 1)
    if key_length < 0:
        out[to] = 1
        to += 1
    else:
        to = write_unsigned(out, to, key_length << 1)
        to = copy_bytes(out, to, data, key_at, key_length)
    to = write_unsigned(out, to, payload << 1)
    to = copy_bytes(out, to, data, stop, payload)
    to = write_unsigned(out, to, headers << 1)
    if ordering_length >= 0:
        to = write_unsigned(out, to, len(ordering) << 1)
        to = copy_bytes(out, to, ordering, 0, len(ordering))
        to = write_unsigned(out, to, ordering_length << 1)
        to = copy_bytes(out, to, data, ordering_at, ordering_length)
    to = write_unsigned(out, to, len(entry) << 1)
    to = copy_bytes(out, to, entry, 0, len(entry))
    to = write_unsigned(out, to, rest << 1)
    at = start
    while at < stop:
        field_at = at
        tag, at = read_unsigned(data, at, stop)
        _, _, at = skip_field(data, tag, at, stop)
        if tag != 0x18 and tag != 0x22 and tag != 0x32 and tag != 0x92:
            to = copy_bytes(out, to, data, field_at, at - field_at)
    at = start
    while at < stop:
        tag, at = read_unsigned(data, at, stop)
        inner_at, inner_length, at = skip_field(data, tag, at, stop)
        if tag == 0x22:
            name_at, name_length, value_at, value_length = read_property(
                data, inner_at, inner_at + inner_length
            )
            to = write_unsigned(out, to, name_length << 1)
            to = copy_bytes(out, to, data, name_at, name_length)
            to = write_unsigned(out, to, value_length << 1)
            to = copy_bytes(out, to, data, value_at, value_length)
    return to, time


def is_opaque(field: int) -> bool:
    """Fields of the metadata of messages that only Python converts: compressed ones and batches (8 to 11), encrypted
    ones (13 to 15), keys in base64 (17), delayed ones (19), those without a value (25) and chunks (27 to 29)."""
    return (
        8 <= field <= 11
        or 13 <= field <= 15
        or field == 17
        or field == 19
        or field == 25
        or 27 <= field <= 29
    )


def read_property(data: Octets, at: int, stop: int) -> tuple[int, int, int, int]:
    """(name start, name length, value start, value length) of a KeyValue; the name's length is -1 if it is damaged."""
    name_at, name_length, value_at, value_length = 0, 0, 0, 0
    while at < stop:
        tag, at = read_unsigned(data, at, stop)
        if at < 0:
            return 0, -1, 0, 0
        content_at, content_length, at = skip_field(data, tag, at, stop)
        if at < 0:
            return 0, -1, 0, 0
        if tag == 0x0A:
            name_at, name_length = content_at, content_length
        elif tag == 0x12:
            value_at, value_length = content_at, content_length
    return name_at, name_length, value_at, value_length


def unpack_sends(
    data: Octets,
    at: int,
    out: Octets,
    to: int,
    sends: Table,
    frame_bytes_max: int,
    entry: Octets,
    ordering: Octets,
    table: Column,
) -> tuple[int, int, int, int]:
    """Write the messages of consecutive SENDs of one producer as records of one batch, from `to` on.

    Stops at a frame that is incomplete, or that only Python can convert. Returns (their number, the producer, the
    position of the first frame that is left, the end of the records)."""
    end = len(data)
    count = 0
    chosen = -1
    base_time = -1
    while count < sends.shape[1] and end - at >= 8:
        size = get_u32(data, at)
        stop = at + 4 + size
        if size < 4 or size > frame_bytes_max or stop > end:
            break
        command = get_u32(data, at + 4)
        rest = at + 8 + command
        if rest + 10 > stop:
            break
        producer, sequence, highest = read_send(data, at + 8, rest)
        if producer < 0 or (count > 0 and producer != chosen):
            break
        if data[rest] != 0x0E or data[rest + 1] != 0x01:
            break
        metadata = rest + 10
        payload = metadata + get_u32(data, rest + 6)
        if payload > stop or checksum(data, rest + 6, stop, table) != get_u32(data, rest + 2):
            break
        after, time = put_record(data, metadata, payload, stop, count, base_time, out, to, entry, ordering)
        if after < 0:
            break
        if count == 0:
            base_time = time
        to = after
        chosen = producer
        sends[SEQUENCE, count] = sequence
        sends[HIGHEST, count] = highest
        sends[SIZE, count] = stop - rest
        sends[TIME, count] = time
        count += 1
        at = stop
    return count, chosen, at, to


def frame_receipts(
    sends: Table, base: int, producer: Octets, ledger: Octets, partition: Octets, out: Octets
) -> int:
    """Write SEND_RECEIPTs of consecutive offsets from `base` on. Returns the bytes written.

    The others are encoded fields: of the command, and of the message id around its entry."""
    to = 0
    for i in range(sends.shape[1]):
        offset = base + i
        sequence = int(sends[SEQUENCE, i])
        highest = int(sends[HIGHEST, i])
        id_size = len(ledger) + unsigned_bytes(offset) + len(partition)
        size = len(producer) + 1 + unsigned_bytes(sequence) + 1 + unsigned_bytes(id_size) + id_size
        if highest:
            size += 1 + unsigned_bytes(highest)
        command = 3 + unsigned_bytes(size) + size
        to = put_u32(out, to, 4 + command)
        to = put_u32(out, to, command)
        out[to] = 0x08
        out[to + 1] = 0x07
        out[to + 2] = 0x3A
        to = write_unsigned(out, to + 3, size)
        to = copy_bytes(out, to, producer, 0, len(producer))
        out[to] = 0x10
        to = write_unsigned(out, to + 1, sequence)
        out[to] = 0x1A
        to = write_unsigned(out, to + 1, id_size)
        to = copy_bytes(out, to, ledger, 0, len(ledger))
        to = write_unsigned(out, to, offset)
        to = copy_bytes(out, to, partition, 0, len(partition))
        if highest:
            out[to] = 0x20
            to = write_unsigned(out, to + 1, highest)
    return to
