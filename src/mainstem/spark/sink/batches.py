"""One task's rows as record batches on their way to the broker, partition by partition."""

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

_ROWS_BYTES = 8 * limits.MIB  # of rows that are sorted by partition at a time
_BATCH_BYTES = 512 * limits.KIB  # of records in one batch, unless the topic allows less
_IN_FLIGHT_MAX = 8  # batches, over all partitions

Target = tuple[str, int]  # topic, partition


class TaskBatches:
    """Writes within one transaction. A partition has one batch on its way at a time, so that order is kept."""

    def __init__(self, broker: BrokerClient, task: SinkTask, options: SinkOptions, first_turn: int) -> None:
        self._broker = broker
        self._task = task
        self._options = options
        self._first_turn = first_turn
        self._topics: dict[str, tuple[Partitioner, int, int]] = {}  # partitioner, partitions, batch bytes
        self._sequences: dict[Target, int] = {}
        self._flying: dict[Target, Future[Any]] = {}
        self.records = 0

    def write(self, rows: Iterable[pa.RecordBatch]) -> None:
        """Everything is in the broker once this returns. Raises its errors, InvalidInput, TooLarge."""
        for table in _gathered(rows):
            for topic, part in self._by_topic(table):
                self._write_topic(topic, part)
        for flying in self._flying.values():
            flying.result()

    def _by_topic(self, table: pa.Table) -> Iterator[tuple[str, pa.Table]]:
        import pyarrow.compute as pc

        if self._options.topic:
            yield self._options.topic, table
            return
        topics = table.column("topic")
        if topics.null_count:
            raise InvalidInput("a row's topic is null: give the option topic, or a topic in every row")
        for topic in pc.unique(topics).to_pylist():
            yield topic, table.filter(pc.equal(topics, topic))

    def _write_topic(self, topic: str, table: pa.Table) -> None:
        now_ms = time.time_ns() // 1_000_000
        rows = sink_rows(table, now_ms, keep_timestamps=self._options.keep_timestamps)
        partitioner, partitions, batch_bytes = self._topic(topic)
        placed = partitioner.place(rows.records.keys, rows.partitions, len(rows))
        if len(placed) and int(placed.max()) >= partitions:
            raise InvalidInput(
                f"topic {topic!r} has {partitions} partitions: there is no {int(placed.max())}"
            )
        sizes = rows.sizes()
        order = np.argsort(placed, kind="stable")
        of_partitions = placed[order]
        cuts = np.flatnonzero(np.diff(of_partitions)) + 1
        for chosen in np.split(order, cuts):
            for piece in _pieces(chosen, sizes, batch_bytes):
                self._send(topic, int(placed[piece[0]]), rows, piece)

    def _topic(self, topic: str) -> tuple[Partitioner, int, int]:
        known = self._topics.get(topic)
        if known is None:
            places = self._places(topic)
            if places.type == "queue":
                raise InvalidInput(f"topic {topic!r} is a queue, which takes no part in transactions")
            first = self._first_turn % places.partitions_total
            known = self._topics[topic] = (
                Partitioner(places.partitions_total, first),
                places.partitions_total,
                min(_BATCH_BYTES, max(places.max_batch_bytes - limits.KIB, 1)),
            )
        return known

    def _places(self, topic: str) -> Any:
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
        before = self._flying.pop(target, None)
        if before is not None:
            before.result()
        elif len(self._flying) >= _IN_FLIGHT_MAX:
            oldest = next(iter(self._flying))
            self._flying.pop(oldest).result()
        self._flying[target] = self._broker.appending(topic, partition, batch)
        self._sequences[target] = sequence + len(chosen)
        self.records += len(chosen)


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Small ones joined, so that each partition's share is worth a batch."""
    import pyarrow as pa

    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if batch.num_rows:
            held.append(batch)
            size += batch.nbytes
        if size >= _ROWS_BYTES:
            yield pa.Table.from_batches(held)
            held, size = [], 0
    if held:
        yield pa.Table.from_batches(held)


def _pieces(rows: Integers, sizes: Integers, most: int) -> Iterator[Integers]:
    """Rows in runs of at most so many bytes; a row that is larger goes alone."""
    ends = np.cumsum(sizes[rows])
    first = 0
    while first < len(rows):
        before = int(ends[first - 1]) if first else 0
        last = max(int(np.searchsorted(ends, before + most, side="right")), first + 1)
        yield rows[first:last]
        first = last
