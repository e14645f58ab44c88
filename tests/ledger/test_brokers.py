from __future__ import annotations

import numpy as np

from mainstem.errors import BrokerFenced, InvalidInput
from mainstem.ledger.appends import AppendCode, AppendOutcome
from mainstem.ledger.brokers import COMMIT_IDS_KEPT_PER_BROKER, Boot, Booted, Halt, Halted
from mainstem.ledger.config import TopicConfig
from mainstem.ledger.cursors import Take
from mainstem.ledger.entry import Entry
from mainstem.ledger.ledger import AlreadyApplied, Ledger
from mainstem.ledger.producers import AllocateProducer, ProducerAllocated
from mainstem.ledger.topics import CreateTopic

from .writer import Writer, run, slice_row


def fenced(outcome: object) -> bool:
    if isinstance(outcome, AppendOutcome):
        return set(outcome.code.tolist()) == {AppendCode.BROKER_FENCED} and set(outcome.base.tolist()) == {-1}
    return isinstance(outcome, BrokerFenced)


def test_every_boot_gives_the_next_epoch_from_one() -> None:
    ledger = Ledger()
    boots = [ledger.apply(Entry(4, 0, 1, 1, [Boot(4, "b", False, "n")]))[0] for _ in range(3)]
    assert boots == [Booted(1, ()), Booted(2, ()), Booted(3, ())]
    member = ledger.brokers.get(4)
    assert member is not None
    assert (member.boot_id, member.node, ledger.brokers.epoch(4), ledger.brokers.epoch(5)) == ("b", "n", 3, 0)


def test_an_older_epoch_changes_nothing() -> None:
    old = Writer()
    old.create()
    new = Writer(old.ledger)
    before = (old.ledger.digest(), old.ledger.time_ms)
    old.time_ms += 99
    outcomes = old.apply(run(slice_row(0), slice_row(0)), AllocateProducer(), Take("g", 0, 1))
    assert all(map(fenced, outcomes))
    assert (old.ledger.digest(), old.ledger.time_ms) == before
    assert new.append(0) == (0, AppendCode.OK)


def test_an_epoch_that_never_began_is_refused() -> None:
    ledger = Ledger()
    for epoch in (0, 1):
        assert fenced(ledger.apply(Entry(1, epoch, 1, 1, [AllocateProducer()]))[0])
    assert ledger.position == 2


def test_a_boot_beside_other_commands_needs_an_epoch() -> None:
    ledger = Ledger()
    assert all(map(fenced, ledger.apply(Entry(1, 0, 1, 1, [Boot(1, "b", False), AllocateProducer()]))))
    assert ledger.brokers.epoch(1) == 0


def test_what_follows_a_boot_or_halt_in_its_own_entry_is_fenced() -> None:
    for last in (Boot(1, "b", False), Halt(1)):
        writer = Writer()
        outcomes = writer.apply(AllocateProducer(), last, AllocateProducer(), run(slice_row(0)))
        assert [fenced(outcome) for outcome in outcomes] == [False, False, True, True]


def test_brokers_do_not_fence_each_other() -> None:
    one = Writer(broker=1)
    two = Writer(one.ledger, broker=2)
    assert one.do(AllocateProducer()) == ProducerAllocated(0)
    assert two.do(AllocateProducer()) == ProducerAllocated(1)


def test_a_halted_broker_is_clean_and_writes_nothing_until_it_boots() -> None:
    writer = Writer()
    brokers = writer.ledger.brokers
    assert not brokers.clean(1)
    assert writer.do(Halt(1)) == Halted(1)
    assert brokers.clean(1)
    assert fenced(writer.do(AllocateProducer()))
    assert writer.boot().broker_epoch == 2
    assert not brokers.clean(1)
    assert brokers.clean(99)


def test_halting_an_unknown_broker_is_refused() -> None:
    assert isinstance(Writer().do(Halt(9)), BrokerFenced)


def test_a_broker_number_out_of_range_is_refused() -> None:
    writer = Writer()
    for broker in (-1, 1 << 32):
        assert isinstance(writer.do(Boot(broker, "b", False)), InvalidInput)


def test_a_repeated_commit_is_not_applied_again() -> None:
    writer = Writer()
    writer.create()
    writer.append(0)
    entry = writer.log[-1]
    entry.parts.append(AllocateProducer())
    before = writer.ledger.digest()
    assert writer.ledger.apply(entry) == [AlreadyApplied(), AlreadyApplied()]
    assert writer.ledger.digest() == before
    assert writer.ledger.position == len(writer.log) + 1


def test_a_commit_id_from_before_the_window_is_refused_rather_than_guessed() -> None:
    writer = Writer()
    kept = COMMIT_IDS_KEPT_PER_BROKER
    for _ in range(kept + 5):
        writer.do(AllocateProducer())
    oldest = writer.commit_id - kept + 1
    for commit_id, repeated in ((oldest, True), (oldest - 1, False), (writer.commit_id, True)):
        outcome = writer.ledger.apply(Entry(1, 1, commit_id, 1, [AllocateProducer()]))[0]
        assert isinstance(outcome, AlreadyApplied if repeated else BrokerFenced)


def test_a_commit_id_that_was_skipped_is_refused() -> None:
    ledger = Writer().ledger
    ledger.apply(Entry(1, 1, 10, 1, [AllocateProducer()]))
    assert fenced(ledger.apply(Entry(1, 1, 9, 1, [AllocateProducer()]))[0])


def test_commit_ids_begin_anew_with_an_epoch() -> None:
    writer = Writer()
    writer.do(AllocateProducer())
    writer.boot()
    assert writer.do(AllocateProducer()) == ProducerAllocated(1)


def test_ledger_time_never_runs_back() -> None:
    writer = Writer()
    for time_ms, expected in ((5_000, 5_000), (4_000, 5_000), (6_000, 6_000)):
        writer.time_ms = time_ms
        writer.do(AllocateProducer())
        assert writer.ledger.time_ms == expected


def test_plain_entries_of_an_old_epoch_are_refused_in_bulk() -> None:
    writer = Writer()
    writer.do(CreateTopic("t", b"t" * 16, 1, TopicConfig()))
    writer.boot()
    rows = np.concatenate([run(slice_row(0)).slices] * 9)
    outcome = writer.ledger.apply_plain(
        rows, broker=1, broker_epoch=1, last_commit_id=99, time_ms=1, entries=3
    )
    assert fenced(outcome)
    assert writer.ledger.streams.end[0] == 0
