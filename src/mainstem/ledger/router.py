"""A router, and its partitions: one for each partition of its source topic."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from mainstem.ledger.digest import hash_fields, mix
from mainstem.ledger.fan_out import FanOut
from mainstem.ledger.keyed import Keyed

Guarantee = Literal["at_least_once", "exactly_once"]


@dataclass(frozen=True, slots=True)
class Forwarded:
    """The result of Forward, NoteForwarded and PassOver."""

    copies: int
    ends: dict[int, int]  # new end offset by stream, of those that grew


HopState = tuple[int, list[tuple[int, int, int]]]  # stream, then (start, end, hop)


class HopCounts:
    """How often records of a stream were copied before, for copies that routers have yet to copy further.

    Only streams that routers read from are here, and only copies: a record that a client wrote has hop count 0."""

    def __init__(self) -> None:
        self._of: Keyed[int, HopState] = Keyed(lambda state: hash_fields("hops", *state))  # by stream

    def __contains__(self, stream: int) -> bool:
        return stream in self._of

    def note(self, stream: int, start: int, end: int, hop: int) -> None:
        """Records at [start, end), above all earlier ones, have this hop count."""
        _, ranges = self._of.get(stream) or (stream, [])
        if ranges and ranges[-1][1:] == (start, hop):
            ranges[-1] = (ranges[-1][0], end, hop)
        else:
            ranges.append((start, end, hop))
        self._of.put(stream, (stream, ranges))

    def pieces(self, stream: int, start: int, end: int) -> Iterator[tuple[int, int, int]]:
        """[start, end) split into (start, end, hop)."""
        at = start
        found = self._of.get(stream)
        for first, last, hop in found[1] if found else ():
            if last <= at or first >= end:
                continue
            if first > at:
                yield at, first, 0
                at = first
            stop = min(last, end)
            yield at, stop, hop
            at = stop
        if at < end:
            yield at, end, 0

    def cut(self, stream: int, floor: int) -> None:
        """Drop counts below `floor`, which every router has passed."""
        _, ranges = self._of[stream]
        left = [(max(start, floor), end, hop) for start, end, hop in ranges if end > floor]
        if left:
            self._of.put(stream, (stream, left))
        else:
            self._of.pop(stream)

    def forget(self, stream: int) -> None:
        self._of.pop(stream)

    @property
    def digest(self) -> int:
        return self._of.digest

    def encode(self) -> list[HopState]:
        return [(stream, list(ranges)) for stream, ranges in self._of]

    def load(self, state: list[HopState]) -> None:
        for stream, ranges in state:
            self._of.put(stream, (stream, ranges))


_TAG = 1 << 44  # added to a number, so that router partitions hash differently from everything else


class RouterPartitionState(msgspec.Struct, frozen=True, array_like=True):
    number: int
    source: int
    dest: int
    cursor: int
    copies: int
    fan_out: int  # 0 = none
    mark: int
    noted: tuple[int, int, int] | None


class RouterState(msgspec.Struct, frozen=True, array_like=True):
    name: str
    source: bytes
    dest: bytes
    preserve_node: bool
    preserve_tag: bool
    match: tuple[bytes, bool] | None
    allow_cycle: bool
    guarantee: Guarantee
    legs: list[RouterPartitionState]


@dataclass(slots=True, eq=False)
class RouterPartition:
    """A router's progress in one partition of its source."""

    number: int
    router: Router
    source: int  # streams
    dest: int
    own_cursor: int  # while it is not in a fan-out
    own_copies: int = 0  # made outside its present fan-out
    fan_out: FanOut | None = None
    mark: int = 0  # copies of the fan-out when it joined
    # Its last append: the cursor before it, the first offset of the copies, and their number.
    noted: tuple[int, int, int] | None = None

    @property
    def cursor(self) -> int:
        """The next offset of the source to copy."""
        return self.own_cursor if self.fan_out is None else self.fan_out.cursor

    @property
    def copies(self) -> int:
        return self.own_copies + (0 if self.fan_out is None else self.fan_out.copies - self.mark)

    @property
    def digest(self) -> int:
        if self.fan_out is None:
            last = self.noted[1] + 1 if self.noted else 0
            return mix(_TAG | self.number, self.own_cursor, self.own_copies, -last)
        return mix(_TAG | self.number, self.mark, self.own_copies, self.fan_out.number)

    def encode(self) -> RouterPartitionState:
        fan_out, mark = (self.fan_out.number, self.mark) if self.fan_out else (0, 0)
        return RouterPartitionState(
            self.number, self.source, self.dest, self.own_cursor, self.own_copies, fan_out, mark, self.noted
        )

    @classmethod
    def decode(
        cls, state: RouterPartitionState, router: Router, fan_outs: dict[int, FanOut]
    ) -> RouterPartition:
        fan_out = fan_outs[state.fan_out] if state.fan_out else None
        return cls(
            state.number,
            router,
            state.source,
            state.dest,
            state.cursor,
            state.copies,
            fan_out,
            state.mark,
            state.noted,
        )


@dataclass(slots=True, eq=False)
class Router:
    name: str
    source: bytes  # topic ids
    dest: bytes
    preserve_node: bool = True
    preserve_tag: bool = True
    match: tuple[bytes, bool] | None = None
    allow_cycle: bool = False
    guarantee: Guarantee = "at_least_once"
    legs: list[RouterPartition] = field(default_factory=list)

    @property
    def verbatim(self) -> bool:
        """Whether it copies records unchanged."""
        return (
            self.match is None
            and self.preserve_node
            and self.preserve_tag
            and self.guarantee == "at_least_once"
        )

    @property
    def copies(self) -> int:
        return sum(leg.copies for leg in self.legs)

    @property
    def digest(self) -> int:
        return hash_fields(
            "router",
            self.name,
            self.source,
            self.dest,
            self.preserve_node,
            self.preserve_tag,
            self.match,
            self.allow_cycle,
            self.guarantee,
        )

    def encode(self) -> RouterState:
        return RouterState(
            self.name,
            self.source,
            self.dest,
            self.preserve_node,
            self.preserve_tag,
            self.match,
            self.allow_cycle,
            self.guarantee,
            [leg.encode() for leg in self.legs],
        )

    @classmethod
    def decode(cls, state: RouterState, fan_outs: dict[int, FanOut]) -> Router:
        router = cls(
            state.name,
            state.source,
            state.dest,
            state.preserve_node,
            state.preserve_tag,
            state.match,
            state.allow_cycle,
            state.guarantee,
        )
        router.legs += [RouterPartition.decode(leg, router, fan_outs) for leg in state.legs]
        return router
