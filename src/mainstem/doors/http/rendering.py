"""Records as JSON: stored bytes are spliced in as they are, never parsed into Python values."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence

import msgspec

from mainstem.broker.diff import Chosen
from mainstem.records import kernels

_raw = msgspec.json.Decoder(msgspec.Raw)
_quote = msgspec.json.Encoder().encode


def render(chosen: Sequence[Chosen], *, tags: bool = False, meta: bool = True, data: bool = True) -> bytes:
    """Comma-separated JSON objects, without brackets around them."""
    return b",".join([record for part in chosen for record in _few(part, tags, meta, data)])


def _few(part: Chosen, tags: bool, meta: bool, data: bool) -> Iterator[bytes]:
    source, fields, marks = part.index.data, part.index.fields, part.marks
    for row in part.rows.tolist():
        pieces = [b'{"$seq":%d,"$ts":%d' % (fields[kernels.OFFSET, row] + 1, fields[kernels.TIMESTAMP, row])]
        node = _span(source, marks.node_at[row], marks.node_length[row])
        if node is not None:
            pieces += (b',"$node":', quoted(node))
        if tags:
            tag = _span(source, fields[kernels.KEY_AT, row], fields[kernels.KEY_LENGTH, row])
            if tag is not None:
                pieces += (b',"$tag":', quoted(tag))
        if data:
            value = _span(source, fields[kernels.VALUE_AT, row], fields[kernels.VALUE_LENGTH, row])
            pieces += data_field(value)
        if meta:
            content = _span(source, marks.meta_at[row], marks.meta_length[row])
            if content is not None:
                pieces += (b',"meta":', content if is_json(content) else quoted(content))
        pieces.append(b"}")
        yield b"".join(pieces)


def _span(source: memoryview, at: int, length: int) -> bytes | None:
    return None if length < 0 else bytes(source[at : at + length])


def data_field(value: bytes | None) -> tuple[bytes, ...]:
    """A record's value: JSON as it is, anything else as base64 beside a null."""
    if value is None:
        return (b',"data":null',)
    if is_json(value):
        return (b',"data":', value)
    return (b',"data":null,"$raw":"', base64.b64encode(value), b'"')


def is_json(value: bytes) -> bool:
    try:
        if not value.isascii():
            value.decode()
        _raw.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def quoted(value: bytes) -> bytes:
    """A JSON string; bytes that are no UTF-8 are replaced."""
    return _quote(value.decode("utf-8", "replace"))
