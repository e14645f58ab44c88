"""What became of a command: one small typed value each. Refusals are errors, returned and not raised."""

from __future__ import annotations

from dataclasses import dataclass

from mainstem.errors import MainstemError
from mainstem.ledger.appends import AppendOutcome
from mainstem.ledger.topics import Topic


@dataclass(frozen=True, slots=True)
class AlreadyApplied:
    """The entry is a retry of one that was applied; nothing changed now."""


@dataclass(frozen=True, slots=True)
class RecordsRemoved:
    """Of Trim, DeleteRecords and MarkLost: what was live before and is not now."""

    start: int  # the stream's start afterwards
    records: int
    bytes: int


@dataclass(frozen=True, slots=True)
class CeilingsRaised:
    streams: int  # how many moved; a stream that is gone or higher already does not


@dataclass(frozen=True, slots=True)
class ProducerAllocated:
    producer: int


@dataclass(frozen=True, slots=True)
class ProducersExpired:
    forgotten: int


@dataclass(frozen=True, slots=True)
class OffsetsCommitted:
    streams: int


@dataclass(frozen=True, slots=True)
class OffsetsDeleted:
    streams: int


@dataclass(frozen=True, slots=True)
class Taken:
    """Offsets the taker owns now, as half-open ranges; empty at the end of the stream."""

    ranges: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Booted:
    broker_epoch: int
    jumped: tuple[tuple[int, int, int], ...]  # (stream, first lost offset, new end)


@dataclass(frozen=True, slots=True)
class Halted:
    broker_epoch: int


Result = (
    Topic
    | RecordsRemoved
    | CeilingsRaised
    | ProducerAllocated
    | ProducersExpired
    | OffsetsCommitted
    | OffsetsDeleted
    | Taken
    | Booted
    | Halted
)
Outcome = AppendOutcome | Result | AlreadyApplied | MainstemError
