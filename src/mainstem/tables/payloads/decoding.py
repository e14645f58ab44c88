"""Decode values that begin with the id of a schema to Arrow columns, schema by schema.

A value is a zero byte, the id in four bytes and the payload. A value that does not decode or fit has nulls in all
columns and a reason, and does not affect other rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from mainstem import limits
from mainstem.api.lake import Column, TableColumns, WriterSchema
from mainstem.errors import MalformedSchema, UndecodablePayload
from mainstem.schemas.avro import AvroSchema
from mainstem.schemas.json_schema import JsonSchema
from mainstem.schemas.protobuf import ProtobufSchema
from mainstem.schemas.schema import ReferencedSchema, parse
from mainstem.tables.column_types import Field, UnfitValue, arrow_array, arrow_type
from mainstem.tables.columns import field_of
from mainstem.tables.payloads.avro import AvroPayloads
from mainstem.tables.payloads.conversion import Convert
from mainstem.tables.payloads.json_schema import JsonPayloads
from mainstem.tables.payloads.json_values import json_columns
from mainstem.tables.payloads.protobuf import ProtobufPayloads

if TYPE_CHECKING:
    import pyarrow as pa

HEAD_BYTES = 5  # the zero byte and the id
_SCHEMAS_KEPT = 256
_NO_ID = -1
_NULL = -2

Payloads = AvroPayloads | ProtobufPayloads | JsonPayloads


@lru_cache(_SCHEMAS_KEPT)
def payloads(writer: WriterSchema, message: str = "") -> Payloads:
    """Raises MalformedSchema, UndecodablePayload if the schema lacks the message."""
    schema = parse(writer.kind, writer.text, [ReferencedSchema(*each) for each in writer.references])
    if isinstance(schema, AvroSchema):
        return AvroPayloads(schema)
    if isinstance(schema, ProtobufSchema):
        return ProtobufPayloads(schema, message)
    assert isinstance(schema, JsonSchema)
    return JsonPayloads(schema)


@lru_cache(_SCHEMAS_KEPT)
def _reader(writer: WriterSchema, message: str, columns: tuple[Column, ...]) -> Convert | None:
    """What reads the payloads of a schema; None if they are JSON."""
    found = payloads(writer, message)
    return None if isinstance(found, JsonPayloads) else found.reader([field_of(column) for column in columns])


def decoded_columns(values: pa.BinaryArray, table: TableColumns) -> list[pa.Array]:
    """Why each value has no columns, or null; then the columns."""
    import pyarrow as pa

    ids = schema_ids(values)
    writers = {writer.id: writer for writer in table.writers}
    groups: list[list[pa.Array]] = []
    places: list[npt.NDArray[np.int64]] = []
    for id in np.unique(ids).tolist():
        rows = np.flatnonzero(ids == id)
        group = values if len(rows) == len(values) else values.take(pa.array(rows))
        groups.append(_group(group, id, writers.get(id), table))
        places.append(rows)
    if len(groups) == 1:
        return groups[0]
    order = pa.array(np.argsort(np.concatenate(places), kind="stable")) if places else None
    if order is None:
        return _nulls(0, None, table.columns)
    return [pa.concat_arrays(pieces).take(order) for pieces in zip(*groups, strict=True)]


def schema_ids(values: pa.BinaryArray) -> npt.NDArray[np.int64]:
    """The id of each value's schema; negative without one."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not len(values):
        return np.empty(0, np.int64)
    kind = np.int64 if pa.types.is_large_binary(values.type) else np.int32
    offsets = np.frombuffer(values.buffers()[1], kind)[values.offset : values.offset + len(values) + 1]
    starts, lengths = offsets[:-1].astype(np.int64), np.diff(offsets)
    ids = np.full(len(values), _NO_ID, np.int64)
    valid = np.asarray(pc.is_valid(values))
    long_enough = np.flatnonzero(valid & (lengths >= HEAD_BYTES))
    if len(long_enough):
        octets = np.frombuffer(values.buffers()[2], np.uint8)
        heads = octets[starts[long_enough][:, None] + np.arange(HEAD_BYTES)].astype(np.int64)
        found = heads[:, 1:] @ np.array([1 << 24, 1 << 16, 1 << 8, 1], np.int64)
        ids[long_enough] = np.where(heads[:, 0] == 0, found, _NO_ID)
    ids[~valid] = _NULL
    return ids


def _group(
    values: pa.BinaryArray, id: int, writer: WriterSchema | None, table: TableColumns
) -> list[pa.Array]:
    """The columns of values that all have one schema."""
    import pyarrow as pa

    if id == _NULL:
        return _nulls(len(values), None, table.columns)
    if id == _NO_ID:
        reason = "the value does not begin with a zero byte and the id of a schema"
        return _nulls(len(values), reason, table.columns)
    source = table.registry
    assert source is not None
    if writer is None:
        reason = f"schema id {id} is not of a version of subject {source.subject!r} that the table includes"
        return _nulls(len(values), reason, table.columns)
    try:
        read = _reader(writer, source.message, table.columns)
    except (MalformedSchema, UndecodablePayload) as wrong:
        return _nulls(len(values), f"schema id {id}: {wrong}", table.columns)
    if read is None:
        bodies = pa.array([value[HEAD_BYTES:] for value in values.to_pylist()], values.type)
        return json_columns(bodies, table.columns)
    return _rows_of(values, id, read, [field_of(column) for column in table.columns])


def _rows_of(values: pa.BinaryArray, id: int, read: Convert, columns: Sequence[Field]) -> list[pa.Array]:
    reasons: list[str | None] = [None] * len(values)
    rows: list[Any] = []
    for at, value in enumerate(values.to_pylist()):
        try:
            rows.append(read(value[HEAD_BYTES:]))
        except (UndecodablePayload, UnfitValue) as wrong:
            reasons[at] = f"schema id {id}: {wrong}"[: limits.TYPED_REASON_CHARS_MAX]
            rows.append([None] * len(columns))
    found = [list(column) for column in zip(*rows, strict=True)]
    return _arrays(found, reasons, columns, id)


def _arrays(
    found: list[list[Any]], reasons: list[str | None], columns: Sequence[Field], id: int
) -> list[pa.Array]:
    import pyarrow as pa

    kinds = [arrow_type(column) for column in columns]
    try:
        arrays = [arrow_array(values, kind) for values, kind in zip(found, kinds, strict=True)]
    except _UNFIT:
        # Rare: a value that Arrow refuses. Find it, and leave out its row only.
        for values, kind, column in zip(found, kinds, columns, strict=True):
            for at, value in enumerate(values):
                try:
                    arrow_array([value], kind)
                except _UNFIT as wrong:
                    text = f"schema id {id}: column {column.name!r}: {wrong}"
                    reasons[at] = reasons[at] or text[: limits.TYPED_REASON_CHARS_MAX]
        kept = [
            [None if reason else each for each, reason in zip(values, reasons, strict=True)]
            for values in found
        ]
        arrays = [arrow_array(values, kind) for values, kind in zip(kept, kinds, strict=True)]
    return [pa.array(reasons, pa.string()), *arrays]


# pyarrow.lib.ArrowInvalid is a ValueError, as is an error of Unicode; numbers out of range overflow.
_UNFIT = (ValueError, TypeError, OverflowError, NotImplementedError)


def _nulls(count: int, reason: str | None, columns: Sequence[Column]) -> list[pa.Array]:
    import pyarrow as pa

    errors = pa.nulls(count, pa.string()) if reason is None else pa.repeat(pa.scalar(reason), count)
    return [errors, *(pa.nulls(count, arrow_type(field_of(column))) for column in columns)]
