"""A router, and its legs: one for each partition of its source."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from mainstem.ledger.digest import hash_fields, mix
from mainstem.ledger.fan_out import FanOut
from mainstem.ledger.router_commands import Guarantee

_TAG = 1 << 44  # beside a number, so that legs hash like nothing else


class RouterPartitionState(msgspec.Struct, frozen=True, array_like=True):
    number: int
    source: int
    dest: int
    cursor: int
    copies: int
    feed: int  # 0 = none
    mark: int
    noted: tuple[int, int, int] | None = None


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
    """One partition's way from source to destination."""

    number: int
    router: Router
    source: int  # streams
    dest: int
    own_cursor: int  # while it is in no feed
    own_copies: int = 0  # made outside of the feed it is in
    feed: FanOut | None = None
    mark: int = 0  # copies of the feed when it joined
    # What it appended last: where it stood before, the first offset of the copies, and how many they are.
    noted: tuple[int, int, int] | None = None

    @property
    def cursor(self) -> int:
        """The next offset of the source to copy."""
        return self.own_cursor if self.feed is None else self.feed.cursor

    @property
    def copies(self) -> int:
        return self.own_copies + (0 if self.feed is None else self.feed.copies - self.mark)

    @property
    def digest(self) -> int:
        if self.feed is None:
            last = self.noted[1] + 1 if self.noted else 0
            return mix(_TAG | self.number, self.own_cursor, self.own_copies, -last)
        return mix(_TAG | self.number, self.mark, self.own_copies, self.feed.number)

    def encode(self) -> RouterPartitionState:
        feed, mark = (self.feed.number, self.mark) if self.feed else (0, 0)
        return RouterPartitionState(
            self.number, self.source, self.dest, self.own_cursor, self.own_copies, feed, mark, self.noted
        )

    @classmethod
    def decode(cls, state: RouterPartitionState, router: Router, feeds: dict[int, FanOut]) -> RouterPartition:
        feed = feeds[state.feed] if state.feed else None
        return cls(
            state.number,
            router,
            state.source,
            state.dest,
            state.cursor,
            state.copies,
            feed,
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
        """Its copies are the records as they are stored."""
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
    def decode(cls, state: RouterState, feeds: dict[int, FanOut]) -> Router:
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
        router.legs += [RouterPartition.decode(leg, router, feeds) for leg in state.legs]
        return router
