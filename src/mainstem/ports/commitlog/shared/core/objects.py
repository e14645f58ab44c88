"""The objects of the log as this process knows them.

An object is a run of commits whose payloads form one sequence of bytes. Each commit says which object it belongs to; a
seal says which commits an object holds. Where a backend cannot keep others from writing to an object that is being
sealed, a seal may cover less than the object: such a seal does not count.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from mainstem.errors import LogDamaged, invariant
from mainstem.ports.commitlog.port import Committed, LogObject
from mainstem.ports.commitlog.shared.core.backend import Floor, H, NextPlace, S

T = TypeVar("T")
_NEWEST = 256  # commits whose ids are kept for fairness.py


class PayloadMap(Generic[T]):
    """Which holder has which bytes of an object, by rising start."""

    __slots__ = ("holders", "lengths", "starts")

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.lengths: list[int] = []
        self.holders: list[T] = []

    def add(self, start: int, length: int, holder: T) -> None:
        if length:
            self.starts.append(start)
            self.lengths.append(length)
            self.holders.append(holder)

    def pieces(self, start: int, length: int) -> Iterator[tuple[T, int, int]]:
        """What to read for a range of the object: (holder, start in its payload, length)."""
        at = bisect_right(self.starts, start) - 1
        while length > 0 and 0 <= at < len(self.starts):
            skipped = start - self.starts[at]
            taken = min(length, self.lengths[at] - skipped)
            if taken > 0:
                yield self.holders[at], skipped, taken
                start += taken
                length -= taken
            at += 1


@dataclass(slots=True)
class OpenObject(Generic[H]):
    """An object whose commits are known one by one."""

    number: int
    first: int
    end: int
    size: int = 0  # bytes of payload
    weight: int = 0  # the same with records and entries
    payloads: PayloadMap[H] = field(default_factory=PayloadMap)

    def described(self) -> LogObject:
        return LogObject(self.number, self.first, self.end, self.size, sealed=False)

    def add(self, head: H) -> None:
        if head.position != self.end or head.start != self.size or head.first not in (None, self.first):
            raise LogDamaged(
                f"the commit at position {head.position} does not continue object {self.number}, "
                f"which ends at position {self.end}, byte {self.size}: restore the log from a backup"
            )
        self.payloads.add(head.start, head.payload_length, head)
        self.end += 1
        self.size += head.payload_length
        self.weight += head.stored_bytes


class ObjectTable(Generic[H, S]):
    """Which objects there are, and where the next commit goes. The event loop changes it; any thread may read it."""

    def __init__(self, object_bytes: int, commits_max: int) -> None:
        self.end = 0  # position of the next commit, as far as this process knows
        self.rolled = False
        self.newest: deque[bytes] = deque(maxlen=_NEWEST)  # ids of the last commits
        self.undelivered: list[Committed] = []  # counted in `end`, but no caller has seen them yet
        self._object_bytes = object_bytes
        self._commits_max = commits_max
        self._last_number = 0  # the highest object that has a commit, as far as this process knows
        self._open: dict[int, OpenObject[H]] = {}
        self._sealed: dict[int, S] = {}
        self._dropped: dict[int, S] = {}
        self._arrival: asyncio.Future[None] | None = None

    def learn_listing(self, sealed: Mapping[int, S], dropped: Mapping[int, S]) -> None:
        """Everything that is sealed or dropped, by any broker."""
        self._dropped = {number: one for number, one in dropped.items() if not self._has_outgrown(one)}
        self._sealed = {
            number: one
            for number, one in sealed.items()
            if number not in self._open or self._open[number].end == one.end
        }
        self._last_number = max([self._last_number, *sealed, *dropped])
        self._release()

    def _has_outgrown(self, sealed: S) -> bool:
        known = self._open.get(sealed.number)
        return known is not None and known.end > sealed.end

    def learn_seal(self, sealed: S) -> None:
        self._sealed[sealed.number] = sealed
        self._last_number = max(self._last_number, sealed.number)
        self._release()

    def learn_drop(self, sealed: S) -> None:
        self._sealed.pop(sealed.number, None)
        self._dropped[sealed.number] = sealed
        self._release()

    def forget_drop(self, dropped: S) -> None:
        self._dropped.pop(dropped.number, None)

    def skip_to(self, position: int, number: int) -> None:
        """Commits before the position, in objects up to that number, are sealed or truncated: do not wait for them."""
        if position >= self.end:
            self.end = position
            self._last_number = max(self._last_number, number)
            for one in [one for one in self._open if one <= number]:
                del self._open[one]

    def learn_commit(self, head: H) -> None:
        """The next commit; one that is already known is ignored. Raises LogDamaged."""
        if head.position < self.end:
            return
        invariant(head.position == self.end, "commits are learnt in order")
        current = self._open.get(head.object)
        if current is None:
            current = self._open[head.object] = OpenObject(head.object, head.position, head.position)
            self.rolled = False
        current.add(head)
        self.newest.append(head.id)
        self._last_number = max(self._last_number, head.object)
        self.end += 1
        for known in (self._sealed, self._dropped):
            if head.object in known and self._has_outgrown(known[head.object]):
                del known[head.object]
        self._release()
        if self._arrival is not None:
            self._arrival.set_result(None)
            self._arrival = None

    def arrival(self) -> asyncio.Future[None]:
        """Done when the next commit is learnt, from any source. For tasks of the event loop."""
        if self._arrival is None:
            self._arrival = asyncio.get_running_loop().create_future()
        return self._arrival

    def _release(self) -> None:
        """Forget the commits of objects that are sealed and, since the next one has begun, cannot grow."""
        for number in [number for number, one in self._open.items() if one.end < self.end]:
            sealed = self._sealed.get(number) or self._dropped.get(number)
            if sealed is not None and self._open[number].end == sealed.end:
                del self._open[number]

    def next_place(self) -> NextPlace:
        current = self.current
        if current is None:
            return NextPlace(self.end, self._last_number + 1, self.end, 0, 0)
        return NextPlace(self.end, current.number, current.first, current.size, current.weight)

    @property
    def current(self) -> OpenObject[H] | None:
        """The object that takes the next commit; None if a new one will."""
        last = self._open.get(self._last_number)
        if last is None or self.rolled or last.weight >= self._object_bytes:
            return None
        if last.number in self._sealed or last.number in self._dropped:
            return None
        return last if last.end - last.first < self._commits_max else None

    def open_object(self, number: int) -> OpenObject[H] | None:
        """The object with its commits, unless it is dropped or only its seal is known."""
        return self._open.get(number) if number not in self._dropped else None

    def sealed(self, number: int) -> S | None:
        """The object's seal, once all its commits are known here."""
        sealed = self._sealed.get(number)
        return sealed if sealed is not None and sealed.end <= self.end else None

    def open_objects(self) -> list[OpenObject[H]]:
        return list(self._open.copy().values())

    def dropped(self) -> list[S]:
        """By number."""
        return [one for _, one in sorted(self._dropped.copy().items())]

    def settled(self, floor: Floor) -> list[S]:
        """Sealed and dropped objects that follow each other from the floor on. Only the last of them may still grow."""
        found: list[S] = []
        at = floor.position
        for _, sealed in sorted({**self._dropped, **self._sealed}.items()):
            if sealed.first == at and sealed.end > at:
                found.append(sealed)
                at = sealed.end
        return found

    def described(self) -> list[LogObject]:
        """By number."""
        sealed = [one for one in self._sealed.copy().values() if one.end <= self.end]
        known = {one.number for one in sealed} | self._dropped.keys()
        listed = [LogObject(one.number, one.first, one.end, one.size, sealed=True) for one in sealed]
        listed += [one.described() for one in self.open_objects() if one.number not in known]
        return sorted(listed, key=lambda one: one.number)
