"""Sinks: rules one by one, then random sequences against a plain model."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from mainstem.errors import (
    InvalidInput,
    InvalidTransaction,
    InvalidTransactionTimeout,
    LimitReached,
    ProducerFenced,
)
from mainstem.ledger.appends import AppendCode
from mainstem.ledger.entry import SLICE_TRANSACTIONAL
from mainstem.ledger.ledger import Ledger
from mainstem.ledger.replay import apply_all
from mainstem.ledger.sinks import (
    AbortSinkBatch,
    BeginSinkTask,
    CommitSinkBatch,
    ExtendSinkRun,
    ForgetSinks,
    SinkBatchCommitted,
    SinkTaskBegun,
)
from mainstem.ledger.topics import DeleteTopic
from mainstem.ledger.transactions import AddStreamsToTransaction, ExpireTransactions

from .writer import Writer

OK, INVALID = AppendCode.OK, AppendCode.INVALID_TRANSACTION


class Attempt:
    """One try at one task of a batch."""

    def __init__(
        self, writer: Writer, batch: int = 0, name: str = "0", run: str = "r1", query: str = "q"
    ) -> None:
        self.writer = writer
        self.name = name
        begun = writer.do(BeginSinkTask(query, run, batch, name, 60_000))
        assert isinstance(begun, SinkTaskBegun), begun
        self.begun = begun
        self.sequences: dict[int, int] = {}

    def write(self, stream: int = 0, count: int = 1) -> int:
        """Append, and give back the append code."""
        begun = self.begun
        self.writer.do(AddStreamsToTransaction(begun.id, begun.producer, begun.epoch, (stream,)))
        sequence = self.sequences.get(stream, 0)
        _, code = self.writer.append(
            stream,
            count,
            producer=begun.producer,
            epoch=begun.epoch,
            sequence=sequence,
            flags=SLICE_TRANSACTIONAL,
        )
        self.sequences[stream] = sequence + count
        return code

    @property
    def stamp(self) -> tuple[str, int, int]:
        return self.name, self.begun.producer, self.begun.epoch


def commit(writer: Writer, batch: int, *attempts: Attempt, run: str = "r1", query: str = "q") -> Any:
    return writer.do(CommitSinkBatch(query, run, batch, tuple(attempt.stamp for attempt in attempts)))


def live(writer: Writer, stream: int = 0) -> int:
    return writer.state(stream)[2]


@pytest.fixture
def writer() -> Writer:
    writer = Writer()
    writer.create("t", 2)
    return writer


def test_a_batch_counts_at_once_in_every_stream(writer: Writer) -> None:
    first, second = Attempt(writer, name="0"), Attempt(writer, name="1")
    assert first.write(0, 3) == OK
    assert second.write(0, 2) == OK
    assert second.write(1, 4) == OK
    assert [one.id for one in writer.ledger.transactions.open()] == [first.begun.id, second.begun.id]
    done = commit(writer, 0, first, second)
    assert isinstance(done, SinkBatchCommitted)
    assert not done.repeated
    assert sorted(stream for stream, _, _ in done.marked) == [0, 0, 1]
    assert (live(writer, 0), live(writer, 1)) == (5, 4)
    assert not list(writer.ledger.transactions.open())


def test_attempts_that_are_not_named_are_aborted(writer: Writer) -> None:
    kept, doubled = Attempt(writer, name="0.0"), Attempt(writer, name="0.1")
    kept.write(0, 3)
    doubled.write(0, 3)
    commit(writer, 0, kept)
    assert live(writer) == 3
    assert doubled.write(0) == INVALID


def test_a_repeated_batch_changes_nothing(writer: Writer) -> None:
    attempt = Attempt(writer)
    attempt.write(0, 3)
    commit(writer, 0, attempt)
    again = commit(writer, 0, attempt)
    assert again == SinkBatchCommitted(True, ())
    assert live(writer) == 3
    late = Attempt(writer, batch=0, name="1", run="r2")
    assert late.begun == SinkTaskBegun("", -1, -1, True, ())


def test_a_run_that_began_before_the_batch_was_committed_by_another_is_refused(writer: Writer) -> None:
    old = Attempt(writer, run="r1")
    old.write(0, 2)
    new = Attempt(writer, run="r2")
    assert [stream for stream, _, _ in new.begun.marked] == [0]  # what the old run left is aborted
    new.write(0, 2)
    assert isinstance(commit(writer, 0, old, run="r1"), ProducerFenced)
    assert old.write(0) == INVALID
    commit(writer, 0, new, run="r2")
    assert live(writer) == 2


def test_a_commit_is_refused_as_a_whole_once_a_transaction_of_it_timed_out(writer: Writer) -> None:
    first, second = Attempt(writer, name="0"), Attempt(writer, name="1")
    first.write(0, 2)
    second.write(1, 2)
    writer.do(ExpireTransactions(((first.begun.id, first.begun.producer, first.begun.epoch),)))
    assert isinstance(commit(writer, 0, first, second), InvalidTransaction)
    assert [one.id for one in writer.ledger.transactions.open()] == [second.begun.id]
    writer.do(AbortSinkBatch("q", "r1"))
    assert (live(writer, 0), live(writer, 1)) == (0, 0)


def test_an_attempt_that_begins_again_leaves_its_first_go_behind(writer: Writer) -> None:
    first = Attempt(writer)
    first.write(0, 2)
    again = Attempt(writer)
    assert again.begun.id == first.begun.id
    assert isinstance(commit(writer, 0, first), InvalidTransaction)
    again.write(0, 1)
    commit(writer, 0, again)
    assert live(writer) == 1


def test_an_aborted_run_leaves_nothing_and_the_next_one_may_commit(writer: Writer) -> None:
    attempt = Attempt(writer)
    attempt.write(0, 2)
    writer.do(AbortSinkBatch("q", "other"))
    assert list(writer.ledger.transactions.open())
    assert len(writer.do(AbortSinkBatch("q", "r1")).marked) == 1
    assert writer.do(AbortSinkBatch("q", "r1")).marked == ()
    assert writer.do(AbortSinkBatch("unknown", "r1")).marked == ()
    assert isinstance(commit(writer, 0, attempt), ProducerFenced)
    assert live(writer) == 0
    again = Attempt(writer, run="r2")
    again.write(0, 2)
    assert not commit(writer, 0, again, run="r2").repeated
    assert live(writer) == 2


def test_no_task_begins_in_a_run_that_was_given_up(writer: Writer) -> None:
    early = Attempt(writer)
    early.write(0, 2)
    writer.do(AbortSinkBatch("q", "r1", final=True))
    late = BeginSinkTask("q", "r1", 0, "1", 60_000)
    assert isinstance(writer.do(late), ProducerFenced)
    writer.ledger = Ledger.decode(writer.ledger.encode())
    assert isinstance(writer.do(late), ProducerFenced)
    assert not list(writer.ledger.transactions.open())
    again = Attempt(writer, run="r2")
    again.write(0, 2)
    writer.do(AbortSinkBatch("q", "r1", final=True))  # said again: the run that took over goes on
    assert isinstance(writer.do(late), ProducerFenced)  # and is not taken over by what is left of the first
    assert not commit(writer, 0, again, run="r2").repeated
    assert live(writer) == 2


def test_a_log_from_before_runs_were_given_up_is_applied_as_it_was(writer: Writer) -> None:
    Attempt(writer).write(0, 2)
    writer.do(msgspec.msgpack.decode(msgspec.msgpack.encode([112, "q", "r1"]), type=AbortSinkBatch))
    late = Attempt(writer, name="1")
    late.write(0, 1)
    assert not commit(writer, 0, late).repeated


def test_nothing_is_left_of_the_ids_and_producers_of_a_committed_batch(writer: Writer) -> None:
    for batch in range(20):
        attempts = [Attempt(writer, batch, name=str(task), run=str(batch)) for task in range(3)]
        for attempt in attempts:
            attempt.write(0)
            attempt.write(1)
        commit(writer, batch, *attempts, run=str(batch))
    assert len(writer.ledger.transactions) == 0
    assert len(writer.ledger.producers) == 0
    assert len(writer.ledger.sinks) == 1


def test_a_batch_without_tasks_is_remembered_as_well(writer: Writer) -> None:
    assert not commit(writer, 4).repeated
    assert commit(writer, 4).repeated
    assert commit(writer, 3).repeated
    assert not commit(writer, 5).repeated


def test_tasks_that_wrote_nothing_leave_no_marker(writer: Writer) -> None:
    assert commit(writer, 0, Attempt(writer)).marked == ()
    assert writer.state(0)[1] == 0


def test_a_deleted_topic_does_not_hold_up_the_batch(writer: Writer) -> None:
    attempt = Attempt(writer)
    attempt.write(0, 2)
    other = writer.create("other")
    attempt.write(other.streams[0], 2)
    writer.do(DeleteTopic(b"t".ljust(16, b"\0")))
    assert len(commit(writer, 0, attempt).marked) == 1
    assert live(writer, other.streams[0]) == 2


def test_a_run_that_is_still_at_work_gets_its_time_anew(writer: Writer) -> None:
    attempt = Attempt(writer)
    idle = Attempt(writer, name="1")
    attempt.write(0, 2)
    writer.time_ms += 50_000
    assert writer.do(ExtendSinkRun("q", "r1")).attempts == 1
    assert [one.started_ms for one in writer.ledger.transactions.open()] == [writer.time_ms]
    assert isinstance(writer.do(ExtendSinkRun("q", "r2")), ProducerFenced)
    assert isinstance(writer.do(ExtendSinkRun("unknown", "r1")), ProducerFenced)
    assert Ledger.decode(writer.ledger.encode()).encode() == writer.ledger.encode()
    assert not commit(writer, 0, attempt, idle).repeated


def test_what_cannot_be_is_refused(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    for query, run, attempt in (("", "r", "a"), ("q", "a/b", "a"), ("q", "r", "x" * 201)):
        assert isinstance(writer.do(BeginSinkTask(query, run, 0, attempt, 1_000)), InvalidInput)
    assert isinstance(writer.do(BeginSinkTask("q", "r", -1, "a", 1_000)), InvalidInput)
    assert isinstance(writer.do(BeginSinkTask("q", "r", 0, "a", 0)), InvalidTransactionTimeout)
    assert writer.ledger.sinks.get("q") is None
    assert isinstance(writer.do(CommitSinkBatch("q/", "r", 0, ())), InvalidInput)
    assert isinstance(writer.do(CommitSinkBatch("q", "r", -1, ())), InvalidInput)
    assert isinstance(writer.do(CommitSinkBatch("q", "r", 0, (("a", 1, 0),))), ProducerFenced)
    attempt_ = Attempt(writer)
    assert isinstance(commit(writer, 0, attempt_, attempt_), InvalidInput)
    monkeypatch.setattr("mainstem.ledger.sinks.SINKS_MAX", 1)
    monkeypatch.setattr("mainstem.ledger.sinks.SINK_ATTEMPTS_MAX", 1)
    assert isinstance(writer.do(BeginSinkTask("q2", "r", 0, "a", 1_000)), LimitReached)
    assert isinstance(writer.do(CommitSinkBatch("q2", "r", 0, ())), LimitReached)
    assert isinstance(writer.do(BeginSinkTask("q", "r1", 0, "b", 1_000)), LimitReached)


def test_only_queries_that_were_not_used_since_are_forgotten(writer: Writer) -> None:
    open_one = Attempt(writer, query="idle")
    open_one.write(0, 2)
    commit(writer, 0, query="busy")
    seen = tuple((sink.query, sink.updated_ms) for sink in writer.ledger.sinks)
    writer.time_ms += 1
    commit(writer, 1, query="busy")
    forgotten = writer.do(ForgetSinks(seen))
    assert (forgotten.sinks, len(forgotten.marked)) == (1, 1)
    assert [sink.query for sink in writer.ledger.sinks] == ["busy"]
    assert live(writer) == 0
    assert len(writer.ledger.transactions) == 0


def test_a_ledger_without_sinks_has_the_digest_it_always_had(writer: Writer) -> None:
    before = writer.ledger.digest()
    attempt = Attempt(writer)
    assert writer.ledger.digest() != before
    writer.do(ForgetSinks((("q", writer.time_ms),)))
    assert writer.ledger.sinks.digest == 0
    del attempt


def test_state_survives_a_checkpoint_and_a_replay(writer: Writer) -> None:
    attempt = Attempt(writer, name="0")
    attempt.write(0, 2)
    commit(writer, 7, query="done")
    restored = Ledger.decode(writer.ledger.encode())
    assert restored.encode() == writer.ledger.encode()
    assert restored.digest() == writer.ledger.digest()
    replayed = Ledger()
    apply_all([entry.encode() for entry in writer.log], replayed)
    assert replayed.encode() == writer.ledger.encode()
    other = Writer.__new__(Writer)
    other.__dict__ |= writer.__dict__ | {"ledger": restored, "log": []}
    assert not commit(other, 0, attempt).repeated
    assert commit(other, 7, query="done").repeated
    assert live(other) == 2


class SinkWalk(RuleBasedStateMachine):
    """One query, restarted at any moment, against a list of what was committed."""

    @initialize()
    def start(self) -> None:
        self.writer = Writer()
        self.writer.create("t", 2)
        self.runs = 0
        self.committed = -1
        self.counted = [0, 0]
        self.attempts: dict[str, tuple[Attempt, list[int]]] = {}
        self.tries = 0

    @property
    def run(self) -> str:
        return f"run{self.runs}"

    @rule()
    def restart(self) -> None:
        self.runs += 1
        self.attempts = {}

    @rule(task=st.integers(0, 2))
    def begin(self, task: int) -> None:
        self.tries += 1
        name = f"{task}.{self.tries}"
        attempt = Attempt(self.writer, self.committed + 1, name, self.run)
        assert not attempt.begun.committed
        self.attempts[name] = attempt, [0, 0]

    @rule(data=st.data(), stream=st.integers(0, 1), count=st.integers(1, 3))
    def write(self, data: st.DataObject, stream: int, count: int) -> None:
        if self.attempts:
            attempt, wrote = data.draw(st.sampled_from(list(self.attempts.values())))
            assert attempt.write(stream, count) == OK
            wrote[stream] += count

    @rule(data=st.data())
    def commit_some(self, data: st.DataObject) -> None:
        chosen = [one for one in self.attempts.values() if data.draw(st.booleans())]
        done = commit(self.writer, self.committed + 1, *(attempt for attempt, _ in chosen), run=self.run)
        assert isinstance(done, SinkBatchCommitted)
        assert not done.repeated
        self.committed += 1
        for _, wrote in chosen:
            self.counted = [sum(pair) for pair in zip(self.counted, wrote, strict=True)]
        self.attempts = {}

    @rule()
    def repeat(self) -> None:
        if self.committed >= 0 and not self.attempts:
            assert commit(self.writer, self.committed, run=self.run).repeated

    @rule()
    def abort(self) -> None:
        self.writer.do(AbortSinkBatch("q", self.run))
        self.attempts = {}

    @rule()
    def give_up(self) -> None:
        self.writer.do(AbortSinkBatch("q", self.run, final=True))
        if self.writer.ledger.sinks.get("q"):
            late = self.writer.do(BeginSinkTask("q", self.run, self.committed + 1, "late", 60_000))
            assert isinstance(late, ProducerFenced)
        self.restart()

    @rule()
    def checkpoint(self) -> None:
        self.writer.ledger = Ledger.decode(self.writer.ledger.encode())

    @invariant()
    def counts_are_those_of_committed_batches(self) -> None:
        if not hasattr(self, "writer"):
            return
        opened = [sum(wrote[stream] for _, wrote in self.attempts.values()) for stream in (0, 1)]
        for stream in (0, 1):
            # What a run left open counts as live until another run begins, and is aborted then.
            assert live(self.writer, stream) >= self.counted[stream] + opened[stream]
        if not list(self.writer.ledger.transactions.open()):
            assert [live(self.writer, stream) for stream in (0, 1)] == self.counted

    def teardown(self) -> None:
        if hasattr(self, "writer"):
            begun = BeginSinkTask("q", "last", self.committed + 1, "0", 1_000)
            self.writer.do(begun)
            assert [live(self.writer, stream) for stream in (0, 1)] == self.counted


TestSinkWalk = SinkWalk.TestCase
TestSinkWalk.settings = settings(
    max_examples=60,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
