"""What a check finds: each problem with its place, what it means for the records, and what to do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from mainstem import limits
from mainstem.ledger.ledger import Ledger
from mainstem.ports.commitlog.layout import WAL
from mainstem.ports.commitlog.segments import number_of

_RANGES_SHOWN = 4  # in the text of one problem; the JSON has them all


class Severity(StrEnum):
    """How bad it is, the worst first. Only `damaged` makes a directory unsound."""

    DAMAGED = "damaged"  # records are lost, or the log cannot be opened
    REPAIRABLE = "repairable"  # one of two copies is bad, and the other one serves
    TORN = "torn"  # a write that was cut off; the next start removes it
    HARMLESS = "harmless"  # damaged bytes that nobody can read any more


class LostRange(NamedTuple):
    """Offsets [start, end) of a stream that cannot be read."""

    stream: int
    start: int
    end: int


@dataclass(slots=True)
class Problem:
    severity: Severity
    file: str  # relative to the data directory
    start: int  # byte range in the file: [start, end)
    end: int
    what: str
    meaning: str = ""
    advice: str = ""
    lost: list[LostRange] = field(default_factory=list)
    certain: bool = False  # stays as bad whether or not the records could still be read
    in_parts: bool = False  # of a file that serves records in place of the log's own bytes
    topics: list[str | None] = field(
        default_factory=list
    )  # of each lost range, "topic/partition" if it is known

    @property
    def line(self) -> str:
        """All of it in one line, for people."""
        said = "; ".join(filter(None, (self.what, self.meaning, self.advice)))
        return f"{self.severity.value}: {self.file} bytes {self.start} to {self.end}: {said}"


class Problems:
    """Collects problems, bounded: past the limit they are only counted."""

    def __init__(self) -> None:
        self.found: list[Problem] = []
        self.more: Counter[Severity] = Counter()

    def add(self, problem: Problem) -> None:
        if len(self.found) < limits.CHECK_PROBLEMS_MAX:
            self.found.append(problem)
        else:
            self.more[problem.severity] += 1

    def counts(self) -> dict[Severity, int]:
        """How many of each severity, the worst first."""
        listed = Counter(problem.severity for problem in self.found)
        return {severity: listed[severity] + self.more[severity] for severity in Severity}

    def settle(self, ledger: Ledger) -> None:
        """Name the topics, now that the last state is known, and leave out what nobody could read anyway."""
        for problem in self.found:
            if problem.lost:
                _settle(problem, ledger)


def _settle(problem: Problem, ledger: Ledger) -> None:
    if _repacked(problem.file, ledger) and not problem.certain:
        problem.severity, problem.lost = Severity.HARMLESS, []
        problem.meaning, problem.advice = "it was repacked, and nobody reads it any more", ""
        return
    deleted = ledger.streams.deleted
    look = _readable_in_parts if problem.in_parts else readable
    parts = [part for lost in problem.lost for part in look(lost, ledger, deleted(lost.stream))]
    problem.lost = list(
        dict.fromkeys(parts)
    )  # copies are named with what they are read from, and by themselves
    problem.topics = [stream_name(lost.stream, ledger) for lost in problem.lost]
    if problem.lost:
        problem.meaning = "; ".join(filter(None, (problem.meaning, _lost_text(problem))))
    elif problem.severity == Severity.DAMAGED and not problem.certain:
        problem.severity = Severity.HARMLESS
        problem.meaning = "only records that were deleted or expired are in it"
        problem.advice = ""


def _repacked(file: str, ledger: Ledger) -> bool:
    """Whether it is an object of the log that other files stand for."""
    folder, _, name = file.partition("/")
    number = number_of(name) if folder == WAL else None
    return number is not None and number < ledger.repacked.frontier


def readable(lost: LostRange, ledger: Ledger, holes: Sequence[tuple[int, int]]) -> list[LostRange]:
    """The part a reader could ask the log for: at or above the frontier of a stream that exists, outside its
    holes; and the copies that are read from it, of whatever stream."""
    parts = _readable_itself(lost, ledger, holes)
    for stream, start, end in ledger.aliases.copies_of(*lost):
        gone = [(first, last) for first, last, _ in ledger.streams.holes(stream)]
        parts += _readable_itself(LostRange(stream, start, end), ledger, gone)
    return parts


def _readable_in_parts(lost: LostRange, ledger: Ledger, holes: Sequence[tuple[int, int]]) -> list[LostRange]:
    return _readable_itself(lost, ledger, holes, ledger.streams.start(lost.stream))


def _readable_itself(
    lost: LostRange, ledger: Ledger, holes: Sequence[tuple[int, int]], floor: int | None = None
) -> list[LostRange]:
    """What lies outside the holes, from `floor` on: without one, what the log's own bytes serve."""
    streams = ledger.streams
    if lost.stream >= streams.count:  # made after the last state that is known
        return [lost]
    if not streams.exists(lost.stream):
        return []
    parts = []
    at = max(lost.start, ledger.generations.frontier(lost.stream) if floor is None else floor)
    for start, end in holes:
        if start >= lost.end or end <= at:
            continue
        if start > at:
            parts.append(LostRange(lost.stream, at, start))
        at = max(at, end)
    if at < lost.end:
        parts.append(LostRange(lost.stream, at, lost.end))
    return parts


def stream_name(stream: int, ledger: Ledger) -> str | None:
    """`topic/partition`, None if no topic owns the stream."""
    topic = ledger.topics.of_stream(stream)
    return None if topic is None else f"{topic.name}/{topic.streams.index(stream)}"


def _lost_text(problem: Problem) -> str:
    ranges = [
        f"{name or f'stream {lost.stream}'} offsets {lost.start} to {lost.end - 1}"
        for name, lost in zip(problem.topics, problem.lost, strict=True)
    ]
    more = f" and {len(ranges) - _RANGES_SHOWN} more ranges" if len(ranges) > _RANGES_SHOWN else ""
    verb = "are lost" if problem.severity == Severity.DAMAGED else "are touched"
    return f"{', '.join(ranges[:_RANGES_SHOWN])}{more} {verb}"
