"""Kernels that convert whole batches between Pulsar's messages and records, with the rules of `kernels.py`.

A message in a batch is a 4-byte size, a SingleMessageMetadata of that size (protobuf), and its payload. Its
key and properties become key and headers of the record. `pulsar.message` holds the place in the batch, as two unsigned
varints, and the other fields as they came. What the kernels do not handle, they leave to the slow path in Python: keys
in base64, and names or keys that are not ASCII.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Octets = Any  # a uint8 array

DAMAGED = -1  # invalid messages, or records that are not the whole of one entry
SLOW = -2  # something that these kernels do not handle

# A message has at most GROWTH times the bytes of its record, and MESSAGE_BYTES more.
_GROWTH = 4
_MESSAGE_BYTES = 64
_PREFIX_BYTES = 7  # of "pulsar.", which all reserved headers begin with


def read_unsigned(data: Octets, at: int, end: int) -> tuple[int, int]:
    """(value, position after it); the position is -1 if the number is cut off. Only lengths and tags are read this
    way."""
    if at < end:
        byte = int(data[at])
        if byte < 0x80:
            return byte, at + 1
    return read_long_unsigned(data, at, end)


def read_long_unsigned(data: Octets, at: int, end: int) -> tuple[int, int]:
    """The general case, in its own function so that the common case is small enough to be inlined."""
    value = 0
    shift = 0
    while at < end and shift < 63:
        byte = int(data[at])
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    if shift >= 63 and at < end and int(data[at]) < 0x80:
        return value | 1 << 62, at + 1  # negative, or over 63 bits: it only matters that it is large
    return 0, -1


def write_unsigned(out: Octets, at: int, value: int) -> int:
    """Returns the position after it."""
    while value >= 0x80:
        out[at] = (value & 0x7F) | 0x80
        value >>= 7
        at += 1
    out[at] = value
    return at + 1


def unsigned_bytes(value: int) -> int:
    size = 1
    while value >= 0x80:
        value >>= 7
        size += 1
    return size


def zigzag_size(value: int) -> int:
    """The size of the zigzag varint of a number that is not negative."""
    return unsigned_bytes(value << 1)


def copy_bytes(out: Octets, to: int, data: Octets, start: int, length: int) -> int:
    """Returns the position after the copy."""
    target = np.uint64(to)  # unsigned, or each index would be checked for its sign
    source = np.uint64(start)
    for i in range(np.uint64(length)):
        out[target + i] = data[source + i]
    return to + length


def is_ascii(data: Octets, at: int, length: int) -> bool:
    for i in range(np.uint64(at), np.uint64(at + length)):  # noqa: SIM110  # numba compiles no generators
        if data[i] >= 0x80:
            return False
    return True


def has_name(data: Octets, at: int, length: int, name: Octets) -> bool:
    if length != len(name):
        return False
    start = np.uint64(at)
    for i in range(np.uint64(length)):  # noqa: SIM110
        if data[start + i] != name[i]:
            return False
    return True


def is_reserved(data: Octets, at: int, length: int, name: Octets) -> bool:
    """Whether it begins as the reserved `name` does."""
    if length < _PREFIX_BYTES:
        return False
    start = np.uint64(at)
    for i in range(np.uint64(_PREFIX_BYTES)):  # noqa: SIM110
        if data[start + i] != name[i]:
            return False
    return True


def skip_field(data: Octets, tag: int, at: int, end: int) -> tuple[int, int, int]:
    """(start of its contents, their length, position after a field); the position is -1 if it is cut off."""
    kind = tag & 7
    if kind == 0:
        _, after = read_unsigned(data, at, end)
        return at, after - at, after
    length = 0
    start = at
    if kind == 2:
        length, start = read_unsigned(data, at, end)
        if start < 0:
            return 0, 0, -1
    elif kind == 1:
        length = 8
    elif kind == 5:
        length = 4
    else:
        return 0, 0, -1
    if length > end - start:
        return 0, 0, -1
    return start, length, start + length


def read_length(data: Octets, at: int, end: int) -> tuple[int, int]:
    """A zigzag varint that is at least -1, and the position after it; that is -1 if the number is invalid."""
    raw, at = read_unsigned(data, at, end)
    if at < 0 or (raw & 1 and raw != 1):
        return 0, -1
    return (-1 if raw == 1 else raw >> 1), at


def stretch_without_entries(data: Octets, message: Octets) -> int:
    """The end of the batches at the start that are neither compressed nor written as one entry of several records.

    `message` is the name of the header that records of such entries have."""
    at = 0
    size = len(data)
    while size - at >= 61:
        length = 0
        for k in range(8, 12):
            length = (length << 8) | int(data[at + k])
        end = at + 12 + length
        if data[at + 22] & 0x07 or end > size:
            return at
        _, step = read_unsigned(data, at + 61, end)
        _, step = read_unsigned(data, step + 1, end) if step >= 0 else (0, -1)
        _, step = read_unsigned(data, step, end) if step >= 0 else (0, -1)
        for _ in range(2):
            skipped, step = read_length(data, step, end) if step >= 0 else (0, -1)
            step = step + max(skipped, 0) if step >= 0 and skipped <= end - step else -1
        headers, step = read_length(data, step, end) if step >= 0 else (0, -1)
        while headers > 0 and step >= 0:
            name_at, name_length, _, _, step = read_record_header(data, step, end)
            if step >= 0 and has_name(data, name_at, name_length, message):
                return at
            headers -= 1
        at = end
    return size


def pack_messages(
    data: Octets, at: int, end: int, count: int, out: Octets, message: Octets, ordering: Octets
) -> int:
    """Write the records of one entry as messages. Returns the bytes written, DAMAGED or SLOW.

    The records are at [at, end); `message` and `ordering` are the names of reserved headers. What does not fit into
    `out` is left to the slow path."""
    to = 0
    for i in range(count):
        length, at = read_length(data, at, end)
        if at < 0 or length < 1 or length > end - at:
            return DAMAGED
        stop = at + length
        _, at = read_unsigned(data, at + 1, stop)  # the time
        if at < 0:
            return DAMAGED
        delta, at = read_length(data, at, stop)
        if at < 0 or delta != i:
            return DAMAGED
        key_length, key_at = read_length(data, at, stop)
        if key_at < 0 or key_length > stop - key_at:
            return DAMAGED
        value_length, value_at = read_length(data, key_at + max(key_length, 0), stop)
        if value_at < 0 or value_length > stop - value_at:
            return DAMAGED
        headers, at = read_length(data, value_at + max(value_length, 0), stop)
        if at < 0:
            return DAMAGED
        if _GROWTH * length + _MESSAGE_BYTES > len(out) - to:
            return SLOW
        size_at = to
        to += 4
        found = False
        for _ in range(headers):
            name_at, name_length, content_at, content_length, at = read_record_header(data, at, stop)
            if at < 0:
                return DAMAGED
            content_length = max(content_length, 0)
            if is_reserved(data, name_at, name_length, message):
                if has_name(data, name_at, name_length, message):
                    if found:
                        return SLOW
                    found = True
                    content_stop = content_at + content_length
                    index, rest = read_unsigned(data, content_at, content_stop)
                    if rest < 0:
                        return DAMAGED
                    total, rest = read_unsigned(data, rest, content_stop)
                    if rest < 0 or index != i or total != count:
                        return DAMAGED
                    step = rest
                    while step < content_stop:
                        tag, step = read_unsigned(data, step, content_stop)
                        if step < 0:
                            return SLOW
                        field = tag >> 3
                        if field == 1 or field == 2 or field == 6:
                            return SLOW
                        _, _, step = skip_field(data, tag, step, content_stop)
                        if step < 0:
                            return SLOW
                    to = copy_bytes(out, to, data, rest, content_stop - rest)
                elif has_name(data, name_at, name_length, ordering):
                    out[to] = 0x3A
                    to = write_unsigned(out, to + 1, content_length)
                    to = copy_bytes(out, to, data, content_at, content_length)
                continue
            inner = (
                2
                + unsigned_bytes(name_length)
                + name_length
                + unsigned_bytes(content_length)
                + content_length
            )
            out[to] = 0x0A
            to = write_unsigned(out, to + 1, inner)
            out[to] = 0x0A
            to = write_unsigned(out, to + 1, name_length)
            to = copy_bytes(out, to, data, name_at, name_length)
            out[to] = 0x12
            to = write_unsigned(out, to + 1, content_length)
            to = copy_bytes(out, to, data, content_at, content_length)
        if not found or at != stop:
            return DAMAGED
        if key_length >= 0:
            if not is_ascii(data, key_at, key_length):
                return SLOW
            out[to] = 0x12
            to = write_unsigned(out, to + 1, key_length)
            to = copy_bytes(out, to, data, key_at, key_length)
        if value_length < 0:
            value_length = 0
            out[to] = 0x48
            out[to + 1] = 1
            to += 2
        out[to] = 0x18
        to = write_unsigned(out, to + 1, value_length)
        size = to - size_at - 4
        for k in range(4):
            out[size_at + k] = (size >> (24 - 8 * k)) & 0xFF
        to = copy_bytes(out, to, data, value_at, value_length)
    return to if at == end else DAMAGED


def unpack_messages(
    data: Octets,
    count: int,
    out: Octets,
    to: int,
    headers: Octets,
    header_count: int,
    message: Octets,
    ordering: Octets,
    headers_max: int,
) -> int:
    """Write the messages of a batch as records, from `to` on. Returns the end, DAMAGED or SLOW.

    `headers` are encoded headers, `header_count` of them, that the first record gets before its own."""
    at = 0
    end = len(data)
    count_bytes = unsigned_bytes(count)
    for i in range(count):
        if end - at < 4:
            return DAMAGED
        size = 0
        for k in range(4):
            size = (size << 8) | int(data[at + k])
        at += 4
        if size > end - at:
            return DAMAGED
        start = at
        stop = at + size
        # First measure, then write.
        key_at, key_length = 0, -1
        ordering_at, ordering_length = 0, -1
        payload = -1
        null_value = False
        rest = 0
        properties = False
        own_headers = 1
        header_bytes = 0
        while at < stop:
            field_at = at
            tag, at = read_unsigned(data, at, stop)
            if at < 0:
                return DAMAGED
            inner_at, inner_length, at = skip_field(data, tag, at, stop)
            if at < 0:
                return DAMAGED
            if tag == 0x0A:
                name_at, name_length, value_at, value_length = 0, 0, 0, 0
                inner_stop = inner_at + inner_length
                step = inner_at
                while step < inner_stop:
                    inner_tag, step = read_unsigned(data, step, inner_stop)
                    if step < 0:
                        return DAMAGED
                    content_at, content_length, step = skip_field(data, inner_tag, step, inner_stop)
                    if step < 0:
                        return DAMAGED
                    if inner_tag == 0x0A:
                        name_at, name_length = content_at, content_length
                    elif inner_tag == 0x12:
                        value_at, value_length = content_at, content_length
                if is_reserved(data, name_at, name_length, message):
                    return SLOW
                if not is_ascii(data, name_at, name_length):
                    return SLOW
                own_headers += 1
                properties = True
                header_bytes += zigzag_size(name_length) + name_length
                header_bytes += zigzag_size(value_length) + value_length
            elif tag == 0x12:
                key_at, key_length = inner_at, inner_length
            elif tag == 0x18:
                payload, _ = read_unsigned(data, inner_at, stop)
            elif tag == 0x3A:
                ordering_at, ordering_length = inner_at, inner_length
            elif tag == 0x30:
                return SLOW
            else:
                if tag == 0x48:
                    null_value = data[inner_at] != 0
                rest += at - field_at
        if payload < 0 or payload > end - stop:
            return DAMAGED
        content = unsigned_bytes(i) + count_bytes + rest
        header_bytes += zigzag_size(len(message)) + len(message) + zigzag_size(content) + content
        if ordering_length >= 0:
            own_headers += 1
            header_bytes += zigzag_size(len(ordering)) + len(ordering)
            header_bytes += zigzag_size(ordering_length) + ordering_length
        if i == 0:
            own_headers += header_count
            header_bytes += len(headers)
        if own_headers > headers_max:
            return SLOW
        value_null = null_value and payload == 0
        body = 2 + zigzag_size(i) + 1 + 1 + zigzag_size(own_headers) + header_bytes
        if key_length >= 0:
            body += zigzag_size(key_length) - 1 + key_length
        if not value_null:
            body += zigzag_size(payload) - 1 + payload
        to = write_unsigned(out, to, body << 1)
        out[to] = 0
        out[to + 1] = 0
        to = write_unsigned(out, to + 2, i << 1)
        if key_length >= 0:
            to = write_unsigned(out, to, key_length << 1)
            to = copy_bytes(out, to, data, key_at, key_length)
        else:
            out[to] = 1
            to += 1
        if value_null:
            out[to] = 1
            to += 1
        else:
            to = write_unsigned(out, to, payload << 1)
            to = copy_bytes(out, to, data, stop, payload)
        to = write_unsigned(out, to, own_headers << 1)
        if i == 0:
            to = copy_bytes(out, to, headers, 0, len(headers))
        if ordering_length >= 0:
            to = write_unsigned(out, to, len(ordering) << 1)
            to = copy_bytes(out, to, ordering, 0, len(ordering))
            to = write_unsigned(out, to, ordering_length << 1)
            to = copy_bytes(out, to, data, ordering_at, ordering_length)
        to = write_unsigned(out, to, len(message) << 1)
        to = copy_bytes(out, to, message, 0, len(message))
        to = write_unsigned(out, to, content << 1)
        to = write_unsigned(out, to, i)
        to = write_unsigned(out, to, count)
        at = start if rest else stop
        while at < stop:
            field_at = at
            tag, at = read_unsigned(data, at, stop)
            _, _, at = skip_field(data, tag, at, stop)
            if tag != 0x0A and tag != 0x12 and tag != 0x18 and tag != 0x3A:
                to = copy_bytes(out, to, data, field_at, at - field_at)
        at = start if properties else stop
        while at < stop:
            tag, at = read_unsigned(data, at, stop)
            inner_at, inner_length, at = skip_field(data, tag, at, stop)
            if tag == 0x0A:
                name_at, name_length, value_at, value_length = 0, 0, 0, 0
                inner_stop = inner_at + inner_length
                step = inner_at
                while step < inner_stop:
                    inner_tag, step = read_unsigned(data, step, inner_stop)
                    content_at, content_length, step = skip_field(data, inner_tag, step, inner_stop)
                    if inner_tag == 0x0A:
                        name_at, name_length = content_at, content_length
                    elif inner_tag == 0x12:
                        value_at, value_length = content_at, content_length
                to = write_unsigned(out, to, name_length << 1)
                to = copy_bytes(out, to, data, name_at, name_length)
                to = write_unsigned(out, to, value_length << 1)
                to = copy_bytes(out, to, data, value_at, value_length)
        at = stop + payload
    if at != end:
        return DAMAGED
    return to


def read_record_header(data: Octets, at: int, end: int) -> tuple[int, int, int, int, int]:
    """(name start, name length, content start, content length or -1, position after it) of a header of a record."""
    length, at = read_unsigned(data, at, end)
    if at < 0 or length & 1:
        return 0, 0, 0, 0, -1
    length >>= 1
    if length > end - at:
        return 0, 0, 0, 0, -1
    name_at = at
    at += length
    raw, at = read_unsigned(data, at, end)
    if at < 0:
        return 0, 0, 0, 0, -1
    if raw == 1:
        return name_at, length, at, -1, at
    content = raw >> 1
    if raw & 1 or content > end - at:
        return 0, 0, 0, 0, -1
    return name_at, length, at, content, at + content
