"""Routers in the ledger: what is forwarded, where its bytes are, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from mainstem import limits
from mainstem.errors import (
    InvalidInput,
    MainstemError,
    Rejected,
    RouterCycle,
    RouterNotFound,
    StreamNotFound,
    TopicFull,
    TopicIncompatible,
    TopicNotFound,
)
from mainstem.ledger.appends import AppendCode
from mainstem.ledger.brokers import Boot
from mainstem.ledger.config import TopicConfig
from mainstem.ledger.intervals import SOURCE_TRIM
from mainstem.ledger.ledger import Ledger
from mainstem.ledger.routers import DeleteRouter, Forward, NoteForwarded, PassOver, PutRouter
from mainstem.ledger.streams import DeleteRecords, MarkLost, Trim
from mainstem.ledger.topics import AddPartitions, AlterTopic, DeleteTopic

from .writer import Writer, run, slice_row

OK, OVERTAKEN = AppendCode.OK, AppendCode.OVERTAKEN


class Routes(Writer):
    """Names topics by letter."""

    def topics(self, names: str, **config: Any) -> list[int]:
        return [self.create(name, **config).streams[0] for name in names]

    def put(self, source: str, dest: str, name: str = "", **settings: Any) -> Any:
        ids = [topic.encode().ljust(16, b"\0") for topic in (source, dest)]
        return self.do(PutRouter(name or f"{source}>{dest}", *ids, **settings))

    def forward(self, stream: int, end: int | None = None, time_ms: int = 5) -> Any:
        end = int(self.ledger.streams.end[stream]) if end is None else end
        return self.do(Forward(stream, end, time_ms))

    def runs(self, stream: int) -> list[tuple[int, ...]]:
        return [tuple(run)[:4] for run in self.ledger.aliases.runs(stream)]

    def copies(self, name: str) -> int:
        router = self.ledger.routers.get(name)
        assert router is not None
        return router.copies

    def cursor(self, name: str) -> int:
        router = self.ledger.routers.get(name)
        assert router is not None
        return router.legs[0].cursor


@pytest.fixture
def routes() -> Routes:
    return Routes()


def same_again(routes: Routes) -> None:
    """A checkpoint and a replay give the same state."""
    ledger = routes.ledger
    encoded = ledger.encode()
    assert Ledger.decode(encoded).encode() == encoded
    replayed = Ledger()
    for entry in routes.log:
        replayed.apply(entry)
    assert replayed.digest() == ledger.digest()
    assert replayed.encode() == encoded


def test_a_router_begins_at_the_head_of_its_source(routes: Routes) -> None:
    a, b = routes.topics("ab")
    routes.append(a, 3)
    routes.put("a", "b")
    routes.append(a, 2, size=70)
    assert routes.forward(a).ends == {b: 2}
    assert routes.runs(b) == [(0, 2, a, 3)]
    assert routes.state(b) == (0, 2, 2, 70)
    assert routes.copies("a>b") == 2
    same_again(routes)


def test_forwarding_again_forwards_nothing_twice(routes: Routes) -> None:
    a, b = routes.topics("ab")
    routes.put("a", "b")
    routes.append(a, 3)
    routes.forward(a)
    assert routes.forward(a).ends == {}
    assert routes.state(b)[1] == 3


def test_one_command_reaches_every_router_of_the_source(routes: Routes) -> None:
    (a,) = routes.topics("a")
    dests = [routes.create(f"d{n}").streams[0] for n in range(50)]
    for n in range(50):
        routes.put("a", f"d{n}")
    routes.append(a, 2)
    routes.forward(a)
    routes.append(a, 1)
    forwarded = routes.forward(a, time_ms=9)
    assert forwarded.ends == dict.fromkeys(dests, 3)
    assert forwarded.copies == 50
    assert len(routes.ledger.aliases.feeds) == 1
    assert [run.time_ms for run in routes.ledger.aliases.runs(dests[7])] == [5, 9]
    same_again(routes)


def test_bytes_of_copies_add_up_to_those_of_the_source(routes: Routes) -> None:
    a, b = routes.topics("ab")
    routes.append(a, 1, size=7)
    routes.put("a", "b")
    before = 7
    for size in (11, 5_000, 1):
        routes.append(a, 1, size=size)
        routes.forward(a)
        routes.do(Trim(a, int(routes.ledger.streams.end[a]) - 1, "cap", before))
        before = size
    assert routes.state(b)[3] == 5_012
    routes.append(a, 4, size=100)
    routes.forward(a, int(routes.ledger.streams.end[a]) - 3)
    routes.forward(a)
    assert routes.state(b)[3] == 5_112


def test_deleted_records_are_not_forwarded(routes: Routes) -> None:
    a, b = routes.topics("ab")
    routes.put("a", "b")
    routes.append(a, 6)
    routes.do(DeleteRecords(a, ((1, 3), (5, 6))))
    routes.forward(a)
    assert routes.runs(b) == [(0, 1, a, 0), (1, 2, a, 3)]
    assert not list(routes.ledger.streams.holes(b))


def test_what_is_removed_at_the_source_later_stays_in_the_copy(routes: Routes) -> None:
    a, b = routes.topics("ab")
    routes.put("a", "b")
    routes.append(a, 6)
    routes.forward(a)
    routes.do(DeleteRecords(a, ((1, 3),)))
    routes.do(Trim(a, 6, "cap"))
    assert routes.runs(b) == [(0, 6, a, 0)]
    assert routes.state(b)[2] == 6
    routes.do(DeleteTopic(b"a".ljust(16, b"\0")))
    assert routes.runs(b) == [(0, 6, a, 0)]
    assert routes.ledger.aliases.reaching(a, 2, 3)
    same_again(routes)


def test_records_evicted_before_they_were_forwarded_leave_a_gap_each(routes: Routes) -> None:
    a, b = routes.topics("ab")
    routes.put("a", "b")
    routes.append(a, 10)
    routes.do(Trim(a, 4, "cap"))
    routes.forward(a)
    assert routes.ledger.streams.lost(b) == [(0, 4, SOURCE_TRIM)]
    assert routes.runs(b) == [(4, 6, a, 4)]
    assert routes.copies("a>b") == 6
    assert routes.state(b)[1:3] == (10, 6)
    same_again(routes)


def test_a_trim_on_request_is_passed_in_silence(routes: Routes) -> None:
    a, b = routes.topics("ab")
    routes.put("a", "b")
    routes.append(a, 10)
    routes.do(Trim(a, 4, "delete"))
    routes.forward(a)
    assert routes.runs(b) == [(0, 6, a, 4)]
    assert not routes.ledger.streams.lost(b)


def test_damaged_records_leave_a_gap_among_the_copies(routes: Routes) -> None:
    a, b = routes.topics("ab")
    routes.put("a", "b")
    routes.append(a, 9)
    routes.do(MarkLost(a, 3, 5))
    routes.forward(a)
    assert routes.runs(b) == [(0, 3, a, 0), (5, 4, a, 5)]
    assert routes.ledger.streams.lost(b) == [(3, 5, SOURCE_TRIM)]


def test_a_jump_of_the_source_counts_as_one_lost_record(routes: Routes) -> None:
    (a,) = routes.topics("a", durability="disk")
    (b,) = routes.topics("b")
    routes.put("a", "b")
    routes.append(a, 2)
    routes.ledger.streams.raise_ceiling(a, 1_000)
    routes.boot(jump=True)
    routes.append(a, 1)
    routes.forward(a)
    assert routes.ledger.streams.lost(b) == [(2, 3, SOURCE_TRIM)]
    assert routes.runs(b) == [(0, 2, a, 0), (3, 1, a, 1_000)]


def test_a_copy_of_a_copy_points_at_the_original(routes: Routes) -> None:
    a, b, c = routes.topics("abc")
    routes.put("a", "b")
    routes.put("b", "c")
    routes.append(b, 2)
    routes.append(a, 3)
    routes.forward(a)
    routes.append(b, 1)
    routes.forward(b)
    assert routes.runs(b) == [(2, 3, a, 0)]
    assert routes.runs(c) == [(0, 2, b, 0), (2, 3, a, 0), (5, 1, b, 5)]
    same_again(routes)


def test_writes_between_forwards_split_the_segments(routes: Routes) -> None:
    a, b = routes.topics("ab")
    routes.put("a", "b")
    for _ in range(4):
        routes.append(a, 2)
        routes.forward(a)
        routes.append(b, 1)
    assert routes.runs(b) == [(0, 2, a, 0), (3, 2, a, 2), (6, 2, a, 4), (9, 2, a, 6)]
    assert routes.ledger.aliases.next_after(b, 2) == (3, 2, a, 2, 5)
    same_again(routes)


def test_an_open_transaction_holds_forwarding_up_to_where_it_began(routes: Routes) -> None:
    from mainstem.ledger.entry import SLICE_TRANSACTIONAL
    from mainstem.ledger.transactions import AddStreamsToTransaction, EndTransaction, InitProducer

    a, b = routes.topics("ab")
    routes.put("a", "b")
    made = routes.do(InitProducer("t", 60_000))
    routes.do(AddStreamsToTransaction("t", made.producer, made.epoch, (a,)))
    routes.append(a, 1)
    routes.append(a, 2, producer=made.producer, epoch=made.epoch, sequence=0, flags=SLICE_TRANSACTIONAL)
    routes.append(a, 1)
    routes.forward(a)
    assert routes.state(b)[1] == 1
    routes.do(EndTransaction("t", made.producer, made.epoch, False))
    routes.forward(a)
    assert routes.runs(b) == [(0, 1, a, 0), (1, 1, a, 3)]


def test_copies_stop_at_the_eighth_hop(routes: Routes) -> None:
    a, b = routes.topics("ab")
    routes.put("a", "b")
    routes.put("b", "a", allow_cycle=True)
    routes.append(a, 1)
    for _ in range(20):
        routes.forward(a)
        routes.forward(b)
    copies = limits.ROUTER_HOPS_MAX - 1
    assert routes.copies("a>b") + routes.copies("b>a") == copies
    assert routes.state(a)[1] + routes.state(b)[1] == copies + 1
    assert routes.ledger.routers.legs.hops.encode() == []
    same_again(routes)


def test_a_destination_that_tracks_its_records_is_left_to_copying(routes: Routes) -> None:
    a, b, c = *routes.topics("a"), *routes.topics("b", cap_records=2), *routes.topics("c")
    routes.put("a", "b")
    routes.put("a", "c")
    routes.append(a, 3)
    assert routes.forward(a).ends == {c: 3}
    assert routes.cursor("a>b") == 0
    leg = routes.ledger.routers.legs.to_stream(b)[0]
    outcome = routes.apply(run(slice_row(b, 3)), NoteForwarded(leg.number, 0, 3, 3))[1]
    assert outcome.ends == {b: 3}
    assert routes.state(b)[:3] == (1, 3, 2)
    assert (routes.cursor("a>b"), routes.copies("a>b")) == (3, 3)
    same_again(routes)


def test_a_destination_may_begin_and_cease_to_track(routes: Routes) -> None:
    a, b = routes.topics("ab")
    routes.put("a", "b")
    routes.append(a, 2)
    routes.forward(a)
    routes.do(AlterTopic(b"b".ljust(16, b"\0"), TopicConfig(cap_records=100)))
    routes.append(a, 2)
    assert routes.forward(a).ends == {}
    assert routes.cursor("a>b") == 2
    routes.do(AlterTopic(b"b".ljust(16, b"\0"), TopicConfig()))
    assert routes.forward(a).ends == {b: 4}
    assert routes.runs(b) == [(0, 2, a, 0), (2, 2, a, 2)]
    assert routes.copies("a>b") == 4
    same_again(routes)


def test_a_full_destination_leaves_the_router_where_it_is(routes: Routes) -> None:
    a, b = *routes.topics("a"), *routes.topics("b", cap_records=2, discard="reject")
    routes.put("a", "b")
    routes.append(a, 3)
    leg = routes.ledger.routers.legs.to_stream(b)[0]
    outcome = routes.apply(run(slice_row(b, 3)), NoteForwarded(leg.number, 0, 3, 3))[1]
    assert isinstance(outcome, TopicFull)
    assert (routes.cursor("a>b"), routes.state(b)[1]) == (0, 0)


def test_copies_that_somebody_else_made_first_are_not_appended(routes: Routes) -> None:
    a, b, c = routes.topics("abc")
    routes.put("a", "b", preserve_tag=False)
    routes.append(a, 5)
    leg = routes.ledger.routers.legs.to_stream(b)[0].number
    noted = [run(slice_row(b, 3)), NoteForwarded(leg, 0, 3, 3, once=True)]
    assert routes.apply(*noted)[1].copies == 3
    for note in (NoteForwarded(leg, 0, 5, 5, once=True), NoteForwarded(99, 3, 5, 2, once=True)):
        others = run(slice_row(c, 1))
        kept, refused, outcome = routes.apply(others, run(slice_row(b, 5), slice_row(c, 1)), note)
        assert (kept.code.tolist(), refused.code.tolist()) == ([OK], [OVERTAKEN] * 2)
        assert isinstance(outcome, (Rejected, RouterNotFound))
    assert (routes.state(b)[1], routes.state(c)[1], routes.cursor("a>b")) == (3, 2, 3)
    # Without the check: the copies are appended even if another broker made them.
    assert isinstance(routes.apply(run(slice_row(b, 5)), NoteForwarded(leg, 0, 5, 5))[1], Rejected)
    assert routes.state(b)[1] == 8
    same_again(routes)


def test_passing_over_leaves_as_many_gaps_as_records_were_lost(routes: Routes) -> None:
    a, b = *routes.topics("a"), *routes.topics("b", cap_records=9)
    routes.put("a", "b")
    routes.append(a, 3)
    leg = routes.ledger.routers.legs.to_stream(b)[0].number
    assert routes.do(PassOver(leg, 0, 3, 2)).ends == {b: 2}
    assert routes.ledger.streams.lost(b) == [(0, 2, SOURCE_TRIM)]
    assert routes.state(b)[2] == 0
    assert isinstance(routes.do(PassOver(leg, 0, 3, 2)), Rejected)
    assert isinstance(routes.do(PassOver(99, 3, 4)), RouterNotFound)
    assert isinstance(routes.do(PassOver(leg, 3, 4, -1)), InvalidInput)
    same_again(routes)


def test_a_gap_that_a_delete_passed_over_reaches_the_next_topic_all_the_same(routes: Routes) -> None:
    a, b = routes.topics("ab")
    routes.put("a", "b")
    routes.append(a, 9)
    routes.do(MarkLost(a, 3, 5))
    routes.do(Trim(a, 7, "delete", keeps_losses=True))  # before anything was copied
    assert routes.forward(a).ends == {b: 4}
    assert routes.ledger.streams.lost(b) == [(0, 2, SOURCE_TRIM)]
    assert routes.runs(b) == [(2, 2, a, 7)]
    same_again(routes)


def test_two_routers_of_one_source_may_feed_one_destination(routes: Routes) -> None:
    a, b = routes.topics("ab")
    routes.put("a", "b", "one")
    routes.put("a", "b", "two")
    routes.append(a, 2)
    routes.forward(a)
    routes.append(a, 1)
    routes.forward(a)
    assert routes.runs(b) == [(0, 2, a, 0), (2, 2, a, 0), (4, 1, a, 2), (5, 1, a, 2)]
    same_again(routes)


def test_a_later_router_joins_the_fan_out_of_the_others(routes: Routes) -> None:
    a, b, c = routes.topics("abc")
    routes.put("a", "b")
    routes.append(a, 2)
    routes.put("a", "c")
    routes.append(a, 2)
    routes.forward(a)
    assert routes.runs(c) == [(0, 2, a, 2)]
    assert routes.state(b)[1] == 4
    routes.append(a, 1)
    routes.forward(a)
    legs = [routes.ledger.routers.legs.to_stream(stream)[0] for stream in (b, c)]
    assert legs[0].fan_out is legs[1].fan_out
    assert routes.runs(c) == [(0, 2, a, 2), (2, 1, a, 4)]
    assert routes.copies("a>c") == 3
    same_again(routes)


def test_putting_a_router_again_keeps_its_place_and_total(routes: Routes) -> None:
    a, b = routes.topics("ab")
    assert routes.put("a", "b").created
    routes.append(a, 2)
    routes.forward(a)
    routes.append(a, 2)
    assert not routes.put("a", "b", match=(b"x", True), preserve_node=False).created
    assert (routes.cursor("a>b"), routes.copies("a>b")) == (2, 2)
    assert routes.forward(a).ends == {}
    routes.put("a", "b")
    assert routes.forward(a).ends == {b: 4}
    same_again(routes)


def test_conflicts_are_refused(routes: Routes) -> None:
    routes.topics("abc")
    routes.put("a", "b")
    fan_in = routes.put("c", "b")
    assert isinstance(fan_in, TopicIncompatible)
    assert fan_in.detail == {"topic": "b", "reason": "router_dest_fan_in"}
    moved = routes.put("a", "c", "a>b")
    assert isinstance(moved, TopicIncompatible)
    assert moved.detail["reason"] == "router_repoint_forbidden"
    cycle = routes.put("b", "a")
    assert isinstance(cycle, RouterCycle)
    assert cycle.cycle == ["b", "a", "b"], "it begins at the new source"
    routes.put("b", "c")
    cycle = routes.put("c", "a")
    assert isinstance(cycle, RouterCycle)
    assert cycle.cycle == ["c", "a", "b", "c"]
    assert isinstance(routes.put("a", "a"), InvalidInput)
    assert isinstance(routes.put("a", "nowhere"), TopicNotFound)
    assert routes.ledger.routers.names() == ["a>b", "b>c"]


def test_a_deleted_topic_takes_its_routers_along(routes: Routes) -> None:
    a, b, c = routes.topics("abc")
    routes.put("a", "b")
    routes.put("b", "c")
    routes.append(a, 1)
    routes.forward(a)
    routes.forward(b)
    routes.do(DeleteTopic(b"b".ljust(16, b"\0")))
    assert routes.ledger.routers.names() == []
    assert routes.runs(b) == []
    assert routes.runs(c) == [(0, 1, a, 0)]
    assert isinstance(routes.forward(b, 1), StreamNotFound)
    same_again(routes)


def test_deleting_a_router_keeps_its_copies_and_is_idempotent(routes: Routes) -> None:
    a, b = routes.topics("ab")
    before = routes.ledger.routers.digest
    routes.put("a", "b")
    routes.append(a, 1)
    routes.forward(a)
    assert routes.do(DeleteRouter("a>b")).existed
    assert not routes.do(DeleteRouter("a>b")).existed
    routes.append(a, 1)
    assert routes.forward(a).ends == {}
    assert routes.runs(b) == [(0, 1, a, 0)]
    assert before == 0
    same_again(routes)


def test_partitions_are_copied_one_to_one_and_new_ones_too(routes: Routes) -> None:
    source = routes.create("a", 2)
    dest = routes.create("b", 3)
    routes.put("a", "b")
    routes.do(AddPartitions(source.topic_id, 4))
    streams = routes.ledger.topics.get("a").streams  # type: ignore[union-attr]
    for stream in streams:
        routes.append(stream, 1)
        routes.forward(stream)
    assert [routes.state(stream)[1] for stream in dest.streams] == [2, 1, 1]
    same_again(routes)


def test_nothing_is_kept_of_copies_that_are_gone(routes: Routes) -> None:
    a, b, c = routes.topics("abc")
    routes.put("a", "b")
    routes.put("a", "c")
    for _ in range(10):
        routes.append(a, 10)
        routes.forward(a, time_ms=routes.time_ms)
        routes.append(b, 1)
        routes.time_ms += 1
    routes.do(Trim(b, 55, "cap"))
    aliases, streams = routes.ledger.aliases, routes.ledger.streams
    aliases.prune(streams.start)
    assert aliases.reaching(a, 0, 1), "the other copy is still there"
    routes.do(Trim(c, 45, "ttl"))
    aliases.prune(streams.start)
    assert not aliases.reaching(a, 0, 40)
    assert aliases.reaching(a, 45, 46)
    assert routes.runs(c)[0] == (40, 10, a, 40)
    for name in "bc":
        routes.do(DeleteTopic(name.encode().ljust(16, b"\0")))
    aliases.prune(streams.start)
    assert not aliases.feeds
    same_again(routes)


@pytest.mark.parametrize("end", [-1, limits.OFFSET_MAX + 1])
def test_a_forward_to_nowhere_is_refused(routes: Routes, end: int) -> None:
    a, _ = routes.topics("ab")
    routes.put("a", "b")
    assert isinstance(routes.forward(a, end), InvalidInput)
    assert isinstance(routes.forward(77, 1), StreamNotFound)


def test_copies_are_noted_only_where_they_were_appended(routes: Routes) -> None:
    a, b = *routes.topics("a"), *routes.topics("b", cap_records=5)
    routes.put("a", "b")
    routes.append(a, 2)
    leg = routes.ledger.routers.legs.to_stream(b)[0].number
    assert isinstance(routes.do(NoteForwarded(leg, 0, 2, 2)), InvalidInput)
    outcome = routes.apply(run(slice_row(99)), NoteForwarded(leg, 0, 2, 2))[1]
    assert isinstance(outcome, MainstemError)
    assert routes.cursor("a>b") == 0


def test_a_boot_leaves_routers_as_they_are(routes: Routes) -> None:
    a, b = routes.topics("ab")
    routes.put("a", "b")
    routes.append(a, 2)
    routes.do(Boot(2, "other", False))
    assert routes.forward(a).ends == {b: 2}


def test_copies_damaged_as_they_were_appended_are_made_again(routes: Routes) -> None:
    a, b = *routes.topics("a"), *routes.topics("b", cap_records=50)
    routes.put("a", "b")
    routes.append(a, 6)
    leg = routes.ledger.routers.legs.to_stream(b)[0].number
    routes.apply(run(slice_row(b, 2)), NoteForwarded(leg, 0, 2, 2))
    routes.apply(run(slice_row(b, 3)), NoteForwarded(leg, 2, 5, 3))
    routes.do(MarkLost(b, 0, 2))
    assert (routes.cursor("a>b"), routes.copies("a>b")) == (5, 5), "what came later stands behind them"
    routes.do(PassOver(leg, 5, 6))
    routes.do(MarkLost(b, 2, 5))
    assert (routes.cursor("a>b"), routes.copies("a>b")) == (2, 2)
    routes.do(MarkLost(b, 2, 5))
    assert routes.cursor("a>b") == 2
    same_again(routes)


def test_bytes_that_the_log_may_have_given_up_are_not_pointed_at(
    routes: Routes, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = routes.topics("ab")
    routes.put("a", "b")
    routes.append(a, 4)
    legs = routes.ledger.routers.legs
    served = {a: 3}  # as if a table served what is before
    monkeypatch.setattr(routes.ledger.generations, "frontier", lambda stream: served.get(stream, 0))
    assert routes.forward(a).ends == {}
    (leg,) = legs.loose(a)
    assert not legs.aliased(leg)
    routes.apply(run(slice_row(b, 3)), NoteForwarded(leg.number, 0, 3, 3))
    assert routes.forward(a).ends == {b: 4}
    assert routes.runs(b) == [(3, 1, a, 3)]
