"""Check that a message fits into the bytes a client sent, before the library reads it.

The library allocates as many items as an array announces, and the process dies if that is too much. So every length
and count is compared with the received size first. The library also rejects unknown tagged fields, which the protocol
says to ignore: they are cut out.
"""

from __future__ import annotations

import struct
import typing
from collections.abc import Callable
from dataclasses import Field, fields, is_dataclass
from typing import Any

from mainstem.doors.kafka.transport.wire import (
    INT16,
    INT32,
    KAFKA_TAGGED_FIELDS_MAX,
    count,
    span,
    uvarint,
    write_uvarint,
)
from mainstem.errors import MalformedRequest

KAFKA_ITEMS_MAX = 20_000  # in all lists of one request
KAFKA_PARTITIONS_PER_REQUEST_MAX = 20_000  # of one Fetch or Produce, which are read on the event loop

_SIZES = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "uint16": 2,
    "error_code": 2,
    "int32": 4,
    "uint32": 4,
    "timedelta_i32": 4,
    "int64": 8,
    "uint64": 8,
    "float64": 8,
    "timedelta_i64": 8,
    "datetime_i64": 8,
    "uuid": 16,
}

_NULL = -1  # as a length or a count

# What the library cannot read: a byte range of tagged fields, and which of them to keep.
_Cut = tuple[int, int, bytes]


class _Scan:
    """What was found in a message so far."""

    __slots__ = ("cuts", "items")

    def __init__(self) -> None:
        self.cuts: list[_Cut] = []
        self.items = 0  # of all arrays

    def count(self, items: int) -> None:
        """Raises MalformedRequest if the message has too many."""
        self.items += items
        if self.items > KAFKA_ITEMS_MAX:
            raise MalformedRequest(
                f"a request lists more than {KAFKA_ITEMS_MAX} items: send several requests"
            )


# From the position of a value to its end; notes what must be cut.
_Skip = Callable[[memoryview, int, _Scan], int]


def fitted(schema: type[Any], body: bytes) -> bytes:
    """The body in a form that the library can read. Raises MalformedRequest if it is shorter than its message.

    Trailing bytes are dropped: librdkafka sends three after a Metadata request for all topics."""
    buf = memoryview(body)
    scan = _Scan()
    try:
        end = _skip_message(schema)(buf, 0, scan)
    except (IndexError, struct.error):
        end = len(buf) + 1
    if end > len(buf):
        raise MalformedRequest(
            f"{len(buf)} bytes are not a {schema.__name__} of version {schema.__version__}"
        )
    body = body[:end]
    for first, last, kept in reversed(scan.cuts):
        body = body[:first] + kept + body[last:]
    return body


_messages: dict[type[Any], _Skip] = {}


def _skip_message(schema: type[Any]) -> _Skip:
    skip = _messages.get(schema)
    if skip is None:
        skip = _messages[schema] = _new_skip(schema)
    return skip


def _new_skip(schema: Any) -> _Skip:
    flexible: bool = schema.__flexible__
    hints = typing.get_type_hints(schema)
    plain: list[_Skip | int] = []  # a size, or how to skip what has none
    tagged: dict[int, _Skip] = {}
    for field in fields(schema):
        skip = _skip_field(field, hints[field.name], flexible)
        tag = field.metadata.get("tag")
        if tag is not None:
            tagged[tag] = skip if callable(skip) else _fixed(skip)
        elif plain and isinstance(plain[-1], int) and isinstance(skip, int):
            plain[-1] += skip
        else:
            plain.append(skip)

    def skip_message(buf: memoryview, at: int, scan: _Scan) -> int:
        for step in plain:
            at = at + step if isinstance(step, int) else step(buf, at, scan)
        if at > len(buf):
            raise MalformedRequest("a message runs over the end")
        return _skip_tagged(buf, at, tagged, scan) if flexible else at

    return skip_message


def _skip_field(field: Field[Any], hint: Any, flexible: bool) -> _Skip | int:
    """The size of a field, or how to skip it."""
    inner, is_array, nullable = _inside(hint)
    kind = field.metadata.get("kafka_type")
    item: _Skip | int
    if isinstance(inner, type) and is_dataclass(inner):
        item = _skip_message(inner)
        if nullable and not is_array:
            return _nullable(item)
    elif kind in _SIZES:
        item = _SIZES[kind]
    elif kind == "string":
        item = _string(flexible, nullable or is_array)
    else:
        item = _bytes(flexible, nullable or is_array)
    return _array(item, flexible, nullable) if is_array else item


def _inside(hint: Any) -> tuple[Any, bool, bool]:
    """The type of a field or of its items, whether it is an array, and whether it may be null."""
    nullable = is_array = False
    while True:
        arguments = typing.get_args(hint)
        if typing.get_origin(hint) is tuple:
            is_array = True
            hint = arguments[0]
        elif type(None) in arguments:
            nullable = True
            hint = next(part for part in arguments if part is not type(None))
        else:
            return hint, is_array, nullable


def _fixed(size: int) -> _Skip:
    return lambda buf, at, scan: at + size


def _string(flexible: bool, nullable: bool) -> _Skip:
    def skip(buf: memoryview, at: int, scan: _Scan) -> int:
        if flexible:
            length, at = uvarint(buf, at)
            length -= 1
        else:
            (length,) = INT16.unpack_from(buf, at)
            at += 2
        _check_null(length, nullable)
        return at + max(length, 0)

    return skip


def _bytes(flexible: bool, nullable: bool) -> _Skip:
    def skip(buf: memoryview, at: int, scan: _Scan) -> int:
        first, end = span(buf, at, flexible)
        _check_null(first, nullable)
        return end

    return skip


def _check_null(length: int, nullable: bool) -> None:
    """Check nulls: the library passes on a null in a field that must not be null."""
    if length < 0 and not (nullable and length == _NULL):
        raise MalformedRequest("a field is null that must not be, or has a negative length")


def _nullable(skip: _Skip) -> _Skip:
    """One byte says whether the value is present."""
    return lambda buf, at, scan: at + 1 if buf[at] >= 0x80 else skip(buf, at + 1, scan)


def _array(item: _Skip | int, flexible: bool, nullable: bool) -> _Skip:
    def skip(buf: memoryview, at: int, scan: _Scan) -> int:
        if not nullable:
            _check_null(uvarint(buf, at)[0] - 1 if flexible else INT32.unpack_from(buf, at)[0], nullable)
        items, at = count(buf, at, flexible)
        scan.count(items)
        if isinstance(item, int):
            at += items * item
        else:
            for _ in range(items):
                at = item(buf, at, scan)
        if at > len(buf):
            raise MalformedRequest("an array runs over the end")
        return at

    return skip


def _skip_tagged(buf: memoryview, at: int, known: dict[int, _Skip], scan: _Scan) -> int:
    begin = at
    tags, at = uvarint(buf, at)
    if tags > KAFKA_TAGGED_FIELDS_MAX:
        raise MalformedRequest(f"a message has {tags} tagged fields, more than {KAFKA_TAGGED_FIELDS_MAX}")
    kept: list[bytes] = []
    for _ in range(tags):
        field_at = at
        tag, at = uvarint(buf, at)
        size, at = uvarint(buf, at)
        end = at + size
        if end > len(buf):
            raise MalformedRequest(f"tagged field {tag} runs over the end")
        if tag in known:
            inside = _Scan()
            if known[tag](buf, at, inside) != end or inside.cuts:
                raise MalformedRequest(f"tagged field {tag} is not what its {size} bytes should be")
            scan.count(inside.items)
            kept.append(bytes(buf[field_at:end]))
        at = end
    if len(kept) != tags:
        scan.cuts.append((begin, at, write_uvarint(len(kept)) + b"".join(kept)))
    return at
