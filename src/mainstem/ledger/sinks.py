"""Sinks: batches that many tasks write in parallel, each in its own transaction, and one command commits.

A *query* writes numbered batches. A *run* is one attempt at a batch: it ends with a commit, or a later run takes over.
Every attempt at a task of a run has its own transaction, so that the writes of failed and duplicate attempts are
aborted. The last batch of a query is remembered: repeating it has no effect.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from mainstem import limits
from mainstem.errors import InvalidInput, InvalidTransaction, LimitReached, MainstemError, ProducerFenced
from mainstem.ledger.digest import hash_fields
from mainstem.ledger.keyed import LatestByKey
from mainstem.ledger.section import Command, Moment, Section, applies
from mainstem.ledger.transactions import InitProducer, Marked, Transactions

SINKS_MAX = 100_000  # queries that write batches, each with its last batch number
SINK_ATTEMPTS_MAX = 100_000  # attempts at tasks of one batch before it is committed
SINK_NAME_CHARS_MAX = 200


class BeginSinkTask(Command, frozen=True, tag=110):
    """Give an attempt at a task of a batch its transaction. Aborts what other runs of the query left open."""

    query: str
    run: str
    batch: int
    attempt: str
    timeout_ms: int
    lasting: bool = True  # False: the query writes only this batch


class CommitSinkBatch(Command, frozen=True, tag=111):
    """Commit what these attempts wrote, abort what others of the run wrote, and remember the batch."""

    query: str
    run: str
    batch: int
    attempts: tuple[tuple[str, int, int], ...]  # (attempt, producer, epoch)
    lasting: bool = True


class AbortSinkBatch(Command, frozen=True, tag=112):
    """Abort everything that a run has open."""

    query: str
    run: str
    # Reject every later task of the run: Spark abandons a run while tasks of it still start, and a transaction that
    # nobody ends delays readers until it times out.
    final: bool = False


class ForgetSinks(Command, frozen=True, tag=113):
    """Forget queries that were last used at these ledger times, and not since: (query, time)."""

    sinks: tuple[tuple[str, int], ...]


class ExtendSinkRun(Command, frozen=True, tag=114):
    """A run is still active: restart the timeout of its transactions."""

    query: str
    run: str


@dataclass(frozen=True, slots=True)
class SinkTaskBegun:
    id: str  # the transactional id to write with
    producer: int
    epoch: int
    committed: bool  # the batch was committed before: there is nothing to write
    marked: tuple[Marked, ...]  # of transactions that earlier runs left open


@dataclass(frozen=True, slots=True)
class SinkBatchCommitted:
    repeated: bool  # it was committed before; nothing was added now
    marked: tuple[Marked, ...]


@dataclass(frozen=True, slots=True)
class SinkBatchAborted:
    marked: tuple[Marked, ...]


@dataclass(frozen=True, slots=True)
class SinkRunExtended:
    attempts: int  # that are still open


@dataclass(frozen=True, slots=True)
class SinksForgotten:
    sinks: int
    marked: tuple[Marked, ...]


NO_BATCH = -1


@dataclass(slots=True)
class Sink:
    """A query: the last batch it committed, and the open attempts of its present run."""

    query: str
    lasting: bool = True  # it writes batch after batch; False = just one batch
    last_batch: int = NO_BATCH
    run: str = ""
    attempts: dict[str, None] = field(default_factory=dict)  # of the run; a dict for its fixed order
    given_up: str = ""  # the run that was aborted last: none of its tasks may begin any more
    updated_ms: int = 0  # ledger time


class SinkState(msgspec.Struct, frozen=True, array_like=True):
    """One query, in a checkpoint."""

    query: str
    lasting: bool
    last_batch: int
    run: str
    attempts: list[str]
    updated_ms: int
    given_up: str


def transactional_id(query: str, run: str, attempt: str) -> str:
    """The transactional id of one attempt. No part may contain a slash, so every attempt has a different id."""
    return f"sink/{query}/{run}/{attempt}"


class Sinks(Section[list[SinkState]]):
    """Queries, longest unused first. Commands return a result, or the error that rejects them."""

    requires = (Transactions,)

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions
        self._by_query: LatestByKey[str, Sink] = LatestByKey(_hash)

    def __len__(self) -> int:
        return len(self._by_query)

    def __iter__(self) -> Iterator[Sink]:
        return iter(self._by_query)

    def get(self, query: str) -> Sink | None:
        return self._by_query.get(query)

    # Commands

    @applies(BeginSinkTask)
    def begin(self, command: BeginSinkTask, now: Moment) -> SinkTaskBegun | MainstemError:
        """Give one attempt at one task a transaction. Aborts what other runs of the query left open."""
        refusal = _bad_names(command.query, command.run, command.attempt) or _bad_batch(command.batch)
        if refusal:
            return refusal
        known = self._by_query.get(command.query)
        if known is not None and command.batch <= known.last_batch:
            return SinkTaskBegun("", -1, -1, True, ())
        if known is not None and command.run == known.given_up:
            return _taken_over(command.query)
        full = self._by_query.refusal(command.query, SINKS_MAX, "queries that write")
        if full is not None:
            return full
        other_run = known is not None and known.run != command.run
        attempts = known.attempts if known is not None and not other_run else {}
        if command.attempt not in attempts and len(attempts) >= SINK_ATTEMPTS_MAX:
            return LimitReached(f"a batch is written by at most {SINK_ATTEMPTS_MAX} task attempts")
        id = transactional_id(command.query, command.run, command.attempt)
        started = self._transactions.initialise(InitProducer(id, command.timeout_ms), now)
        if isinstance(started, MainstemError):
            return started
        sink = self._sink(command.query, command.lasting)
        marked = self._abort_open(sink, now.time_ms) if other_run else []
        sink.run = command.run
        sink.attempts[command.attempt] = None
        self._changed(sink, now.time_ms)
        return SinkTaskBegun(id, started.producer, started.epoch, False, (*marked, *started.marked))

    @applies(CommitSinkBatch)
    def commit(self, command: CommitSinkBatch, now: Moment) -> SinkBatchCommitted | MainstemError:
        """Commit what these attempts wrote, atomically, and nothing else of the batch."""
        refusal = _bad_names(command.query, command.run) or _bad_batch(command.batch)
        if refusal:
            return refusal
        known = self._by_query.get(command.query)
        if known is not None and command.batch <= known.last_batch:
            marked = self._abort_open(known, now.time_ms) if known.run == command.run else []
            self._changed(known, now.time_ms)
            return SinkBatchCommitted(True, tuple(marked))
        full = self._by_query.refusal(command.query, SINKS_MAX, "queries that write")
        if full is not None:
            return full
        broken = self._bad_commit(known, command)
        if broken:
            return broken
        sink = self._sink(command.query, command.lasting)
        marked = []
        for attempt, _, _ in command.attempts:
            del sink.attempts[attempt]
            id = transactional_id(command.query, command.run, attempt)
            marked += self._transactions.finish(id, True, now.time_ms)
        marked += self._abort_open(sink, now.time_ms)
        sink.last_batch, sink.run = command.batch, ""
        self._changed(sink, now.time_ms)
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
                    f"the writes of task attempt {attempt!r} of query {command.query!r} were aborted: its transaction "
                    "timed out, or the attempt began again"
                )
        return None

    @applies(AbortSinkBatch)
    def abort(self, command: AbortSinkBatch, now: Moment) -> SinkBatchAborted:
        """Abort this run. Repeating it, or calling it after another run began, aborts nothing."""
        sink = self._by_query.get(command.query)
        if sink is None or (sink.run != command.run and not command.final):
            return SinkBatchAborted(())
        marked: list[Marked] = []
        if sink.run == command.run:
            marked = self._abort_open(sink, now.time_ms)
            sink.run = ""
        if command.final:
            sink.given_up = command.run
        self._changed(sink, now.time_ms)
        return SinkBatchAborted(tuple(marked))

    @applies(ExtendSinkRun)
    def extend(self, command: ExtendSinkRun, now: Moment) -> SinkRunExtended | MainstemError:
        """Restart the timeout of what a run has open."""
        sink = self._by_query.get(command.query)
        if sink is None or sink.run != command.run:
            return _taken_over(command.query)
        extended = sum(
            self._transactions.extend(transactional_id(sink.query, sink.run, attempt), now.time_ms)
            for attempt in sink.attempts
        )
        self._changed(sink, now.time_ms)
        return SinkRunExtended(extended)

    @applies(ForgetSinks)
    def forget(self, command: ForgetSinks, now: Moment) -> SinksForgotten:
        """Forget these queries, except those used since then."""
        forgotten = 0
        marked: list[Marked] = []
        for query, updated_ms in command.sinks:
            sink = self._by_query.get(query)
            if sink is not None and sink.updated_ms == updated_ms:
                marked += self._abort_open(sink, now.time_ms)
                self._by_query.pop(query)
                forgotten += 1
        return SinksForgotten(forgotten, tuple(marked))

    def _sink(self, query: str, lasting: bool) -> Sink:
        return self._by_query.get(query) or Sink(query, lasting)

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
        self._by_query.put(sink.query, sink)

    # State as a whole

    @property
    def digest(self) -> int:
        return self._by_query.digest

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
            for sink in self
        ]

    def load(self, state: list[SinkState]) -> None:
        for one in state:
            attempts = dict.fromkeys(one.attempts)
            sink = Sink(one.query, one.lasting, one.last_batch, one.run, attempts, one.given_up)
            self._changed(sink, one.updated_ms)


def _hash(sink: Sink) -> int:
    return hash_fields(
        "sink", sink.query, sink.lasting, sink.last_batch, sink.run, list(sink.attempts), sink.given_up
    )


def _taken_over(query: str) -> ProducerFenced:
    return ProducerFenced(f"another run of query {query!r} has taken over, or this run was aborted")


def _bad_names(*names: str) -> InvalidInput | None:
    for name in names:
        if not 1 <= len(name) <= SINK_NAME_CHARS_MAX or "/" in name:
            return InvalidInput(
                f"invalid query, run or attempt {name[:64]!r}: use 1 to {SINK_NAME_CHARS_MAX} characters, "
                "and no slash"
            )
    return None


def _bad_batch(batch: int) -> InvalidInput | None:
    if not 0 <= batch <= limits.OFFSET_MAX:
        return InvalidInput(f"{batch} is not a batch number")
    return None
