"""Typed columns: the values of records as the columns of a table, and why a value has none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mainstem.api.lake import Column, TableColumns
from mainstem.tables.column_types import arrow_field
from mainstem.tables.columns import field_of
from mainstem.tables.payloads.json_values import json_columns

if TYPE_CHECKING:
    import pyarrow as pa

ERROR_COLUMN = "_error"  # why a row has no typed columns; not a column of the table
ERROR_FIELD_ID = 999


def typed_fields(columns: Sequence[Column]) -> list[pa.Field]:
    """The fields that `with_columns` adds to the raw columns, with the columns' permanent field ids."""
    import pyarrow as pa

    error = pa.field(ERROR_COLUMN, pa.string(), metadata={b"PARQUET:field_id": b"%d" % ERROR_FIELD_ID})
    return [error, *(arrow_field(field_of(column)) for column in columns)]


def with_columns(rows: pa.RecordBatch, table: TableColumns) -> pa.RecordBatch:
    """The rows plus the error column and the table's typed columns; the rows as they are if it has none."""
    import pyarrow as pa

    if not table.columns and table.registry is None:
        return rows
    if table.registry is None:
        added = json_columns(rows.column("_value"), table.columns)
    else:
        # Imported here: it loads the libraries of all schema languages.
        from mainstem.tables.payloads.decoding import decoded_columns

        added = decoded_columns(rows.column("_value"), table)
    schema = rows.schema
    for field in typed_fields(table.columns):
        schema = schema.append(field)
    return pa.RecordBatch.from_arrays([*rows.columns, *added], schema=schema)


def invalid_rows(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows whose value does not fit the declared columns."""
    import pyarrow.compute as pc

    return rows.filter(pc.is_valid(rows.column(ERROR_COLUMN)))
