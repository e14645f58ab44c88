"""Messages between a broker and the lake's tasks: where records are, what to do with them, and what was done."""

from __future__ import annotations

from typing import Literal

import msgspec

from mainstem.ledger.parts import Part


class StoredPiece(msgspec.Struct, frozen=True, array_like=True):
    """A byte range of an object of the log, and where the store has it."""

    start: int  # in the object of the log
    length: int
    key: str  # below the URL of the store
    at: int  # position in the object of the store


class WalExtents(msgspec.Struct, frozen=True):
    """Slices of one stream in one object of the log, in offset order."""

    url: str  # of the object, file:///…; with `pieces`, of the store that has them, without secrets
    rows: bytes  # EXTENT rows (log/extents.py)
    shift: int = 0  # added to every base: the slices belong to the original of an alias
    timestamp_ms: int | None = None  # of every record, instead of its own
    first: int = 0  # only records in [first, last), after the shift, count
    last: int = 1 << 62
    pieces: tuple[StoredPiece, ...] = ()  # by rising start: where the store has the object's bytes


class Sources(msgspec.Struct, frozen=True):
    """Where the records of [base, end) of a stream are. Offsets in none of these have no record."""

    base: int
    end: int
    wal: tuple[WalExtents, ...] = ()
    parts: tuple[Part, ...] = ()
    store: str = ""  # URL above the keys of the parts' files, without secrets
    leave_out: tuple[tuple[int, int], ...] = ()  # deleted, aborted, markers: to be skipped even where stored
    lost: tuple[tuple[int, int, str], ...] = ()  # offsets whose records are lost, and why
    unreachable: tuple[tuple[int, int], ...] = ()  # only the broker has these: read its batches


TaskKind = Literal["materialise", "rewrite", "merge", "compact"]


class Task(msgspec.Struct, frozen=True):
    """Write new parts for a range of a stream. Leased until `deadline_ms`."""

    kind: TaskKind
    topic: str
    topic_id: bytes
    partition: int
    stream: int
    token: int  # proves the lease
    deadline_ms: int  # on the broker's clock
    generation: int  # of the new parts
    sources: Sources
    prefix: str  # keys of the new files start with it
    log_append_time: bool = False  # the topic's timestamp type
    schema: str = ""  # JSON of the table's declared columns; empty: raw columns only
    compact_before_ms: int = 0  # of a compaction: newer records stay
    tombstones_before_ms: int = 0  # of a compaction: older tombstones are deleted


class PlanRequest(msgspec.Struct, frozen=True):
    holder: str  # name of the requester, for people
    topics: tuple[str, ...] = ()  # only these; empty: all that are due
    kinds: tuple[TaskKind, ...] = ("materialise", "rewrite", "merge", "compact")
    tasks_max: int = 16
    lease_ms: int = 300_000
    least_records: int = 1  # the smallest range to materialise
    wait_for_bytes: int = 0  # a smaller range waits until it is `wait_for_ms` old
    wait_for_ms: int = 0


class Plan(msgspec.Struct, frozen=True):
    tasks: tuple[Task, ...]
    now_ms: int  # the broker's clock
    problems: dict[str, str] = {}  # topic → why there is no plan for it


class Publication(msgspec.Struct, frozen=True):
    """The parts that a task wrote. Rejected unless its sources serve the range at this moment."""

    stream: int
    token: int
    sources: tuple[
        tuple[int, int, int], ...
    ]  # (base, end, generation) of the parts it replaces; empty: the log
    parts: tuple[Part, ...]
    removed_records: int = 0  # deleted by a compaction, for people: the ledger counts them itself
