"""Placement: all brokers agree, shares are even, and little moves when a broker joins or leaves."""

from __future__ import annotations

from collections import Counter

from mainstem.broker.cluster.service import chosen, preferred
from mainstem.ledger.members import BrokerMember

_THINGS = [f"stream {number}" for number in range(2_000)]


def member(broker: int, zone: str = "") -> BrokerMember:
    return BrokerMember(broker, 1, (), zone, "")


def test_shares_are_about_even() -> None:
    counts = Counter(chosen(thing, range(5)) for thing in _THINGS)
    assert set(counts) == set(range(5))
    assert max(counts.values()) < 1.3 * len(_THINGS) / 5


def test_when_a_broker_leaves_only_its_own_work_moves() -> None:
    for thing in _THINGS:
        before = chosen(thing, [1, 2, 3, 4])
        after = chosen(thing, [1, 2, 4])
        assert after == before or before == 3


def test_the_order_of_brokers_does_not_matter() -> None:
    assert all(chosen(thing, [1, 2, 3]) == chosen(thing, [3, 1, 2]) for thing in _THINGS)


def test_no_broker_is_chosen_from_none() -> None:
    assert chosen("thing", []) is None
    assert preferred("thing", [], "z") is None


def test_a_zone_is_used_if_it_has_a_broker() -> None:
    live = [member(1, "a"), member(2, "b"), member(3, "b")]
    assert {preferred(thing, live, "b") for thing in _THINGS} == {2, 3}
    assert {preferred(thing, live, "a") for thing in _THINGS} == {1}
    assert {preferred(thing, live, "elsewhere") for thing in _THINGS} == {1, 2, 3}
