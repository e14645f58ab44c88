"""The primitive types of the Kafka protocol, for the messages that are read and written by hand.

| type           | plain versions            | flexible versions                            |
|----------------|---------------------------|----------------------------------------------|
| string         | i2 length, UTF-8          | uvarint length + 1, UTF-8; 0 = null          |
| bytes, records | i4 length, bytes; -1 null | uvarint length + 1, bytes; 0 = null          |
| array          | i4 count, items; -1 null  | uvarint count + 1, items; 0 = null           |
| tagged fields  | none                      | uvarint count, then tag, size, bytes of each |
"""

from __future__ import annotations

import struct

import numpy as np

from mainstem import limits
from mainstem.errors import MalformedRequest
from mainstem.records.header import Slice

KAFKA_KEPT_IN_PLACE_BYTES_MIN = 8 * limits.KIB  # larger batches are not copied out of the receive buffer

INT16 = struct.Struct(">h")
INT32 = struct.Struct(">i")
INT64 = struct.Struct(">q")
NO_TAGS = b"\0"
UUID_BYTES = 16

UVARINT_BYTES_MAX = 5
KAFKA_TAGGED_FIELDS_MAX = 256  # of one message

# Raised when reading past the end of a body, or on invalid UTF-8.
UNREADABLE = (struct.error, IndexError, UnicodeDecodeError)


def uvarint(buf: memoryview, at: int) -> tuple[int, int]:
    """The number at `at`, and where it ends."""
    byte = buf[at]
    if byte < 0x80:
        return byte, at + 1
    value = byte & 0x7F
    for step in range(1, UVARINT_BYTES_MAX):
        byte = buf[at + step]
        value |= (byte & 0x7F) << 7 * step
        if byte < 0x80:
            return value, at + step + 1
    raise MalformedRequest("a number has more than five bytes")


_SMALL = tuple(bytes((value,)) for value in range(0x80))


def write_uvarint(value: int) -> bytes:
    if value < 0x80:
        return _SMALL[value]
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def skip_tags(buf: memoryview, at: int) -> int:
    """Where the tagged fields at `at` end. Unknown fields are skipped."""
    if not buf[at]:
        return at + 1
    fields, at = uvarint(buf, at)
    if fields > KAFKA_TAGGED_FIELDS_MAX:
        raise MalformedRequest(f"a message has {fields} tagged fields, more than {KAFKA_TAGGED_FIELDS_MAX}")
    for _ in range(fields):
        _, at = uvarint(buf, at)
        size, at = uvarint(buf, at)
        at += size
        if at > len(buf):
            raise MalformedRequest("a tagged field runs over the end")
    return at


def string(buf: memoryview, at: int, flexible: bool) -> tuple[str | None, int]:
    if flexible:
        length, at = uvarint(buf, at)
        length -= 1
    else:
        (length,) = INT16.unpack_from(buf, at)
        at += 2
    if length == -1:
        return None, at
    end = at + length
    if length < -1 or end > len(buf):
        raise MalformedRequest("a string runs over the end")
    return str(buf[at:end], "utf-8"), end


def count(buf: memoryview, at: int, flexible: bool) -> tuple[int, int]:
    """The number of items of an array, 0 if it is null. Each item takes at least one byte, which bounds the work."""
    if flexible:
        items, at = uvarint(buf, at)
        items -= 1
    else:
        (items,) = INT32.unpack_from(buf, at)
        at += 4
    if items > len(buf) - at or items < -1:
        raise MalformedRequest(f"an array of {items} items does not fit")
    return max(items, 0), at


def span(buf: memoryview, at: int, flexible: bool) -> tuple[int, int]:
    """Where bytes begin and end; null ones begin at -1."""
    if flexible:
        length, at = uvarint(buf, at)
        length -= 1
    else:
        (length,) = INT32.unpack_from(buf, at)
        at += 4
    if length == -1:
        return -1, at
    if length < -1 or at + length > len(buf):
        raise MalformedRequest("bytes run over the end")
    return at, at + length


def topic_id(buf: memoryview, at: int) -> tuple[bytes, int]:
    end = at + UUID_BYTES
    if end > len(buf):
        raise MalformedRequest("a topic id runs over the end")
    return bytes(buf[at:end]), end


def write_string(text: str | None, flexible: bool) -> bytes:
    if text is None:
        return NO_TAGS if flexible else b"\xff\xff"
    data = text.encode()
    return (write_uvarint(len(data) + 1) if flexible else INT16.pack(len(data))) + data


def write_count(items: int, flexible: bool) -> bytes:
    return write_uvarint(items + 1) if flexible else INT32.pack(items)


def kept(body: memoryview, first: int, end: int) -> Slice:
    """Bytes of a request that outlive it: in place, if they were received into their own memory (receive_buffer.py).

    Small values are copied, since they would keep a whole block alive."""
    part = body[first:end]
    if isinstance(body.obj, np.ndarray) and end - first >= KAFKA_KEPT_IN_PLACE_BYTES_MIN:
        return part
    return bytearray(part)
