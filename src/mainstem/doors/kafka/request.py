"""One request under way: its place in the line of answers."""

from __future__ import annotations

import struct
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from mainstem.doors.kafka.api import Part, RequestMatcher
from mainstem.errors import invariant

if TYPE_CHECKING:
    from mainstem.doors.kafka.connection import KafkaConnection
    from mainstem.doors.kafka.dispatch import ApiRoute

_HEAD = struct.Struct(">ii")  # length of what follows, correlation id
_TAGGED_HEAD = struct.Struct(">iib")


class KafkaRequest:
    """Made when a request starts; implements Reply."""

    held_ms = 0  # for which the client is held back by a quota of time (request_quota.py)

    __slots__ = (
        "alone",
        "answered",
        "connection",
        "correlation",
        "hurry",
        "parts",
        "route",
        "size",
        "started",
        "tagged",
    )

    def __init__(
        self, connection: KafkaConnection, route: ApiRoute, correlation: int, tagged: bool, size: int
    ) -> None:
        self.connection = connection
        self.route = route
        self.correlation = correlation
        self.tagged = tagged  # the answer's header has tagged fields
        self.size = size  # bytes received
        self.started = connection.now()
        self.alone = route.alone
        self.answered = False
        self.parts: Sequence[Part] | None = None
        self.hurry: Callable[[], None] | None = None

    def send(self, parts: Sequence[Part], *, failed: bool = False) -> None:
        invariant(not self.answered, "a request is answered once")
        self.parts = parts
        self._finish(failed)

    def send_nothing(self, *, failed: bool = False) -> None:
        invariant(not self.answered, "a request is answered once")
        self._finish(failed)

    def _finish(self, failed: bool) -> None:
        self.answered = True
        self.hurry = None
        connection = self.connection
        self.route.counters.finished(connection.now() - self.started, failed)
        connection.answered(self)

    def hang_up(self, reason: str) -> None:
        self.connection.drop(reason)

    def fail(self, error: Exception) -> None:
        self.connection.fail(error)

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        self.connection.run(work)

    def step(self, work: Callable[[], None]) -> None:
        work()

    def hold_others(self) -> None:
        self.alone = True
        self.connection.hold()

    def mute(self, ms: int) -> None:
        self.connection.mute(ms)

    def expect(self, alike: RequestMatcher) -> None:
        self.connection.expect(alike, self.route)

    def on_hurry(self, callback: Callable[[], None]) -> None:
        self.hurry = callback

    def write(self, out: list[Part]) -> int:
        """Add what goes out, which is nothing if the protocol wants no answer. Returns how many bytes."""
        parts = self.parts
        if parts is None:
            return 0
        length = len(parts[0]) if len(parts) == 1 else sum(map(len, parts))
        if self.tagged:
            out.append(_TAGGED_HEAD.pack(length + 5, self.correlation, 0))
        else:
            out.append(_HEAD.pack(length + 4, self.correlation))
        out += parts
        return length
