"""Send one task's rows to the broker as record batches, by partition."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import numpy as np

from mainstem import limits
from mainstem.api.sinks import SinkTask
from mainstem.client.broker import BrokerClient
from mainstem.errors import InvalidInput, TopicNotFound
from mainstem.records.columns import Integers, encode_columns
from mainstem.spark.sink.columns import SinkRows, sink_rows
from mainstem.spark.sink.options import SinkOptions
from mainstem.spark.sink.partitioner import Partitioner

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS_BYTES = 8 * limits.MIB  # rows that are sorted by partition together
_BATCH_BYTES = 512 * limits.KIB  # records of one batch, unless the topic allows less
_IN_FLIGHT_MAX = 8  # batches, over all partitions

Target = tuple[str, int]  # topic, partition


class TaskBatches:
    """Writes in one transaction. Each partition has at most one batch in flight, which keeps the order."""

    def __init__(
        self, broker: BrokerClient, task: SinkTask, options: SinkOptions, first_partition: int
    ) -> None:
        self._broker = broker
        self._task = task
        self._options = options
        self._first_partition = first_partition
        self._topics: dict[str, tuple[Partitioner, int, int]] = {}  # partitioner, partitions, batch bytes
        self._sequences: dict[Target, int] = {}
        self._in_flight: dict[Target, Future[Any]] = {}
        self.records = 0

    def write(self, rows: Iterable[pa.RecordBatch]) -> None:
        """Returns when the broker has all rows. Raises its errors, InvalidInput, TooLarge."""
        for table in _combined(rows):
            for topic, part in self._by_topic(table):
                self._write_topic(topic, part)
        for appended in self._in_flight.values():
            appended.result()

    def _by_topic(self, table: pa.Table) -> Iterator[tuple[str, pa.Table]]:
        import pyarrow.compute as pc

        if self._options.topic:
            yield self._options.topic, table
            return
        topics = table.column("topic")
        if topics.null_count:
            raise InvalidInput("the topic of a row is null: set the option topic, or a topic in every row")
        for topic in pc.unique(topics).to_pylist():
            yield topic, table.filter(pc.equal(topics, topic))

    def _write_topic(self, topic: str, table: pa.Table) -> None:
        now_ms = time.time_ns() // 1_000_000
        rows = sink_rows(table, now_ms, keep_timestamps=self._options.keep_timestamps)
        partitioner, partitions, batch_bytes = self._topic(topic)
        assigned = partitioner.partitions(rows.records.keys, rows.partitions, len(rows))
        if len(assigned) and int(assigned.max()) >= partitions:
            raise InvalidInput(
                f"topic {topic!r} has {partitions} partitions: partition {int(assigned.max())} does not exist"
            )
        sizes = rows.sizes()
        order = np.argsort(assigned, kind="stable")
        cuts = np.flatnonzero(np.diff(assigned[order])) + 1
        for partition_rows in np.split(order, cuts):
            for batch_rows in _batch_rows(partition_rows, sizes, batch_bytes):
                self._send(topic, int(assigned[batch_rows[0]]), rows, batch_rows)

    def _topic(self, topic: str) -> tuple[Partitioner, int, int]:
        cached = self._topics.get(topic)
        if cached is None:
            positions = self._topic_positions(topic)
            if positions.type == "queue":
                raise InvalidInput(f"topic {topic!r} is a queue: queues do not support transactions")
            first = self._first_partition % positions.partitions_total
            cached = self._topics[topic] = (
                Partitioner(positions.partitions_total, first),
                positions.partitions_total,
                min(_BATCH_BYTES, max(positions.max_batch_bytes - limits.KIB, 1)),
            )
        return cached

    def _topic_positions(self, topic: str) -> Any:
        try:
            return self._broker.positions(topic)
        except TopicNotFound:
            if not self._options.create_topics:
                raise
        self._broker.make_topic(topic)
        return self._broker.positions(topic)

    def _send(self, topic: str, partition: int, rows: SinkRows, chosen: Integers) -> None:
        target = topic, partition
        sequence = self._sequences.get(target, 0)
        batch = encode_columns(
            rows.take(chosen),
            codec=self._options.compression,
            producer=self._task.producer,
            producer_epoch=self._task.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        before = self._in_flight.pop(target, None)
        if before is not None:
            before.result()
        elif len(self._in_flight) >= _IN_FLIGHT_MAX:
            oldest = next(iter(self._in_flight))
            self._in_flight.pop(oldest).result()
        self._in_flight[target] = self._broker.appending(topic, partition, batch)
        self._sequences[target] = sequence + len(chosen)
        self.records += len(chosen)


def _combined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Combine small Arrow batches, so that each partition gets a batch of a useful size."""
    import pyarrow as pa

    pending: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if batch.num_rows:
            pending.append(batch)
            size += batch.nbytes
        if size >= _ROWS_BYTES:
            yield pa.Table.from_batches(pending)
            pending, size = [], 0
    if pending:
        yield pa.Table.from_batches(pending)


def _batch_rows(rows: Integers, sizes: Integers, bytes_max: int) -> Iterator[Integers]:
    """Split rows into batches of at most `bytes_max`; a larger row gets its own batch."""
    ends = np.cumsum(sizes[rows])
    first = 0
    while first < len(rows):
        before = int(ends[first - 1]) if first else 0
        last = max(int(np.searchsorted(ends, before + bytes_max, side="right")), first + 1)
        yield rows[first:last]
        first = last
