"""Publication: commit a topic's parts to its Iceberg table, each exactly once.

The broker lists the pending changes. For each step the publisher writes manifests, then sends one commit that names the
metadata it is based on and the parts it adds, replaces or removes; the ledger rejects a commit that is not based on the
current state. A killed publisher leaves unreferenced files, and the next one asks the broker again.
"""

from __future__ import annotations

import io
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil

from mainstem import limits
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

_log = logging.getLogger("mainstem.tables")


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
    deliveries: list[TableWork] = field(default_factory=list)  # tables with a Delta copy


Step = Callable[[str], None]


class TablesRound(NamedTuple):
    """The result of one publishing round."""

    commits: int
    problems: dict[str, str]  # topic → why its table is not up to date
    waiting: frozenset[str] = frozenset()  # those in backoff, not tried in this round


def publish_tables(broker: PublishingBroker, backoff: Backoff | None = None) -> TablesRound:
    """Publish all pending changes to the Iceberg tables and the Delta tables, once."""
    backoff = backoff or Backoff()
    report = Publisher(broker, backoff=backoff).run()
    if not report.deliveries:
        return TablesRound(report.commits, report.problems, frozenset(report.waiting))
    try:
        from mainstem.tables.publishing import delta  # 60 MB: imported only where a topic has a Delta table

        delivered = delta.deliver(broker, report.deliveries, backoff)
    except Unreachable:
        raise
    except Exception as error:  # noqa: BLE001 - the report must still list what was published
        behind = {work.topic: f"Delta delivery failed: {described(error)}" for work in report.deliveries}
        return TablesRound(report.commits, behind | report.problems, frozenset(report.waiting))
    waiting = frozenset(report.waiting | delivered.waiting)
    return TablesRound(report.commits + delivered.commits, report.problems | delivered.problems, waiting)


class Publisher:
    """Publishes pending changes. `step` is called with the name of each completed step, so that tests can stop there.
    `backoff` holds the tables that failed in earlier runs."""

    def __init__(
        self,
        broker: TableBroker,
        *,
        step: Step = lambda name: None,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        sweep_every: int = limits.TABLE_SWEEP_EVERY_COMMITS,
        grace_ms: int = limits.TABLE_ORPHAN_MS,
        backoff: Backoff | None = None,
    ) -> None:
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
            report.deliveries = [work for work in works.tables if work.delta]
            progress = [self._publish(work, report) for work in works.tables if self._due(work, report)]
            if not any(progress):
                return report

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

    def _publish(self, work: TableWork, report: PublishReport) -> bool:
        """Publish one table. True if it has more changes. No exception stops the other tables: users choose the
        values, so no list of exceptions is complete."""
        try:
            self._publish_table(work, report)
        except (TableChanged, NotFound) as refusal:
            # Another publisher committed first, a part was replaced, or the table was dropped.
            if not self._overtaken(work, refusal):
                self._failed(work, refusal, report)
                return False
            report.refused += 1
            _log.info("table commit conflict", extra={"table": work.name, "reason": str(refusal)})
            return False
        except Unreachable:
            raise
        except Exception as error:  # noqa: BLE001 - reported as this table's problem
            if not isinstance(error, MainstemError | OSError):
                _log.warning("table publication failed", extra={"table": work.name}, exc_info=True)
            self._failed(work, error, report)
            return False
        self._backoff.succeeded(work.table_id)
        return work.more

    def _failed(self, work: TableWork, error: Exception, report: PublishReport) -> None:
        report.problems[work.topic] = f"table {work.name!r}: {described(error)}"
        report.failed.add(work.topic)
        report.waiting.discard(work.topic)
        self._backoff.failed(work.table_id, report.problems[work.topic])

    def _publish_table(self, work: TableWork, report: PublishReport) -> None:
        files = StoreIO(open_blocking(work.store_url), work.store)
        table = _TableRun(work, files, self._broker, self._step, self._now_ms, report)
        table.publish()
        swept = table.commits and table.version % self._sweep_every < table.commits
        if swept or work.erased is not None:
            report.swept += table.sweep(self._grace_ms)

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


_Filed = tuple[PendingChange, list[IcebergFile]]  # a change, and the data files of its new parts


def _emptied(change: PendingChange) -> OffsetRange:
    return OffsetRange(change.partition, change.old[0][0], change.old[-1][1])


class _TableRun:
    """Commits the pending changes of one table."""

    def __init__(
        self,
        work: TableWork,
        files: StoreIO,
        broker: TableBroker,
        step: Step,
        now_ms: Callable[[], int],
        report: PublishReport,
    ) -> None:
        self._work = work
        self._files = files
        self._broker = broker
        self._step = step
        self._now_ms = now_ms
        self._report = report
        self._location = work.location
        self._metadata: TableMetadata | None = None
        self._offsets = dict(work.offsets)
        self.commits = 0

    @property
    def version(self) -> int:
        return int(self._location.rsplit("/", 1)[-1].split("-", 1)[0])

    def publish(self) -> None:
        changes = self._work.changes
        self._commit("delete", [(change, []) for change in changes if not change.new])
        same, different = self._replacements([change for change in changes if change.old and change.new])
        self._commit("replace", same)
        self._commit("overwrite" if any(files for _, files in different) else "delete", different)
        self._commit("append", [(change, self._new_files(change)) for change in changes if not change.old])
        self._expire()
        self._erase()

    def _replacements(self, changes: Sequence[PendingChange]) -> tuple[list[_Filed], list[_Filed]]:
        """The changes whose new parts have the rows that the table had, and the others. Readers of changes skip a
        `replace`, so a commit that removes or changes rows must not be one."""
        if not changes:
            return [], []
        new = [self._new_files(change) for change in changes]
        snapshots = Snapshots(self._loaded(), self._work.kind, self._files, self._now_ms())
        old = snapshots.files_in([_emptied(change) for change in changes])
        same: list[_Filed] = []
        different: list[_Filed] = []
        for change, before, after in zip(changes, old, new, strict=True):
            keeps = change.new[-1].end == change.old[-1][1] and same_rows(before, after)
            (same if keeps else different).append((change, after))
        return same, different

    def _commit(self, operation: Operation, filed: Sequence[_Filed]) -> None:
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
        if added or (emptied and metadata.current_snapshot() is not None) or self._work.kind == "records":
            now = self._now_ms()
            snapshots = Snapshots(metadata, self._work.kind, self._files, now)
            draft = SnapshotDraft(operation, added, emptied, dict(self._offsets))
            requirements, updates = snapshots.draft(draft)
            self._step("manifests")
            updates += remove_snapshots(expired_snapshots(metadata, now, coming=1))
        self._send(requirements, updates, changes)
        self._report.parts += sum(len(change.new) or len(change.old) for change in changes)

    def _expire(self) -> None:
        """Remove old snapshots if no other commit of this run did."""
        if self.commits or not self._work.expire:
            return
        metadata = self._loaded()
        old = expired_snapshots(metadata, self._now_ms())
        if old:
            self._send(
                [{"type": "assert-table-uuid", "uuid": str(metadata.table_uuid)}], remove_snapshots(old), ()
            )

    def _erase(self) -> None:
        """Remove snapshots that may reach erased records, and at once the files that only they need."""
        metadata = self._loaded()
        old = erasable_snapshots(metadata, self._work.erased or ())
        if not old:
            return
        before = referenced_files(metadata, self._location, self._work.kind, self._files)
        self._send(
            [{"type": "assert-table-uuid", "uuid": str(metadata.table_uuid)}], remove_snapshots(old), ()
        )
        after = referenced_files(self._loaded(), self._location, self._work.kind, self._files)
        for location in before - after:
            if not location.endswith(".metadata.json"):  # which hold no values, and may be read now
                self._files.delete(location)

    def _send(
        self,
        requirements: list[dict[str, Any]],
        updates: list[dict[str, Any]],
        changes: Sequence[PendingChange],
    ) -> None:
        part_changes = tuple(
            PartChange(
                change.stream,
                change.old,
                tuple((part.base, part.end, part.generation) for part in change.new),
            )
            for change in changes
        )
        before = self._location
        self._location = self._broker.commit_table(
            TableCommitRequest(
                self._work.namespace, self._work.name, before, part_changes, requirements, updates
            )
        )
        if self._location != before:
            self._metadata = None
        self.commits += 1
        self._report.commits += 1
        self._step("commit")

    def sweep(self, grace_ms: int) -> int:
        try:
            before_ms = self._now_ms() - grace_ms
            return sweep(self._loaded(), self._location, self._work.kind, self._files, before_ms)
        except NotFound:
            return 0  # the table changed meanwhile, or was dropped

    def _loaded(self) -> TableMetadata:
        if self._metadata is None:
            try:
                self._metadata = TableMetadataUtil.parse_raw(self._files.get(self._location).decode())
            except NotFound:
                raise TableChanged(f"table {self._work.name!r} changed meanwhile") from None
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
                if self._work.kind == "records":
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
        data, count = write_errors(file, self._work.topic, location, self._files)
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
