"""Fetch sessions (KIP-227): a client names its partitions once, and later only changes.

A session belongs to the connection that opened it, and ends with it. It watches every partition separately, so the
cost of a request depends on what changed since the last one, not on the number of partitions.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from mainstem.broker.streams import find_stream
from mainstem.broker.topics.service import Topic
from mainstem.doors.kafka.apis.fetch_poll import FetchLimits, FetchPart, FetchPoll
from mainstem.doors.kafka.transport.api import Call, Part

if TYPE_CHECKING:
    from mainstem.doors.kafka.transport.context import KafkaContext

KAFKA_SESSION_PARTITIONS_MAX = (
    1_000_000  # of all fetch sessions; beyond, clients name their partitions each time
)

_EPOCHS = (1 << 31) - 1

# From a topic's key to the topic, and the error code for a partition that does not exist.
Find = Callable[[bytes], tuple[Topic | None, int]]


class FetchSession:
    """The partitions of a session, and which of them the next request checks."""

    def __init__(self, context: KafkaContext, rules: int, find: Find) -> None:
        self.id = secrets.randbelow(_EPOCHS) + 1
        self.rules = rules  # the access rules that allowed these reads
        self._context = context
        self._streams = context.broker.streams
        self._find = find
        self._epoch = 0
        self._parts: dict[tuple[bytes, int], _SessionPart] = {}
        self._due: dict[_SessionPart, None] = {}  # in the order in which they are checked
        self._poll: SessionPoll | None = None

    @classmethod
    def open(cls, call: Call, parts: list[FetchPart], find: Find) -> FetchSession | None:
        """None: all sessions together have reached the limit on partitions."""
        context = call.context
        if context.session_partitions + len(parts) > KAFKA_SESSION_PARTITIONS_MAX:
            return None
        session = cls(context, context.access.state, find)
        session.change(parts, ())
        return session

    def next_epoch(self, epoch: int) -> bool:
        """Whether the epoch is the next one of the session."""
        if epoch != self._epoch % _EPOCHS + 1:
            return False
        self._epoch = epoch
        return True

    def change(self, parts: Iterable[FetchPart], forgotten: Iterable[tuple[bytes, int]]) -> None:
        """Add or change partitions, and remove others."""
        for key in forgotten:
            self._remove(key)
        for part in parts:
            known = self._parts.get((part.key, part.index))
            if known is None:
                self._add(part)
            else:
                known.offset, known.max_bytes, known.fault = part.offset, part.max_bytes, part.code
                self._due[known] = None

    def _add(self, part: FetchPart) -> None:
        added = self._parts[part.key, part.index] = _SessionPart(self, part)
        self._context.session_partitions += 1
        self._due[added] = None
        if added.stream >= 0:
            self._streams.watch((added.stream,), added)

    def _remove(self, key: tuple[bytes, int]) -> None:
        part = self._parts.pop(key, None)
        if part is None:
            return
        self._context.session_partitions -= 1
        self._due.pop(part, None)
        if part.stream >= 0:
            self._streams.unwatch((part.stream,), part)

    def forget(self) -> None:
        """End the session: the connection is closed, or the client names its partitions again."""
        if self._poll is not None:
            self._poll.forget()
        for key in list(self._parts):
            self._remove(key)

    def poll(self, call: Call, wanted: FetchLimits, write: Callable[[FetchPoll], list[Part]]) -> SessionPoll:
        """One request of the session."""
        self._poll = SessionPoll(self, call, wanted, write, everything=self._epoch == 0)
        return self._poll

    def take_due(self, parts: dict[_SessionPart, None]) -> None:
        """Add the partitions to check to those of a request, reset for collecting."""
        for part in self._due:
            if part not in parts:
                parts[part] = None
                part.begin()
                part.code = part.fault  # what was wrong in the last answer may be right now
                if part.stream < 0:
                    self._look_up(part)
        self._due.clear()

    def _look_up(self, part: _SessionPart) -> None:
        """The topic of a partition may exist by now."""
        topic, unknown = self._find(part.key)
        part.stream = find_stream(topic, part.index)
        if topic is None or part.stream < 0:
            part.code = unknown
            return
        part.code, part.topic = 0, topic.name
        self._streams.watch((part.stream,), part)

    @property
    def topics(self) -> set[str]:
        return {part.topic for part in self._parts.values()}

    def changed(self, part: _SessionPart) -> None:
        """Something became visible in a partition."""
        self._due[part] = None
        if self._poll is not None:
            self._poll.changed()

    def answered(self, parts: Iterable[_SessionPart]) -> None:
        """Check the partitions of the last response again: they may have more."""
        self._poll = None
        again = [part for part in parts if part.size or part.code or part.full or part.at < part.end]
        for part in sorted(again, key=lambda part: part.size > 0):
            self._due[part] = None
        for part in parts:
            part.batches = []


class _SessionPart(FetchPart):
    """A partition of a session. It watches its stream for the session."""

    __slots__ = ("fault", "session", "told")

    def __init__(self, session: FetchSession, part: FetchPart) -> None:
        super().__init__(part.key, part.topic, part.index, part.stream, part.offset, part.max_bytes)
        self.code = self.fault = part.code  # the fault is in what the client asks for
        self.session = session
        self.told: tuple[int, int] | None = None  # the bounds in the last answer that named it

    def changed(self) -> None:
        self.session.changed(self)

    @property
    def has_news(self) -> bool:
        return bool(self.size or self.code or self.told != (self.start, self.end))


class SessionPoll(FetchPoll):
    """A request of a session: checks the partitions that changed, and returns only those."""

    def __init__(
        self,
        session: FetchSession,
        call: Call,
        wanted: FetchLimits,
        write: Callable[[FetchPoll], list[Part]],
        *,
        everything: bool,
    ) -> None:
        super().__init__(call, [], self._write_news, wanted)
        self.session = session
        self._write_answer = write
        self._everything = everything  # the first response names every partition
        self._looked_at: dict[_SessionPart, None] = {}

    def _poll(self) -> None:
        self.session.take_due(self._looked_at)
        self._parts = list(self._looked_at)
        super()._poll()

    def _write_news(self, _: FetchPoll) -> list[Part]:
        self.parts = [part for part in self._looked_at if self._everything or part.has_news]
        for part in self._looked_at:
            part.told = part.start, part.end
        return self._write_answer(self)

    def _scopes(self) -> set[str]:
        return set(map(self._scope, self.session.topics))

    def _watch(self) -> None:
        self._watched = []  # the partitions watch for the session

    def _answered(self, answer: list[Part], *, failed: bool) -> None:
        self.session.answered(list(self._looked_at))
