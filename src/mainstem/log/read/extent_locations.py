"""Locating: where the log's own bytes of a range are, for readers that fetch them without the broker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import numpy as np

from mainstem.log.read.extents import OpenExtents, Rows, SealedExtents
from mainstem.ports.commitlog.port import CommitLog, Piece

ExtentLocations = str | list[Piece] | None
"""Of an object: the URL of its file, or which objects of the store hold the bytes asked for."""


@dataclass(slots=True)
class Located:
    """Extents of a stream by the object that holds them. They cover it from the offset asked for to `end`."""

    end: int
    objects: list[tuple[int, Rows]] = field(default_factory=list)
    bytes: int = 0
    extents: int = 0


class Objects(Protocol):
    def objects_from(self, stream: int, offset: int) -> Iterator[int]:
        """Objects that may hold the stream at or after `offset`, in order."""
        ...

    def extents_of(self, number: int) -> OpenExtents | SealedExtents: ...


_T = TypeVar("_T")


class Resolve(Protocol):
    def __call__(self, look_up: Callable[[], _T], /) -> Awaitable[_T]: ...


async def locate(
    index: Objects, resolving: Resolve, stream: int, base: int, end: int, *, max_bytes: int, max_extents: int
) -> Located:
    """The extents with offsets of [base, end), as far as the bounds allow, but one extent at least.

    An extent is never cut: the first may begin before `base`. `Located.end` is `end`, or less if a bound was met."""
    found = Located(end)
    for number in await resolving(lambda: list(index.objects_from(stream, base))):
        extents = await resolving(lambda: index.extents_of(number))  # noqa: B023
        rows = extents.rows_of(stream, base, end)
        if not len(rows):
            span = extents.span(stream)
            if span is not None and span.base >= end:
                break
            continue
        room = _fitting(rows, max_bytes - found.bytes, max_extents - found.extents, found.extents == 0)
        if room:
            taken = rows[:room]
            found.objects.append((number, taken))
            found.bytes += int(taken["length"].sum(dtype=np.int64))
            found.extents += room
        if room < len(rows):
            found.end = int(rows["base"][room])
            break
    return found


async def locate_extents(port: CommitLog, number: int, rows: Rows) -> ExtentLocations:
    """Where a reader without the broker finds these extents of an object. None: it was dropped meanwhile."""
    url = port.url(number)
    if url is not None:
        return url
    ranges = list(zip(rows["start"].tolist(), rows["length"].tolist(), strict=True))
    try:
        return await port.pieces(number, ranges)
    except FileNotFoundError:
        return None


def _fitting(rows: Rows, max_bytes: int, max_extents: int, at_least_one: bool) -> int:
    """How many of the first rows are within the bounds."""
    sizes = rows["length"].cumsum(dtype=np.int64)
    fitting = min(int(np.searchsorted(sizes, max_bytes, side="right")), max_extents, len(rows))
    return max(fitting, 1 if at_least_one else 0)
