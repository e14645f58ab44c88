"""What a table shows of its topic: which parts of each stream, and which of its snapshots hold what has gone since."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import chain, pairwise

import msgspec

from mainstem.ledger.digest import MASK, mix
from mainstem.ledger.parts import Part
from mainstem.ledger.table_commands import PartChange, PartName

PartsOf = Callable[[int], Sequence[Part]]  # the parts that serve a stream now, in offset order


class PublishedPartsState(msgspec.Struct, frozen=True, array_like=True):
    """One stream of a table, as a checkpoint holds it."""

    stream: int
    to: int
    parts: bytes = b""  # i8 × 3 a part: base, end, generation; little-endian


class PublishedParts:
    """The parts of one stream that a table shows, contiguous but for what left the topic unseen."""

    __slots__ = ("_sum", "parts", "stream", "to")

    def __init__(self, stream: int, to: int = 0, parts: list[PartName] | None = None) -> None:
        self.stream = stream
        self.to = to  # everything before it is shown, or was, or left the topic before it could be
        self.parts: list[PartName] = parts or []
        self._sum = sum(self._hash(part) for part in self.parts)

    def refusal(self, change: PartChange, serving: Sequence[Part]) -> str | None:
        """Why the change cannot be made now, if it cannot."""
        if change.old and self._find(change.old) is None:
            return f"stream {self.stream} is not shown as parts {_parts_text(change.old)}"
        if change.new:
            if not _tiles(change.new):
                return f"parts {_parts_text(change.new)} of stream {self.stream} leave a gap"
            if not _are_serving(change.new, serving):
                return f"parts {_parts_text(change.new)} of stream {self.stream} were replaced since"
            return self._bad_place(change, serving)
        if not change.old:
            return "a change needs parts that go, or that come"
        if self._find(change.old) != 0 or (serving and serving[0].base < change.old[-1][1]):
            return f"parts {_parts_text(change.old)} of stream {self.stream} have not left the topic"
        return None

    def _bad_place(self, change: PartChange, serving: Sequence[Part]) -> str | None:
        first, last = change.new[0][0], change.new[-1][1]
        if change.old:
            start, end = change.old[0][0], change.old[-1][1]
            # The front of a range may have left the topic since, and its end may be joined to what comes after.
            starts_there = first == start or (first > start and serving[0].base == first)
            ends_there = last == end or (last > end and change.old[-1] == self.parts[-1])
            if starts_there and ends_there:
                return None
            return f"[{first}, {last}) of stream {self.stream} is to replace another range"
        # What left the topic before it was published is passed over: nothing serves it any more.
        if first == self.to or (first > self.to and serving[0].base == first):
            return None
        return f"stream {self.stream} is published to {self.to}: [{first}, {last}) does not go on from there"

    def copy(self) -> PublishedParts:
        twin = PublishedParts(self.stream, self.to)
        twin.parts, twin._sum = self.parts.copy(), self._sum
        return twin

    def change(self, change: PartChange) -> None:
        """Make a change that is not refused."""
        if change.old:
            at = self._find(change.old) or 0
            self.parts[at : at + len(change.old)] = change.new
            self._sum -= sum(map(self._hash, change.old))
        else:
            self.parts.extend(change.new)
        self._sum += sum(map(self._hash, change.new))
        if change.new:
            self.to = max(self.to, change.new[-1][1])

    def pending(self, serving: Sequence[Part]) -> list[tuple[list[PartName], list[Part]]]:
        """What is left to do until exactly the serving parts are shown: parts that go, and those that come.

        First what left the topic, then what was replaced, then what is new."""
        shown = self.parts
        gone = sum(not serving or part[1] <= serving[0].base for part in shown)
        changes: list[tuple[list[PartName], list[Part]]] = [(shown[:gone], [])] if gone else []
        at, next = gone, 0
        while at < len(shown):
            if shown[at] == part_name(serving[next]):
                at, next = at + 1, next + 1
                continue
            old, new = [shown[at]], [serving[next]]
            at, next = at + 1, next + 1
            while old[-1][1] != new[-1].end:
                if old[-1][1] > new[-1].end:
                    new.append(serving[next])
                    next += 1
                elif at < len(shown):
                    old.append(shown[at])
                    at += 1
                else:
                    break  # joined to what was not shown yet
            changes.append((old, new))
        if next < len(serving):
            changes.append(([], list(serving[next:])))
        return changes

    def current(self, serving: Sequence[Part]) -> bool:
        """Every part that is shown still serves its range."""
        return _are_serving(self.parts, serving)

    def _find(self, parts: Sequence[PartName]) -> int | None:
        at = bisect_left(self.parts, parts[0])
        return at if tuple(self.parts[at : at + len(parts)]) == tuple(parts) else None

    @property
    def digest(self) -> int:
        return (mix(self.stream, self.to, 0, 1 << 42) + self._sum) & MASK

    def _hash(self, part: PartName) -> int:
        return mix(self.stream, *part)

    def encode(self) -> PublishedPartsState:
        return PublishedPartsState(
            self.stream, self.to, array("q", chain.from_iterable(self.parts)).tobytes()
        )

    @classmethod
    def decode(cls, state: PublishedPartsState) -> PublishedParts:
        numbers = array("q", state.parts)
        parts = list(zip(numbers[::3], numbers[1::3], numbers[2::3], strict=True))
        return cls(state.stream, state.to, parts)


def part_name(part: Part) -> PartName:
    return part.base, part.end, part.generation


def _tiles(parts: Sequence[PartName]) -> bool:
    return all(before[1] == after[0] for before, after in pairwise(parts))


def _are_serving(parts: Sequence[PartName], serving: Sequence[Part]) -> bool:
    """Whether the parts are among those that serve, where both are in offset order."""
    if not parts:
        return True
    at = bisect_left(serving, parts[0][0], key=_base)
    if len(serving) - at < len(parts):
        return False
    # Parts that serve leave no gap, so those asked about stand side by side, or one of them is gone.
    return all(map(_is_named, serving[at : at + len(parts)], parts))


def _base(part: Part) -> int:
    return part.base


def _is_named(part: Part, name: PartName) -> bool:
    return part_name(part) == name


def _parts_text(parts: Sequence[PartName]) -> str:
    named = ", ".join(f"[{base}, {end}) of generation {generation}" for base, end, generation in parts[:3])
    return named + (" …" if len(parts) > 3 else "")
