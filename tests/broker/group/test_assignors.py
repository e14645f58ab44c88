from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainstem.broker.groups.assignors import ASSIGNORS, Assignor, Partitions

Readers = dict[str, frozenset[bytes]]

TOPICS = [b"a", b"b", b"c", b"d"]

sizes = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 12), max_size=4)
readers = st.dictionaries(
    st.integers(0, 30).map(lambda number: f"m{number}"),
    st.frozensets(st.sampled_from(TOPICS), max_size=4),
    max_size=12,
)
alike = st.builds(
    lambda members, topics: dict.fromkeys(members, topics),
    st.frozensets(st.integers(0, 40).map(lambda number: f"m{number}"), min_size=1, max_size=12),
    st.frozensets(st.sampled_from(TOPICS), min_size=1),
)


def all_partitions(who: Readers, partitions: dict[bytes, int]) -> set[tuple[bytes, int]]:
    read = frozenset[bytes]().union(*who.values())
    return {(topic, number) for topic in read for number in range(partitions.get(topic, 0))}


def check_whole(who: Readers, partitions: dict[bytes, int], assigned: dict[str, Partitions]) -> None:
    given_out = [partition for part in assigned.values() for partition in part]
    assert len(given_out) == len(set(given_out)), "a partition has two readers"
    assert set(given_out) == all_partitions(who, partitions)
    assert assigned.keys() == who.keys()
    for member, part in assigned.items():
        assert {topic for topic, _ in part} <= who[member]


@pytest.mark.parametrize("name", list(ASSIGNORS))
@settings(max_examples=150, deadline=None)
@given(who=readers, partitions=sizes, then=readers, later=sizes)
def test_every_partition_is_assigned_to_exactly_one_subscriber(
    name: str, who: Readers, partitions: dict[bytes, int], then: Readers, later: dict[bytes, int]
) -> None:
    assign: Assignor = ASSIGNORS[name]
    before = assign(who, partitions, {})
    check_whole(who, partitions, before)
    check_whole(then, later, assign(then, later, before))


@settings(max_examples=150, deadline=None)
@given(who=alike, partitions=sizes, more=alike)
def test_uniform_assignments_differ_by_at_most_one_partition_for_equal_subscriptions(
    who: Readers, partitions: dict[bytes, int], more: Readers
) -> None:
    assign = ASSIGNORS["uniform"]
    before = assign(who, partitions, {})
    for readers_now, assigned in ((who, before), (more, assign(more, partitions, before))):
        counts = [len(part) for part in assigned.values()]
        assert max(counts) - min(counts) <= 1, readers_now


@settings(max_examples=150, deadline=None)
@given(who=readers, partitions=sizes, then=readers)
def test_uniform_leaves_no_move_that_would_even_out_two_members(
    who: Readers, partitions: dict[bytes, int], then: Readers
) -> None:
    assign = ASSIGNORS["uniform"]
    assigned = assign(then, partitions, assign(who, partitions, {}))
    for member, part in assigned.items():
        for topic, _ in part:
            for other, topics in then.items():
                if topic in topics:
                    assert len(part) - len(assigned[other]) <= 1, (member, other)


@settings(max_examples=150, deadline=None)
@given(who=readers, partitions=sizes)
def test_uniform_is_stable_when_nothing_changed(who: Readers, partitions: dict[bytes, int]) -> None:
    assign = ASSIGNORS["uniform"]
    before = assign(who, partitions, {})
    assert assign(who, partitions, before) == before


@settings(max_examples=150, deadline=None)
@given(who=alike, partitions=sizes, gone=st.integers(0, 11))
def test_uniform_moves_only_the_partitions_of_a_lost_member(
    who: Readers, partitions: dict[bytes, int], gone: int
) -> None:
    assign = ASSIGNORS["uniform"]
    before = assign(who, partitions, {})
    lost = sorted(who)[gone % len(who)]
    after = assign({member: topics for member, topics in who.items() if member != lost}, partitions, before)
    for member, part in after.items():
        assert before[member] <= part


@settings(max_examples=150, deadline=None)
@given(who=alike, partitions=sizes)
def test_uniform_moves_only_the_share_of_a_new_member(who: Readers, partitions: dict[bytes, int]) -> None:
    assign = ASSIGNORS["uniform"]
    before = assign(who, partitions, {})
    topics = next(iter(who.values()))
    after = assign({**who, "new": topics}, partitions, before)
    for member in who:
        assert after[member] <= before[member]


@settings(max_examples=100, deadline=None)
@given(who=alike, partitions=sizes)
def test_ranges_are_contiguous_and_topics_of_equal_size_are_split_alike(
    who: Readers, partitions: dict[bytes, int]
) -> None:
    assigned = ASSIGNORS["range"](who, partitions, {})
    cuts: dict[int, dict[bytes, dict[str, list[int]]]] = {}
    for member, part in assigned.items():
        for topic in partitions:
            numbers = sorted(number for name, number in part if name == topic)
            assert all(second == first + 1 for first, second in pairwise(numbers))
            if topic in next(iter(who.values())):
                cuts.setdefault(partitions[topic], {}).setdefault(topic, {})[member] = numbers
    for same_size in cuts.values():
        assert len({str(cut) for cut in same_size.values()}) == 1


def test_a_large_group_is_assigned_in_bounded_work() -> None:
    topics = {bytes([number]): 100 for number in range(100)}
    who = {f"m{number}": frozenset(topics) for number in range(200)}
    before = ASSIGNORS["uniform"](who, topics, {})
    mixed = {member: frozenset(list(topics)[: 50 + place % 50]) for place, member in enumerate(sorted(who))}
    after = ASSIGNORS["uniform"](mixed, topics, before)
    assert Counter(map(len, before.values())) == {50: 200}
    assert sum(map(len, after.values())) == 99 * 100
