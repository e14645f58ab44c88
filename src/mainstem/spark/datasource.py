"""`format("mainstem")`: topics as Spark sources and sinks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from mainstem.errors import InvalidInput
from mainstem.spark.source.columns import check_schema, ddl, registry_schema
from mainstem.spark.source.options import SourceOptions

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType


class MainstemDataSource(DataSource):
    """Topics of a Mainstem broker. Options: docs/spark.md."""

    @classmethod
    def name(cls) -> str:
        return "mainstem"

    def schema(self) -> str | StructType:
        # Spark does not say here whether the read is a batch or a stream, so only their common options are parsed.
        lowered = {name.lower(): value for name, value in self.options.items()}
        given = {name: value for name, value in lowered.items() if name in _SCHEMA_OPTIONS}
        if not given.keys() & _TOPIC_OPTIONS:
            given["subscribe"] = "any"
        options = SourceOptions.parse(given, streaming=True)
        return ddl(options) if options.value_format == "raw" else registry_schema(options)

    def reader(self, schema: StructType) -> DataSourceReader:
        from mainstem.spark.source.reader import BatchReader

        options = SourceOptions.parse(self.options, streaming=False)
        check_schema(schema, options)
        return BatchReader(schema, options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from mainstem.spark.source.stream import StreamReader

        options = SourceOptions.parse(self.options, streaming=True)
        check_schema(schema, options)
        return StreamReader(schema, options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from mainstem.spark.sink.columns import check_schema as check_rows
        from mainstem.spark.sink.options import SinkOptions
        from mainstem.spark.sink.writer import BatchWriter

        if overwrite:
            raise InvalidInput('a topic only supports mode("append")')
        options = SinkOptions.parse(self.options)
        check_rows(schema, topic=options.topic, keep_timestamps=options.keep_timestamps)
        return BatchWriter(options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from mainstem.spark.sink.columns import check_schema as check_rows
        from mainstem.spark.sink.options import SinkOptions
        from mainstem.spark.sink.writer import StreamWriter

        options = SinkOptions.parse(self.options)
        check_rows(schema, topic=options.topic, keep_timestamps=options.keep_timestamps)
        return StreamWriter(options)


_TOPIC_OPTIONS = {"path", "subscribe", "subscribepattern", "assign"}
_SCHEMA_OPTIONS = {
    *("includeheaders", "valueformat", "valuesubject", "valueversion", "valuemessage", "url", "apikey"),
    *_TOPIC_OPTIONS,
}
