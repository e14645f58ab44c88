"""Decode batches to Arrow columns in bulk."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from mainstem.records import kernels, writing_kernels
from mainstem.records.compiled import compiled
from mainstem.records.index import Buffer, Integers, RecordIndex, index_slices

if TYPE_CHECKING:
    import pyarrow as pa


@cache
def record_schema() -> pa.Schema:
    """The columns of `decode_slices`."""
    import pyarrow as pa

    header = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])
    return pa.schema(
        [
            pa.field("offset", pa.int64(), nullable=False),
            pa.field("timestamp", pa.int64(), nullable=False),
            pa.field("key", pa.binary()),
            pa.field("value", pa.binary()),
            pa.field("headers", pa.list_(pa.field("item", header, nullable=False)), nullable=False),
        ]
    )


def decode_slices(buffers: Sequence[Buffer]) -> pa.Table:
    """The records of stamped batches as columns, without transaction markers. Raises InvalidBatch.

    In header names that are not UTF-8, invalid bytes are replaced."""
    import pyarrow as pa

    return pa.Table.from_batches([_record_batch(index) for index in index_slices(buffers)], record_schema())


def _record_batch(index: RecordIndex) -> pa.RecordBatch:
    import pyarrow as pa

    fields = index.fields
    columns = [
        pa.array(fields[kernels.OFFSET].copy()),  # a view would keep the whole index in memory
        pa.array(fields[kernels.TIMESTAMP].copy()),
        binary_column(index, fields[kernels.KEY_AT], fields[kernels.KEY_LENGTH], pa.binary()),
        binary_column(index, fields[kernels.VALUE_AT], fields[kernels.VALUE_LENGTH], pa.binary()),
        _headers(index),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=record_schema())


def _headers(index: RecordIndex) -> pa.Array:
    import pyarrow as pa

    kind = record_schema().field("headers").type
    table = np.empty((kernels.HEADER_FIELDS, index.headers), np.int64)
    if index.headers:
        compiled(kernels.index_headers)(index.octets, index.fields, table)
    names = binary_column(index, table[kernels.NAME_AT], table[kernels.NAME_LENGTH], pa.string())
    contents = binary_column(index, table[kernels.CONTENT_AT], table[kernels.CONTENT_LENGTH], pa.binary())
    items = pa.StructArray.from_arrays([_valid_utf8(names), contents], fields=list(kind.value_type))
    offsets = pa.py_buffer(arrow_offsets(index.fields[kernels.HEADERS]))
    return pa.Array.from_buffers(kind, len(index), [None, offsets], children=[items])


def binary_column(index: RecordIndex, starts: Integers, lengths: Integers, kind: pa.DataType) -> pa.Array:
    """Spans of an index as a column of `kind`; a length of -1 is null."""
    import pyarrow as pa

    present = lengths >= 0
    offsets = arrow_offsets(np.maximum(lengths, 0))
    blob = pa.allocate_buffer(int(offsets[-1]))  # from Arrow's pool, which reuses freed pages
    if blob.size:
        compiled(writing_kernels.gather)(index.octets, starts, lengths, np.frombuffer(blob, np.uint8))
    nulls = len(present) - int(np.count_nonzero(present))
    validity = pa.py_buffer(np.packbits(present, bitorder="little")) if nulls else None
    return pa.Array.from_buffers(
        kind, len(lengths), [validity, pa.py_buffer(offsets), blob], null_count=nulls
    )


def arrow_offsets(lengths: Integers) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    """The start of each span in a column of these lengths, and the end of the last."""
    # 32 bits are enough: one call decodes at most DECODE_CALL_BYTES or a single batch, whose length is an i4.
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def _valid_utf8(names: pa.Array) -> pa.Array:
    """The names with invalid UTF-8 replaced: producers may send anything, and Arrow does not check."""
    import pyarrow as pa

    try:
        names.validate(full=True)
    except pa.ArrowInvalid:
        raw = names.view(pa.binary()).to_pylist()
        return pa.array([name.decode("utf-8", "replace") for name in raw], pa.string())
    return names
