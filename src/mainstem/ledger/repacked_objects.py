"""Repacked: which files, clustered by stream, serve what objects of the log held once.

A *round* stands for a range of the log's own objects, by number; rounds follow one another up to the *frontier*, from
where on the log's own objects serve. Every file has a number of its own, far above those of the log's objects, by which
it stands in indexes as one more object. Files that no round names any more are garbage until they are deleted.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import msgspec

from mainstem import limits
from mainstem.errors import InvalidInput, StalePlan
from mainstem.ledger.digest import MASK, hash_fields
from mainstem.ledger.repack_commands import ForgetRepacked, PublishRepack, RepackedFile
from mainstem.ledger.results import ObjectsForgotten, Repacked

REPACKED = "repacked/"
FIRST_NUMBER = 1 << 40  # of a repacked file; the log's own objects stay below
_OFFSETS = 1 << 62
_STREAMS = 1 << 32


@dataclass(frozen=True, slots=True)
class RepackRound:
    """What one repack made, and of which of the log's objects."""

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

    @property
    def digest(self) -> int:
        files = tuple((file.key, file.bytes, file.stream, file.offset) for file in self.files)
        return hash_fields("repacked", self.first, self.end, self.level, self.number, files)


def _place(file: RepackedFile) -> tuple[int, int]:
    return file.stream, file.offset


class RepackedState(msgspec.Struct, frozen=True, array_like=True):
    """All rounds and garbage, as a checkpoint holds them."""

    frontier: int = 0
    issued: int = 0
    rounds: list[tuple[int, int, int, tuple[RepackedFile, ...], int]] = []  # the fields of `RepackRound`
    garbage: list[str] = []


class RepackedObjects:
    """The rounds there are, in the order of the log's objects, and the garbage."""

    def __init__(self) -> None:
        self.digest = 0
        self.frontier = 0  # the log's own objects serve from this number on
        self.rounds: list[RepackRound] = []
        self._issued = 0  # file numbers given out
        self._files: dict[int, RepackedFile] = {}  # by number
        self._keys: set[str] = set()
        self._garbage: set[str] = set()

    # Reads

    def file(self, number: int) -> RepackedFile | None:
        """The file of this number, if a round still names it."""
        return self._files.get(number)

    def numbers(self) -> Iterable[int]:
        """Of every file."""
        return self._files.keys()

    def garbage(self) -> list[str]:
        """Keys of files that no round names any more."""
        return sorted(self._garbage)

    def knows(self, key: str) -> bool:
        """Whether a round names this file, or did and it is garbage."""
        return key in self._keys or key in self._garbage

    def within(self, first: int, end: int) -> list[RepackRound]:
        """The rounds of a range of the log's objects, even those that are in it in part."""
        return [one for one in self.rounds if one.first < end and one.end > first]

    # Commands

    def publish(self, command: PublishRepack) -> Repacked | InvalidInput | StalePlan:
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
                return StalePlan(
                    "other files serve these objects of the log by now than those that were read"
                )
        elif command.first != self.frontier:
            return StalePlan(f"the log's own objects serve from {self.frontier} on, not from {command.first}")
        for file in command.files:
            if self.knows(file.key):
                return StalePlan(f"the file {file.key!r} was published before, in another round")
        self._replace(command, replaced)
        return Repacked(self.frontier, repeated=False)

    def forget(self, command: ForgetRepacked) -> ObjectsForgotten:
        gone = self._garbage.intersection(command.keys)
        self._garbage -= gone
        self.digest = (self.digest - sum(map(_garbage_digest, gone))) & MASK
        return ObjectsForgotten(len(gone))

    def _replace(self, command: PublishRepack, replaced: list[RepackRound]) -> None:
        for one in replaced:
            self._remove(one)
        if command.files:
            level = max((one.level for one in replaced), default=0) + (len(replaced) != 1)
            self._add(
                RepackRound(command.first, command.end, level, command.files, FIRST_NUMBER + self._issued),
            )
            self._issued += len(command.files)
        self._move_frontier(max(self.frontier, command.end))

    def _move_frontier(self, frontier: int) -> None:
        self.digest += hash_fields("repack frontier", frontier) if frontier else 0
        self.digest -= hash_fields("repack frontier", self.frontier) if self.frontier else 0
        self.digest &= MASK
        self.frontier = frontier

    def _add(self, one: RepackRound) -> None:
        self.rounds.insert(bisect_right(self.rounds, one.first, key=lambda other: other.first), one)
        self._files.update(enumerate(one.files, one.number))
        self._keys.update(one.keys)
        self.digest = (self.digest + one.digest) & MASK

    def _remove(self, one: RepackRound) -> None:
        self.rounds.remove(one)
        for number in range(one.number, one.number + len(one.files)):
            del self._files[number]
        self._keys.difference_update(one.keys)
        self.digest = (self.digest - one.digest) & MASK
        self._discard(one.keys)

    def _discard(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._garbage.add(key)
            self.digest = (self.digest + _garbage_digest(key)) & MASK

    # State as a whole

    def encode(self) -> RepackedState:
        rounds = [(one.first, one.end, one.level, one.files, one.number) for one in self.rounds]
        return RepackedState(self.frontier, self._issued, rounds, self.garbage())

    @classmethod
    def decode(cls, state: RepackedState) -> RepackedObjects:
        repacked = cls()
        for one in state.rounds:
            repacked._add(RepackRound(*one))
        repacked._discard(state.garbage)
        repacked._move_frontier(state.frontier)
        repacked._issued = state.issued
        return repacked


def _bad_command(command: PublishRepack) -> InvalidInput | None:
    if not 0 <= command.first < command.end <= FIRST_NUMBER:
        return InvalidInput(f"objects {command.first} to {command.end} are no range of the log's objects")
    if len(command.files) > limits.REPACKED_FILES_PER_ROUND_MAX:
        return InvalidInput(f"a round of {len(command.files)} files is too large")
    for file in command.files:
        if not file.key.startswith(REPACKED) or len(file.key) > limits.OBJECT_KEY_CHARS_MAX:
            return InvalidInput(f"{file.key[:64]!r} is no key of a repacked file")
        if file.bytes < 1 or not 0 <= file.stream < _STREAMS or not 0 <= file.offset < _OFFSETS:
            return InvalidInput(f"the file {file.key[:64]!r} is said to hold what cannot be")
    if any(_place(one) >= _place(other) for one, other in pairwise(command.files)):
        return InvalidInput("the files of a round stand in the order of what they hold")
    if len({file.key for file in command.files}) < len(command.files):
        return InvalidInput("a round names a file twice")
    return None


def _garbage_digest(key: str) -> int:
    return hash_fields("repacked garbage", key)
