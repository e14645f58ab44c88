from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainstem import limits
from mainstem.errors import InvalidInput, NotAQueue, Rejected, StreamNotFound, TopicFull
from mainstem.ledger.appends import AppendCode
from mainstem.ledger.config import TopicConfig
from mainstem.ledger.digest import mix, mix_many
from mainstem.ledger.leases import Leases, deal_round_robin, ranges_of
from mainstem.ledger.ledger import Ledger
from mainstem.ledger.queues import Ack, Bury, Claim, ExpireLeases, Extend, JobsClaimed, Nack, NoteCopies
from mainstem.ledger.streams import DeleteRecords, MarkLost, Trim
from mainstem.ledger.topics import AlterTopic, DeleteTopic

from .writer import Writer, run, slice_row

QUEUE, DEAD = 0, 1
NODES = ["ann", "bob"]


def queue(**config: Any) -> Writer:
    """Stream 0 is a queue, stream 1 the log that takes its dead letters."""
    writer = Writer()
    writer.create("q", type="queue", **config)
    writer.create("dead")
    return writer


def claim(
    writer: Writer, node: str = "ann", limit: int = 1, lease_ms: int = 1_000, token: int = 7
) -> JobsClaimed:
    claimed = writer.do(Claim(QUEUE, ((node, limit, lease_ms, token),), writer.broker))
    assert isinstance(claimed, JobsClaimed), claimed
    return claimed


def offsets_of(claimed: JobsClaimed) -> list[int]:
    return [offset for grant in claimed.grants for offset in grant.offsets]


def counts(writer: Writer) -> tuple[int, int, int]:
    queues = writer.ledger.queues
    return queues.ready(QUEUE), queues.in_flight(QUEUE), queues.dead_lettered(QUEUE)


def test_claims_take_new_jobs_in_order_and_count_deliveries_from_one() -> None:
    writer = queue()
    writer.append_sizes(QUEUE, 5, 5, 5)
    first = claim(writer, limit=2)
    assert first.grants[0].offsets == [0, 1]
    assert first.grants[0].deliveries == [1, 1]
    assert first.grants[0].deadline_ms == writer.time_ms + 1_000
    assert (first.ready, first.in_flight) == (1, 2)
    assert offsets_of(claim(writer, "bob", limit=5)) == [2]
    assert offsets_of(claim(writer, "bob", limit=5)) == []
    assert counts(writer) == (0, 3, 0)


def test_an_ack_deletes_the_job_for_good_and_moves_the_start() -> None:
    writer = queue()
    writer.append_sizes(QUEUE, 5, 6, 7)
    claim(writer, limit=3)
    assert writer.do(Ack(QUEUE, "ann", (1,))).offsets == [1]
    assert writer.state(QUEUE) == (0, 3, 2, 12)
    assert writer.ledger.streams.deleted(QUEUE) == [(1, 2)]
    assert writer.do(Ack(QUEUE, "ann", (0,))).offsets == [0]
    assert writer.state(QUEUE) == (2, 3, 1, 7)
    assert writer.do(Ack(QUEUE, "ann", (0, 1))).skipped == [0, 1]
    assert writer.ledger.streams.evict_floor[QUEUE] == 0  # nobody lost anything


def test_only_the_holder_may_settle_and_only_under_its_token() -> None:
    writer = queue()
    writer.append_sizes(QUEUE, 5, 5)
    claim(writer, limit=2, token=7)
    assert writer.do(Ack(QUEUE, "bob", (0,))).skipped == [0]
    assert writer.do(Ack(QUEUE, "ann", (0,), (8,))).skipped == [0]
    assert writer.do(Nack(QUEUE, "bob", (0,))).skipped == [0]
    assert writer.do(Extend(QUEUE, "bob", (0,), 5_000)).skipped == [0]
    settled = writer.do(Ack(QUEUE, "ann", (0, 1, 0, 9), (7, 8, 7, 7)))
    assert settled.offsets == [0]
    assert settled.skipped == [1, 0, 9]


def test_a_lease_holds_through_its_deadline_and_no_longer() -> None:
    writer = queue()
    writer.append_sizes(QUEUE, 5)
    claim(writer, lease_ms=1_000)
    writer.time_ms += 1_000
    assert offsets_of(claim(writer, "bob")) == []
    writer.time_ms += 1
    again = claim(writer, "bob", token=8)
    assert offsets_of(again) == [0]
    assert again.grants[0].deliveries == [2]
    assert writer.do(Ack(QUEUE, "ann", (0,))).skipped == [0]


def test_a_lapsed_holder_cannot_settle_even_if_nobody_took_the_job() -> None:
    writer = queue()
    writer.append_sizes(QUEUE, 5)
    claim(writer, lease_ms=1_000)
    writer.time_ms += 1_001
    assert writer.do(Extend(QUEUE, "ann", (0,), 1_000)).skipped == [0]
    assert counts(writer) == (1, 0, 0)


def test_jobs_had_before_come_first_by_offset() -> None:
    writer = queue()
    writer.append_sizes(QUEUE, *[5] * 6)
    claim(writer, limit=4)
    for offset in (3, 1):
        writer.do(Nack(QUEUE, "ann", (offset,)))
    assert offsets_of(claim(writer, "bob", limit=3, token=8)) == [1, 3, 4]


def test_a_delayed_job_is_in_neither_count_until_it_is_due() -> None:
    writer = queue()
    writer.append_sizes(QUEUE, 5)
    claim(writer)
    assert writer.do(Nack(QUEUE, "ann", (0,), delay_ms=500)).ready == 0
    assert counts(writer) == (0, 0, 0)
    writer.time_ms += 499
    assert offsets_of(claim(writer)) == []
    writer.time_ms += 1
    assert writer.do(ExpireLeases(QUEUE)).ready == 1
    assert offsets_of(claim(writer)) == [0]


def test_an_extended_lease_keeps_its_token_and_gets_another_deadline() -> None:
    writer = queue()
    writer.append_sizes(QUEUE, 5, 5)
    claim(writer, limit=2, lease_ms=1_000)
    assert writer.do(Extend(QUEUE, "ann", (1,), 5_000)).deadline_ms == writer.time_ms + 5_000
    writer.time_ms += 1_001
    assert offsets_of(claim(writer, "bob", limit=5, token=8)) == [0]
    assert writer.do(Ack(QUEUE, "ann", (1,), (7,))).offsets == [1]


def test_several_claimers_are_served_one_job_each_in_turn() -> None:
    writer = queue()
    writer.append_sizes(QUEUE, *[5] * 7)
    claimers = (("ann", 4, 1_000, 1), ("bob", 1, 1_000, 2), ("cy", 9, 1_000, 3))
    claimed = writer.do(Claim(QUEUE, claimers, 1))
    assert [grant.offsets for grant in claimed.grants] == [[0, 3, 5], [1], [2, 4, 6]]


def test_leases_end_with_a_restart_of_their_broker_and_counts_stay() -> None:
    writer = queue()
    writer.append_sizes(QUEUE, 5, 5, 5)
    claim(writer, limit=2)
    writer.do(Nack(QUEUE, "ann", (1,), delay_ms=60_000))
    other = Writer(writer.ledger, broker=2)
    assert counts(writer) == (1, 1, 0)
    writer.boot()
    assert counts(writer) == (2, 0, 0)
    again = claim(writer, limit=5)
    assert again.grants[0].offsets == [0, 2]
    assert again.grants[0].deliveries == [2, 1]
    other.boot()
    assert counts(writer) == (0, 2, 0)


def test_durable_leases_outlive_a_restart() -> None:
    writer = queue(leases_durable=True)
    writer.append_sizes(QUEUE, 5)
    claim(writer, lease_ms=1_000)
    writer.boot()
    assert counts(writer) == (0, 1, 0)
    assert writer.do(Ack(QUEUE, "ann", (0,), (7,))).offsets == [0]


def test_what_may_be_answered_before_it_is_synced() -> None:
    for durability, durable, expected in (
        ("disk", False, (True, True, True)),
        ("fsync", False, (True, False, True)),
        ("disk", True, (False, True, False)),
        ("fsync", True, (False, False, False)),
    ):
        writer = queue(durability=durability, leases_durable=durable)
        writer.append_sizes(QUEUE, 5, 5)
        claimed = claim(writer, limit=2)
        settled = writer.do(Ack(QUEUE, "ann", (0,))), writer.do(Nack(QUEUE, "ann", (1,)))
        assert (claimed.relaxed, settled[0].relaxed, settled[1].relaxed) == expected
        assert claimed.reach == 2


def exhausted(writer: Writer) -> JobsClaimed:
    """A queue of two jobs, the first of which was given back as often as it may be."""
    writer.append_sizes(QUEUE, 5, 6)
    for _ in range(2):
        claim(writer)
        writer.do(Nack(QUEUE, "ann", (0,)))
    return claim(writer, "bob", token=9)


def test_a_job_handed_out_too_often_is_set_aside_and_the_next_one_given() -> None:
    writer = queue(max_deliveries=2, dead_letter="dead")
    claimed = exhausted(writer)
    assert claimed.exhausted == ((0, 2),)
    assert offsets_of(claimed) == [1]
    assert counts(writer) == (0, 1, 0)
    assert claim(writer).exhausted == ((0, 2),)  # until it is moved, every claim says so


def test_without_a_dead_letter_topic_a_job_is_handed_out_for_ever() -> None:
    writer = queue(max_deliveries=1)
    writer.append_sizes(QUEUE, 5)
    for deliveries in range(1, 5):
        assert claim(writer).grants[0].deliveries == [deliveries]
        writer.do(Nack(QUEUE, "ann", (0,)))


def test_a_dead_letter_goes_once_its_copy_is_noted() -> None:
    writer = queue(max_deliveries=2, dead_letter="dead")
    exhausted(writer)
    assert writer.do(Bury(QUEUE, (0,))).jobs == 0
    _, noted = writer.apply(run(slice_row(DEAD)), NoteCopies(QUEUE, (0,), DEAD))
    assert noted.jobs == 1
    assert counts(writer) == (0, 1, 0)
    assert Ledger.decode(writer.ledger.encode()).encode() == writer.ledger.encode()
    assert writer.do(Bury(QUEUE, (0,))).jobs == 1
    assert counts(writer) == (0, 1, 1)
    assert writer.state(QUEUE) == (1, 2, 1, 6)
    assert writer.state(DEAD)[2] == 1
    assert writer.do(Bury(QUEUE, (0,))).jobs == 0  # a no-op the second time


def test_a_job_whose_copy_is_lost_is_to_be_copied_again() -> None:
    writer = queue(max_deliveries=2, dead_letter="dead")
    exhausted(writer)
    writer.apply(run(slice_row(DEAD)), NoteCopies(QUEUE, (0,), DEAD))
    writer.do(MarkLost(DEAD, 0, 1))
    assert writer.do(Bury(QUEUE, (0,))).jobs == 0
    leases = writer.ledger.queues.leases(QUEUE)
    assert leases is not None
    assert leases.copy_of(0) is None
    assert claim(writer).exhausted == ((0, 2),)
    writer.apply(run(slice_row(DEAD)), NoteCopies(QUEUE, (0,), DEAD))
    writer.do(DeleteRecords(DEAD, ((1, 2),)))  # read and deleted: it has been there
    assert writer.do(Bury(QUEUE, (0,))).jobs == 1


def test_a_job_that_has_a_copy_or_is_gone_is_not_copied_again() -> None:
    writer = queue(max_deliveries=2, dead_letter="dead")
    exhausted(writer)
    once = NoteCopies(QUEUE, (0,), DEAD, once=True)
    assert writer.apply(run(slice_row(DEAD)), once)[1].jobs == 1
    for _ in range(2):
        refused, noted = writer.apply(run(slice_row(DEAD)), once)
        assert refused.code.tolist() == [AppendCode.OVERTAKEN]
        assert isinstance(noted, Rejected)
        writer.do(Bury(QUEUE, (0,)))
    assert writer.state(DEAD)[1] == 1
    assert counts(writer) == (0, 1, 1)


def test_a_job_whose_copy_was_refused_stays() -> None:
    writer = Writer()
    writer.create("q", type="queue", max_deliveries=2, dead_letter="dead")
    writer.create("dead", cap_records=1, discard="reject")
    exhausted(writer)
    note = NoteCopies(QUEUE, (0,), DEAD)
    assert isinstance(writer.apply(run(slice_row(DEAD, 2)), note)[1], TopicFull)
    assert isinstance(writer.apply(run(slice_row(77)), note)[1], Rejected)
    assert isinstance(writer.do(note), InvalidInput)
    assert isinstance(writer.apply(ExpireLeases(QUEUE), note)[1], InvalidInput)
    assert writer.do(Bury(QUEUE, (0,))).jobs == 0
    assert counts(writer) == (0, 1, 0)
    assert claim(writer).exhausted == ((0, 2),)
    assert writer.do(Bury(QUEUE, (0,), noted=False)).jobs == 1


def test_a_lifted_bound_brings_exhausted_jobs_back() -> None:
    writer = queue(max_deliveries=2, dead_letter="dead")
    exhausted(writer)
    topic = writer.ledger.topics.get("q")
    assert topic is not None
    writer.do(AlterTopic(topic.topic_id, TopicConfig(type="queue", max_deliveries=3, dead_letter="dead")))
    again = claim(writer)
    assert offsets_of(again) == [0]
    assert again.exhausted == ()
    assert again.grants[0].deliveries == [3]


def test_a_job_that_is_deleted_lost_or_evicted_leaves_every_count() -> None:
    writer = queue()
    writer.append_sizes(QUEUE, *[5] * 8)
    claim(writer, limit=6)
    writer.do(Nack(QUEUE, "ann", (0,)))
    writer.do(Nack(QUEUE, "ann", (1,), delay_ms=500))
    writer.do(DeleteRecords(QUEUE, ((3, 4),)))
    assert counts(writer) == (3, 3, 0)
    writer.do(MarkLost(QUEUE, 4, 5))
    assert counts(writer) == (3, 2, 0)
    writer.do(Trim(QUEUE, 3, "cap"))
    assert counts(writer) == (2, 1, 0)
    writer.time_ms += 10_000
    assert offsets_of(claim(writer, limit=9)) == [5, 6, 7]


def test_an_eviction_takes_leased_jobs_along() -> None:
    writer = queue(cap_records=3)
    writer.append_sizes(QUEUE, *[5] * 3)
    claim(writer, limit=2)
    writer.append_sizes(QUEUE, 5, 5)
    assert counts(writer) == (3, 0, 0)
    assert writer.do(Ack(QUEUE, "ann", (0, 1))).skipped == [0, 1]


def test_a_recreated_queue_remembers_nothing() -> None:
    writer = queue()
    before = Writer()
    before.create("dead")
    writer.append_sizes(QUEUE, 5)
    claim(writer)
    topic = writer.ledger.topics.get("q")
    assert topic is not None
    writer.do(DeleteTopic(topic.topic_id))
    assert writer.ledger.queues.leases(QUEUE) is None
    assert isinstance(writer.do(Ack(QUEUE, "ann", (0,))), StreamNotFound)
    assert writer.ledger.queues.digest == 0


def test_commands_that_make_no_sense_are_refused() -> None:
    writer = queue()
    writer.create("gone", type="queue", durability="ephemeral")
    for bad in (
        Claim(QUEUE, (("ann", 0, 1_000, 1),)),
        Claim(QUEUE, (("ann", limits.CLAIM_JOBS_MAX + 1, 1_000, 1),)),
        Claim(QUEUE, (("ann", 1, limits.LEASE_MS_MIN - 1, 1),)),
        Claim(QUEUE, (("ann", 1, limits.LEASE_MS_MAX + 1, 1),)),
        Claim(QUEUE, (("ann", 1, 1_000, -1),)),
        Claim(2, (("ann", 1, 1_000, 1),)),
        Nack(QUEUE, "ann", (0,), delay_ms=-1),
        Extend(QUEUE, "ann", (0,), 0),
    ):
        assert isinstance(writer.do(bad), InvalidInput), bad
    for command in (
        Claim(DEAD, (("ann", 1, 1_000, 1),)),
        Ack(DEAD, "ann", (0,)),
        Nack(DEAD, "ann", (0,)),
        Extend(DEAD, "ann", (0,), 1_000),
        ExpireLeases(DEAD),
        Bury(DEAD, (0,)),
    ):
        assert isinstance(writer.do(command), NotAQueue), command


def test_every_place_of_a_job_shows_in_the_digest() -> None:
    changes: list[Any] = [
        [Ack(QUEUE, "ann", (0,))],
        [Nack(QUEUE, "ann", (0,))],
        [Nack(QUEUE, "ann", (0,), delay_ms=9)],
        [Nack(QUEUE, "ann", (1,))],
        [Claim(QUEUE, (("ann", 1, 1_000, 8),))],
        [Claim(QUEUE, (("ann", 1, 1_000, 9),))],
        [Nack(QUEUE, "ann", (0,)), Claim(QUEUE, (("ann", 1, 1_000, 7),))],
    ]
    seen = set()
    for change in [[], *changes]:
        writer = queue()
        writer.append_sizes(QUEUE, *[5] * 4)
        claim(writer, limit=2)
        for command in change:
            writer.do(command)
        seen.add(writer.ledger.digest())
    assert len(seen) == len(changes) + 1


def test_a_digest_does_not_depend_on_how_many_were_hashed_at_once() -> None:
    one_by_one, at_once = queue(), queue()
    for writer in (one_by_one, at_once):
        writer.append_sizes(QUEUE, *[5] * 40)
    claim(at_once, limit=40)
    for _ in range(40):
        claim(one_by_one)
    assert one_by_one.ledger.digest() == at_once.ledger.digest()


def test_spent_grants_and_stale_entries_do_not_pile_up() -> None:
    writer = queue()
    writer.append_sizes(QUEUE, 5, 5)
    claim(writer, token=1)
    for token in range(2, 2_000):
        claim(writer, lease_ms=limits.LEASE_MS_MAX, token=token)
        if token % 2:
            writer.do(Extend(QUEUE, "ann", (1,), 50_000))
        writer.do(Nack(QUEUE, "ann", (1,)))
    leases = writer.ledger.queues.leases(QUEUE)
    assert leases is not None
    assert leases.heap_entries < 300


def test_a_million_jobs_in_a_queue_cost_nothing_until_they_are_claimed() -> None:
    writer = queue()
    writer.do(run(slice_row(QUEUE, 1_000_000)))
    claim(writer, limit=1_000)
    writer.do(Ack(QUEUE, "ann", tuple(range(1_000))))
    leases = writer.ledger.queues.leases(QUEUE)
    assert leases is not None
    assert counts(writer) == (999_000, 0, 0)
    assert len(leases.encode().grants) == 0
    assert len(writer.ledger.streams.holes(QUEUE)) == 0


@given(st.lists(st.tuples(*[st.integers(0, 2**64 - 1)] * 3), min_size=1, max_size=30), st.integers(0, 2**32))
@settings(max_examples=50, deadline=None)
def test_rows_hash_the_same_alone_and_together(rows: list[tuple[int, int, int]], first: int) -> None:
    columns = [np.array(column, np.uint64) for column in zip(*rows, strict=True)]
    assert mix_many(first, *columns) == sum(mix(first, *row) for row in rows) % 2**64


@given(st.sets(st.integers(0, 60)))
@settings(max_examples=100, deadline=None)
def test_ranges_cover_exactly_their_offsets(offsets: set[int]) -> None:
    ranges = ranges_of(offsets)
    assert [offset for start, end in ranges for offset in range(start, end)] == sorted(offsets)
    assert all(a[1] < b[0] for a, b in itertools.pairwise(ranges))


@pytest.mark.parametrize("count", [0, 1, 5, 6, 50])
def test_dealing_is_fair_and_leaves_nothing_that_somebody_wants(count: int) -> None:
    wanted = [3, 0, 10, 1]
    hands = deal_round_robin(count, wanted)
    assert sorted(position for hand in hands for position in hand) == list(range(min(count, sum(wanted))))
    assert all(len(hand) <= limit for hand, limit in zip(hands, wanted, strict=True))
    hungry = [len(hand) for hand, limit in zip(hands, wanted, strict=True) if len(hand) < limit]
    assert not hungry or max(map(len, hands)) - min(hungry) <= 1


def test_a_claim_gets_no_more_jobs_than_it_may_have_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mainstem.ledger.queues.CLAIM_BYTES_MAX", 100)
    writer = queue()
    writer.append_sizes(QUEUE, *[30] * 8)
    assert offsets_of(claim(writer, limit=8)) == [0, 1, 2]
    writer.append_sizes(QUEUE, *[1_000] * 8)
    assert offsets_of(claim(writer, limit=8)) == [3]  # one at least, whatever its size


def test_leases_come_back_from_their_encoding_as_they_were() -> None:
    writer = queue(max_deliveries=2, dead_letter="dead")
    exhausted(writer)
    writer.append_sizes(QUEUE, *[5] * 5)
    claim(writer, limit=3, token=2**64 - 1)
    writer.do(Nack(QUEUE, "ann", (2,), delay_ms=77))
    writer.do(Nack(QUEUE, "ann", (3,)))
    leases = writer.ledger.queues.leases(QUEUE)
    assert leases is not None
    again = Leases.decode(leases.encode())
    assert again.encode() == leases.encode()
    assert again.digest == leases.digest
