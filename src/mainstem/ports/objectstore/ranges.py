"""Byte ranges that lie close together are fetched as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Span(NamedTuple):
    """One request, and which of the ranges it answers."""

    start: int
    end: int
    answers: tuple[int, ...]


def coalesced(ranges: Sequence[tuple[int, int]], *, gap: int, size: int) -> list[Span]:
    """The requests for some (start, length) ranges: gaps up to `gap` are read over, up to `size` bytes a request.

    A range larger than that is still one request; an empty range needs none."""
    spans: list[Span] = []
    for number in sorted((n for n, (_, length) in enumerate(ranges) if length > 0), key=lambda n: ranges[n]):
        start, length = ranges[number]
        end = start + length
        if spans:
            last = spans[-1]
            if start - last.end <= gap and max(end, last.end) - last.start <= size:
                spans[-1] = Span(last.start, max(end, last.end), (*last.answers, number))
                continue
        spans.append(Span(start, end, (number,)))
    return spans
