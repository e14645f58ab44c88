"""`df.write` and `df.writeStream`: each task writes in its own transaction, and the driver commits all of them at once.

How a batch is written exactly once: its query and number identify it. Every attempt at a task has a transaction. One
ledger command commits the transactions of the attempts that Spark reports as done, aborts the others, and stores the
number. A batch that runs again finds its number committed and writes nothing.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from mainstem import events
from mainstem.client.broker import BrokerClient
from mainstem.errors import InvalidInput, MainstemError
from mainstem.spark.sink.batches import TaskBatches
from mainstem.spark.sink.options import SinkOptions

if TYPE_CHECKING:
    import pyarrow as pa

_log = events.named("spark")

# Local properties in which Spark passes a streaming task its query and batch.
_QUERY_PROPERTY = "sql.streaming.queryId"
_BATCH_PROPERTY = "streaming.sql.batchId"

_ONLY_BATCH = 0  # batch number of a write that is not a stream
_EXTENSIONS = 4  # extensions of a transaction within its timeout


@dataclass(frozen=True)
class TaskWritten(WriterCommitMessage):
    """The result of one attempt at a task."""

    query: str
    run: str
    batch: int
    attempt: str
    producer: int
    epoch: int
    records: int
    committed: bool  # the batch was committed before this attempt began

    @property
    def stamp(self) -> tuple[str, int, int]:
        return self.attempt, self.producer, self.epoch


@dataclass(frozen=True)
class _SinkBatch:
    query: str
    run: str
    number: int
    lasting: bool


def _write(rows: Iterator[pa.RecordBatch], batch: _SinkBatch, options: SinkOptions) -> TaskWritten:
    """Runs in a worker."""
    from pyspark import TaskContext

    context = TaskContext.get()
    task, attempt = (context.partitionId(), context.taskAttemptId()) if context else (0, 0)
    name = f"{task}.{attempt}"
    timeout_ms = options.transaction_timeout_ms
    with BrokerClient(options.url, options.api_key) as broker:
        begun = broker.begin_task(
            batch.query, batch.run, batch.number, name, timeout_ms=timeout_ms, lasting=batch.lasting
        )
        records = 0
        if not begun.committed:
            extending = broker.extending(batch.query, batch.run, timeout_ms / 1000 / _EXTENSIONS)
            try:
                batches = TaskBatches(broker, begun, options, first_partition=task)
                batches.write(rows)
                records = batches.records
            finally:
                extending.cancel()
    return TaskWritten(
        batch.query,
        batch.run,
        batch.number,
        name,
        begun.producer,
        begun.epoch,
        records,
        begun.committed,
    )


def _commit(written: list[TaskWritten], options: SinkOptions, *, lasting: bool) -> None:
    first = written[0]
    if all(one.committed for one in written):
        _log.info("batch already committed", query=first.query, batch=first.batch)
        return
    stamps = [one.stamp for one in written if not one.committed]
    with BrokerClient(options.url, options.api_key) as broker:
        broker.commit_batch(first.query, first.run, first.batch, stamps, lasting=lasting)


def _abort(query: str, run: str, options: SinkOptions) -> None:
    try:
        with BrokerClient(options.url, options.api_key) as broker:
            broker.abort_batch(query, run)
    except MainstemError as error:
        # The query failed for another reason, which Spark shows. The transactions time out by themselves.
        _log.warning("batch abort failed", query=query, error=str(error))


class BatchWriter(DataSourceArrowWriter):
    """One write: all rows or none."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        query = options.query or f"write-{uuid.uuid4().hex}"
        number = _ONLY_BATCH if options.batch is None else options.batch
        self._batch = _SinkBatch(query, uuid.uuid4().hex, number, lasting=bool(options.query))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _write(iterator, self._batch, self._options)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        written = _written(messages)
        if written:
            _commit(written, self._options, lasting=self._batch.lasting)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        _abort(self._batch.query, self._batch.run, self._options)


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes each batch of a stream once. Spark commits with a new writer, so messages carry all that it needs."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._run = uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        from pyspark import TaskContext

        context = TaskContext.get()
        query = context.getLocalProperty(_QUERY_PROPERTY) if context else None
        number = context.getLocalProperty(_BATCH_PROPERTY) if context else None
        if not query or number is None:
            raise InvalidInput("Spark does not pass the query and batch of this task: use foreachBatch")
        batch = _SinkBatch(query, f"{self._run}-{number}", int(number), lasting=True)
        return _write(iterator, batch, self._options)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        written = _written(messages)
        if written:
            _commit(written, self._options, lasting=True)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        # Failed tasks have no message; without any message, the next run of the batch aborts these transactions.
        written = _written(messages)
        if written:
            _abort(written[0].query, written[0].run, self._options)


def _written(messages: list[WriterCommitMessage | None]) -> list[TaskWritten]:
    return [message for message in messages if isinstance(message, TaskWritten)]
