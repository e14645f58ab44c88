"""`spark.readStream`: micro-batches between two positions, within the limits."""

from __future__ import annotations

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

from mainstem import events
from mainstem.client.broker import BrokerClient
from mainstem.errors import MainstemError
from mainstem.spark.source.columns import SourceColumns
from mainstem.spark.source.offsets import Positions, distance, limited, ranges_between, split
from mainstem.spark.source.options import SourceOptions
from mainstem.spark.source.planning import SourcePlanner
from mainstem.spark.source.reader import RangePartition, read_range

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_log = events.named("spark")


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives in a process beside the driver; Spark also copies it to workers, which only call `read`."""

    def __init__(self, schema: StructType, options: SourceOptions) -> None:
        self._options = options
        self._columns = SourceColumns(schema, options)
        self._broker: BrokerClient | None = None
        self._target: Positions | None = None  # end of a Trigger.AvailableNow query
        self._waiting_since: float | None = None  # when it began to wait for `min_offsets`

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_broker": None}  # connections cannot be pickled

    def _connected(self) -> BrokerClient:
        if self._broker is None:
            self._broker = BrokerClient(self._options.url, self._options.api_key)
        return self._broker

    @property
    def _planner(self) -> SourcePlanner:
        """The planner of a started stream."""
        allow_missing = not self._options.fail_on_data_loss
        return SourcePlanner(self._connected(), self._options, allow_missing=allow_missing)

    # Planning

    def initialOffset(self) -> dict[str, Any]:
        return SourcePlanner(self._connected(), self._options).starting().as_json()

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._planner.latest()

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self._options.max_offsets
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        planner = self._planner
        begun, latest = planner.caught_up(Positions.of_json(start), self._target or planner.latest())
        backlog = distance(begun, latest)
        if not backlog or not self._batch_is_ready(backlog):
            return start
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return (latest if most is None else limited(begun, latest, most)).as_json()

    def _batch_is_ready(self, backlog: int) -> bool:
        """Whether the backlog has enough offsets for a batch, or the maximum wait is over."""
        least = self._options.min_offsets
        if least is None or self._target is not None or backlog >= least:
            self._waiting_since = None
            return True
        now = time.monotonic()
        since = self._waiting_since = now if self._waiting_since is None else self._waiting_since
        if now - since < self._options.max_trigger_delay_ms / 1000:
            return False
        self._waiting_since = None
        return True

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return self._planner.latest().as_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        planner = self._planner
        last = Positions.of_json(end)
        begun, reached = planner.caught_up(Positions.of_json(start), last)
        ranges = planner.check_ranges(ranges_between(begun, reached), dict(last.ids))
        return [RangePartition(one) for one in split(ranges, self._options.min_partitions)]

    # Reading

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_range(partition, self._columns, self._options)

    # Progress

    def commit(self, end: dict[str, Any]) -> None:
        """Commit the group's offsets. A failure does not fail the query: the next batch commits newer ones."""
        if not self._options.group:
            return
        try:
            self._connected().commit_offsets(self._options.group, Positions.of_json(end).offsets)
        except MainstemError as error:
            _log.warning("offset commit failed", group=self._options.group, error=str(error))

    def stop(self) -> None:
        if self._broker is not None:
            self._broker.close()
            self._broker = None
