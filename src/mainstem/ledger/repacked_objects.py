"""Repacked objects: which files, clustered by stream, serve what objects of the log held before.

A *repack* replaces a range of the log's own objects, by number. Repacks are contiguous up to the *frontier*, from
which the log's own objects serve. Every file has a number of its own, far above those of the log's objects, and indexes
treat it as one more object. Files that no repack names any more are garbage until they are deleted.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import msgspec

from mainstem import limits
from mainstem.errors import InvalidInput, StalePlan
from mainstem.ledger.compactions import RecordsCompacted
from mainstem.ledger.digest import MASK, hash_fields
from mainstem.ledger.keyed import Keyed
from mainstem.ledger.parts import ObjectsForgotten
from mainstem.ledger.routers import Routers
from mainstem.ledger.section import Command, Moment, Section, applies

REPACKED_FILES_PER_ROUND_MAX = 10_000


class RepackedFile(msgspec.Struct, frozen=True, array_like=True):
    """One object of the store. It holds slices from (stream, offset) up to where the next file of its repack begins."""

    key: str
    bytes: int
    stream: int
    offset: int


class PublishRepack(Command, frozen=True, tag=140):
    """Serve what the log's objects [first, end) held from these files, instead of the present ones.

    Some may be among the present ones: compaction replaces only files with records to remove."""

    first: int  # numbers of the log's own objects
    end: int
    sources: tuple[str, ...]  # keys of the files that were read; none: the log's own objects
    files: tuple[RepackedFile, ...]  # by stream and offset; none: no record of the range is needed any more
    removed: tuple[tuple[int, int, int, int], ...] = ()  # by compaction: (stream, base, end, live records)


class ForgetRepacked(Command, frozen=True, tag=141):
    """These files, which no repack names any more, are deleted."""

    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Repacked:
    frontier: int  # the log's own objects serve from this number on
    repeated: bool  # the same files were published before


REPACKED = "repacked/"
FIRST_NUMBER = 1 << 40  # of a repacked file; the log's own objects stay below
_OFFSETS = 1 << 62
_STREAMS = 1 << 32


class RepackRound(msgspec.Struct, frozen=True, array_like=True):
    """The files of one repack and the log objects they replace; also the form in a checkpoint."""

    first: int
    end: int
    level: int  # how often its bytes were copied
    files: tuple[RepackedFile, ...]
    number: int  # of its first file; the others follow

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(file.key for file in self.files)

    def covering(self, stream: int, offset: int) -> range:
        """Numbers of the files that may hold a stream from `offset` on, in order. Never empty."""
        first = bisect_right(self.files, (stream, offset), key=_place) - 1
        last = bisect_right(self.files, stream, key=lambda file: file.stream) - 1
        return range(self.number + max(first, 0), self.number + max(last, first, 0) + 1)


def _place(file: RepackedFile) -> tuple[int, int]:
    return file.stream, file.offset


class RepackedState(msgspec.Struct, frozen=True, array_like=True):
    """All repacks and garbage, in a checkpoint."""

    frontier: int
    issued: int
    rounds: list[RepackRound]
    garbage: list[str]


class RepackedObjects(Section[RepackedState]):
    """The repacks, in the order of the log's objects, and the garbage."""

    requires = (Routers,)

    def __init__(self, routers: Routers | None = None) -> None:
        self._routers = routers  # None: nothing is copied by reference
        self.frontier = 0  # the log's own objects serve from this number on
        self.rounds: list[RepackRound] = []  # in the order of the log's objects
        self._rounds: Keyed[int, RepackRound] = Keyed(_round_hash)  # by their first object
        self._issued = 0  # file numbers given out
        self._files: dict[int, RepackedFile] = {}  # by number
        self._keys: set[str] = set()
        self._garbage: Keyed[str, str] = Keyed(_garbage_hash)

    # Reads

    def file(self, number: int) -> RepackedFile | None:
        """The file of this number, if a repack still names it."""
        return self._files.get(number)

    def numbers(self) -> Iterable[int]:
        """The numbers of all files."""
        return self._files.keys()

    def garbage(self) -> list[str]:
        """Keys of files that no repack names any more."""
        return list(self._garbage)

    def knows(self, key: str) -> bool:
        """Whether a repack names this file, or it is garbage."""
        return key in self._keys or key in self._garbage

    def within(self, first: int, end: int) -> list[RepackRound]:
        """The repacks that overlap a range of the log's objects."""
        return [one for one in self.rounds if one.first < end and one.end > first]

    # Commands

    @applies(PublishRepack)
    def publish(self, command: PublishRepack, now: Moment) -> Repacked | InvalidInput | StalePlan:
        refusal = _bad_command(command)
        if refusal is not None:
            return refusal
        replaced = self.within(command.first, command.end)
        if command.files and [one.files for one in replaced] == [command.files]:
            return Repacked(self.frontier, repeated=True)
        if command.sources:
            exact = tuple(key for one in replaced for key in one.keys) == command.sources
            inside = all(command.first <= one.first and one.end <= command.end for one in replaced)
            if not exact or not inside or command.end > self.frontier:
                return StalePlan("other files than those that were read now serve these objects of the log")
        elif command.first != self.frontier:
            return StalePlan(f"the log's own objects serve from {self.frontier} on, not from {command.first}")
        if self._routers is not None:
            reaching = self._routers.legs.aliases.reaching
            if any(reaching(stream, base, end) for stream, base, end, _ in command.removed):
                return StalePlan("copies in other streams need records that the repack removes")
        for file in command.files:
            if file.key not in command.sources and self.knows(file.key):
                return StalePlan(f"the file {file.key!r} was published before, in another repack")
        self._replace(command, replaced)
        for one in command.removed:
            now.publish(RecordsCompacted(*one))
        return Repacked(self.frontier, repeated=False)

    @applies(ForgetRepacked)
    def forget(self, command: ForgetRepacked, now: Moment) -> ObjectsForgotten:
        return ObjectsForgotten(sum(self._garbage.pop(key) is not None for key in command.keys))

    def _replace(self, command: PublishRepack, replaced: list[RepackRound]) -> None:
        kept = {file.key for file in command.files}
        for one in replaced:
            self._remove(one, kept)
        if command.files:
            level = max((one.level for one in replaced), default=0) + (len(replaced) != 1)
            self._add(
                RepackRound(command.first, command.end, level, command.files, FIRST_NUMBER + self._issued),
            )
            self._issued += len(command.files)
        self.frontier = max(self.frontier, command.end)

    def _add(self, one: RepackRound) -> None:
        self._rounds.put(one.first, one)
        self.rounds = list(self._rounds)
        self._files.update(enumerate(one.files, one.number))
        self._keys.update(one.keys)

    def _remove(self, one: RepackRound, kept: set[str]) -> None:
        self._rounds.pop(one.first)
        self.rounds = list(self._rounds)
        for number in range(one.number, one.number + len(one.files)):
            del self._files[number]
        self._keys.difference_update(one.keys)
        for key in one.keys:
            if key not in kept:
                self._garbage.put(key, key)

    # State as a whole

    @property
    def digest(self) -> int:
        frontier = hash_fields("repack frontier", self.frontier)
        return (self._rounds.digest + self._garbage.digest + frontier) & MASK

    def encode(self) -> RepackedState:
        return RepackedState(self.frontier, self._issued, self.rounds, self.garbage())

    def load(self, state: RepackedState) -> None:
        for one in state.rounds:
            self._add(one)
        for key in state.garbage:
            self._garbage.put(key, key)
        self.frontier, self._issued = state.frontier, state.issued


def _bad_command(command: PublishRepack) -> InvalidInput | None:
    if not 0 <= command.first < command.end <= FIRST_NUMBER:
        return InvalidInput(f"objects {command.first} to {command.end} are not a range of the log's objects")
    if len(command.files) > REPACKED_FILES_PER_ROUND_MAX:
        return InvalidInput(f"a repack of {len(command.files)} files is too large")
    for file in command.files:
        if not file.key.startswith(REPACKED) or len(file.key) > limits.OBJECT_KEY_CHARS_MAX:
            return InvalidInput(f"{file.key[:64]!r} is not a key of a repacked file")
        if file.bytes < 1 or not 0 <= file.stream < _STREAMS or not 0 <= file.offset < _OFFSETS:
            return InvalidInput(f"the file {file.key[:64]!r} has an invalid stream, offset or size")
    if any(_place(one) >= _place(other) for one, other in pairwise(command.files)):
        return InvalidInput("the files of a repack must be in the order of their streams and offsets")
    if len({file.key for file in command.files}) < len(command.files):
        return InvalidInput("a repack names a file twice")
    if any(
        stream < 0 or not 0 <= base < end or records < 0 for stream, base, end, records in command.removed
    ):
        return InvalidInput("a repack removes records of an invalid range")
    return None


def _round_hash(one: RepackRound) -> int:
    return hash_fields("repacked", one.first, one.end, one.level, one.number, one.files)


def _garbage_hash(key: str) -> int:
    return hash_fields("repacked garbage", key)
