"""What a broker and the jobs of the lake say to each other: where records are, what to do with them, what was done."""

from __future__ import annotations

from typing import Literal

import msgspec

from mainstem.ledger.parts import Part


class StoredPiece(msgspec.Struct, frozen=True, array_like=True):
    """Bytes of an object of the log, as one object of the store has them."""

    start: int  # in the object of the log
    length: int
    key: str  # below the URL of the store
    at: int  # where they begin there


class WalExtents(msgspec.Struct, frozen=True):
    """Slices of one stream in one object of the log, in offset order."""

    url: str  # of the object, file:///…; with `pieces` of the store that has them, without what is secret in it
    rows: bytes  # EXTENT rows (log/extents.py)
    shift: int = 0  # added to every base: the slices are copies of another stream's
    timestamp_ms: int | None = None  # of every record, in place of its own
    first: int = 0  # only records at offsets of [first, last), shifted, are meant
    last: int = 1 << 62
    pieces: tuple[StoredPiece, ...] = ()  # by rising start: where the store has the object's bytes


class Sources(msgspec.Struct, frozen=True):
    """Where the records of [base, end) of a stream are. What none of these names is not there."""

    base: int
    end: int
    wal: tuple[WalExtents, ...] = ()
    parts: tuple[Part, ...] = ()
    store: str = ""  # URL that the keys of the parts' files are under, without what is secret in it
    leave_out: tuple[
        tuple[int, int], ...
    ] = ()  # deleted, aborted, markers: not to be shown even where stored
    lost: tuple[tuple[int, int, str], ...] = ()  # offsets whose records are lost, and why
    unreachable: tuple[tuple[int, int], ...] = ()  # only the broker has these: read its batches


TaskKind = Literal["materialise", "rewrite", "merge", "compact"]


class Task(msgspec.Struct, frozen=True):
    """Make new parts for a range of a stream. Held by a lease until `deadline_ms`."""

    kind: TaskKind
    topic: str
    topic_id: bytes
    partition: int
    stream: int
    token: int  # proves that the lease is ours
    deadline_ms: int  # on the broker's clock
    generation: int  # that the new parts have
    sources: Sources
    prefix: str  # keys of the new files start with it
    log_append_time: bool = False  # what the topic's timestamps are
    schema: str = ""  # JSON of the table's declared columns; none: raw columns only
    compact_before_ms: int = 0  # of a compaction: records younger than this stay
    tombstones_before_ms: int = 0  # of a compaction: tombstones older than this go


class PlanRequest(msgspec.Struct, frozen=True):
    holder: str  # who asks, for people
    topics: tuple[str, ...] = ()  # only these; none: all that are due
    kinds: tuple[TaskKind, ...] = ("materialise", "rewrite", "merge", "compact")
    tasks_max: int = 16
    lease_ms: int = 300_000
    least_records: int = 1  # of a range that is worth a part by itself
    wait_for_bytes: int = 0  # leave a range smaller than this alone until it is `wait_for_ms` old
    wait_for_ms: int = 0


class Plan(msgspec.Struct, frozen=True):
    tasks: tuple[Task, ...]
    now_ms: int  # the broker's clock
    problems: dict[str, str] = {}  # topic → why there is no plan for it


class Publication(msgspec.Struct, frozen=True):
    """The parts a task made. Refused unless its sources are what serves the range at this moment."""

    stream: int
    token: int
    sources: tuple[
        tuple[int, int, int], ...
    ]  # (base, end, generation) of the parts it replaces; none: the log
    parts: tuple[Part, ...]
    removed_records: int = 0  # that a compaction let go, for people: the ledger counts by itself
