"""`spark.read`: ranges planned once, each read by a task."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from mainstem.spark.broker import RemoteBroker
from mainstem.spark.source.columns import SourceColumns
from mainstem.spark.source.offsets import PartitionRange, ranges_between, split
from mainstem.spark.source.options import SourceOptions
from mainstem.spark.source.planning import SourcePlanner
from mainstem.spark.source.ranges import RangeRows

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


@dataclass
class RangePartition(InputPartition):
    """One task's range; None has nothing to read."""

    range: PartitionRange | None


def read_range(
    partition: InputPartition, columns: SourceColumns, options: SourceOptions
) -> Iterator[pa.RecordBatch]:
    """Runs in a worker."""
    range = partition.range if isinstance(partition, RangePartition) else None
    if range is None:
        return
    make = columns.maker(range.topic, range.partition)
    with RemoteBroker(options.url, options.api_key) as broker:
        for rows in RangeRows(broker, range, options):
            yield from make(rows)


class BatchReader(DataSourceReader):
    def __init__(self, schema: StructType, options: SourceOptions) -> None:
        self._options = options
        self._columns = SourceColumns(schema, options)

    def partitions(self) -> list[InputPartition]:
        with RemoteBroker(self._options.url, self._options.api_key) as broker:
            planning = SourcePlanner(broker, self._options)
            start, end = planning.starting(), planning.ending()
            ranges = planning.checked(ranges_between(start, end), dict(end.ids))
        return [RangePartition(one) for one in split(ranges, self._options.min_partitions)] or [
            RangePartition(None)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_range(partition, self._columns, self._options)
