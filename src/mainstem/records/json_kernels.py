"""Render records as JSON: loops over many records, in the subset of Python that numba compiles.

The rules of kernels.py apply: plain functions of integers and indexable buffers, bounds checks before every read, and
no imports except types and the kernels that are called.

A record is rendered without spaces, and without absent fields:

    {"$seq":7,"$partition":2,"$ts":1700000000000,"$node":"n","$tag":"t","data":<value>,"meta":<meta>}

A value that is JSON is copied unchanged. Any other becomes `"data":null,"$raw":"<base64>"`.
"""

from __future__ import annotations

from typing import Any

from mainstem.records.kernels import (
    KEY_AT,
    KEY_LENGTH,
    OFFSET,
    TIMESTAMP,
    VALUE_AT,
    VALUE_LENGTH,
    Column,
    Octets,
    Table,
)

Out = Any  # a writable buffer, indexable by byte

RECORD_OVERHEAD_BYTES = 160  # maximum size of a record's JSON without its node, tag, value and meta
STRING_GROWTH = 6  # a byte of a string becomes at most \u00XX

_SEQ = tuple(b'{"$seq":')  # tuples, because compiled code cannot hold bytes constants
_PARTITION = tuple(b',"$partition":')
_TS = tuple(b',"$ts":')
_NODE = tuple(b',"$node":')
_TAG = tuple(b',"$tag":')
_DATA = tuple(b',"data":')
_NULL = tuple(b"null")
_RAW = tuple(b',"$raw":"')
_META = tuple(b',"meta":')
_TRUE = tuple(b"true")
_FALSE = tuple(b"false")
_ESCAPE = tuple(b"\\u00")
_REPLACEMENT = tuple("\N{REPLACEMENT CHARACTER}".encode())
_HEX = tuple(b"0123456789abcdef")
_BASE64 = tuple(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")


def utf8_length(data: Octets, at: int, end: int) -> int:
    """Bytes of the UTF-8 character at `at`, 0 if it is invalid."""
    first = int(data[at])
    if first < 0x80:
        return 1
    if first < 0xC2 or first > 0xF4:
        return 0
    size = 2 if first < 0xE0 else 3 if first < 0xF0 else 4
    if at + size > end:
        return 0
    second = int(data[at + 1])
    low, high = 0x80, 0xBF
    if first == 0xE0:
        low = 0xA0
    elif first == 0xED:
        high = 0x9F  # no surrogates
    elif first == 0xF0:
        low = 0x90
    elif first == 0xF4:
        high = 0x8F
    if second < low or second > high:
        return 0
    for i in range(2, size):
        if int(data[at + i]) & 0xC0 != 0x80:
            return 0
    return size


def skip_space(data: Octets, at: int, end: int) -> int:
    while at < end and (data[at] == 32 or data[at] == 10 or data[at] == 13 or data[at] == 9):
        at += 1
    return at


def skip_hex(data: Octets, at: int, end: int) -> int:
    """The position after four hexadecimal digits, -1 if they are missing."""
    if at + 4 > end:
        return -1
    for i in range(4):
        sign = int(data[at + i])
        if not (48 <= sign <= 57 or 65 <= sign <= 70 or 97 <= sign <= 102):
            return -1
    return at + 4


def skip_string(data: Octets, at: int, end: int) -> int:
    """The position after the string whose opening quote is at `at`, -1 if it is invalid."""
    at += 1
    while at < end:
        sign = int(data[at])
        if sign == 34:
            return at + 1
        if sign == 92:
            if at + 1 >= end:
                return -1
            escaped = int(data[at + 1])
            at += 2
            if escaped == 117:
                at = skip_hex(data, at, end)
                if at < 0:
                    return -1
            elif not (
                escaped == 34
                or escaped == 92
                or escaped == 47
                or escaped == 98
                or escaped == 102
                or escaped == 110
                or escaped == 114
                or escaped == 116
            ):
                return -1
        elif sign < 32:
            return -1
        elif sign < 0x80:
            at += 1
        else:
            size = utf8_length(data, at, end)
            if size == 0:
                return -1
            at += size
    return -1


def skip_digits(data: Octets, at: int, end: int) -> int:
    """The position after one or more digits, -1 if there is none."""
    start = at
    while at < end and 48 <= data[at] <= 57:
        at += 1
    return at if at > start else -1


def skip_number(data: Octets, at: int, end: int) -> int:
    """The position after the number at `at`, -1 if there is none."""
    if at < end and data[at] == 45:
        at += 1
    if at < end and data[at] == 48:
        at += 1
    else:
        at = skip_digits(data, at, end)
        if at < 0:
            return -1
    if at < end and data[at] == 46:
        at = skip_digits(data, at + 1, end)
        if at < 0:
            return -1
    if at < end and (data[at] == 101 or data[at] == 69):
        at += 1
        if at < end and (data[at] == 43 or data[at] == 45):
            at += 1
        at = skip_digits(data, at, end)
    return at


def skip_word(data: Octets, at: int, end: int, word: Octets) -> int:
    if at + len(word) > end:
        return -1
    for i in range(len(word)):
        if data[at + i] != word[i]:
            return -1
    return at + len(word)


def skip_scalar(data: Octets, at: int, end: int) -> int:
    """The position after the string, number or word at `at`, -1 if there is none."""
    sign = int(data[at])
    if sign == 34:
        return skip_string(data, at, end)
    if sign == 116:
        return skip_word(data, at, end, _TRUE)
    if sign == 102:
        return skip_word(data, at, end, _FALSE)
    if sign == 110:
        return skip_word(data, at, end, _NULL)
    return skip_number(data, at, end)


def skip_key(data: Octets, at: int, end: int) -> int:
    """The position after a member's name and colon, -1 if they are missing."""
    at = skip_space(data, at, end)
    if at >= end or data[at] != 34:
        return -1
    at = skip_string(data, at, end)
    if at < 0:
        return -1
    at = skip_space(data, at, end)
    if at >= end or data[at] != 58:
        return -1
    return at + 1


def is_json(data: Octets, at: int, length: int, nesting: Out) -> bool:
    """Whether the span is one JSON text. `nesting` is scratch space: one byte a level, 1 for an object."""
    end = at + length
    depth = 0
    while True:
        at = skip_space(data, at, end)
        if at >= end:
            return False
        sign = int(data[at])
        opened = False
        if sign == 123 or sign == 91:
            if depth >= len(nesting):
                return False
            nesting[depth] = 1 if sign == 123 else 0
            depth += 1
            at = skip_space(data, at + 1, end)
            if at >= end:
                return False
            opened = data[at] != (125 if sign == 123 else 93)
            if opened and sign == 123:
                at = skip_key(data, at, end)
                if at < 0:
                    return False
        else:
            at = skip_scalar(data, at, end)
            if at < 0:
                return False
        if opened:
            continue
        # A value is complete: close the containers that end here, until another value follows.
        while True:
            at = skip_space(data, at, end)
            if depth == 0:
                return at == end
            if at >= end:
                return False
            sign = int(data[at])
            at += 1
            in_object = nesting[depth - 1] == 1
            if sign == 44:
                if in_object:
                    at = skip_key(data, at, end)
                    if at < 0:
                        return False
                break
            if sign != (125 if in_object else 93):
                return False
            depth -= 1


def put(out: Out, to: int, text: Octets) -> int:
    for i in range(len(text)):
        out[to + i] = text[i]
    return to + len(text)


def put_span(out: Out, to: int, data: Octets, at: int, length: int) -> int:
    for i in range(length):
        out[to + i] = data[at + i]
    return to + length


def put_number(out: Out, to: int, value: int) -> int:
    """A whole number in decimal. Does not support the lowest 64-bit integer, which no time or offset has."""
    if value < 0:
        out[to] = 45
        to += 1
        value = -value
    digits = 1
    rest = value // 10
    while rest:
        digits += 1
        rest //= 10
    at = to + digits
    while at > to:
        at -= 1
        out[at] = 48 + value % 10
        value //= 10
    return to + digits


def put_string(out: Out, to: int, data: Octets, at: int, length: int) -> int:
    """A JSON string; each byte that is not UTF-8 becomes a replacement character."""
    end = at + length
    out[to] = 34
    to += 1
    while at < end:
        sign = int(data[at])
        if sign == 34 or sign == 92:
            out[to] = 92
            out[to + 1] = sign
            to += 2
            at += 1
        elif sign < 32:
            to = put(out, to, _ESCAPE)
            out[to] = _HEX[sign >> 4]
            out[to + 1] = _HEX[sign & 15]
            to += 2
            at += 1
        else:
            size = utf8_length(data, at, end)
            if size:
                to = put_span(out, to, data, at, size)
                at += size
            else:
                to = put(out, to, _REPLACEMENT)
                at += 1
    out[to] = 34
    return to + 1


def put_base64(out: Out, to: int, data: Octets, at: int, length: int) -> int:
    for i in range(0, length, 3):
        left = length - i
        word = int(data[at + i]) << 16
        if left > 1:
            word |= int(data[at + i + 1]) << 8
        if left > 2:
            word |= int(data[at + i + 2])
        out[to] = _BASE64[word >> 18]
        out[to + 1] = _BASE64[(word >> 12) & 63]
        out[to + 2] = _BASE64[(word >> 6) & 63] if left > 1 else 61
        out[to + 3] = _BASE64[word & 63] if left > 2 else 61
        to += 4
    return to


def put_data(out: Out, to: int, data: Octets, at: int, length: int, nesting: Out) -> int:
    to = put(out, to, _DATA)
    if length < 0:
        return put(out, to, _NULL)
    if is_json(data, at, length, nesting):
        return put_span(out, to, data, at, length)
    to = put(out, to, _NULL)
    to = put(out, to, _RAW)
    to = put_base64(out, to, data, at, length)
    out[to] = 34
    return to + 1


def render_records(
    data: Octets,
    index: Table,
    reserved_headers: Table,
    rows: Column,
    with_tags: bool,
    with_meta: bool,
    with_data: bool,
    partition: int,
    nesting: Out,
    out: Out,
) -> int:
    """Write the records in these rows of `index`, with commas between them. Returns the bytes written.

    `reserved_headers` has four rows: position and length of node, position and length of meta.
    A negative `partition` is not written."""
    to = 0
    for i in range(len(rows)):
        row = int(rows[i])
        if i:
            out[to] = 44
            to += 1
        to = put(out, to, _SEQ)
        to = put_number(out, to, int(index[OFFSET, row]) + 1)
        if partition >= 0:
            to = put(out, to, _PARTITION)
            to = put_number(out, to, partition)
        to = put(out, to, _TS)
        to = put_number(out, to, int(index[TIMESTAMP, row]))
        if reserved_headers[1, row] >= 0:
            to = put(out, to, _NODE)
            to = put_string(out, to, data, int(reserved_headers[0, row]), int(reserved_headers[1, row]))
        if with_tags and index[KEY_LENGTH, row] >= 0:
            to = put(out, to, _TAG)
            to = put_string(out, to, data, int(index[KEY_AT, row]), int(index[KEY_LENGTH, row]))
        if with_data:
            to = put_data(out, to, data, int(index[VALUE_AT, row]), int(index[VALUE_LENGTH, row]), nesting)
        if with_meta and reserved_headers[3, row] >= 0:
            to = put(out, to, _META)
            at, length = int(reserved_headers[2, row]), int(reserved_headers[3, row])
            if is_json(data, at, length, nesting):
                to = put_span(out, to, data, at, length)
            else:
                to = put_string(out, to, data, at, length)
        out[to] = 125
        to += 1
    return to
