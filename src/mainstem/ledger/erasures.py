"""Erasures: requests to remove records and every byte of them, and how far each one is.

An erasure goes through its phases in order. The ledger records each phase once its work is done, so a broker that stops
at any moment resumes with the phase that it had reached. The ledger never learns what was asked for: a key or a value
here would stay in the log that it must leave.

The section also lists the backups that this server made: a report names those that may hold what was erased.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from mainstem import limits
from mainstem.errors import InvalidInput, LimitReached, MainstemError, NotFound, StalePlan
from mainstem.ledger.digest import MASK
from mainstem.ledger.keyed import LatestByKey, fields_hash
from mainstem.ledger.section import Command, Moment, Section, applies
from mainstem.ledger.topics import Topics

ERASURES_MAX = 1_000  # finished ones are forgotten, oldest first, to make room
ERASURE_ID_CHARS = 32
ERASURE_TOPICS_MAX = 1_000  # that one erasure covers
ERASURE_REPORT_BYTES_MAX = 256 * limits.KIB
BACKUPS_NOTED_MAX = 1_000  # the oldest are forgotten

ErasureBy = Literal["key", "tag", "where"]
ErasurePhase = Literal["accepted", "deleted", "log_rewritten", "parts_rewritten", "done", "failed"]

_NEXT: dict[ErasurePhase, ErasurePhase] = {
    "accepted": "deleted",
    "deleted": "log_rewritten",
    "log_rewritten": "parts_rewritten",
    "parts_rewritten": "done",
}
ENDED: tuple[ErasurePhase, ...] = ("done", "failed")


class ErasedTopic(msgspec.Struct, frozen=True, array_like=True):
    """A topic that an erasure covers."""

    topic_id: bytes
    name: str
    role: str  # why it is covered: it was named, or how it gets copies
    records: int = 0  # deleted so far


class AcceptErasure(Command, frozen=True, tag=180):
    """Erase records of the first topic, and of the others, which get copies of them."""

    id: str
    by: ErasureBy
    topics: tuple[ErasedTopic, ...]


class CountErased(Command, frozen=True, tag=181):
    """Records of one topic were deleted for an erasure."""

    id: str
    topic_id: bytes
    records: int


class AdvanceErasure(Command, frozen=True, tag=182):
    """The work of a phase is done."""

    id: str
    phase: ErasurePhase  # that it reaches now
    through: int = 0  # with "deleted": the last of the log's objects that may hold the records
    report: bytes = b""  # with "done": signed JSON
    problem: str = ""  # with "failed"


class NoteBackup(Command, frozen=True, tag=183):
    """A backup to this place begins now."""

    url: str


class Erasure(msgspec.Struct, frozen=True, array_like=True):
    """One erasure; also the form in a checkpoint."""

    id: str
    by: ErasureBy
    topics: tuple[ErasedTopic, ...]
    accepted_ms: int
    phase: ErasurePhase = "accepted"
    changed_ms: int = 0  # when it reached the phase
    through: int = 0
    position: int = 0  # of the commit that recorded the phase
    report: bytes = b""
    problem: str = ""


class NotedBackup(msgspec.Struct, frozen=True, array_like=True):
    """Where backups went, and when the last one began; also the form in a checkpoint."""

    url: str
    time_ms: int


class ErasuresState(msgspec.Struct, frozen=True, array_like=True):
    erasures: list[Erasure]  # by the time of their last change
    backups: list[NotedBackup]


class Erasures(Section[ErasuresState]):
    requires = (Topics,)

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._erasures: LatestByKey[str, Erasure] = LatestByKey(fields_hash("erasure"))
        self._backups: LatestByKey[tuple[str, int], NotedBackup] = LatestByKey(fields_hash("noted backup"))
        self._running: set[str] = set()  # ids

    # Reads

    def __iter__(self) -> Iterator[Erasure]:
        """By the time of their last change."""
        return iter(self._erasures)

    def get(self, id: str) -> Erasure | None:
        return self._erasures.get(id)

    def running(self) -> list[Erasure]:
        """Those that have not ended, by id."""
        return [self._erasures[id] for id in sorted(self._running)]

    def parts_rewritten_at(self, topic_id: bytes) -> int | None:
        """The newest position at which a running erasure had removed its records from all parts of a topic."""
        found = [
            one.position
            for one in self.running()
            if one.phase == "parts_rewritten" and any(topic.topic_id == topic_id for topic in one.topics)
        ]
        return max(found, default=None)

    def backups(self) -> list[NotedBackup]:
        """Oldest first."""
        return list(self._backups)

    # Commands

    @applies(AcceptErasure)
    def accept(self, command: AcceptErasure, now: Moment) -> Erasure | MainstemError:
        if len(command.id) != ERASURE_ID_CHARS or not command.id.isalnum():
            return InvalidInput(f"the id of an erasure has {ERASURE_ID_CHARS} letters and digits")
        if not 0 < len(command.topics) <= ERASURE_TOPICS_MAX:
            return InvalidInput(f"an erasure covers 1 to {ERASURE_TOPICS_MAX} topics")
        for topic in command.topics:
            if len(topic.name) > limits.NAME_CHARS_MAX * 4 or len(topic.role) > limits.NAME_CHARS_MAX * 4:
                return InvalidInput("a topic of an erasure has too long a name")
            if topic.records:
                return InvalidInput("an erasure starts without deleted records")
            if self._topics.by_id(topic.topic_id) is None:
                return NotFound(f"no topic named {topic.name!r}")
        if command.id in self._erasures:
            return StalePlan(f"erasure {command.id} exists")
        if len(self._running) >= ERASURES_MAX:
            return LimitReached(f"{ERASURES_MAX} erasures are running, the maximum: wait until one ends")
        made = Erasure(command.id, command.by, command.topics, now.time_ms, "accepted", now.time_ms)
        self._make_room()
        self._put(made)
        return made

    def _make_room(self) -> None:
        ended = [one.id for one in self._erasures if one.phase in ENDED]
        for id in ended[: max(0, len(self._erasures) + 1 - ERASURES_MAX)]:
            self._erasures.pop(id)

    @applies(CountErased)
    def count(self, command: CountErased, now: Moment) -> Erasure | MainstemError:
        found = self._erasures.get(command.id)
        if found is None or found.phase in ENDED or not 0 <= command.records <= limits.OFFSET_MAX:
            return StalePlan(
                f"erasure {command.id[:ERASURE_ID_CHARS]!r} is not running, or the count is invalid"
            )
        topics = tuple(
            msgspec.structs.replace(one, records=min(one.records + command.records, limits.OFFSET_MAX))
            if one.topic_id == command.topic_id
            else one
            for one in found.topics
        )
        counted = msgspec.structs.replace(found, topics=topics)
        self._put(counted)
        return counted

    @applies(AdvanceErasure)
    def advance(self, command: AdvanceErasure, now: Moment) -> Erasure | MainstemError:
        found = self._erasures.get(command.id)
        if found is None or found.phase in ENDED:
            return StalePlan(f"erasure {command.id[:ERASURE_ID_CHARS]!r} is not running")
        if command.phase not in (_NEXT[found.phase], "failed"):
            return StalePlan(f"after {found.phase} comes {_NEXT[found.phase]}, not {command.phase}")
        if len(command.report) > ERASURE_REPORT_BYTES_MAX or len(command.problem) > ERASURE_REPORT_BYTES_MAX:
            return InvalidInput(f"the report of an erasure has up to {ERASURE_REPORT_BYTES_MAX} bytes")
        if not 0 <= command.through <= limits.OFFSET_MAX:
            return InvalidInput(f"{command.through} is not the number of an object")
        moved = msgspec.structs.replace(
            found,
            phase=command.phase,
            changed_ms=now.time_ms,
            through=max(found.through, command.through),
            position=now.position,
            report=command.report,
            problem=command.problem,
        )
        self._put(moved)
        return moved

    @applies(NoteBackup)
    def note_backup(self, command: NoteBackup, now: Moment) -> NotedBackup | MainstemError:
        if not 0 < len(command.url) <= limits.TABLE_LOCATION_CHARS_MAX:
            return InvalidInput(f"the URL of a backup has 1 to {limits.TABLE_LOCATION_CHARS_MAX} characters")
        noted = NotedBackup(command.url, now.time_ms)
        self._backups.put((noted.url, noted.time_ms), noted)
        self._backups.evict(BACKUPS_NOTED_MAX)
        return noted

    def _put(self, one: Erasure) -> None:
        self._erasures.put(one.id, one)
        if one.phase in ENDED:
            self._running.discard(one.id)
        else:
            self._running.add(one.id)

    # State as a whole

    @property
    def digest(self) -> int:
        return (self._erasures.digest + self._backups.digest) & MASK

    def encode(self) -> ErasuresState:
        return ErasuresState(list(self._erasures), list(self._backups))

    def load(self, state: ErasuresState) -> None:
        for one in state.erasures:
            self._put(one)
        for noted in state.backups:
            self._backups.put((noted.url, noted.time_ms), noted)
