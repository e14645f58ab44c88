"""Sinks: batches that many tasks write and one call commits, atomically and exactly once."""

from __future__ import annotations

from collections.abc import Sequence

from mainstem.broker.append import Appends, promise
from mainstem.broker.periodic_tasks import PeriodicTask
from mainstem.broker.streams import stream_of
from mainstem.broker.transactions.producer_rights import ProducerRights
from mainstem.broker.transactions.service import ProducerStamp, TransactionService
from mainstem.errors import InvalidTransaction
from mainstem.ledger.sinks import (
    AbortSinkBatch,
    BeginSinkTask,
    CommitSinkBatch,
    ExtendSinkRun,
    ForgetSinks,
    SinkBatchCommitted,
    SinkTaskBegun,
)
from mainstem.ledger.topics import Topic
from mainstem.log.log import Log
from mainstem.ports.clock import Clock
from mainstem.records.header import BatchHeader, SliceFacts, walk

SINK_IDLE_MS = 90 * 24 * 3600 * 1000  # a query without writes for this long is deleted …
SINK_ONCE_IDLE_MS = 3600 * 1000  # … one with a single batch much sooner: only a lost response is retried
SINKS_CHECK_EVERY_S = 60.0


class SinkService:
    """The calls of a query's tasks and its driver."""

    def __init__(self, log: Log, clock: Clock, appends: Appends, transactions: TransactionService) -> None:
        self._log = log
        self._clock = clock
        self._appends = appends
        self._transactions = transactions
        self.rounds = PeriodicTask("sinks", SINKS_CHECK_EVERY_S, self.enforce)

    async def begin(
        self, query: str, run: str, batch: int, attempt: str, *, timeout_ms: int, lasting: bool
    ) -> SinkTaskBegun:
        """A transaction for one attempt at one task. `committed`: the batch was committed before, write nothing.

        Raises InvalidInput, InvalidTransactionTimeout, LimitReached, and ProducerFenced if the run was aborted."""
        begun: SinkTaskBegun = await self._log.propose(
            BeginSinkTask(query, run, batch, attempt, timeout_ms, lasting)
        )
        return begun

    async def commit(
        self, query: str, run: str, batch: int, attempts: Sequence[tuple[str, int, int]], *, lasting: bool
    ) -> bool:
        """Commit what the attempts (name, producer, epoch) wrote, abort what others of the run wrote.

        Returns False if the batch was committed before. Raises ProducerFenced if another run took over, and
        InvalidTransaction if an attempt's transaction was aborted: then nothing is committed."""
        committed: SinkBatchCommitted = await self._log.propose(
            CommitSinkBatch(query, run, batch, tuple(attempts), lasting)
        )
        return not committed.repeated

    async def extend(self, query: str, run: str) -> None:
        """The run is still active: restart the timeout of its transactions. Raises ProducerFenced."""
        await self._log.propose(ExtendSinkRun(query, run))

    async def abort(self, query: str, run: str) -> None:
        """Abort the run, and reject all its later tasks."""
        await self._log.propose(AbortSinkBatch(query, run, final=True))

    async def append(
        self, topic: Topic, partition: int, batch: bytearray, rights: ProducerRights
    ) -> tuple[int, SliceFacts]:
        """Append one batch unchanged, in the transaction of its producer if it has one. Returns its offset.

        Raises the errors of an invalid batch, and those of the ledger."""
        stream = stream_of(topic, partition)
        header = next(walk(batch), None)
        if header is not None and header.transactional:
            rights.check_transaction(header.producer)
            await self._join(header, stream)
        placed = promise()
        facts = self._appends.batches(topic, partition, batch, placed, resumes=False, rights=rights)
        base, _ = await placed
        return base, facts

    async def _join(self, header: BatchHeader, stream: int) -> None:
        """Add the stream to the transaction if needed."""
        one = self._log.ledger.transactions.of_producer(header.producer)
        if one is None:
            raise InvalidTransaction(
                f"producer {header.producer} has no open transaction: it ended, or never began"
            )
        if not (one.open and stream in one.streams):
            stamp = ProducerStamp(one.id, header.producer, header.producer_epoch)
            await self._transactions.add_partitions(stamp, (stream,))

    async def enforce(self) -> int:
        """Forget queries that are no longer used. Returns their number."""
        now = self._log.now_ms()
        idle = tuple(
            (sink.query, sink.updated_ms)
            for sink in self._log.ledger.sinks
            if sink.updated_ms < now - (SINK_IDLE_MS if sink.lasting else SINK_ONCE_IDLE_MS)
        )
        if idle:
            await self._log.propose(ForgetSinks(idle))
        return len(idle)
