"""Publication: what serves a topic becomes what its table shows, part by part, each exactly once.

The broker says what is left to do. For each step the publisher writes manifests, then asks for one commit that names
the metadata it was made for and the parts it adds, replaces or takes away; the ledger refuses what is not next. A
publisher that is killed leaves files that nobody names, and the next one asks the broker again.
"""

from __future__ import annotations

import io
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil

from mainstem import limits
from mainstem.broker.table_work import PendingChange, TableCommitRequest, TableWork, TableWorkPage
from mainstem.errors import LogDamaged, MainstemError, NotFound, TableChanged, Unreachable, described
from mainstem.lake.backoff import Backoff
from mainstem.lake.broker import LakeBroker
from mainstem.lake.iceberg.data_files import data_file
from mainstem.lake.iceberg.error_rows import any_errors, write_errors
from mainstem.lake.iceberg.expiry import expired, removal, sweep
from mainstem.lake.iceberg.snapshots import OffsetRange, Operation, SnapshotDraft, Snapshots
from mainstem.lake.iceberg.store_io import StoreIO
from mainstem.ledger.parts import DataFile
from mainstem.ledger.table_commands import PartChange

_log = logging.getLogger("mainstem.tables")


class TableBroker(Protocol):
    """What publication asks of a broker; see LakeBroker."""

    def tables(self) -> TableWorkPage: ...

    def commit_table(self, commit: TableCommitRequest) -> str:
        """Returns where the table's metadata is now. Raises TableChanged."""
        ...


@dataclass
class PublishReport:
    """What one run did."""

    commits: int = 0
    parts: int = 0  # published, or taken from the table
    refused: int = 0  # commits that came second: what was left of them is seen to next time
    swept: int = 0  # files deleted that nothing named
    problems: dict[str, str] = field(default_factory=dict)  # topic → why its table is not what it should be
    failed: set[str] = field(default_factory=set)  # topics that failed in this run
    waiting: set[str] = field(default_factory=set)  # topics that failed before and were not tried again yet
    deliveries: list[TableWork] = field(default_factory=list)  # tables that go elsewhere as well


Step = Callable[[str], None]


class TablesRound(NamedTuple):
    """What one round of publishing came to."""

    commits: int
    problems: dict[str, str]  # topic → why its table is not what it should be
    waiting: frozenset[str] = frozenset()  # of these, topics that failed before and were not tried again yet


def publish_tables(broker: LakeBroker, backoff: Backoff | None = None) -> TablesRound:
    """Publish all there is, and deliver what goes elsewhere as well, once."""
    backoff = backoff or Backoff()
    report = Publisher(broker, backoff=backoff).run()
    if not report.deliveries:
        return TablesRound(report.commits, report.problems, frozenset(report.waiting))
    try:
        from mainstem.lake import delta  # another 60 MB, for those who want it

        delivered = delta.deliver(broker, report.deliveries, backoff)
    except Unreachable:
        raise
    except Exception as error:  # noqa: BLE001 - the report still names what was published
        behind = {
            work.topic: f"no Delta table is delivered: {described(error)}" for work in report.deliveries
        }
        return TablesRound(report.commits, behind | report.problems, frozenset(report.waiting))
    waiting = frozenset(report.waiting | delivered.waiting)
    return TablesRound(report.commits + delivered.commits, report.problems | delivered.problems, waiting)


class Publisher:
    """`step` is called with the name of each step once it is done: tests end the run there. `backoff` knows the
    tables that failed in earlier runs."""

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
        """Until every table shows what serves its topic, or has failed. Raises what the broker does."""
        report = PublishReport()
        while True:
            works = self._broker.tables()
            report.problems = dict(works.problems)
            report.deliveries = [work for work in works.tables if work.delta]
            progress = [self._publish(work, report) for work in works.tables if self._due(work, report)]
            if not any(progress):
                return report

    def _due(self, work: TableWork, report: PublishReport) -> bool:
        """Whether there is something to do for a table, and it did not fail a moment ago."""
        if not (work.changes or work.expire):
            self._backoff.succeeded(work.table_id)  # another publisher may have published it
            return False
        known = self._backoff.waiting(work.table_id)
        if known is None:
            return True
        report.problems[work.topic] = known
        if work.topic not in report.failed:
            report.waiting.add(work.topic)
        return False

    def _publish(self, work: TableWork, report: PublishReport) -> bool:
        """One table. True: there is more to do. No exception stops the other tables: users choose the values, so no
        list of exceptions is complete."""
        try:
            self._publish_alone(work, report)
        except (TableChanged, NotFound) as refusal:
            # Someone else publishes too, or a part was replaced meanwhile, or all of it is gone.
            if not self._overtaken(work, refusal):
                self._failed(work, refusal, report)
                return False
            report.refused += 1
            _log.info("a commit came second", extra={"table": work.name, "reason": str(refusal)})
            return False
        except Unreachable:
            raise
        except Exception as error:  # noqa: BLE001 - it is this table's problem
            if not isinstance(error, MainstemError | OSError):
                _log.warning("a table cannot be published", extra={"table": work.name}, exc_info=True)
            self._failed(work, error, report)
            return False
        self._backoff.succeeded(work.table_id)
        return work.more

    def _failed(self, work: TableWork, error: Exception, report: PublishReport) -> None:
        report.problems[work.topic] = f"table {work.name!r}: {described(error)}"
        report.failed.add(work.topic)
        report.waiting.discard(work.topic)
        self._backoff.failed(work.table_id, report.problems[work.topic])

    def _publish_alone(self, work: TableWork, report: PublishReport) -> None:
        files = StoreIO.open(work.store_url, work.store)
        try:
            table = _TableRun(work, files, self._broker, self._step, self._now_ms, report)
            table.publish()
            if table.commits and table.version % self._sweep_every < table.commits:
                report.swept += table.sweep(self._grace_ms)
        finally:
            files.close()

    def _overtaken(self, work: TableWork, refusal: Exception) -> bool:
        """Whether the broker asks for something else by now. If not, the same refusal would come again."""
        now = next((each for each in self._broker.tables().tables if each.table_id == work.table_id), None)
        if now is None:
            return True
        if isinstance(refusal, _FileGone):
            parts = (part for change in now.changes for part in change.new)
            return refusal.key not in {file.key for part in parts for file in part.files}
        return (now.location, now.changes) != (work.location, work.changes)


class _FileGone(NotFound):
    """A file of a part is not in the store."""

    def __init__(self, key: str) -> None:
        super().__init__(f"its file {key} is not in the store")
        self.key = key


class _TableRun:
    """The changes of one table, made one after the other."""

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
        self._commit("delete", [change for change in changes if not change.new])
        self._commit(
            "replace",
            [change for change in changes if change.old and change.new and self._keeps_rows(change)],
        )
        self._commit(
            "overwrite",
            [change for change in changes if change.old and change.new and not self._keeps_rows(change)],
        )
        self._commit("append", [change for change in changes if not change.old])
        self._expire()

    def _keeps_rows(self, change: PendingChange) -> bool:
        """Whether the new parts hold nothing that the table did not show before."""
        return change.new[-1].end == change.old[-1][1]

    def _commit(self, operation: Operation, changes: Sequence[PendingChange]) -> None:
        if not changes:
            return
        added = [file for change in changes for file in self._new_files(change)]
        emptied = [
            OffsetRange(change.partition, change.old[0][0], change.old[-1][1])
            for change in changes
            if change.old
        ]
        self._step("files")
        for change in changes:
            if change.new:
                end = change.new[-1].end
                self._offsets[change.partition] = max(self._offsets.get(change.partition, 0), end)
        metadata = self._loaded()
        requirements: list[dict[str, Any]] = []
        updates: list[dict[str, Any]] = []
        # Of a table of errors most parts have no rows: then nothing changes but how far it is.
        if added or (emptied and metadata.current_snapshot() is not None) or self._work.kind == "records":
            now = self._now_ms()
            snapshots = Snapshots(metadata, self._work.kind, self._files, now)
            draft = SnapshotDraft(operation, added, emptied, dict(self._offsets))
            requirements, updates = snapshots.draft(draft)
            self._step("manifests")
            updates += removal(expired(metadata, now, coming=1))
        self._send(requirements, updates, changes)
        self._report.parts += sum(len(change.new) or len(change.old) for change in changes)

    def _expire(self) -> None:
        """Let go of old snapshots where nothing is published that would do it by the way."""
        if self.commits or not self._work.expire:
            return
        metadata = self._loaded()
        old = expired(metadata, self._now_ms())
        if old:
            self._send([{"type": "assert-table-uuid", "uuid": str(metadata.table_uuid)}], removal(old), ())

    def _send(
        self,
        requirements: list[dict[str, Any]],
        updates: list[dict[str, Any]],
        changes: Sequence[PendingChange],
    ) -> None:
        named = tuple(
            PartChange(
                change.stream,
                change.old,
                tuple((part.base, part.end, part.generation) for part in change.new),
            )
            for change in changes
        )
        before = self._location
        self._location = self._broker.commit_table(
            TableCommitRequest(self._work.namespace, self._work.name, before, named, requirements, updates)
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
            return 0  # the table moved on meanwhile, or was dropped

    def _loaded(self) -> TableMetadata:
        if self._metadata is None:
            try:
                self._metadata = TableMetadataUtil.parse_raw(self._files.get(self._location).decode())
            except NotFound:
                raise TableChanged(f"table {self._work.name!r} moved on meanwhile") from None
        return self._metadata

    # Files

    def _new_files(self, change: PendingChange) -> list[IcebergFile]:
        """The files of the new parts, as the table names them."""
        schema = self._loaded().schema()
        found = []
        for part in change.new:
            for file in part.files:
                footer = self._footer(file.key, file.bytes)
                if footer.num_rows != file.records:
                    raise LogDamaged(f"{file.key} holds {footer.num_rows} records, not {file.records}")
                if self._work.kind == "records":
                    location = self._files.location(file.key)
                    found.append(data_file(footer, "records", schema, location, file.bytes, file.day))
                else:
                    # Of the file's own name, so that writing it again after a crash makes no second one.
                    name = f"{change.partition}-{file.key.rsplit('/', 1)[-1]}"
                    found += self._error_file(file, footer, f"{self._loaded().location}/data/{name}")
        return found

    def _error_file(self, file: DataFile, footer: pq.FileMetaData, location: str) -> list[IcebergFile]:
        if not any_errors(footer):
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
                raise _FileGone(key) from None
            except pa.ArrowInvalid as error:
                raise LogDamaged(f"{key} is no Parquet file: {error}") from error
