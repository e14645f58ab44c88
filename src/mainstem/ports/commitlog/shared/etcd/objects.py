"""The objects of the log as this process knows them.

An object is a run of commits whose payloads are numbered through as one. Which commits those are is said by the
commits themselves; once it is sealed, by its seal.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from mainstem import limits
from mainstem.errors import LogDamaged, invariant
from mainstem.ports.commitlog.port import LogObject
from mainstem.ports.commitlog.shared.etcd.directory import Directory
from mainstem.ports.commitlog.shared.etcd.records import CommitRecord, Floor, Seal

_NEWEST = 256  # commits whose ids are kept, for courtesy.py


@dataclass(slots=True)
class OpenObject:
    """An object that is not sealed, so its commits are known here only."""

    number: int
    first: int
    end: int
    size: int = 0  # bytes of payload
    weight: int = 0  # the same with entries and headers
    directory: Directory = field(default_factory=Directory)


class ObjectTable:
    """Which objects there are, and where the next commit goes. The event loop changes it, any thread may look."""

    def __init__(self, floor: Floor, object_bytes: int) -> None:
        self.end = floor.position  # the position of the next commit, as far as is known here
        self._object_bytes = object_bytes
        self._last_number = floor.object  # of all objects there ever were
        self._rolled = False
        self._open: dict[int, OpenObject] = {}
        self._seals: dict[int, Seal] = {}
        self.newest: deque[bytes] = deque(maxlen=_NEWEST)  # ids of the last commits

    def learn_seal(self, seal: Seal) -> None:
        """Sealed or dropped, by whomever; maybe before its commits were learnt."""
        self._seals[seal.number] = seal
        self._open.pop(seal.number, None)
        self._last_number = max(self._last_number, seal.number)

    def forget(self, number: int) -> None:
        """Its record is gone."""
        self._seals.pop(number, None)

    def skip_to(self, position: int, number: int) -> None:
        """What is before the position, up to that object, is known by its seals, or truncated."""
        self.end = max(self.end, position)
        self._last_number = max(self._last_number, number)
        for one in [one for one in self._open if one <= number]:
            del self._open[one]

    def learn_commit(self, record: CommitRecord) -> None:
        """The next commit, or one that is known already."""
        if record.position < self.end:
            return
        invariant(record.position == self.end, "commits are learnt in order")
        if record.object not in self._seals:
            self._extend(record)
        self.newest.append(record.id)
        self.end += 1

    def _extend(self, record: CommitRecord) -> None:
        found = self._open.get(record.object)
        if found is None:
            found = OpenObject(record.object, record.position, record.position)
            if record.object > self._last_number:
                self._last_number = record.object
                self._rolled = False
            self._open[record.object] = found
        if record.position != found.end or record.start != found.size:
            raise LogDamaged(f"the commit at {record.position} does not go on where its object ends")
        found.directory.add(record.start, record.payload_length, record.id)
        found.end += 1
        found.size += record.payload_length
        found.weight += record.weight

    def next_place(self) -> tuple[int, int]:
        """Object and start of the next commit."""
        current = self.current
        return (current.number, current.size) if current else (self._last_number + 1, 0)

    @property
    def current(self) -> OpenObject | None:
        """The object that takes the next commit, None if a new one will."""
        last = self._open.get(self._last_number)
        if last is None or self._rolled or last.weight >= self._object_bytes:
            return None
        return last if last.end - last.first < limits.ETCD_OBJECT_COMMITS_MAX else None

    def roll(self) -> None:
        self._rolled = True

    def open_object(self, number: int) -> OpenObject | None:
        return self._open.get(number)

    def seal_of(self, number: int) -> Seal | None:
        return self._seals.get(number)

    def seals(self) -> list[Seal]:
        """By number, dropped ones too."""
        return [seal for _, seal in sorted(self._seals.copy().items())]

    def is_last(self, number: int) -> bool:
        return number == self._last_number

    def settled(self, floor: Floor) -> list[Seal]:
        """The sealed and dropped objects that follow each other from the floor on, without one that is open."""
        found: list[Seal] = []
        at = floor.position
        for seal in self.seals():
            if seal.end <= at:
                continue
            if seal.first != at:
                break
            found.append(seal)
            at = seal.end
        return found

    def described(self) -> list[LogObject]:
        listed = [
            LogObject(seal.number, seal.first, seal.end, seal.size, sealed=True)
            for seal in self.seals()
            if not seal.dropped
        ]
        listed += [
            LogObject(one.number, one.first, one.end, one.size, sealed=False)
            for one in self._open.copy().values()
        ]
        return sorted(listed, key=lambda one: one.number)
