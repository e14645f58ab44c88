"""Segments follow from the number of entries."""

from __future__ import annotations

import pytest

from mainstem import limits
from mainstem.doors.text.status import SegmentLeader, segments

NODE = SegmentLeader(broker_id=7, name="n", address="h:1", segment_entries=10)


@pytest.mark.parametrize(
    ("entries", "current", "sealed_to", "sealed"),
    [
        (0, 1, 0, {}),
        (1, 1, 0, {}),
        (9, 1, 0, {}),
        (10, 2, 10, {"1": 10}),
        (19, 2, 10, {"1": 10}),
        (35, 4, 30, {"1": 10, "2": 10, "3": 10}),
    ],
)
def test_full_segments_are_sealed_and_the_last_one_is_open(
    entries: int, current: int, sealed_to: int, sealed: dict[str, int]
) -> None:
    state = segments(entries, NODE)
    assert state.current_segment == current
    assert state.last_sealed_entry_offset == sealed_to
    assert state.sealed_segments == sealed
    assert state.segment_leaders == {str(segment): 7 for segment in range(1, current + 1)}
    assert state.leader_node == 7


def test_of_very_many_segments_the_newest_are_listed() -> None:
    state = segments(10**12, NODE)
    assert len(state.sealed_segments) == limits.TEXT_STATE_SEGMENTS_MAX
    assert state.current_segment == 10**11 + 1
    assert str(10**11) in state.sealed_segments
