"""Run a pipeline: sources as data frames, and for each output a query with its own checkpoint."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from mainstem.errors import InvalidInput
from mainstem.spark.pipelines.pipeline import Output, Pipeline, Source, Step
from mainstem.spark.pipelines.reporting import ROWS_OUT
from mainstem.spark.pipelines.tables import TableSink, open_catalog, table_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

Bounds = Mapping[str, Mapping[str, str]]  # by topic: source options for start and end

_FIRST_START = "first"


@dataclass(frozen=True, slots=True)
class PipelineSettings:
    """Where a pipeline runs and where it starts to read."""

    url: str
    state: Path  # directory of the checkpoints
    api_key: str = ""
    begin: Mapping[str, str] = field(default_factory=dict)  # source options for the start of streams
    label: str = ""  # of a run that starts elsewhere than at the checkpoint: it has its own checkpoints


class PipelineRun:
    def __init__(self, spark: SparkSession, pipeline: Pipeline, settings: PipelineSettings) -> None:
        pipeline.check()
        self._spark = spark
        self._pipeline = pipeline
        self._settings = settings

    # Streams

    def start(self, *, once: bool = False) -> list[StreamingQuery]:
        """Start every output. With `once`, a query ends when it has processed everything that exists now.

        An output of only static sources is written immediately, and only with `once`."""
        frames = {
            name: self._frame(output.step, streaming=True) for name, output in self._pipeline.outputs.items()
        }
        static = [name for name, frame in frames.items() if not frame.isStreaming]
        if static and not once:
            raise InvalidInput(f"output {static[0]!r} has only static sources: it can only run once")
        started = []
        for name, frame in frames.items():
            output = self._pipeline.outputs[name]
            if name in static:
                self._write(frame, output, "")
            else:
                started.append(self._start(frame, output, once))
        return started

    def _start(self, frame: DataFrame, output: Output, once: bool) -> StreamingQuery:
        from pyspark.sql import functions

        checkpoint = self.checkpoint(output)
        frame = frame.observe(output.step.name, functions.count(functions.lit(1)).alias(ROWS_OUT))
        if not output.topic:
            writer = frame.writeStream.foreachBatch(self._table_writer(output, checkpoint))
        elif output.mode == "update":  # which Spark refuses to sinks in Python
            rows = self._topic_rows(frame, output)
            writer = rows.writeStream.foreachBatch(self._batch_writer(output, checkpoint))
        else:
            writer = self._topic_rows(frame, output).writeStream.format("mainstem")
            writer = writer.options(**self._sink_options(output))
        writer = writer.outputMode(output.mode).option("checkpointLocation", str(checkpoint))
        writer = writer.queryName(f"{self._pipeline.name}:{output.step.name}")
        return (writer.trigger(availableNow=True) if once else writer).start()

    def checkpoint(self, output: Output) -> Path:
        """The directory with the progress of an output's query."""
        folder = self._settings.state / self._pipeline.name / _file_name(output.step.name)
        return folder / _file_name(self._settings.label) if self._settings.label else folder / _FIRST_START

    def _batch_writer(self, output: Output, checkpoint: Path) -> Any:
        options = self._sink_options(output)

        def add(frame: DataFrame, batch: int) -> None:
            # Spark stores the id of the query there before the first batch. Another checkpoint has another id.
            query = msgspec.json.decode((checkpoint / "metadata").read_bytes())["id"]
            writer = frame.write.format("mainstem").mode("append").options(**options)
            writer.options(queryId=query, batchId=batch).save()

        return add

    def _table_writer(self, output: Output, checkpoint: Path) -> Any:
        # The checkpoint names the query: with another checkpoint, batch numbers start again as well.
        query = f"{self._pipeline.name}/{output.step.name}/{checkpoint.name}"
        sink = TableSink(open_catalog(self._settings.url, self._settings.api_key), output.table)

        def add(frame: DataFrame, batch: int) -> None:
            sink.add(frame.toArrow(), query, batch)

        return add

    # Batches

    def replay(self, topic: str, bounds: Mapping[str, str], into: str = "") -> dict[str, int]:
        """Run a range of a topic once through every output that reads it. Returns the row counts.

        Other sources are read as of now. `into` is a prefix for the name of every output, so that a replay does not
        mix with existing records."""
        counts: dict[str, int] = {}
        for name, output in self._pipeline.outputs.items():
            reads = {self._pipeline.sources[source].topic for source in self._sources_of(output.step)}
            if topic in reads:
                frame = self._frame(output.step, streaming=False, bounds={topic: bounds})
                counts[name] = self._write(frame, output, into)
        return counts

    def _write(self, frame: DataFrame, output: Output, into: str) -> int:
        """Write all rows of a frame or none. Returns their number."""
        if output.topic:
            rows = self._topic_rows(frame, output).cache()
            try:
                written = rows.count()
                options = {**self._sink_options(output), "topic": into + output.topic}
                rows.write.format("mainstem").mode("append").options(**options).save()
            finally:
                rows.unpersist()
            return written
        rows_arrow = frame.toArrow()
        sink = TableSink(open_catalog(self._settings.url, self._settings.api_key), _table(into, output))
        sink.add(rows_arrow, f"once/{uuid.uuid4().hex}", 0)
        return int(rows_arrow.num_rows)

    def _sources_of(self, step: Step) -> list[str]:
        return [name for name in self._pipeline.needed(step) if name in self._pipeline.sources]

    # Frames

    def _frame(self, step: Step, *, streaming: bool, bounds: Bounds | None = None) -> DataFrame:
        frames: dict[str, DataFrame] = {}
        for name in self._pipeline.needed(step):
            if name in self._pipeline.sources:
                frames[name] = self._source(self._pipeline.sources[name], streaming, bounds or {})
            else:
                view = self._pipeline.views[name]
                frames[name] = view.transform(self._spark, {each: frames[each] for each in view.inputs})
        return step.transform(self._spark, {each: frames[each] for each in step.inputs})

    def _source(self, source: Source, streaming: bool, bounds: Bounds) -> DataFrame:
        settings = self._settings
        if source.table:
            catalog = open_catalog(settings.url, settings.api_key)
            return table_frame(self._spark, catalog, source.table, source.snapshot)
        options = {
            "url": settings.url,
            "apiKey": settings.api_key,
            "subscribe": source.topic,
            **source.options,
        }
        if source.schema:
            options["valueFormat"] = "json"
        if streaming and not source.static:
            begin = settings.begin or {"startingOffsets": "earliest"}
            stream = self._spark.readStream.format("mainstem").options(**{**begin, **options})
            return (stream.schema(source.schema) if source.schema else stream).load()
        options |= bounds.get(source.topic, {})
        reader = self._spark.read.format("mainstem").options(**options)
        return (reader.schema(source.schema) if source.schema else reader).load()

    def _topic_rows(self, frame: DataFrame, output: Output) -> DataFrame:
        from pyspark.sql import functions

        if output.key and output.key not in frame.columns:
            raise InvalidInput(
                f"output {output.step.name!r} has no column {output.key!r} for the key: {', '.join(frame.columns)}"
            )
        if "value" in frame.columns:
            rows = frame
            if output.key and output.key != "key":
                rows = frame.withColumn("key", functions.col(output.key).cast("string"))
            return rows
        columns = [functions.to_json(functions.struct(*frame.columns)).alias("value")]
        if output.key:
            columns.append(functions.col(output.key).cast("string").alias("key"))
        return frame.select(*columns)

    def _sink_options(self, output: Output) -> dict[str, str]:
        settings = self._settings
        return {"url": settings.url, "apiKey": settings.api_key, **output.options, "topic": output.topic}


def _table(prefix: str, output: Output) -> str:
    namespace, _, name = output.table.rpartition(".")
    return f"{namespace}.{re.sub(r'[^A-Za-z0-9_]', '_', prefix)}{name}"


def _file_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "_", name)
