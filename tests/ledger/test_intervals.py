from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from mainstem.ledger.intervals import DELETED, Holes

WIDTH = 40
spans = st.tuples(st.integers(0, WIDTH - 1), st.integers(1, 12)).map(
    lambda s: (s[0], min(WIDTH, s[0] + s[1]))
)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.tuples(st.just("add"), spans, st.sampled_from([DELETED, "lost"]))
        | st.tuples(st.just("cut"), st.integers(0, WIDTH), st.none()),
        max_size=12,
    )
)
def test_holes_are_what_a_list_of_offsets_says(steps: list[tuple[str, object, str | None]]) -> None:
    holes = Holes(7)
    cells: list[str | None] = [None] * WIDTH
    for _, span, reason in steps:
        if isinstance(span, int):
            holes.cut(span)
            cells[:span] = [None] * span
        else:
            start, end = span  # type: ignore[misc]
            fresh = [at for at in range(start, end) if cells[at] is None]
            added = holes.add(start, end, reason or DELETED)
            assert [at for first, last in added for at in range(first, last)] == fresh
            for at in fresh:
                cells[at] = reason or DELETED
    seen: list[str | None] = [None] * WIDTH
    for start, end, reason in holes:
        assert start < end
        seen[start:end] = [reason] * (end - start)
    assert seen == cells
    neighbours = list(holes)
    for (_, end, reason), (start, _, other) in pairwise(neighbours):
        assert end < start or (end == start and reason != other)
    check_queries(holes, cells)


def check_queries(holes: Holes, cells: list[str | None]) -> None:
    live = [at for at in range(WIDTH) if cells[at] is None]
    for start in range(0, WIDTH, 7):
        inside = [at for at in live if start <= at < WIDTH - 3]
        assert holes.covered(start, WIDTH - 3) == WIDTH - 3 - start - len(inside)
        assert [at for first, last in holes.live(start, WIDTH - 3) for at in range(first, last)] == inside
        deleted = [at for first, last in holes.deleted(start, WIDTH - 3) for at in range(first, last)]
        assert [at for at in deleted if start <= at < WIDTH - 3] == [
            at for at in range(start, WIDTH - 3) if cells[at] == DELETED
        ]
        for records in range(1, len(inside) + 1):
            assert holes.past(start, WIDTH - 3, records) == inside[records - 1] + 1
        assert holes.past(start, WIDTH - 3, len(inside) + 1) == WIDTH - 3
    again = Holes(7)
    for start, end, reason in holes:
        again.add(start, end, reason)
    assert again.digest == holes.digest


def test_the_digest_of_no_holes_is_zero_again() -> None:
    holes = Holes(1)
    holes.add(3, 9, "x")
    holes.add(1, 30, DELETED)
    assert holes.digest
    holes.cut(30)
    assert (len(holes), holes.digest) == (0, 0)


def test_many_scattered_holes_stay_sorted() -> None:
    holes = Holes(1)
    for at in range(0, 20_000, 2):
        holes.add((at * 7919) % 20_000, (at * 7919) % 20_000 + 1, DELETED)
    starts = [start for start, _, _ in holes]
    assert starts == sorted(starts) == list(range(0, 20_000, 2))
    assert holes.past(0, 20_000, 10_000) == 20_000
    assert holes.covered(1, 19_999) == 9_999
