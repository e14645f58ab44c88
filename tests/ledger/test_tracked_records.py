from __future__ import annotations

import numpy as np
import pytest

from mainstem.errors import InvariantBroken
from mainstem.ledger.tracked_records import TrackedRecords


def filled(*sizes: int) -> TrackedRecords:
    columns = TrackedRecords(0)
    columns.append(0, np.array(sizes), np.arange(len(sizes)), sum(sizes))
    return columns


def test_rows_survive_growth_and_cuts() -> None:
    columns = TrackedRecords(0)
    for offset in range(0, 3_000, 3):
        columns.append(offset, np.array([1, 2, 3]), offset, 6)
        if offset % 30 == 0:
            columns.cut(offset - 20)
    assert columns.offsets[0] == 2_950
    assert columns.offsets[-1] == 2_999
    assert columns.bytes == columns.sizes.sum()
    assert len(columns) == 50


def test_a_cut_tells_the_bytes_it_freed() -> None:
    columns = filled(5, 7, 11)
    assert [columns.cut(floor) for floor in (0, 1, 1, 99)] == [0, 5, 0, 18]
    assert (columns.bytes, len(columns)) == (0, 0)


def test_erased_rows_hold_nothing_and_never_expire() -> None:
    columns = filled(5, 7, 11, 13)
    assert columns.erase(1, 3) == 18
    assert columns.erase(1, 3) == 0
    assert columns.erase(50, 60) == 0
    assert columns.bytes == 18
    assert columns.expired(100) == [(0, 1), (3, 4)]


@pytest.mark.parametrize(("excess", "floor"), [(1, 1), (5, 1), (6, 2), (12, 2), (13, 3), (23, 3)])
def test_the_lowest_floor_that_frees_enough(excess: int, floor: int) -> None:
    assert filled(5, 7, 11).floor_freeing(excess) == floor


def test_floors_are_found_far_behind_the_head() -> None:
    columns = filled(*[0] * 500, *[3] * 10_000)
    assert columns.floor_freeing(3) == 501
    assert columns.floor_freeing(30_000) == 10_500
    with pytest.raises(InvariantBroken):
        columns.floor_freeing(30_001)


def test_rows_may_leave_a_gap_but_never_go_back() -> None:
    columns = filled(1, 1)
    columns.append(1 << 60, np.array([4]), 9, 4)
    assert columns.cut(1 << 59) == 2
    assert columns.bytes == 4
    with pytest.raises(InvariantBroken):
        columns.append(5, np.array([1]), 1, 1)
