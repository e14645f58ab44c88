"""Sinks: batches that many tasks write at once, each in a transaction of its own, and one command commits.

A *query* writes numbered batches. A *run* is one go at a batch: it ends with a commit, or a later run takes over.
Every attempt at a task of a run has its own transaction, so that what failed attempts and doubled tasks wrote never
counts. The last batch of a query is remembered: to repeat it changes nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import msgspec

from mainstem import limits
from mainstem.errors import InvalidInput, InvalidTransaction, LimitReached, MainstemError, ProducerFenced
from mainstem.ledger.commands import (
    AbortSinkBatch,
    BeginSinkTask,
    CommitSinkBatch,
    ExtendSinkRun,
    ForgetSinks,
    InitProducer,
)
from mainstem.ledger.digest import MASK, hash_fields
from mainstem.ledger.results import (
    Marked,
    SinkBatchAborted,
    SinkBatchCommitted,
    SinkRunExtended,
    SinksForgotten,
    SinkTaskBegun,
)
from mainstem.ledger.transactions import Transactions

NO_BATCH = -1


@dataclass(slots=True)
class Sink:
    """A query: the last batch it committed, and what its present run has open."""

    query: str
    lasting: bool = True  # it goes on with batch after batch; False = one batch and no more
    last_batch: int = NO_BATCH
    run: str = ""
    attempts: dict[str, None] = field(default_factory=dict)  # of the run; a dict for its fixed order
    given_up: str = ""  # the run that was aborted last: no task of it may begin any more
    updated_ms: int = 0  # ledger time
    hash: int = 0  # as counted in the digest


class SinkState(msgspec.Struct, frozen=True, array_like=True):
    """One query, as a checkpoint holds it."""

    query: str
    lasting: bool
    last_batch: int
    run: str
    attempts: list[str]
    updated_ms: int
    given_up: str = ""


def transactional_id(query: str, run: str, attempt: str) -> str:
    """Of one attempt at one task. No part may hold a slash, so no two attempts share one."""
    return f"sink/{query}/{run}/{attempt}"


class Sinks:
    """Queries, longest unused first. Commands return a result, or the error that refuses them."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions
        self._by_query: OrderedDict[str, Sink] = OrderedDict()
        self._sum = 0

    def __len__(self) -> int:
        return len(self._by_query)

    def __iter__(self) -> Iterator[Sink]:
        return iter(self._by_query.values())

    def get(self, query: str) -> Sink | None:
        return self._by_query.get(query)

    # Commands

    def begin(self, command: BeginSinkTask, time_ms: int) -> SinkTaskBegun | MainstemError:
        """Give one attempt at one task a transaction. What other runs of the query left open is aborted."""
        refusal = _bad_names(command.query, command.run, command.attempt) or _bad_batch(command.batch)
        if refusal:
            return refusal
        known = self._by_query.get(command.query)
        if known is not None and command.batch <= known.last_batch:
            return SinkTaskBegun("", -1, -1, True, ())
        if known is not None and command.run == known.given_up:
            return _taken_over(command.query)
        if known is None and len(self._by_query) >= limits.SINKS_MAX:
            return LimitReached(
                f"there are {limits.SINKS_MAX} queries that write here, the most there may be"
            )
        other_run = known is not None and known.run != command.run
        attempts = known.attempts if known is not None and not other_run else {}
        if command.attempt not in attempts and len(attempts) >= limits.SINK_ATTEMPTS_MAX:
            return LimitReached(f"a batch is written by at most {limits.SINK_ATTEMPTS_MAX} task attempts")
        id = transactional_id(command.query, command.run, command.attempt)
        started = self._transactions.initialise(InitProducer(id, command.timeout_ms), time_ms)
        if isinstance(started, MainstemError):
            return started
        sink = self._sink(command.query, command.lasting)
        marked = self._abort_open(sink, time_ms) if other_run else []
        sink.run = command.run
        sink.attempts[command.attempt] = None
        self._changed(sink, time_ms)
        return SinkTaskBegun(id, started.producer, started.epoch, False, (*marked, *started.marked))

    def commit(self, command: CommitSinkBatch, time_ms: int) -> SinkBatchCommitted | MainstemError:
        """Make what these attempts wrote count, all of it at once, and nothing else of the batch."""
        refusal = _bad_names(command.query, command.run) or _bad_batch(command.batch)
        if refusal:
            return refusal
        known = self._by_query.get(command.query)
        if known is not None and command.batch <= known.last_batch:
            marked = self._abort_open(known, time_ms) if known.run == command.run else []
            self._changed(known, time_ms)
            return SinkBatchCommitted(True, tuple(marked))
        if known is None and len(self._by_query) >= limits.SINKS_MAX:
            return LimitReached(
                f"there are {limits.SINKS_MAX} queries that write here, the most there may be"
            )
        broken = self._bad_commit(known, command)
        if broken:
            return broken
        sink = self._sink(command.query, command.lasting)
        marked = []
        for attempt, _, _ in command.attempts:
            del sink.attempts[attempt]
            id = transactional_id(command.query, command.run, attempt)
            marked += self._transactions.finish(id, True, time_ms)
        marked += self._abort_open(sink, time_ms)
        sink.last_batch, sink.run = command.batch, ""
        self._changed(sink, time_ms)
        return SinkBatchCommitted(False, tuple(marked))

    def _bad_commit(self, sink: Sink | None, command: CommitSinkBatch) -> MainstemError | None:
        if not command.attempts:
            return None
        if sink is None or sink.run != command.run:
            return _taken_over(command.query)
        if len({attempt for attempt, _, _ in command.attempts}) < len(command.attempts):
            return InvalidInput("a task attempt is named twice")
        for attempt, producer, epoch in command.attempts:
            id = transactional_id(command.query, command.run, attempt)
            if attempt not in sink.attempts or not self._transactions.unbroken(id, producer, epoch):
                return InvalidTransaction(
                    f"what task attempt {attempt!r} of query {command.query!r} wrote was aborted: it took longer "
                    "than its transaction may, or began again"
                )
        return None

    def abort(self, command: AbortSinkBatch, time_ms: int) -> SinkBatchAborted:
        """Nothing of this run counts. Doing it again, or after another run began, aborts nothing."""
        sink = self._by_query.get(command.query)
        if sink is None or (sink.run != command.run and not command.final):
            return SinkBatchAborted(())
        marked: list[Marked] = []
        if sink.run == command.run:
            marked = self._abort_open(sink, time_ms)
            sink.run = ""
        if command.final:
            sink.given_up = command.run
        self._changed(sink, time_ms)
        return SinkBatchAborted(tuple(marked))

    def extend(self, command: ExtendSinkRun, time_ms: int) -> SinkRunExtended | MainstemError:
        """Give what a run has open more time."""
        sink = self._by_query.get(command.query)
        if sink is None or sink.run != command.run:
            return _taken_over(command.query)
        extended = sum(
            self._transactions.extend(transactional_id(sink.query, sink.run, attempt), time_ms)
            for attempt in sink.attempts
        )
        self._changed(sink, time_ms)
        return SinkRunExtended(extended)

    def forget(self, command: ForgetSinks, time_ms: int) -> SinksForgotten:
        """Forget the queries named, as far as they were not used since."""
        forgotten = 0
        marked: list[Marked] = []
        for query, updated_ms in command.sinks:
            sink = self._by_query.get(query)
            if sink is not None and sink.updated_ms == updated_ms:
                marked += self._abort_open(sink, time_ms)
                del self._by_query[query]
                self._sum = (self._sum - sink.hash) & MASK
                forgotten += 1
        return SinksForgotten(forgotten, tuple(marked))

    def _sink(self, query: str, lasting: bool) -> Sink:
        sink = self._by_query.get(query)
        if sink is None:
            sink = self._by_query[query] = Sink(query, lasting)
        return sink

    def _abort_open(self, sink: Sink, time_ms: int) -> list[Marked]:
        marked: list[Marked] = []
        for attempt in sink.attempts:
            marked += self._transactions.finish(
                transactional_id(sink.query, sink.run, attempt), False, time_ms
            )
        sink.attempts = {}
        return marked

    def _changed(self, sink: Sink, time_ms: int) -> None:
        sink.updated_ms = time_ms
        self._by_query.move_to_end(sink.query)
        given_up = [sink.given_up] if sink.given_up else []
        fresh = hash_fields(
            "sink", sink.query, sink.lasting, sink.last_batch, sink.run, list(sink.attempts), *given_up
        )
        self._sum = (self._sum + fresh - sink.hash) & MASK
        sink.hash = fresh

    # State as a whole

    @property
    def digest(self) -> int:
        return self._sum

    def encode(self) -> list[SinkState]:
        return [
            SinkState(
                sink.query,
                sink.lasting,
                sink.last_batch,
                sink.run,
                list(sink.attempts),
                sink.updated_ms,
                sink.given_up,
            )
            for sink in self._by_query.values()
        ]

    @classmethod
    def decode(cls, states: Iterable[SinkState], transactions: Transactions) -> Sinks:
        sinks = cls(transactions)
        for state in states:
            sink = Sink(
                state.query,
                state.lasting,
                state.last_batch,
                state.run,
                dict.fromkeys(state.attempts),
                state.given_up,
            )
            sinks._by_query[sink.query] = sink
            sinks._changed(sink, state.updated_ms)
        return sinks


def _taken_over(query: str) -> ProducerFenced:
    return ProducerFenced(f"another run of query {query!r} has taken over, or this one was aborted")


def _bad_names(*names: str) -> InvalidInput | None:
    for name in names:
        if not 1 <= len(name) <= limits.SINK_NAME_CHARS_MAX or "/" in name:
            return InvalidInput(
                f"{name[:64]!r} names no query, run or attempt: 1 to {limits.SINK_NAME_CHARS_MAX} characters, "
                "none of them a slash"
            )
    return None


def _bad_batch(batch: int) -> InvalidInput | None:
    if not 0 <= batch <= limits.OFFSET_MAX:
        return InvalidInput(f"{batch} is no number of a batch")
    return None
