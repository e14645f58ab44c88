"""The objects of the log as this process knows them.

An object is a run of commits whose payloads are numbered through as one. The commits themselves say which object
they are a part of; a seal says so for all of one object. A seal made while another writer still went on with the
object covers less than the object, and counts for nothing.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from mainstem import limits
from mainstem.errors import LogDamaged, invariant
from mainstem.ports.commitlog.bucket.entries import Commit
from mainstem.ports.commitlog.bucket.keys import Floor, SealName
from mainstem.ports.commitlog.bucket.references import References
from mainstem.ports.commitlog.port import LogObject

_NEWEST = 256  # commits whose ids are kept, for turns.py


@dataclass(slots=True)
class Run:
    """The commits of an object, known one by one."""

    number: int
    first: int
    end: int
    size: int = 0  # bytes of payload
    weight: int = 0  # the same with heads and entries
    starts: list[int] = field(default_factory=list)  # of the commits that have a payload
    commits: list[Commit] = field(default_factory=list)  # the same ones

    def add(self, commit: Commit) -> None:
        if commit.position != self.end or commit.start != self.size or commit.first != self.first:
            raise LogDamaged(f"the commit at {commit.position} does not go on where its object ends")
        if commit.payload_length:
            self.starts.append(commit.start)
            self.commits.append(commit)
        self.end += 1
        self.size += commit.payload_length
        self.weight = commit.weight_end

    def pieces(self, start: int, length: int) -> Iterator[tuple[Commit, int, int]]:
        """What to read for a range of the object: (commit, start in its payload, length)."""
        at = bisect_right(self.starts, start) - 1
        while length > 0 and 0 <= at < len(self.commits):
            commit = self.commits[at]
            skipped = start - commit.start
            taken = min(length, commit.payload_length - skipped)
            if taken > 0:
                yield commit, skipped, taken
                start += taken
                length -= taken
            at += 1

    def sealed(self) -> tuple[SealName, References]:
        """What it is called once it is sealed as it is now, and what its seal refers to."""
        references = References.among(self.size, self.commits)
        return SealName(self.number, self.first, self.end, self.size, references.bytes), references


class ObjectTable:
    """Which objects there are, and where the next commit goes. The event loop changes it, any thread may look."""

    def __init__(self, floor: Floor, object_bytes: int) -> None:
        self.end = floor.position  # the position of the next commit, as far as is known here
        self.rolled = False
        self._object_bytes = object_bytes
        self._last_number = floor.object  # of all objects that have a commit or a seal
        self._runs: dict[int, Run] = {}
        self._seals: dict[int, SealName] = {}
        self._gone: dict[int, SealName] = {}
        self.newest: deque[bytes] = deque(maxlen=_NEWEST)  # ids of the last commits
        self._news: asyncio.Future[None] | None = None  # of the next commit, if anybody waits for it

    def learn_seals(self, seals: Mapping[int, SealName], gone: Mapping[int, SealName]) -> None:
        """All that count, by whomever they were made."""
        self._gone = dict(gone)
        self._seals = {
            number: seal
            for number, seal in seals.items()
            if number not in self._runs or self._runs[number].end == seal.end
        }
        self._let_go()

    def learn_seal(self, seal: SealName) -> None:
        self._seals[seal.number] = seal
        self._let_go()

    def learn_drop(self, seal: SealName) -> None:
        self._seals.pop(seal.number, None)
        self._gone[seal.number] = seal
        self._let_go()

    def forget_drop(self, seal: SealName) -> None:
        self._gone.pop(seal.number, None)

    def skip_to(self, position: int, number: int) -> None:
        """What is before the position, up to that object, is known by its seals, or truncated."""
        if position > self.end:
            self.end = position
            self._last_number = max(self._last_number, number)
            for one in [one for one in self._runs if one <= number]:
                del self._runs[one]

    def watch_page(self) -> asyncio.Future[None]:
        """Done when the next commit is learnt, from whomever. For tasks of the event loop."""
        if self._news is None:
            self._news = asyncio.get_running_loop().create_future()
        return self._news

    def learn_commit(self, commit: Commit) -> None:
        """The next commit, or one that is known already. Raises LogDamaged."""
        if commit.position < self.end:
            return
        invariant(commit.position == self.end, "commits are learnt in order")
        run = self._runs.get(commit.object)
        if run is None:
            run = self._runs[commit.object] = Run(commit.object, commit.position, commit.position)
            self.rolled = False
        run.add(commit)
        self.newest.append(commit.id)
        self._last_number = max(self._last_number, commit.object)
        self.end += 1
        for known in (self._seals, self._gone):
            if commit.object in known and known[commit.object].end < run.end:
                del known[commit.object]  # it grew, so what was said of it was said too early
        self._let_go()
        if self._news is not None:
            self._news.set_result(None)
            self._news = None

    def _let_go(self) -> None:
        """A run is not needed once its object is sealed and a later one has begun, so that it cannot grow."""
        for number in [number for number in self._runs if number < self._last_number]:
            seal = self._seals.get(number) or self._gone.get(number)
            if seal is not None and self._runs[number].end <= seal.end:
                del self._runs[number]

    def next_place(self) -> tuple[int, int, int, int]:
        """Object, its first position, start and weight of the next commit."""
        current = self.current
        if current is None:
            return self._last_number + 1, self.end, 0, 0
        return current.number, current.first, current.size, current.weight

    @property
    def current(self) -> Run | None:
        """The object that takes the next commit, None if a new one will."""
        last = self._runs.get(self._last_number)
        if last is None or self.rolled or last.weight >= self._object_bytes:
            return None
        if self.seal(last.number) is not None or last.number in self._gone:
            return None
        return last if last.end - last.first < limits.BUCKET_OBJECT_COMMITS_MAX else None

    def run(self, number: int) -> Run | None:
        """The object's commits, unless it is dropped or its seal is all there is to know."""
        return self._runs.get(number) if number not in self._gone else None

    def seal(self, number: int) -> SealName | None:
        """The object's seal. One that others made ahead of what is known here comes later."""
        seal = self._seals.get(number)
        return seal if seal is not None and seal.end <= self.end else None

    def gone(self) -> list[SealName]:
        return sorted(self._gone.copy().values(), key=lambda seal: seal.number)

    def settled(self, floor: Floor) -> list[SealName]:
        """The sealed and dropped objects that follow each other from the floor on and can grow no more."""
        found: list[SealName] = []
        at = floor.position
        for seal in sorted({**self._gone, **self._seals}.values(), key=lambda seal: seal.number):
            if seal.first == at and seal.end > at:
                found.append(seal)
                at = seal.end
        return found

    def described(self) -> list[LogObject]:
        sealed = [seal for seal in self._seals.copy().values() if seal.end <= self.end]
        known = {seal.number for seal in sealed} | self._gone.keys()
        listed = [seal.described() for seal in sealed]
        listed += [
            LogObject(one.number, one.first, one.end, one.size, sealed=False)
            for one in self._runs.copy().values()
            if one.number not in known
        ]
        return sorted(listed, key=lambda one: one.number)
