"""Columns of a query: those of Spark's Kafka source, or typed columns from the values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from mainstem.errors import InvalidInput
from mainstem.spark.source.options import SourceOptions

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType

    from mainstem.api.lake import TableColumns

RECORDS_DDL = (
    "key binary, value binary, topic string, partition int, offset bigint, "
    "timestamp timestamp, timestampType int"
)
_DDL_HEADERS = ", headers array<struct<key:string,value:binary>>"

# Columns of a typed read that do not come from the value: they have the names of the table's columns.
RECORD_COLUMNS = {
    "_topic": "string",
    "_partition_id": "int",
    "_offset": "bigint",
    "_timestamp": "timestamp",
    "_key": "binary",
    "_value": "binary",
    "_headers": "array<struct<key:string,value:binary>>",
}


def ddl(options: SourceOptions) -> str:
    """The columns of a read without a schema."""
    return RECORDS_DDL + _DDL_HEADERS if options.headers else RECORDS_DDL


def check_schema(schema: StructType, options: SourceOptions) -> None:
    """Raises InvalidInput for columns that this read cannot provide."""
    kinds = [(field.name, field.dataType) for field in schema.fields]
    if _by_registry(schema, options):
        from mainstem.spark.source.registry_values import check_typed, is_struct_read, registry_columns

        if not is_struct_read(schema):
            check_typed(schema, registry_columns(options))
    elif options.value_format == "json":
        _check_typed(kinds)
    elif kinds != [(field.name, field.dataType) for field in _parsed(ddl(options)).fields]:
        raise InvalidInput(
            "a schema needs the option valueFormat=json: without it the columns are " + ddl(options)
        )


def _by_registry(schema: StructType, options: SourceOptions) -> bool:
    """Whether values name their schemas: always, except that a query may bring its own schema for JSON."""
    if options.value_format != "json":
        return options.value_format != "raw"
    from mainstem.spark.source.registry_values import is_struct_read

    return is_struct_read(schema)


def registry_schema(options: SourceOptions) -> StructType:
    """The columns of records, with the value as a struct of its newest schema."""
    from mainstem.spark.source.registry_values import registry_columns, value_type

    schema = _parsed(ddl(options))
    schema["value"].dataType = value_type(registry_columns(options).columns)
    return schema


def _check_typed(kinds: list[tuple[str, DataType]]) -> None:
    from pyspark.sql.pandas.types import to_arrow_type

    from mainstem.spark.source.json_columns import CORRUPT_COLUMN, unsupported

    for name, kind in kinds:
        wanted = {**RECORD_COLUMNS, CORRUPT_COLUMN: "string"}.get(name)
        if wanted is None:
            bad = unsupported(to_arrow_type(kind, timezone="UTC"))
            if bad is not None:
                raise InvalidInput(f"column {name}: JSON cannot be read as {bad}; read it as a string")
        elif kind != _parsed(f"c {wanted}").fields[0].dataType:
            raise InvalidInput(f"column {name} must be {wanted}, not {kind.simpleString()}")


def _parsed(text: str) -> StructType:
    """Parse a DDL string. Spark's own parser needs a JVM, which a planning worker does not have."""
    from pyspark.sql import types as t

    header = t.StructType().add("key", t.StringType()).add("value", t.BinaryType())
    types: dict[str, DataType] = {
        "string": t.StringType(),
        "int": t.IntegerType(),
        "bigint": t.LongType(),
        "timestamp": t.TimestampType(),
        "binary": t.BinaryType(),
        "array<struct<key:string,value:binary>>": t.ArrayType(header),
    }
    schema = t.StructType()
    for column in text.split(", "):
        name, _, kind = column.partition(" ")
        schema.add(name, types[kind])
    return schema


class SourceColumns:
    """Builds the Arrow batches of one partition. Picklable, because Spark sends it to workers."""

    def __init__(self, schema: StructType, options: SourceOptions) -> None:
        self._schema = schema
        self._options = options
        self._table: TableColumns | None = None  # of a read by the registry's schemas
        if _by_registry(schema, options):
            from mainstem.spark.source.registry_values import registry_columns

            self._table = registry_columns(options)

    def converter(self, topic: str, partition: int) -> Callable[[pa.RecordBatch], Iterator[pa.RecordBatch]]:
        """A function from rows to the query's columns."""
        from pyspark.sql.pandas.types import to_arrow_schema

        schema = to_arrow_schema(self._schema, timezone="UTC")
        if self._table is not None:
            from mainstem.spark.source.registry_values import RegistryValues

            return RegistryValues(schema, self._table, topic, partition, self._options).from_rows
        if self._options.value_format == "json":
            from mainstem.spark.source.json_columns import JsonColumns

            typed = JsonColumns(schema, topic, partition, self._options.malformed)
            return typed.from_rows
        return lambda rows: iter(
            [record_columns(rows, schema, topic, self._options.headers, rows.column("_value"))]
        )


def record_columns(
    rows: pa.RecordBatch, schema: pa.Schema, topic: str, headers: bool, value: pa.Array
) -> pa.RecordBatch:
    """The columns of Spark's Kafka source, with these values."""
    import pyarrow as pa
    import pyarrow.compute as pc

    appended = rows.column("_append_time")
    if appended.null_count == len(appended):
        kinds = pa.repeat(pa.scalar(0, pa.int32()), len(appended))
    else:
        kinds = pc.fill_null(appended, False).cast(pa.int32())
    columns = [
        rows.column("_key"),
        value,
        topic_column(topic, rows.num_rows),
        rows.column("_partition_id"),
        rows.column("_offset"),
        rows.column("_timestamp"),
        kinds,
    ]
    if headers:
        columns.append(headers_column(rows, schema.field("headers").type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def topic_column(topic: str, rows: int) -> pa.Array:
    import pyarrow as pa

    return pa.repeat(pa.scalar(topic, pa.string()), rows)


def headers_column(rows: pa.RecordBatch, kind: pa.DataType) -> pa.Array:
    """Null for a record without headers, like Spark's Kafka source."""
    import pyarrow as pa
    import pyarrow.compute as pc

    headers = rows.column("_headers").cast(kind)
    return pc.if_else(pc.equal(pc.list_value_length(headers), 0), pa.scalar(None, kind), headers)
