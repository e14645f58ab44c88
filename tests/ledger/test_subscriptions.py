"""Subscriptions in the ledger: what is acknowledged, where the mark is, and what a checkpoint keeps."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from mainstem.errors import (
    InvalidInput,
    InvalidTransaction,
    ProducerUnknown,
    StreamNotFound,
    SubscriptionMoved,
    SubscriptionNotFound,
    TransactionConflict,
)
from mainstem.ledger.ledger import Ledger
from mainstem.ledger.subscriptions import (
    AckedRecords,
    AckRecords,
    AddSubscription,
    MoveSubscription,
    PutSubscriptionProperties,
    RemoveSubscription,
    ServeSubscription,
)
from mainstem.ledger.topic_schemas import RegisterTopicSchema, TopicSchema
from mainstem.ledger.transactions import (
    AckInTransaction,
    BeginTransaction,
    EndTransaction,
    ExpireTransactions,
)

from .writer import Writer

_offsets = st.integers(0, 40)


def _first_unacked(acked: set[int], mark: int) -> int:
    while mark in acked:
        mark += 1
    return mark


@given(st.lists(st.tuples(_offsets, st.integers(1, 6), st.booleans()), max_size=30))
@settings(max_examples=60)
def test_acknowledged_records_agree_with_a_set(steps: list[tuple[int, int, bool]]) -> None:
    records, model = AckedRecords(3, seed=7), set(range(3))
    for first, size, cumulative in steps:
        if cumulative:
            model |= set(range(first))
            records.raise_mark(first, lambda offset: offset)
        else:
            model |= set(range(first, first + size))
            records.add(first, first + size)
            records.raise_mark(0, lambda offset: offset)
        assert records.mark == _first_unacked(model, 0)
        assert {offset for offset in range(60) if offset in records} == model
        left = {offset for first, end in records.unacked(0, 60) for offset in range(first, end)}
        assert left == set(range(60)) - model
        again = AckedRecords(records.mark, seed=7)
        for start, end in records:
            again.add(start, end)
        assert again.digest == records.digest


def _subscribed(mark: int = 0) -> Writer:
    writer = Writer()
    writer.create()
    for _ in range(6):
        writer.append(0)
    writer.do(AddSubscription(0, "s", mark))
    return writer


def test_the_mark_moves_over_what_is_acknowledged_and_what_is_deleted() -> None:
    from mainstem.ledger.streams import DeleteRecords

    writer = _subscribed()
    assert writer.do(AckRecords(0, "s", 0, ((2, 4),))) == 0
    assert writer.do(AckRecords(0, "s", 0, ((0, 1),))) == 1
    writer.do(DeleteRecords(0, ((1, 2),), 0))
    assert writer.do(AckRecords(0, "s", 0, ((5, 6),))) == 4
    assert writer.do(AckRecords(0, "s", 5)) == 6


def test_only_existing_records_of_existing_subscriptions_are_acknowledged() -> None:
    writer = _subscribed()
    assert isinstance(writer.do(AckRecords(0, "s", 7)), InvalidInput)
    assert isinstance(writer.do(AckRecords(0, "s", 0, ((5, 7),))), InvalidInput)
    assert isinstance(writer.do(AckRecords(0, "t", 1)), SubscriptionNotFound)
    assert isinstance(writer.do(AddSubscription(9, "s", 0)), StreamNotFound)


def test_a_moved_subscription_forgets_what_was_acknowledged() -> None:
    writer = _subscribed()
    writer.do(AckRecords(0, "s", 2, ((3, 4),)))
    assert writer.do(MoveSubscription(0, "s", 1)) == 1
    stored = writer.ledger.subscriptions.get(0, "s")
    assert stored is not None
    assert (stored.acked.mark, list(stored.acked)) == (1, [])


def test_a_checkpoint_keeps_subscriptions_and_schemas() -> None:
    writer = _subscribed(1)
    writer.do(AckRecords(0, "s", 2, ((3, 4),)))
    assert writer.do(RegisterTopicSchema(0, TopicSchema("n", 4, b"{}"))) == 0
    assert writer.do(RegisterTopicSchema(0, TopicSchema("n", 4, b"{ }"))) == 1
    assert writer.do(RegisterTopicSchema(0, TopicSchema("m", 4, b"{}"))) == 0
    loaded = Ledger.decode(writer.ledger.encode())
    assert loaded.digest() == writer.ledger.digest()
    stored = loaded.subscriptions.get(0, "s")
    assert stored is not None
    assert (stored.acked.mark, list(stored.acked)) == (2, [(3, 4)])
    assert len(loaded.topic_schemas.versions(0)) == 2


def test_a_removed_subscription_leaves_no_trace() -> None:
    writer = Writer()
    writer.create()
    before = writer.ledger.digest()
    writer.do(AddSubscription(0, "s", 0))
    assert writer.ledger.digest() != before
    writer.do(RemoveSubscription(0, "s"))
    assert writer.ledger.digest() == before


def _in_transaction(writer: Writer, id: str) -> int:
    begun = writer.do(BeginTransaction(id, 60_000, "User:a"))
    producer: int = begun.producer
    return producer


def test_a_transaction_holds_what_it_acknowledges_until_it_ends() -> None:
    writer = _subscribed()
    kept, dropped = _in_transaction(writer, "kept"), _in_transaction(writer, "dropped")
    joined = writer.do(AckInTransaction("kept", kept, 0, 0, "s", 0, ((0, 1), (2, 4))))
    assert not isinstance(joined, Exception)
    for mark, ranges in ((0, ((3, 5),)), (1, ())):
        refused = writer.do(AckInTransaction("dropped", dropped, 0, 0, "s", mark, ranges))
        assert isinstance(refused, TransactionConflict)
    writer.do(AckInTransaction("dropped", dropped, 0, 0, "s", 0, ((4, 6),)))
    stored = writer.ledger.subscriptions.get(0, "s")
    assert stored is not None
    assert (stored.acked.mark, stored.left(0, 6)) == (0, [(1, 2)])
    loaded = Ledger.decode(writer.ledger.encode())
    assert loaded.digest() == writer.ledger.digest()
    ended = writer.do(EndTransaction("kept", kept, 0, True))
    assert ended.marked == ((0, -1, -1),)
    assert writer.do(ExpireTransactions((("dropped", dropped, 0),))).ids == ("dropped",)
    assert (stored.acked.mark, stored.left(0, 6)) == (1, [(1, 2), (4, 6)])
    assert writer.do(EndTransaction("kept", kept, 0, True)).committed
    assert isinstance(writer.do(EndTransaction("dropped", dropped, 0, True)), InvalidTransaction)
    assert isinstance(writer.do(AckInTransaction("kept", kept, 0, 0, "s", 0, ((5, 6),))), ProducerUnknown)
    assert Ledger.decode(writer.ledger.encode()).digest() == writer.ledger.digest()


def test_a_moved_subscription_forgets_what_transactions_hold() -> None:
    writer = _subscribed()
    producer = _in_transaction(writer, "t")
    writer.do(AckInTransaction("t", producer, 0, 0, "s", 0, ((0, 1),)))
    writer.do(MoveSubscription(0, "s", 0))
    writer.do(EndTransaction("t", producer, 0, True))
    stored = writer.ledger.subscriptions.get(0, "s")
    assert stored is not None
    assert stored.left(0, 6) == [(0, 6)]


def test_only_the_broker_that_took_a_subscription_over_last_changes_it_for_its_consumers() -> None:
    writer = _subscribed()
    producer = _in_transaction(writer, "t")
    stored = writer.ledger.subscriptions.get(0, "s")
    assert stored is not None
    assert writer.do(ServeSubscription(0, "s", 0)) == 1
    assert isinstance(
        writer.do(ServeSubscription(0, "s", 0)), SubscriptionMoved
    )  # it did not know of the other
    assert writer.do(AckRecords(0, "s", 1, (), 1)) == 1
    assert writer.do(ServeSubscription(0, "s", 1)) == 2
    late = (
        AckRecords(0, "s", 2, (), 1),
        MoveSubscription(0, "s", 0, 1),
        AckInTransaction("t", producer, 0, 0, "s", 0, ((3, 4),), 1),
    )
    for command in late:
        assert isinstance(writer.do(command), SubscriptionMoved)
    assert (stored.acked.mark, stored.left(0, 6)) == (1, [(1, 6)])
    loaded = Ledger.decode(writer.ledger.encode())
    assert loaded.digest() == writer.ledger.digest()
    found = loaded.subscriptions.get(0, "s")
    assert found is not None
    assert found.term == 2
    assert writer.do(AckRecords(0, "s", 2)) == 2  # an administrator's
    assert writer.do(MoveSubscription(0, "s", 1, 2)) == 1
    writer.do(MoveSubscription(0, "s", 0))  # not by the broker that serves it, which has to begin again
    assert isinstance(writer.do(AckRecords(0, "s", 2, (), 2)), SubscriptionMoved)
    writer.do(RemoveSubscription(0, "s"))
    assert stored.term == -1


def test_new_properties_keep_what_is_acknowledged() -> None:
    writer, twin = Writer(), Writer()
    for one in (writer, twin):
        one.create()
        one.append(0, 5)
    writer.do(AddSubscription(0, "s", 0))
    writer.do(AckRecords(0, "s", 1, ((3, 4),)))
    writer.do(PutSubscriptionProperties(0, "s", (("k", "v"),)))
    twin.do(AddSubscription(0, "s", 0, (("k", "v"),)))
    twin.do(AckRecords(0, "s", 1, ((3, 4),)))
    assert writer.ledger.subscriptions.digest == twin.ledger.subscriptions.digest
    assert isinstance(writer.do(PutSubscriptionProperties(0, "other", ())), SubscriptionNotFound)
    assert isinstance(writer.do(PutSubscriptionProperties(0, "s", (("k", "v" * 20_000),))), InvalidInput)
