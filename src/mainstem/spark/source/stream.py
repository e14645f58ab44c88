"""`spark.readStream`: micro-batches between two positions, as large as the limits allow."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from mainstem.errors import MainstemError
from mainstem.spark.broker import RemoteBroker
from mainstem.spark.source.columns import SourceColumns
from mainstem.spark.source.offsets import Positions, distance, limited, ranges_between, split
from mainstem.spark.source.options import SourceOptions
from mainstem.spark.source.planning import SourcePlanner
from mainstem.spark.source.reader import RangePartition, read_range

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_log = logging.getLogger("mainstem.spark")


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives in a process beside the driver; a copy of it in every worker, where only `read` is called."""

    def __init__(self, schema: StructType, options: SourceOptions) -> None:
        self._options = options
        self._columns = SourceColumns(schema, options)
        self._broker: RemoteBroker | None = None
        self._target: Positions | None = None  # of Trigger.AvailableNow
        self._waiting_since: float | None = None  # for enough offsets to make a batch

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_broker": None}  # a connection stays where it was made

    def _connected(self) -> RemoteBroker:
        if self._broker is None:
            self._broker = RemoteBroker(self._options.url, self._options.api_key)
        return self._broker

    @property
    def _planning(self) -> SourcePlanner:
        """Of a stream that has begun."""
        gone_is_fine = not self._options.fail_on_data_loss
        return SourcePlanner(self._connected(), self._options, gone_is_fine=gone_is_fine)

    # Planning

    def initialOffset(self) -> dict[str, Any]:
        return SourcePlanner(self._connected(), self._options).starting().as_json()

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._planning.latest()

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self._options.max_offsets
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        planning = self._planning
        begun, latest = planning.caught_up(Positions.of_json(start), self._target or planning.latest())
        waiting = distance(begun, latest)
        if not waiting or not self._batch_is_ready(waiting):
            return start
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return (latest if most is None else limited(begun, latest, most)).as_json()

    def _batch_is_ready(self, waiting: int) -> bool:
        """Whether so many offsets make a batch, or were waited for long enough."""
        least = self._options.min_offsets
        if least is None or self._target is not None or waiting >= least:
            self._waiting_since = None
            return True
        now = time.monotonic()
        since = self._waiting_since = now if self._waiting_since is None else self._waiting_since
        if now - since < self._options.max_trigger_delay_ms / 1000:
            return False
        self._waiting_since = None
        return True

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return self._planning.latest().as_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        planning = self._planning
        last = Positions.of_json(end)
        begun, reached = planning.caught_up(Positions.of_json(start), last)
        ranges = planning.checked(ranges_between(begun, reached), dict(last.ids))
        return [RangePartition(one) for one in split(ranges, self._options.min_partitions)]

    # Reading

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_range(partition, self._columns, self._options)

    # Progress

    def commit(self, end: dict[str, Any]) -> None:
        """Publish progress. A query that computes well does not fail for it: the next batch says it again."""
        if not self._options.group:
            return
        try:
            self._connected().commit_offsets(self._options.group, Positions.of_json(end).offsets)
        except MainstemError as error:
            _log.warning(
                "a group's progress was not stored", extra={"group": self._options.group, "error": str(error)}
            )

    def stop(self) -> None:
        if self._broker is not None:
            self._broker.close()
            self._broker = None
