"""One table: its name, its current metadata, and the parts of its topic that it publishes."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from itertools import chain, pairwise

import msgspec

from mainstem.api.lake import Part, PartChange, PartName, TableKind
from mainstem.ledger.digest import MASK, hash_fields, mix


class PublishedPartsState(msgspec.Struct, frozen=True, array_like=True):
    """One stream of a table, in a checkpoint."""

    stream: int
    to: int
    parts: bytes  # i8 × 3 a part: base, end, generation; little-endian


class PublishedParts:
    """The parts of one stream in a table, contiguous except where records were deleted before they were published."""

    __slots__ = ("_sum", "parts", "stream", "to")

    def __init__(self, stream: int, to: int = 0, parts: list[PartName] | None = None) -> None:
        self.stream = stream
        self.to = to  # everything before it is or was published, or was deleted before that
        self.parts: list[PartName] = parts or []
        self._sum = sum(self._hash(part) for part in self.parts)

    def refusal(self, change: PartChange, serving: Sequence[Part]) -> str | None:
        """Why the change cannot be made now, or None."""
        if change.old and self._find(change.old) is None:
            return f"the table does not hold parts {_parts_text(change.old)} of stream {self.stream}"
        if change.new:
            if not _tiles(change.new):
                return f"parts {_parts_text(change.new)} of stream {self.stream} leave a gap"
            if not _are_serving(change.new, serving):
                return f"parts {_parts_text(change.new)} of stream {self.stream} have been replaced"
            return self._bad_place(change, serving)
        if not change.old:
            return "a change must remove or add parts"
        if self._find(change.old) != 0 or (serving and serving[0].base < change.old[-1][1]):
            return f"parts {_parts_text(change.old)} of stream {self.stream} are still in the topic"
        return None

    def _bad_place(self, change: PartChange, serving: Sequence[Part]) -> str | None:
        first, last = change.new[0][0], change.new[-1][1]
        if change.old:
            start, end = change.old[0][0], change.old[-1][1]
            # The front of a range may have been deleted since, and its end may be merged with what follows.
            starts_there = first == start or (first > start and serving[0].base == first)
            ends_there = last == end or (last > end and change.old[-1] == self.parts[-1])
            if starts_there and ends_there:
                return None
            return f"[{first}, {last}) of stream {self.stream} cannot replace a different range"
        # Skip what was deleted before it was published: nothing serves it any more.
        if first == self.to or (first > self.to and serving[0].base == first):
            return None
        return f"stream {self.stream} is published up to {self.to}: [{first}, {last}) does not continue from there"

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
        """The changes until exactly the serving parts are published: parts to remove, and parts to add.

        First deleted parts, then replaced ones, then new ones."""
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
                    break  # merged with what is not published yet
            changes.append((old, new))
        if next < len(serving):
            changes.append(([], list(serving[next:])))
        return changes

    def current(self, serving: Sequence[Part]) -> bool:
        """Whether every published part still serves its range."""
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
    """Whether all parts are among the serving ones. Both are in offset order."""
    if not parts:
        return True
    at = bisect_left(serving, parts[0][0], key=_base)
    if len(serving) - at < len(parts):
        return False
    # Serving parts have no gaps, so the parts are adjacent, or one of them was replaced.
    return all(map(_is_named, serving[at : at + len(parts)], parts))


def _base(part: Part) -> int:
    return part.base


def _is_named(part: Part, name: PartName) -> bool:
    return part_name(part) == name


def _parts_text(parts: Sequence[PartName]) -> str:
    named = ", ".join(f"[{base}, {end}) of generation {generation}" for base, end, generation in parts[:3])
    return named + (" …" if len(parts) > 3 else "")


class TableState(msgspec.Struct, frozen=True, array_like=True):
    """One table, in a checkpoint."""

    namespace: str
    name: str
    table_id: bytes
    location: str
    topic_id: bytes
    kind: TableKind
    published: list[PublishedPartsState]
    snapshots: list[tuple[int, int]]  # (id, ledger position it reflects)
    reflected: int


class Declaration(msgspec.Struct, frozen=True, array_like=True):
    """The columns of a topic's tables besides the raw ones; also the form in a checkpoint."""

    topic_id: bytes
    revision: int
    columns: str
    copy: str


class Table:
    """One table: its name and its current metadata."""

    __slots__ = (
        "kind",
        "location",
        "name",
        "namespace",
        "published",
        "reflected",
        "snapshots",
        "table_id",
        "topic_id",
    )

    def __init__(
        self, namespace: str, name: str, table_id: bytes, location: str, topic_id: bytes, kind: TableKind
    ) -> None:
        self.namespace = namespace
        self.name = name
        self.table_id = table_id
        self.location = location
        self.topic_id = topic_id  # of its topic; empty: a user's own table
        self.kind = kind
        self.published: dict[int, PublishedParts] = {}
        self.snapshots: dict[int, int] = {}  # id → position of the ledger that it reflects
        self.reflected = -1  # the table holds no part that was replaced or retired before this position

    def stream(self, stream: int) -> PublishedParts:
        """The published parts of a stream, read-only."""
        return self.published.get(stream) or PublishedParts(stream)

    @property
    def digest(self) -> int:
        own = hash_fields(
            "table",
            self.namespace,
            self.name,
            self.table_id,
            self.topic_id,
            self.kind,
            self.location,
            sorted(self.snapshots),
        )
        # Multiplied by the table's own hash, so that swapping the parts of two tables changes the digest.
        shown = sum(published.digest for published in self.published.values())
        return (own + shown * (own | 1)) & MASK

    def encode(self) -> TableState:
        return TableState(
            self.namespace,
            self.name,
            self.table_id,
            self.location,
            self.topic_id,
            self.kind,
            [self.published[stream].encode() for stream in sorted(self.published)],
            sorted(self.snapshots.items()),
            self.reflected,
        )

    @classmethod
    def decode(cls, state: TableState) -> Table:
        table = cls(state.namespace, state.name, state.table_id, state.location, state.topic_id, state.kind)
        table.published = {each.stream: PublishedParts.decode(each) for each in state.published}
        table.snapshots = dict(state.snapshots)
        table.reflected = state.reflected
        return table
