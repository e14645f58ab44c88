"""Publication: commit a topic's parts to its Iceberg table, each exactly once.

The broker lists the pending changes. For each step the publisher writes manifests, then sends one commit that names the
metadata it is based on and the parts it adds, replaces or removes; the ledger rejects a commit that is not based on the
current state. The commits of many tables go to the broker in one call, and each succeeds or fails by itself. A killed
publisher leaves unreferenced files, and the next one asks the broker again.
"""

from __future__ import annotations

import contextlib
import io
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil

from mainstem import events, limits
from mainstem.api.lake import (
    DataFile,
    PartChange,
    PendingChange,
    TableCommitRequest,
    TableWork,
)
from mainstem.errors import LogDamaged, MainstemError, NotFound, TableChanged, Unreachable, described
from mainstem.ports.objectstore.blocking import open_blocking
from mainstem.tables.file_io import StoreIO
from mainstem.tables.publishing.backoff import Backoff
from mainstem.tables.publishing.broker import PublishingBroker, TableBroker
from mainstem.tables.publishing.data_files import data_file
from mainstem.tables.publishing.error_rows import may_have_errors, write_errors
from mainstem.tables.publishing.snapshots import (
    OffsetRange,
    Operation,
    SnapshotDraft,
    Snapshots,
    erasable_snapshots,
    expired_snapshots,
    referenced_files,
    remove_snapshots,
    same_rows,
    sweep,
)

TABLES_PER_CALL = 32  # whose commits a publisher sends together
TABLE_SWEEP_EVERY_COMMITS = 50

_log = events.named("tables")

_THREADS = 4  # that publish, if there is more than one call's worth of tables


@dataclass
class PublishReport:
    """What one run of a publisher did."""

    commits: int = 0
    parts: int = 0  # added to or removed from a table
    refused: int = 0  # commits that lost a race; the next run continues
    swept: int = 0  # unreferenced files deleted
    problems: dict[str, str] = field(default_factory=dict)  # topic → why its table is not up to date
    failed: set[str] = field(default_factory=set)  # topics that failed in this run
    waiting: set[str] = field(default_factory=set)  # topics in backoff, not tried in this run
    deliveries: list[TableWork] = field(default_factory=list)  # tables with a copy elsewhere


Step = Callable[[str], None]


class TableOutcome(NamedTuple):
    """The result of one run for one table."""

    commits: int
    parts: int
    swept: int
    refused: bool = False  # a commit lost a race
    problem: str = ""


PublishChunk = Callable[[Sequence[TableWork]], list[TableOutcome]]


class TablesRound(NamedTuple):
    """The result of one publishing round."""

    commits: int
    problems: dict[str, str]  # topic → why its table is not up to date
    waiting: frozenset[str] = frozenset()  # those in backoff, not tried in this round


def publish_tables(
    broker: PublishingBroker, backoff: Backoff | None = None, publish_chunk: PublishChunk | None = None
) -> TablesRound:
    """Publish all pending changes to the Iceberg tables and their copies, once."""
    backoff = backoff or Backoff()
    report = Publisher(broker, backoff=backoff, publish_chunk=publish_chunk).run()
    if not report.deliveries:
        return TablesRound(report.commits, report.problems, frozenset(report.waiting))
    try:
        from mainstem.tables.publishing import copies  # imported only where a topic has a copy

        delivered = copies.deliver(broker, report.deliveries, backoff)
    except Unreachable:
        raise
    except Exception as error:  # noqa: BLE001 - the report must still list what was published
        behind = {work.topic: f"delivery failed: {described(error)}" for work in report.deliveries}
        return TablesRound(report.commits, behind | report.problems, frozenset(report.waiting))
    waiting = frozenset(report.waiting | delivered.waiting)
    return TablesRound(report.commits + delivered.commits, report.problems | delivered.problems, waiting)


class Publisher:
    """Publishes pending changes. `step` is called with the name of each completed step, so that tests can stop there.
    `backoff` holds the tables that failed in earlier runs. `publish_chunk` publishes some of many tables, in another
    process: writing manifests takes the CPU time of a publication."""

    def __init__(
        self,
        broker: TableBroker,
        *,
        step: Step = lambda name: None,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        sweep_every: int = TABLE_SWEEP_EVERY_COMMITS,
        grace_ms: int = limits.TABLE_ORPHAN_MS,
        backoff: Backoff | None = None,
        publish_chunk: PublishChunk | None = None,
    ) -> None:
        self._publish_elsewhere = publish_chunk
        self._broker = broker
        self._step = step
        self._now_ms = now_ms
        self._sweep_every = sweep_every
        self._grace_ms = grace_ms
        self._backoff = backoff or Backoff()

    def run(self) -> PublishReport:
        """Run until every table is up to date or has failed. Raises the broker's errors."""
        report = PublishReport()
        while True:
            self._broker.settle_tables()
            works = self._broker.tables()
            report.problems = dict(works.problems)
            report.deliveries = [work for work in works.tables if work.copy]
            due = [work for work in works.tables if self._due(work, report)]
            outcomes = zip(due, self._publish(due), strict=True)
            progress = [self._finish(work, outcome, report) for work, outcome in outcomes]
            if not any(progress):
                return report

    def _publish(self, works: Sequence[TableWork]) -> Iterator[TableOutcome]:
        """Publish these tables. Raises Unreachable; other errors are in the outcomes."""
        size = TABLES_PER_CALL
        chunks = [works[at : at + size] for at in range(0, len(works), size)]
        if len(chunks) <= 1:
            yield from self.publish_chunk(works)
            return
        # While one thread waits for the disk or the broker, others write manifests.
        with ThreadPoolExecutor(_THREADS, "tables") as threads:
            for outcomes in threads.map(self._publish_elsewhere or self.publish_chunk, chunks):
                yield from outcomes

    def publish_chunk(self, works: Sequence[TableWork]) -> list[TableOutcome]:
        """Publish these tables, with one call for the commits of all. Raises Unreachable."""
        runs = [
            _TableRun(work, self._step, self._now_ms, self._sweep_every, self._grace_ms) for work in works
        ]
        while waiting := [run for run in runs if run.commit is not None]:
            commits = [run.commit for run in waiting if run.commit is not None]
            for run, result in zip(waiting, self._broker.commit_tables(commits), strict=True):
                run.resume(result)
        return [self._outcome(run) for run in runs]

    def _outcome(self, run: _TableRun) -> TableOutcome:
        work, error = run.work, run.error
        outcome = TableOutcome(run.commits, run.parts, run.swept)
        if error is None:
            return outcome
        # Another publisher committed first, a part was replaced, or the table was dropped.
        if isinstance(error, TableChanged | NotFound) and self._overtaken(work, error):
            _log.info("table commit conflict", table=work.name, reason=str(error))
            return outcome._replace(refused=True)
        if not isinstance(error, MainstemError | OSError):
            _log.failure("table publication failed", error, table=work.name)
        return outcome._replace(problem=f"table {work.name!r}: {described(error)}")

    def _due(self, work: TableWork, report: PublishReport) -> bool:
        """Whether a table has pending changes and is not in backoff."""
        if not (work.changes or work.expire or work.erased is not None):
            self._backoff.succeeded(work.table_id)  # another publisher may have published it
            return False
        last_error = self._backoff.waiting(work.table_id)
        if last_error is None:
            return True
        report.problems[work.topic] = last_error
        if work.topic not in report.failed:
            report.waiting.add(work.topic)
        return False

    def _finish(self, work: TableWork, outcome: TableOutcome, report: PublishReport) -> bool:
        """Report the result for one table. True if it has more changes."""
        report.commits += outcome.commits
        report.parts += outcome.parts
        report.swept += outcome.swept
        report.refused += outcome.refused
        if outcome.problem:
            report.problems[work.topic] = outcome.problem
            report.failed.add(work.topic)
            report.waiting.discard(work.topic)
            self._backoff.failed(work.table_id, outcome.problem)
        elif not outcome.refused:
            self._backoff.succeeded(work.table_id)
            return work.more
        return False

    def _overtaken(self, work: TableWork, refusal: Exception) -> bool:
        """Whether the broker's pending changes differ by now. If not, a retry would fail the same way."""
        now = next((each for each in self._broker.tables().tables if each.table_id == work.table_id), None)
        if now is None:
            return True
        if isinstance(refusal, _FileMissing):
            parts = (part for change in now.changes for part in change.new)
            return refusal.key not in {file.key for part in parts for file in part.files}
        return (now.location, now.changes) != (work.location, work.changes)


class _FileMissing(NotFound):
    """A file of a part is not in the store."""

    def __init__(self, key: str) -> None:
        super().__init__(f"data file {key} is not in the store")
        self.key = key


_Steps = Generator[TableCommitRequest, str, None]  # sends commits, receives new locations of the metadata
_Filed = tuple[PendingChange, list[IcebergFile]]  # a change, and the data files of its new parts


def _emptied(change: PendingChange) -> OffsetRange:
    return OffsetRange(change.partition, change.old[0][0], change.old[-1][1])


class _TableRun:
    """Publishes the pending changes of one table: `commit` is its next commit, and `resume` takes the result.

    No error leaves it, so that no table stops the others: users choose the values, so no list of exceptions is
    complete. Only Unreachable does, which concerns every table."""

    def __init__(
        self, work: TableWork, step: Step, now_ms: Callable[[], int], sweep_every: int, grace_ms: int
    ) -> None:
        self.work = work
        self._step = step
        self._now_ms = now_ms
        self._sweep_every = sweep_every
        self._grace_ms = grace_ms
        self._location = work.location
        self._metadata: TableMetadata | None = None
        self._offsets = dict(work.offsets)
        self.commits = 0
        self.parts = 0  # added or removed
        self.swept = 0  # unreferenced files deleted
        self.error: Exception | None = None  # that ended it
        self._steps = self._run()
        self.commit: TableCommitRequest | None = None  # to send next; None: it has ended
        self._advance(lambda: next(self._steps))

    def resume(self, result: str | MainstemError) -> None:
        """Continue with the result of the commit."""
        if isinstance(result, str):
            self._advance(lambda: self._steps.send(result))
        else:
            self._advance(lambda: self._steps.throw(result))

    def _advance(self, step: Callable[[], TableCommitRequest]) -> None:
        self.commit = None
        try:
            self.commit = step()
        except StopIteration:
            pass
        except Unreachable:
            raise
        except Exception as error:  # noqa: BLE001 - reported as this table's problem
            self.error = error

    def _run(self) -> _Steps:
        self._files = StoreIO(open_blocking(self.work.store_url), self.work.store)
        changes = self.work.changes
        yield from self._commit("delete", [(change, []) for change in changes if not change.new])
        same, different = self._replacements([change for change in changes if change.old and change.new])
        yield from self._commit("replace", same)
        operation: Operation = "overwrite" if any(files for _, files in different) else "delete"
        yield from self._commit(operation, different)
        new = [(change, self._new_files(change)) for change in changes if not change.old]
        yield from self._commit("append", new)
        yield from self._expire()
        yield from self._erase()
        due = self.commits and self._version % self._sweep_every < self.commits
        if due or self.work.erased is not None:
            self._sweep()

    @property
    def _version(self) -> int:
        return int(self._location.rsplit("/", 1)[-1].split("-", 1)[0])

    def _replacements(self, changes: Sequence[PendingChange]) -> tuple[list[_Filed], list[_Filed]]:
        """The changes whose new parts have the rows that the table had, and the others. Readers of changes skip a
        `replace`, so a commit that removes or changes rows must not be one."""
        if not changes:
            return [], []
        new = [self._new_files(change) for change in changes]
        snapshots = Snapshots(self._loaded(), self.work.kind, self._files, self._now_ms())
        old = snapshots.files_in([_emptied(change) for change in changes])
        same: list[_Filed] = []
        different: list[_Filed] = []
        for change, before, after in zip(changes, old, new, strict=True):
            keeps = change.new[-1].end == change.old[-1][1] and same_rows(before, after)
            (same if keeps else different).append((change, after))
        return same, different

    def _commit(self, operation: Operation, filed: Sequence[_Filed]) -> _Steps:
        if not filed:
            return
        changes = [change for change, _ in filed]
        added = [file for _, files in filed for file in files]
        emptied = [_emptied(change) for change in changes if change.old]
        self._step("files")
        for change in changes:
            if change.new:
                end = change.new[-1].end
                self._offsets[change.partition] = max(self._offsets.get(change.partition, 0), end)
        metadata = self._loaded()
        requirements: list[dict[str, Any]] = []
        updates: list[dict[str, Any]] = []
        # Most parts add no rows to an error table: then only its offsets change.
        if added or (emptied and metadata.current_snapshot() is not None) or self.work.kind == "records":
            now = self._now_ms()
            snapshots = Snapshots(metadata, self.work.kind, self._files, now)
            draft = SnapshotDraft(operation, added, emptied, dict(self._offsets))
            requirements, updates = snapshots.draft(draft)
            self._step("manifests")
            updates += remove_snapshots(expired_snapshots(metadata, now, coming=1))
        yield from self._send(requirements, updates, changes)
        self.parts += sum(len(change.new) or len(change.old) for change in changes)

    def _expire(self) -> _Steps:
        """Remove old snapshots if no other commit of this run did."""
        if self.commits or not self.work.expire:
            return
        metadata = self._loaded()
        old = expired_snapshots(metadata, self._now_ms())
        if old:
            yield from self._send(
                [{"type": "assert-table-uuid", "uuid": str(metadata.table_uuid)}], remove_snapshots(old), ()
            )

    def _erase(self) -> _Steps:
        """Remove snapshots that may reach erased records, and at once the files that only they need."""
        if not self.work.erased:
            return
        metadata = self._loaded()
        old = erasable_snapshots(metadata, self.work.erased)
        if not old:
            return
        before = referenced_files(metadata, self._location, self.work.kind, self._files)
        yield from self._send(
            [{"type": "assert-table-uuid", "uuid": str(metadata.table_uuid)}], remove_snapshots(old), ()
        )
        after = referenced_files(self._loaded(), self._location, self.work.kind, self._files)
        for location in before - after:
            if not location.endswith(".metadata.json"):  # which hold no values, and may be read now
                self._files.delete(location)

    def _send(
        self,
        requirements: list[dict[str, Any]],
        updates: list[dict[str, Any]],
        changes: Sequence[PendingChange],
    ) -> _Steps:
        part_changes = tuple(
            PartChange(
                change.stream,
                change.old,
                tuple((part.base, part.end, part.generation) for part in change.new),
            )
            for change in changes
        )
        before = self._location
        self._location = yield TableCommitRequest(
            self.work.namespace, self.work.name, before, part_changes, requirements, updates
        )
        if self._location != before:
            self._metadata = None
        self.commits += 1
        self._step("commit")

    def _sweep(self) -> None:
        before_ms = self._now_ms() - self._grace_ms
        with contextlib.suppress(NotFound, TableChanged):  # it changed meanwhile, or was dropped
            self.swept = sweep(self._loaded(), self._location, self.work.kind, self._files, before_ms)

    def _loaded(self) -> TableMetadata:
        if self._metadata is None:
            try:
                self._metadata = TableMetadataUtil.parse_raw(self._files.get(self._location).decode())
            except NotFound:
                raise TableChanged(f"table {self.work.name!r} changed meanwhile") from None
        return self._metadata

    # Files

    def _new_files(self, change: PendingChange) -> list[IcebergFile]:
        """The data files of the new parts, as manifest entries."""
        schema = self._loaded().schema()
        found = []
        for part in change.new:
            for file in part.files:
                footer = self._footer(file.key, file.bytes)
                if footer.num_rows != file.records:
                    raise LogDamaged(f"{file.key} holds {footer.num_rows} records instead of {file.records}")
                if self.work.kind == "records":
                    location = self._files.location(file.key)
                    found.append(data_file(footer, "records", schema, location, file.bytes, file.day))
                else:
                    # Named after the data file, so that a repetition after a crash overwrites it.
                    name = f"{change.partition}-{file.key.rsplit('/', 1)[-1]}"
                    found += self._error_file(file, footer, f"{self._loaded().location}/data/{name}")
        return found

    def _error_file(self, file: DataFile, footer: pq.FileMetaData, location: str) -> list[IcebergFile]:
        if not may_have_errors(footer):
            return []
        data, count = write_errors(file, self.work.topic, location, self._files)
        if not count:
            return []
        metadata = pq.read_metadata(io.BytesIO(data))
        return [data_file(metadata, "errors", self._loaded().schema(), location, len(data), file.day)]

    def _footer(self, key: str, size: int) -> pq.FileMetaData:
        with self._files.ranged(key, size) as source:
            try:
                return pq.read_metadata(source)
            except NotFound:
                raise _FileMissing(key) from None
            except pa.ArrowInvalid as error:
                raise LogDamaged(f"{key} is not a Parquet file: {error}") from error
