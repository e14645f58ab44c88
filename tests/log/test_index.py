"""Look-ups of many small extents: the same as one by one, and the tail cache returns all their slices at once."""

from __future__ import annotations

import random

import pytest

from mainstem.log.read.extents import Extent, OpenExtents, SealedExtents
from mainstem.log.read.index import ExtentIndex
from mainstem.log.read.tail import TailCache


def _index(extents: list[tuple[int, int, int]], *, finished: bool) -> tuple[ExtentIndex, list[Extent]]:
    """One object with extents of (stream, offsets, bytes); and those of stream 1."""
    index = ExtentIndex()
    opened = index.open_object(7)
    ends: dict[int, int] = {}
    start = 0
    ours = []
    for stream, count, length in extents:
        base = ends.get(stream, 0)
        opened.add(stream, count, base, start, length, start, base)
        if stream == 1:
            ours.append(Extent(7, count, base, start, length, start, base))
        ends[stream] = base + count
        start += length
    if finished:
        index.finish()
    return index, ours


def _one_by_one(ours: list[Extent], offset: int, max_bytes: int, end: int) -> list[Extent]:
    found: list[Extent] = []
    for extent in ours:
        if extent.end <= offset:
            continue
        if extent.end > end or (found and sum(e.length for e in found) + extent.length > max_bytes):
            break
        found.append(extent)
    return found


@pytest.mark.parametrize("finished", [False, True])
def test_many_small_extents_are_found_as_if_one_by_one(finished: bool) -> None:
    dice = random.Random(3)
    rows = [(dice.choice((1, 1, 2)), dice.choice((1, 1, 3, 900)), dice.randint(1, 9)) for _ in range(4000)]
    index, ours = _index(rows, finished=finished)
    last = ours[-1].end
    for number in range(200):
        offset = dice.randrange(last if number % 2 else 30)  # extents are not spread evenly there
        end = dice.randint(1, last)
        max_bytes = dice.choice((1, 50, 80, 81, 500, 6000, 1 << 20))
        assert index.find(1, offset, max_bytes, end) == _one_by_one(ours, offset, max_bytes, end)
    assert index.find(1, 0, 1 << 20, last) == ours


@pytest.mark.parametrize("kind", [OpenExtents, SealedExtents])
def test_a_stream_that_an_object_does_not_hold_has_no_rows(kind: type) -> None:
    opened = OpenExtents(1)
    opened.add(5, 1, 0, 0, 10, 0, 0)
    extents = opened if kind is OpenExtents else opened.sealed()
    assert not len(extents.rows_from(4, 0, 10))
    assert not len(extents.rows_from(6, 0, 10))
    assert len(extents.rows_from(5, 0, 10)) == 1
    assert not len(extents.rows_from(5, 1, 10))


def test_the_tail_returns_all_requested_slices_or_none() -> None:
    dice = random.Random(4)
    tail = TailCache(1 << 30)
    starts: list[int] = []
    kept: dict[int, bytearray] = {}
    start = 0
    for _ in range(50):
        slices = [bytearray(dice.randbytes(dice.randint(1, 5))) for _ in range(dice.randint(1, 8))]
        tail.put(1, start, slices, sum(map(len, slices)))
        for slice in slices:
            starts.append(start)
            kept[start] = slice
            start += len(slice)
        start += dice.choice((0, 7))  # bytes between two commits
    for _ in range(200):
        wanted = sorted(dice.sample(starts, dice.randint(1, 40)))
        assert tail.get_all(1, wanted) == [kept[at] for at in wanted]
        absent = dice.choice([at for at in range(start) if at not in kept] or [start])
        assert tail.get_all(1, sorted([*wanted, absent])) is None
    assert tail.get_all(1, starts) == list(kept.values())
    assert tail.get_all(1, [*starts, start + 1]) is None
    assert tail.get_all(2, starts) is None
    assert tail.get_all(1, []) is None


def test_evicted_slices_are_not_returned() -> None:
    tail = TailCache(2000)
    for number in range(20):
        tail.put(1, number * 100, [bytearray(100)], 100)
    assert tail.get_all(1, [0, 1900]) is None
    assert tail.get_all(1, [1800, 1900]) is not None


def test_many_evicted_commits_leave_the_newest_ones() -> None:
    tail = TailCache(100 * 130)  # of 10 bytes and the overhead of a slice
    for number in range(5000):
        tail.put(1 + number // 4000, number * 10, [bytearray(10)], 10)
        assert tail.get(1 + number // 4000, number * 10) is not None
    assert tail.held_bytes == 100 * 130
    assert tail.get(1, 39_990) is None
    assert tail.get(2, 48_990) is None
    assert tail.get_all(2, [49_000, 49_990]) == [bytearray(10)] * 2
    tail.drop_to(2)
    assert not tail.held_bytes
