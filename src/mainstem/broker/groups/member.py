"""A member of a classic group."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from mainstem.broker.groups.timers import Timer
from mainstem.errors import InconsistentProtocol, MainstemError, invariant

T = TypeVar("T")

Protocols = tuple[tuple[str, bytes], ...]  # (name, metadata), the preferred one first


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """A member's join request."""

    group: str
    protocol_type: str
    protocols: Protocols
    session_ms: int
    rebalance_ms: int
    member_id: str = ""  # empty = a new member
    instance_id: str | None = None  # of a static member
    client_id: str = ""
    client_host: str = ""
    id_required: bool = True  # a new member without an instance id must join again with its assigned id
    may_skip_assignment: bool = True  # the client supports SkipAssignment


@dataclass(frozen=True, slots=True)
class JoinedMember:
    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class Joined:
    """A generation, as one member sees it. Only its leader sees the members."""

    generation: int
    protocol_type: str | None
    protocol: str | None
    leader: str
    member_id: str
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True)
class Synced:
    protocol_type: str | None
    protocol: str | None
    assignment: bytes


@dataclass(slots=True, eq=False)
class ClassicMember:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_ms: int
    rebalance_ms: int
    protocols: Protocols
    session: Timer  # paused while the member waits for a response
    assignment: bytes = b""
    joining: asyncio.Future[Joined] | None = None
    syncing: asyncio.Future[Synced] | None = None

    def supports(self, protocol: str) -> bool:
        return any(name == protocol for name, _ in self.protocols)

    def metadata(self, protocol: str | None) -> bytes:
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def alive(self) -> None:
        """Restart the session timeout: a request of the member arrived."""
        if self.joining is None and self.syncing is None:
            self.session.start(self.session_ms)

    def answer_join(self, answer: Joined | MainstemError) -> None:
        future, self.joining = self.joining, None
        _answer(future, answer)

    def answer_sync(self, answer: Synced | MainstemError) -> None:
        future, self.syncing = self.syncing, None
        _answer(future, answer)

    def refuse(self, error: MainstemError) -> None:
        """Fail its waiting requests."""
        self.answer_join(error)
        self.answer_sync(error)


def _answer(future: asyncio.Future[T] | None, answer: T | MainstemError) -> None:
    if future is None or future.done():  # done: its connection closed
        return
    if isinstance(answer, MainstemError):
        future.set_exception(answer)
    else:
        future.set_result(answer)


class CommonProtocols:
    """Which protocols all members of a classic group support, kept as members come and go."""

    def __init__(self) -> None:
        self._members = 0
        self._supported: Counter[str] = Counter()

    def add(self, member: ClassicMember) -> None:
        self._members += 1
        self._supported.update({name for name, _ in member.protocols})

    def remove(self, member: ClassicMember) -> None:
        self._members -= 1
        self._supported.subtract({name for name, _ in member.protocols})
        self._supported = +self._supported

    def check(self, join: Join, group_type: str | None, rejoining: ClassicMember | None) -> None:
        """Raises InconsistentProtocol unless all members, this one included, have a protocol in common."""
        if not join.protocol_type or not join.protocols:
            raise InconsistentProtocol("a member names its protocol type and at least one protocol")
        others = self._members - (rejoining is not None)
        if not others:
            return
        if join.protocol_type != group_type:
            raise InconsistentProtocol(
                f"group {join.group!r} is of type {group_type!r}, not {join.protocol_type!r}"
            )
        for name, _ in join.protocols:
            own = rejoining is not None and rejoining.supports(name)
            if self._supported[name] - own == others:
                return
        raise InconsistentProtocol(f"the members of group {join.group!r} know none of the protocols offered")

    def select(self, members: Iterable[ClassicMember]) -> str:
        """What most members prefer among the protocols that all know."""
        votes: Counter[str] = Counter()
        for member in members:
            known = (name for name, _ in member.protocols if self._supported[name] == self._members)
            votes[next(known)] += 1
        invariant(votes, "a protocol is selected by members")
        return votes.most_common(1)[0][0]
