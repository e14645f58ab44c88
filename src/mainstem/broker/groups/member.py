"""A member of a classic group."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TypeVar

from mainstem.broker.groups.timers import Timer
from mainstem.errors import MainstemError

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
