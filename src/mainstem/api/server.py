"""The server: health, overview, storage, cluster, backups, and reports of pipelines."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from mainstem import limits
from mainstem.api.base import UNTIMED, Offset, PartitionNumber, Performance
from mainstem.api.history import Alert

# Health


class Health(msgspec.Struct, frozen=True):
    status: Literal["ok"]
    version: str
    uptime_ms: int


class Readiness(msgspec.Struct, frozen=True):
    status: Literal["ready"]
    wal_replay_complete: bool
    topics: int


class KeyRights(msgspec.Struct, frozen=True):
    """Who sends the request, and what it may do."""

    authentication: bool
    scopes: list[str]
    prefixes: list[str]


# Overview


class TierSizes(msgspec.Struct, frozen=True):
    """Where the bytes are."""

    memory_bytes: int
    memory_bytes_max: int
    wal_objects: int
    wal_bytes: int
    parquet_files: int
    parquet_bytes: int
    parquet_records: int
    garbage_files: int
    cold_objects: int = 0  # log objects that are in the object store and no longer on this disk
    cold_bytes: int = 0
    repacked_files: int = 0
    repacked_bytes: int = 0


class BrokerSummary(msgspec.Struct, frozen=True):
    broker: int
    epoch: int
    node: str
    zone: str
    addresses: dict[str, str]  # by door
    here: bool
    silent_s: float


class ServerSummary(msgspec.Struct, frozen=True):
    node: str
    broker: int
    brokers: list[BrokerSummary]
    topics: int
    partitions: int
    records: int
    bytes: int
    appended: int  # records ever appended to the topics that exist, without the copies of routers
    commits: int
    open_transactions: int
    routers: int
    tiers: TierSizes
    refusal: str | None  # why the server refuses writes, if it does
    now_ms: int


class DiskSpace(msgspec.Struct, frozen=True):
    free_bytes: int
    total_bytes: int


class ClientTraffic(msgspec.Struct, frozen=True):
    """The open connections of one client at a door, and the bytes that went over them."""

    door: str
    client: str  # the name that it gives itself; empty without one
    principal: str
    host: str
    connections: int
    received_bytes: int  # by the server
    sent_bytes: int


class ClientList(msgspec.Struct, frozen=True):
    clients: list[ClientTraffic]  # those with the most bytes first, at most 200
    performance: Performance


class ServerOverview(ServerSummary, frozen=True):
    version: str
    uptime_ms: int
    doors: dict[str, str]
    lake_drivers: int
    disk: DiskSpace | None  # None without a data directory
    alerts: list[Alert]
    performance: Performance


# Storage


class StoredRange(msgspec.Struct, frozen=True):
    """Offsets [base, end) of a partition."""

    topic: str
    partition: int
    base: int
    end: int
    bytes: int
    live: bool  # whether readers are still served from here


Tier = Literal["disk", "both", "store"]


class WalObject(msgspec.Struct, frozen=True):
    number: int
    bytes: int
    sealed: bool
    commits: int
    ranges: list[StoredRange]  # the largest ones
    ranges_total: int
    tier: Tier = "disk"


class RepackedRow(msgspec.Struct, frozen=True):
    """A file that holds the records of each partition together."""

    key: str
    bytes: int
    generation: int  # how often its bytes were copied
    first: int  # log objects [first, end) that it replaces, with the other files of its round
    end: int
    streams: int  # partitions that it has records of
    ranges: list[StoredRange]  # the largest ones
    ranges_total: int
    damaged: bool = False  # its index cannot be read


class PartRow(msgspec.Struct, frozen=True):
    topic: str
    partition: int
    base: int
    end: int
    generation: int
    records: int
    bytes: int
    files: list[str]


class StorageMap(msgspec.Struct, frozen=True):
    """Log objects, repacked files and parts, newest first, up to a limit of each."""

    objects: list[WalObject]
    objects_total: int
    parts: list[PartRow]
    parts_total: int
    garbage: int
    store: str
    repacked: list[RepackedRow] = []
    repacked_total: int = 0
    performance: Performance = UNTIMED


# Cluster


class BrokerView(msgspec.Struct, frozen=True):
    """One broker, as another sees it."""

    broker: int
    epoch: int
    node: str
    zone: str
    addresses: dict[str, str]  # by door
    silent_s: float


class ClusterView(msgspec.Struct, frozen=True):
    """The brokers that share a log, as one of them sees them."""

    cluster: str  # the log's id
    shared: bool
    broker: int  # the broker that answers
    epoch: int
    position: int  # how far it has read the log
    refusal: str | None  # why it refuses writes, if it does
    upkeep: int  # the broker that seals and checkpoints
    clock_off_ms: int | None
    brokers: list[BrokerView]


# Backups


class BackupBody(msgspec.Struct, frozen=True):
    """The target: a folder on the server's machine, or the URL of a bucket."""

    to: str


class BackupReport(msgspec.Struct, frozen=True):
    name: str
    position: int
    files: int
    bytes: int
    copied_bytes: int  # the others were in the target already
    store_files: int = 0  # files that only the log's object store has


# Pipelines

PipelineState = Literal["starting", "running", "done", "stopped", "failed"]

_Name = Annotated[str, Meta(min_length=1, max_length=limits.NAME_CHARS_MAX)]


class Position(msgspec.Struct, frozen=True, array_like=True):
    """The next offset that a query reads in a partition."""

    topic: _Name
    partition: PartitionNumber
    offset: Offset


class OutputReport(msgspec.Struct, frozen=True):
    """One output of a pipeline. Rows count from the start of the run."""

    output: _Name
    target: _Name  # the topic or table that receives its rows
    batch: Annotated[int, Meta(ge=-1, le=limits.OFFSET_MAX)] = -1  # the last finished batch; -1: none
    batch_ms: Offset = 0  # how long it took
    rows_in: Offset = 0
    rows_out: Offset = 0
    positions: Annotated[tuple[Position, ...], Meta(max_length=limits.PIPELINE_POSITIONS_MAX)] = ()


class PipelineReport(msgspec.Struct, frozen=True):
    """A pipeline's own report."""

    pipeline: _Name
    run: _Name  # distinguishes one start from the next: host and process
    state: PipelineState
    started_ms: Offset
    topics: Annotated[tuple[_Name, ...], Meta(max_length=limits.PIPELINE_TOPICS_MAX)] = ()  # read or written
    outputs: Annotated[tuple[OutputReport, ...], Meta(max_length=limits.PIPELINE_OUTPUTS_MAX)] = ()
    error: Annotated[str, Meta(max_length=limits.PIPELINE_ERROR_CHARS_MAX)] = ""  # why it failed

    def named(self) -> set[str]:
        """Every topic that the report mentions."""
        return {
            *self.topics,
            *(position.topic for output in self.outputs for position in output.positions),
        }


class OutputStatus(msgspec.Struct, frozen=True):
    output: str
    target: str
    batch: int
    batch_ms: int
    rows_in: int
    rows_out: int
    behind: int | None  # offsets of its topics that it has not read; None before its first read


class PipelineStatus(msgspec.Struct, frozen=True):
    """A pipeline's last report, and its state now."""

    pipeline: str
    run: str
    state: str  # as reported, or "silent" if a running pipeline stopped reporting
    started_ms: int
    heard_ms: int
    topics: list[str]
    outputs: list[OutputStatus]
    error: str


class PipelineList(msgspec.Struct, frozen=True):
    pipelines: list[PipelineStatus]
    performance: Performance


class PipelineReportAccepted(msgspec.Struct, frozen=True):
    heard: bool
    performance: Performance
