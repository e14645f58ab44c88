"""Records as JSON: stored bytes are spliced in as they are, never parsed into Python values."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from mainstem import limits
from mainstem.broker.diff import SelectedRecords
from mainstem.errors import invariant
from mainstem.records import kernels
from mainstem.records.building import build_batch, build_plain
from mainstem.records.compiled import compiled
from mainstem.records.decoding import StoredRecord
from mainstem.records.index import Integers, copied, index_slices
from mainstem.records.json_kernels import RECORD_OVERHEAD_BYTES, STRING_GROWTH, render_records
from mainstem.records.reserved_headers import META, NODE, find_reserved_headers, find_trace, nodes_among

JSON_NESTING_MAX = 512  # levels of arrays and objects in a value rendered as JSON

_raw = msgspec.json.Decoder(msgspec.Raw)
_encode = _quote = msgspec.json.Encoder().encode

_BASE64_STEP_BYTES = 3 * 256 * limits.KIB  # a multiple of 3, so that the parts join


def render(
    chosen: Sequence[SelectedRecords | StoredRecord],
    *,
    tags: bool = False,
    meta: bool = True,
    data: bool = True,
    trace: bool = False,
    headers: bool = False,
    partition: int = -1,
) -> bytes:
    """Comma-separated JSON objects, without brackets around them. A partition of -1 is left out."""
    parts: list[bytes] = []
    for part in chosen:
        if isinstance(part, StoredRecord):
            parts.append(_lone(part, tags, data, partition))
            continue
        with_headers = headers and part.index.headers > 0
        if len(part.rows) > limits.INTERPRETED_RECORDS_MAX and not trace and not with_headers:
            parts.append(_many(part, tags, meta, data, partition))
        else:
            parts += _render_few(part, tags, meta, data, trace, with_headers, partition)
    return b",".join(parts) if len(parts) != 1 else parts[0]


def _lone(record: StoredRecord, tags: bool, data: bool, partition: int) -> bytes:
    """One record without headers."""
    pieces = [b'{"$seq":%d' % (record.offset + 1)]
    if partition >= 0:
        pieces.append(b',"$partition":%d' % partition)
    pieces.append(b',"$ts":%d' % record.timestamp_ms)
    if tags and record.key is not None:
        pieces += (b',"$tag":', quoted(record.key))
    if data:
        pieces += data_field(record.value)
    pieces.append(b"}")
    return b"".join(pieces)


def _many(part: SelectedRecords, tags: bool, meta: bool, data: bool, partition: int) -> bytes:
    fields, table, rows = part.index.fields, part.reserved_headers.table, part.rows
    strings = np.maximum(table[1, rows], 0) + np.maximum(table[3, rows], 0)
    strings += np.maximum(fields[kernels.KEY_LENGTH, rows], 0)
    values = np.maximum(fields[kernels.VALUE_LENGTH, rows], 0)
    room = int(strings.sum()) * STRING_GROWTH + int(values.sum()) * 4 // 3 + len(rows) * RECORD_OVERHEAD_BYTES
    out = np.empty(room, np.uint8)
    nesting = np.empty(JSON_NESTING_MAX, np.uint8)
    size = compiled(render_records)(
        part.index.octets, fields, table, rows, tags, meta, data, partition, nesting, out
    )
    invariant(size <= room, "records take no more room as JSON than was made for them")
    return out[:size].tobytes()


def _render_few(
    part: SelectedRecords,
    tags: bool,
    meta: bool,
    data: bool,
    trace: bool,
    with_headers: bool,
    partition: int,
) -> Iterator[bytes]:
    source, fields, reserved_headers = part.index.data, part.index.fields, part.reserved_headers
    traces = find_trace(part.index) if trace else None
    for row in part.rows.tolist():
        pieces = [b'{"$seq":%d' % (fields[kernels.OFFSET, row] + 1)]
        if partition >= 0:
            pieces.append(b',"$partition":%d' % partition)
        pieces.append(b',"$ts":%d' % fields[kernels.TIMESTAMP, row])
        node = _span(source, reserved_headers.node_at[row], reserved_headers.node_length[row])
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
            content = _span(source, reserved_headers.meta_at[row], reserved_headers.meta_length[row])
            if content is not None:
                pieces += (b',"meta":', content if is_json(content) else quoted(content))
        if traces is not None:
            traceparent = _span(source, traces[0, row], traces[1, row])
            if traceparent is not None:
                pieces += (b',"$trace":', quoted(traceparent))
        if with_headers:
            found = _headers(source, fields, row)
            if found:
                pieces += (b',"$headers":', _encode(found))
        pieces.append(b"}")
        yield b"".join(pieces)


def _headers(source: memoryview, fields: Integers, row: int) -> list[tuple[str, str | None]]:
    """Names and contents in base64. `$node` and `meta` have fields of their own."""
    found: list[tuple[str, str | None]] = []
    at, end = int(fields[kernels.HEADERS_AT, row]), int(fields[kernels.END, row])
    for _ in range(int(fields[kernels.HEADERS, row])):
        name_at, name_length, content_at, content_length, at = kernels.read_header(source, at, end)
        name = bytes(source[name_at : name_at + name_length]).decode("utf-8", "replace")
        if name not in (NODE, META):
            content = _span(source, content_at, content_length)
            found.append((name, None if content is None else base64.b64encode(content).decode()))
    return found


def _span(source: memoryview, at: int, length: int) -> bytes | None:
    return None if length < 0 else copied(source, int(at), int(length))


def data_field(value: bytes | None) -> tuple[bytes, ...]:
    """A record's value: JSON as it is, anything else as base64 beside a null."""
    if value is None:
        return (b',"data":null',)
    if is_json(value):
        return (b',"data":', value)
    # In steps, so that the event loop can run between them.
    steps = range(0, len(value), _BASE64_STEP_BYTES)
    return (
        b',"data":null,"$raw":"',
        *(base64.b64encode(value[at : at + _BASE64_STEP_BYTES]) for at in steps),
        b'"',
    )


def is_json(value: bytes) -> bool:
    try:
        if not value.isascii():
            value.decode()
        _raw.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def quoted(value: bytes) -> bytes:
    """A JSON string; bytes that are not UTF-8 are replaced."""
    return _quote(value.decode("utf-8", "replace"))


def warm_up() -> None:
    """Have the kernels of large batches and pages compiled or loaded, so that no request has to wait for it."""
    count = limits.INTERPRETED_RECORDS_MAX + 1
    batch = build_batch(
        [b"{}"] * count,
        keys=[b"k"] * count,
        headers=[(("node", b"n"), ("meta", b"{}"))] * count,
        timestamps_ms=0,
    )
    build_plain([b"{}"] * count, 0)
    for index in index_slices([batch]):
        reserved_headers = find_reserved_headers(index)
        rows = np.flatnonzero(~nodes_among(index, reserved_headers, (b"m",)))
        render([SelectedRecords(index, reserved_headers, rows)], tags=True)
