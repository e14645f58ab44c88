"""Positions and ranges, without Spark or a broker."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainstem.errors import InvalidInput
from mainstem.spark.source.offsets import PartitionRange, Positions, distance, limited, ranges_between, split


def at(**offsets: list[int]) -> Positions:
    return Positions(
        {topic: f"id-{topic}" for topic in offsets},
        {(topic, number): offset for topic, all in offsets.items() for number, offset in enumerate(all)},
    )


def test_positions_survive_a_checkpoint() -> None:
    positions = at(orders=[3, 10], clicks=[0])
    assert positions.as_json() == {
        "clicks": {"id": "id-clicks", "offsets": {"0": 0}},
        "orders": {"id": "id-orders", "offsets": {"0": 3, "1": 10}},
    }
    assert Positions.of_json(positions.as_json()) == positions


@pytest.mark.parametrize(
    "wrong", [{"t": 1}, {"t": {"0": 1}}, {"t": {"id": "x", "offsets": {"a": 1}}}, {"t": None}]
)
def test_foreign_checkpoints_are_refused(wrong: Any) -> None:
    with pytest.raises(InvalidInput):
        Positions.of_json(wrong)


def test_ranges_are_what_lies_between() -> None:
    start, end = at(a=[1, 5, 7], b=[0]), at(a=[4, 5, 6], b=[2], c=[9])
    assert ranges_between(start, end) == [PartitionRange("a", 0, 1, 4), PartitionRange("b", 0, 0, 2)]
    assert distance(start, end) == 5


def test_a_limit_is_shared_by_backlog_and_reached_exactly() -> None:
    start, end = at(a=[0, 0, 0]), at(a=[900, 90, 10])
    reached = limited(start, end, 100)
    assert [reached.offsets["a", i] for i in range(3)] == [90, 9, 1]
    assert limited(start, end, 1_000) == end
    assert limited(start, end, 10_000) == end


sizes = st.lists(st.integers(0, 1_000), min_size=1, max_size=8)


@settings(max_examples=200, deadline=None)
@given(sizes, st.integers(1, 500))
def test_repeated_limits_read_everything_once(backlog: list[int], most: int) -> None:
    start, end = at(a=[0] * len(backlog)), at(a=backlog)
    steps = 0
    while start != end:
        reached = limited(start, end, most)
        moved = distance(start, reached)
        assert moved == min(most, distance(start, end))
        assert all(reached.offsets[key] >= start.offsets[key] for key in end.offsets)
        start = reached
        steps += 1
    assert steps == -(-sum(backlog) // most)


@settings(max_examples=200, deadline=None)
@given(sizes, st.integers(1, 40) | st.none())
def test_pieces_hold_the_same_offsets_in_order(backlog: list[int], pieces: int | None) -> None:
    ranges = [PartitionRange("a", number, 5, 5 + size) for number, size in enumerate(backlog)]
    found = split(ranges, pieces)
    for one in ranges:
        covered = [
            offset
            for piece in found
            if piece.partition == one.partition
            for offset in range(piece.start, piece.end)
        ]
        assert covered == list(range(one.start, one.end))
    assert all(len(piece) for piece in found)
    if pieces is not None:
        assert len(found) >= min(pieces, sum(backlog))


def test_a_large_partition_gives_more_pieces_than_a_small_one() -> None:
    found = split([PartitionRange("a", 0, 0, 900), PartitionRange("a", 1, 0, 100)], 10)
    assert [piece.partition for piece in found].count(0) == 9
