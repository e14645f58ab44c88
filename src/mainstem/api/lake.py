"""The lake: where records are, the jobs that turn them into Parquet files, and the tables made of those files."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from mainstem import limits
from mainstem.api.base import UNTIMED, ErrorBody, Offset, PartitionNumber, Performance

# Parts. The ledger stores them in this form.

PartName = tuple[int, int, int]  # (base, end, generation)


class DataFile(msgspec.Struct, frozen=True, array_like=True):
    """One Parquet file: records of one stream and one day, by offset."""

    key: str  # in the object store
    day: int  # of every record's time, in days since 1970-01-01 UTC
    base: int  # first offset in it
    end: int  # one past the last
    records: int
    bytes: int  # of the file
    max_timestamp: int  # ms


class Part(msgspec.Struct, frozen=True, array_like=True):
    """Serves every offset of [base, end): a record is in its files, or it was deleted.

    Records of several days are in several files, whose offsets may interleave."""

    base: int
    end: int
    generation: int  # 1 = made from the log; a rewrite or merge is one above the highest it replaces
    files: tuple[DataFile, ...]  # none: every record of the range was deleted or aborted
    records: int  # in its files

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)


class PartChange(msgspec.Struct, frozen=True, array_like=True):
    """One stream of a table: the parts `old` are replaced by `new`.

    No old parts: new records. No new parts: the old records left the topic."""

    stream: int
    old: tuple[PartName, ...]
    new: tuple[PartName, ...]


# Sources


class SourcesBody(msgspec.Struct, frozen=True, rename={"start": "from", "end": "to"}):
    """A range of offsets of one partition."""

    topic: str
    start: Offset
    partition: PartitionNumber = 0
    end: Offset = limits.OFFSET_MAX


class StoredPiece(msgspec.Struct, frozen=True, array_like=True):
    """Bytes of a log object, as one object of the store has them."""

    start: int  # in the log object
    length: int
    key: str  # below the URL of the store
    at: int  # where they begin there


class WalExtents(msgspec.Struct, frozen=True):
    """Slices of one stream in one log object, in offset order."""

    url: str  # of the object, file:///…; with `pieces`, of the store that has them; without credentials
    rows: bytes  # EXTENT rows (log/read/extents.py)
    shift: int = 0  # added to every base: the slices are copies of another stream's
    timestamp_ms: int | None = None  # of every record, in place of its own
    first: int = 0  # only records at offsets of [first, last), shifted, are meant
    last: int = 1 << 62
    pieces: tuple[StoredPiece, ...] = ()  # by rising start: where the store has the object's bytes


class Sources(msgspec.Struct, frozen=True):
    """Where the records of [base, end) of a stream are. Offsets that it does not name have no record."""

    base: int
    end: int
    wal: tuple[WalExtents, ...] = ()
    parts: tuple[Part, ...] = ()
    store: str = ""  # URL that the keys of the parts' files are under, without credentials
    leave_out: tuple[tuple[int, int], ...] = ()  # deleted, aborted or markers: stored, but not to be shown
    lost: tuple[tuple[int, int, str], ...] = ()  # offsets whose records are lost, and why
    unreachable: tuple[tuple[int, int], ...] = ()  # only the broker has these: read its batches


# Jobs

TaskKind = Literal["materialise", "rewrite", "merge", "compact"]


class Task(msgspec.Struct, frozen=True):
    """Make new parts for a range of a stream, under a lease that ends at `deadline_ms`."""

    kind: TaskKind
    topic: str
    topic_id: bytes
    partition: int
    stream: int
    token: int  # proves who holds the lease
    deadline_ms: int  # on the broker's clock
    generation: int  # of the new parts
    sources: Sources
    prefix: str  # keys of the new files start with it
    log_append_time: bool = False  # whether the topic's timestamps are the broker's
    schema: str = ""  # JSON of the table's columns (TableColumns); none: raw columns only
    compact_before_ms: int = 0  # of a compaction: records younger than this stay
    tombstones_before_ms: int = 0  # of a compaction: tombstones older than this go


class PlanRequest(msgspec.Struct, frozen=True):
    holder: str  # who asks, for people
    topics: tuple[str, ...] = ()  # only these; none: all that are due
    kinds: tuple[TaskKind, ...] = ("materialise", "rewrite", "merge", "compact")
    tasks_max: int = 16
    lease_ms: int = 300_000
    least_records: int = 1  # of a range that is worth a part by itself
    wait_for_bytes: int = 0  # skip a range smaller than this until it is `wait_for_ms` old
    wait_for_ms: int = 0


class Plan(msgspec.Struct, frozen=True):
    tasks: tuple[Task, ...]
    now_ms: int  # the broker's clock
    problems: dict[str, str] = {}  # topic → why it has no plan


class Publication(msgspec.Struct, frozen=True):
    """The parts that a task made. Refused unless its sources serve the range at this moment."""

    stream: int
    token: int
    sources: tuple[PartName, ...]  # parts that it replaces; none: the log
    parts: tuple[Part, ...]
    removed_records: int = 0  # by a compaction, for people: the ledger counts by itself
    undecodable: tuple[
        tuple[int, int], ...
    ] = ()  # offsets whose batches cannot be decoded: in none of the parts


class PublicationsBody(msgspec.Struct, frozen=True):
    publications: tuple[Publication, ...]  # those of one stream in the order of their tasks


class PublishResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of one publication."""

    frontier: int = 0
    error: ErrorBody | None = None  # it was refused; the others are not affected


class PublishResults(msgspec.Struct, frozen=True):
    results: tuple[PublishResult, ...]  # in the order of the publications


class ExtendLeaseBody(msgspec.Struct, frozen=True):
    stream: int
    token: int
    lease_ms: int


class LeaseExtended(msgspec.Struct, frozen=True):
    deadline_ms: int


class ReleaseBody(msgspec.Struct, frozen=True):
    stream: int
    token: int


class LeaseReleased(msgspec.Struct, frozen=True):
    released: bool


class CollectResult(msgspec.Struct, frozen=True):
    """How many log objects and files were deleted."""

    wal_objects: int
    files: int


# Status


class TopicFailure(msgspec.Struct, frozen=True):
    """A topic that a driver fails on."""

    topic: str
    error: str
    failures: int  # one after another
    at_ms: int


class DriverReport(msgspec.Struct, frozen=True):
    """A driver's own report. Totals count from its start."""

    holder: str  # its name, as in the leases it takes
    state: str  # starting, idle, working, waiting for a broker, stopping
    rounds: int = 0
    running: int = 0  # tasks
    tasks: int = 0  # done
    failed: int = 0
    records: int = 0
    bytes: int = 0  # of the files made
    seconds: float = 0.0  # that workers spent
    failing: tuple[TopicFailure, ...] = ()  # the first of them, if there are many
    tables_error: str = ""  # why the last round published no table at all


class DriverReportAccepted(msgspec.Struct, frozen=True):
    heard: bool


class ReceivedDriverReport(msgspec.Struct, frozen=True):
    report: DriverReport
    heard_ms: int


class PartitionProgress(msgspec.Struct, frozen=True):
    partition: int
    stream: int
    start: int
    end: int  # the stable end: what may be materialised
    materialised_to: int
    lag_records: int  # offsets between the two
    parts: int
    files: int
    file_bytes: int
    records: int  # in the files
    stale_parts: int  # with deleted records in their files
    generations: list[int]  # of the parts, each once
    published_to: int | None = None  # how far the topic's table is; None: it has none


class TopicProgress(msgspec.Struct, frozen=True):
    topic: str
    topic_id: str  # hex
    wanted: bool  # whether its records become parts
    partitions: list[PartitionProgress]
    lag_records: int
    file_bytes: int
    problem: str = ""  # why a driver makes no progress with it


class LeasedTask(msgspec.Struct, frozen=True):
    task: str
    holder: str
    deadline_ms: int


class LakeStatus(msgspec.Struct, frozen=True):
    store: str
    topics: list[TopicProgress]
    tasks: list[LeasedTask]
    garbage: int  # files that were replaced and not deleted yet
    now_ms: int
    drivers: list[ReceivedDriverReport] = []


# Tables

TableKind = Literal["records", "errors", "view"]  # a view belongs to no topic


class Column(msgspec.Struct, frozen=True, omit_defaults=True):
    """A typed column. Its value is at a path in the JSON of a record's value, or in a field of the value's schema."""

    id: int
    name: str
    type: str  # boolean, int, long, …, decimal(P, S), list<…>, map<string, …>, struct<…>: tables/type_text.py
    path: str = ""  # $.key.key; empty: given by the value's schema in the registry
    ids: tuple[int, ...] = ()  # of the fields inside the type, in the order in which its text names them
    sources: tuple[
        tuple[str, ...], ...
    ] = ()  # names that schemas have for it and for each field inside, newest last

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(self.path[2:].split(".")) if self.path else self.sources[0][-1:]


class WriterSchema(msgspec.Struct, frozen=True, array_like=True):
    """A schema of the registry, with everything that it refers to."""

    id: int
    kind: str
    text: str
    references: tuple[tuple[str, str], ...] = ()  # (name, text), each after those that it needs


class ColumnSource(msgspec.Struct, frozen=True, omit_defaults=True):
    """The subject of the registry whose schemas are the columns of a table."""

    subject: str
    message: str = ""  # full name of a Protobuf message; empty: the first one of the file
    ids: tuple[int, ...] = ()  # of the schemas that the columns include


class TableColumns(msgspec.Struct, frozen=True, omit_defaults=True):
    """The typed columns of a topic's table."""

    columns: tuple[Column, ...] = ()
    registry: ColumnSource | None = None
    writers: tuple[WriterSchema, ...] = ()  # what decodes values; the ledger does not store them


class TableBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """`schema`: a list of columns, a JSON Schema of an object, "registry" or {"subject", "message"}; None leaves the
    columns as they are."""

    enabled: bool = True
    schema: Any = None
    # Another table that gets the records as well; "" for none, null leaves it as it is. A topic has one of both.
    delta: str | None = None  # URL of a Delta table
    iceberg: str | None = None  # CATALOG.NAMESPACE.TABLE; the lake's driver knows the catalog by its name


class TablePartition(msgspec.Struct, frozen=True):
    partition: int
    end: int  # the stable end of the topic's partition
    materialised_to: int
    published_to: int
    lag_records: int  # offsets between the end and what is published


class TableStatus(msgspec.Struct, frozen=True):
    enabled: bool
    topic: str
    table: str = ""  # namespace.name; empty: no table yet
    location: str = ""
    columns: list[Column] = []
    delta: str = ""
    iceberg: str = ""
    partitions: list[TablePartition] = []
    lag_records: int = 0
    snapshots: int = 0
    snapshot_id: int | None = None
    records: int = 0
    files: int = 0
    file_bytes: int = 0
    errors: int = 0  # records whose values do not fit the declared columns
    errors_table: str = ""
    problem: str = ""  # why it has no table although one is enabled
    subject: str = ""  # of the registry, if the columns come from there
    performance: Performance = UNTIMED


class PendingChange(msgspec.Struct, frozen=True):
    """One partition: the parts of the table to replace. See `PartChange`."""

    stream: int
    partition: int
    old: tuple[PartName, ...]
    new: tuple[Part, ...]


class TableWork(msgspec.Struct, frozen=True):
    """A topic's table, and the changes that are due."""

    namespace: str
    name: str
    kind: TableKind
    topic: str
    table_id: bytes
    location: str  # of its metadata
    store: str  # URL that the keys of files are under, as the locations in the metadata are written
    store_url: str  # the same, as the store is opened, without credentials
    columns: str  # JSON of its columns (TableColumns)
    offsets: dict[int, int]  # partition → one past the last offset it shows
    changes: tuple[PendingChange, ...] = ()  # in the order to make them; maybe not all
    expire: bool = False  # snapshots may be old enough to expire
    more: bool = False  # there are more changes than these
    copy: str = ""  # another table that gets the records as well: URL of a Delta table, or `iceberg:…`
    # Snapshots to remove whatever their age, because they may reach erased records; None: nothing is being erased.
    erased: tuple[int, ...] | None = None


class TableWorkPage(msgspec.Struct, frozen=True):
    tables: tuple[TableWork, ...]
    problems: dict[str, str] = {}  # topic → why it has no table although it should


class TablesSettled(msgspec.Struct, frozen=True):
    problems: dict[str, str]  # topic → why it has no table although it should


class TableCommitRequest(msgspec.Struct, frozen=True):
    """A publisher's commit. Refused unless `expected` is still the table's metadata."""

    namespace: str
    name: str
    expected: str
    changes: tuple[PartChange, ...] = ()
    requirements: list[dict[str, Any]] = []
    updates: list[dict[str, Any]] = []


class TableCommitsBody(msgspec.Struct, frozen=True):
    commits: tuple[TableCommitRequest, ...]  # of different tables


class TableCommitted(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of one commit."""

    location: str = ""  # of the new metadata
    error: ErrorBody | None = None  # it was refused; the others are not affected


class TableCommitResults(msgspec.Struct, frozen=True):
    results: tuple[TableCommitted, ...]  # in the order of the commits
