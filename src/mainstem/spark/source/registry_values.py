"""Values that name a schema of the registry, as a struct or as typed columns of a query.

The columns are the fields of one version of a subject. Values by other versions are read by the fields that they
share with it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from mainstem.api.lake import Column, ColumnSource, TableColumns, WriterSchema
from mainstem.client.schemas import SchemaRegistry
from mainstem.errors import InvalidInput, MalformedSchema, SchemaRefused, UndecodablePayload
from mainstem.spark.source.columns import RECORD_COLUMNS, RECORDS_DDL, record_columns
from mainstem.spark.source.json_columns import CORRUPT_COLUMN, JsonColumns
from mainstem.spark.source.options import SourceOptions
from mainstem.tables.column_types import Field, FixedType, PrimitiveType
from mainstem.tables.columns import column_of, field_of
from mainstem.tables.parts.typed_columns import typed_fields
from mainstem.tables.payloads.decoding import decoded_columns, schema_ids
from mainstem.tables.registry import extended_columns

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


def registry_columns(options: SourceOptions) -> TableColumns:
    """The fields of the version that the options name. Raises InvalidInput, SchemaRefused, Unreachable."""
    subject = options.value_subject or _default_subject(options)
    with SchemaRegistry(options.url, api_key=options.api_key) as registry:
        writer = registry.writer(registry.version(subject, options.value_version))
    if writer.kind != options.value_format.upper():
        raise InvalidInput(
            f"option valueFormat is {options.value_format}, but the schema of subject {subject!r} is {writer.kind}"
        )
    source = TableColumns(registry=ColumnSource(subject, options.value_message))
    try:
        found = extended_columns(source, [writer], [writer.id])
    except (MalformedSchema, UndecodablePayload) as wrong:
        raise InvalidInput(f"the schema of subject {subject!r} cannot be read: {wrong}") from None
    if not found.columns:
        raise InvalidInput(f"the schema of subject {subject!r} has no fields that could be columns")
    columns = tuple(column_of(_for_spark(field_of(column))) for column in found.columns)
    return TableColumns(columns, found.registry, (writer,))


def _default_subject(options: SourceOptions) -> str:
    topics = options.topics or tuple(options.assigned or ())
    if len(topics) != 1:
        raise InvalidInput("option valueSubject is required: the query reads more than one topic")
    return f"{topics[0]}-value"


def _for_spark(field: Field) -> Field:
    """With types that Spark has: it has no UUIDs, and no binaries of fixed length."""
    match field.type:
        case PrimitiveType("uuid"):
            return replace(field, type=PrimitiveType("string"))
        case FixedType():
            return replace(field, type=PrimitiveType("binary"))
    return field.with_inside(tuple(map(_for_spark, field.inside)))


def value_type(columns: Sequence[Column]) -> StructType:
    """The type of the column `value`."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(pa.schema(typed_fields(columns)[1:]))


class RegistryValues:
    """Decodes the values of one partition."""

    def __init__(
        self, schema: pa.Schema, table: TableColumns, topic: str, partition: int, options: SourceOptions
    ) -> None:
        self._schema = schema
        self._table = table
        self._topic = topic
        self._partition = partition
        self._options = options
        self._unknown: set[int] = set()  # ids that the registry does not have

    def from_rows(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The query's columns. Raises InvalidInput if malformed values are an error."""
        import pyarrow as pa
        import pyarrow.compute as pc

        self._learn(rows.column("_value"))
        errors, *arrays = decoded_columns(rows.column("_value"), self._table)
        if errors.null_count < len(errors):
            if self._options.malformed == "failfast":
                raise self._malformed(rows, errors)
            if self._options.malformed == "dropmalformed":
                sound = pc.is_null(errors)
                rows = rows.filter(sound)
                arrays, errors = [each.filter(sound) for each in arrays], errors.filter(sound)
        fields = typed_fields(self._table.columns)[1:]
        if "value" in self._schema.names and pa.types.is_struct(self._schema.field("value").type):
            absent = pc.or_(pc.is_null(rows.column("_value")), pc.is_valid(errors))
            value = pa.StructArray.from_arrays(arrays, fields=fields, mask=absent)
            value = value.cast(self._schema.field("value").type)
            yield record_columns(rows, self._schema, self._topic, self._options.headers, value)
            return
        named = dict(zip((field.name for field in fields), arrays, strict=True))
        wanted = [each for each in self._schema if each.name not in (*RECORD_COLUMNS, CORRUPT_COLUMN)]
        made = [named[each.name].cast(each.type) for each in wanted]
        texts = JsonColumns(self._schema, self._topic, self._partition, self._options.malformed)
        yield texts.batch(rows, made, errors)

    def _learn(self, values: pa.Array) -> None:
        """Get the schemas that values name and that are not known yet: later versions, for example."""
        known = self._unknown | {writer.id for writer in self._table.writers}
        missing = [id for id in np.unique(schema_ids(values)).tolist() if id >= 0 and id not in known]
        if not missing:
            return
        found: list[WriterSchema] = []
        with SchemaRegistry(self._options.url, api_key=self._options.api_key) as registry:
            for id in missing:
                try:
                    found.append(registry.writer(id))
                except SchemaRefused:
                    self._unknown.add(id)
        self._table = msgspec.structs.replace(self._table, writers=(*self._table.writers, *found))

    def _malformed(self, rows: pa.RecordBatch, errors: pa.Array) -> InvalidInput:
        at = next(at for at, error in enumerate(errors.to_pylist()) if error is not None)
        return InvalidInput(
            f"offset {rows.column('_offset')[at].as_py()} of topic {self._topic!r}, partition {self._partition}: "
            f"{errors[at].as_py()}"
        )


def check_typed(schema: StructType, table: TableColumns) -> None:
    """Raises InvalidInput for a column of a query that the values do not have."""
    names = {column.name for column in table.columns} | {*RECORD_COLUMNS, CORRUPT_COLUMN}
    for field in schema.fields:
        if field.name not in names:
            raise InvalidInput(
                f"column {field.name} is not a field of the schema: the fields are "
                f"{', '.join(column.name for column in table.columns)[:512]}"
            )


def is_struct_read(schema: StructType) -> bool:
    """Whether a query has the columns of records, with the value as a struct."""
    from pyspark.sql.types import StructType

    names = [column.partition(" ")[0] for column in RECORDS_DDL.split(", ")]
    return schema.names[: len(names)] == names and isinstance(schema["value"].dataType, StructType)
