"""The driver of the lake: plan, have Spark do the tasks, publish, go on.

It holds no truth. Killed anywhere, it leaves files that no ledger names, which the collector deletes, and leases
that run out; whoever plans next begins where the ledger says.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from mainstem import limits
from mainstem.broker.plans import PlanRequest, Publication, Task
from mainstem.errors import MainstemError, Unavailable, described
from mainstem.lake.broker import LakeBroker
from mainstem.spark.driver_status import DriverStatus
from mainstem.spark.jobs import TaskOutcome
from mainstem.spark.leases import LeaseExtender
from mainstem.spark.progress import Progress

if TYPE_CHECKING:
    from mainstem.lake.iceberg.outbox import TablesRound  # PyIceberg, not before a table is published

RunTasks = Callable[[Sequence[Task]], list[TaskOutcome]]
PublishTables = Callable[[LakeBroker], "TablesRound"]

_PAUSE_S = 0.5
_PAUSE_MAX_S = 5.0
_AWAY_PAUSE_MAX_S = 10.0
_STATUS_EVERY_S = 30.0


@dataclass(frozen=True, kw_only=True)
class DriverOptions:
    holder: str  # its name, for people
    topics: tuple[str, ...] = ()  # only these; none: all
    tasks_max: int = 8  # at a time
    lease_ms: int = 60_000
    wait_for_bytes: int = 32 * limits.MIB  # a stream with fewer new bytes …
    wait_for_ms: int = 10_000  # … waits so long for more


class DriverRound(NamedTuple):
    """What one round did."""

    tasks: int
    published: int


class Driver:
    """`run_tasks` does the work; everything else is asked of the broker."""

    def __init__(
        self,
        broker: LakeBroker,
        run_tasks: RunTasks,
        options: DriverOptions,
        progress: Progress,
        *,
        publish_tables: PublishTables | None = None,
        stop: threading.Event | None = None,
    ) -> None:
        self._broker = broker
        self._run_tasks = run_tasks
        self._options = options
        self._progress = progress
        self._publish_tables = publish_tables
        self._stop = stop or threading.Event()
        self._collected_at = time.monotonic()
        self._shown_at = -_STATUS_EVERY_S
        self.driver_status = DriverStatus()

    def run(self) -> None:
        """Go on until told to stop, whatever the broker says. Raises SparkLost."""
        pause_s = _PAUSE_S
        while not self._stop.is_set():
            try:
                done = self.round()
            except MainstemError as error:
                away = "broker away" if isinstance(error, Unavailable) else "refused"
                self._progress.event(away, error=str(error), url=self._broker.url)
                pause_s = min(max(2 * pause_s, _PAUSE_S), _AWAY_PAUSE_MAX_S)
            else:
                pause_s = 0.0 if done.published else min(max(2 * pause_s, _PAUSE_S), _PAUSE_MAX_S)
            self._stop.wait(pause_s)
        self._report("stopping")

    def run_once(self) -> DriverStatus:
        """Do all that is due now, and nothing that becomes due meanwhile. Raises MainstemError, SparkLost."""
        ends = {
            partition.stream: partition.end
            for topic in self._broker.status().topics
            for partition in topic.partitions
        }
        published = 0
        while not self._stop.is_set():
            tasks = self._plan(wait_for_bytes=0, wait_for_ms=0)
            due = [task for task in tasks if self._due_in_pass(task, ends)]
            self._release(task for task in tasks if task not in due)
            if not due:
                break
            published += self._work(due)
        self._finish_round(published, collect=True)
        return self.driver_status

    def round(self) -> DriverRound:
        """One round: plan, work, publish, tables, garbage. Raises MainstemError, SparkLost."""
        options = self._options
        planned = self._plan(wait_for_bytes=options.wait_for_bytes, wait_for_ms=options.wait_for_ms)
        tasks = [task for task in planned if not self.driver_status.held_back(task.stream)]
        self._release(task for task in planned if task not in tasks)
        published = self._work(tasks) if tasks else 0
        self._finish_round(
            published, collect=time.monotonic() - self._collected_at > limits.LAKE_COLLECT_EVERY_S
        )
        return DriverRound(len(tasks), published)

    def _plan(self, *, wait_for_bytes: int, wait_for_ms: int) -> tuple[Task, ...]:
        options = self._options
        request = PlanRequest(
            options.holder,
            options.topics,
            tasks_max=options.tasks_max,
            lease_ms=options.lease_ms,
            wait_for_bytes=wait_for_bytes,
            wait_for_ms=wait_for_ms,
        )
        plan = self._broker.plan(request)
        for topic in self.driver_status.unplanned(plan.problems):
            self._progress.event("not planned", topic=topic, error=plan.problems[topic])
        return plan.tasks

    def _due_in_pass(self, task: Task, ends: dict[int, int]) -> bool:
        """Whether it is older than the pass, and did not fail in it."""
        newer = task.kind == "materialise" and task.sources.base >= ends.get(task.stream, 0)
        return not newer and not self.driver_status.in_trouble(task.stream)

    def _work(self, tasks: Sequence[Task]) -> int:
        """Have the tasks done and publish them. Returns how many were."""
        topics = ", ".join(sorted({task.topic for task in tasks}))
        self._progress.event("tasks", count=len(tasks), of=topics)
        self._report("working", running=len(tasks))
        published = 0
        try:
            with LeaseExtender(self._broker, tasks, self._options.lease_ms):
                outcomes = self._run_tasks(tasks)
                if self._stop.is_set():  # tasks that were cut off did not fail
                    outcomes = [outcome for outcome in outcomes if outcome.publication is not None]
                for _, group in groupby(outcomes, key=lambda outcome: outcome.task.stream):
                    published += self._publish_stream(list(group))
        finally:
            self._release(tasks)
        self.driver_status.rounds += 1
        return published

    def _publish_stream(self, outcomes: list[TaskOutcome]) -> int:
        """Publish the tasks of one stream in order. Returns how many were."""
        published = 0
        for task, publication, error, seconds, damaged_at in outcomes:
            if publication is not None:
                try:
                    self._publish(publication)
                except Unavailable:
                    raise
                except Exception as refusal:  # noqa: BLE001 - overtaken, or the topic is gone: it is this stream's
                    error = described(refusal)
                else:
                    self._published(task, publication, seconds)
                    published += 1
            if error:
                self._failed(task, error)
            if damaged_at is not None:
                self._have_read(task, damaged_at)
            ended_early = publication is None or publication.parts[-1].end < task.sources.end
            if task.kind == "materialise" and (error or ended_early):
                break  # what follows would leave a gap; it is planned anew
        return published

    def _publish(self, publication: Publication) -> None:
        """Raises what the broker says to it. A broker that is away is waited for as long as a lease lasts."""
        give_up = time.monotonic() + self._options.lease_ms / 1000
        while True:
            try:
                self._broker.publish(publication)
                return
            except Unavailable:
                if time.monotonic() >= give_up or self._stop.wait(_PAUSE_S):
                    raise

    def _published(self, task: Task, publication: Publication, seconds: float) -> None:
        self.driver_status.did(publication, seconds)
        parts = publication.parts
        self._progress.event(
            "published",
            topic=task.topic,
            partition=task.partition,
            kind=task.kind,
            base=parts[0].base,
            end=parts[-1].end,
            generation=task.generation,
            records=sum(part.records for part in parts),
            bytes=sum(part.bytes for part in parts),
            files=sum(len(part.files) for part in parts),
            removed_records=publication.removed_records,
            seconds=round(seconds, 3),
        )

    def _failed(self, task: Task, error: str) -> None:
        failures = self.driver_status.failed_at(task, error)
        self._progress.event(
            "failed",
            topic=task.topic,
            partition=task.partition,
            kind=task.kind,
            base=task.sources.base,
            end=task.sources.end,
            error=error,
            failures=failures,
        )

    def _have_read(self, task: Task, offset: int) -> None:
        """Have the broker meet the damage itself: it then knows what is lost, and plans around it."""
        try:
            self._broker.probe_loss(task.topic, task.partition, offset)
        except MainstemError as error:
            self._progress.event("not read", topic=task.topic, offset=offset, error=str(error))

    def _finish_round(self, published: int, *, collect: bool) -> None:
        """Tables and garbage, and a word about how it goes."""
        self._update_tables()
        if collect:
            self._collected_at = time.monotonic()
            self._collect()
        now = time.monotonic()
        if published or now - self._shown_at > _STATUS_EVERY_S:  # the broker looks at every topic for it
            self._shown_at = now
            self._progress.status(self._broker.status())
        self._report("idle")

    def _collect(self) -> None:
        try:
            wal_objects, files = self._broker.collect()
        except Unavailable:
            raise
        except MainstemError as error:  # the report below is what says how topics are
            self._progress.event("not collected", error=str(error))
            return
        if wal_objects or files:
            self._progress.event("collected", wal_objects=wal_objects, files=files)

    def _update_tables(self) -> None:
        self.driver_status.tables_error = ""
        if self._publish_tables is None:
            return
        try:
            done = self._publish_tables(self._broker)
        except Exception as error:  # noqa: BLE001 - records go on becoming files, whatever is wrong with a table
            self.driver_status.tables_error = f"{type(error).__name__}: {error}"
            self._progress.event("tables failed", error=self.driver_status.tables_error)
            return
        for topic in self.driver_status.tables_behind(done.problems, done.waiting):
            self._progress.event("table behind", topic=topic, error=done.problems[topic])
        if done.commits:
            self._progress.event("tables", commits=done.commits)

    def _release(self, tasks: Iterable[Task]) -> None:
        for stream, token in sorted({(task.stream, task.token) for task in tasks}):
            try:
                self._broker.release(stream, token)
            except MainstemError as error:
                # It runs out by itself; until then nobody else gets on with the stream.
                self._progress.event("not released", stream=stream, error=str(error))

    def _report(self, state: str, running: int = 0) -> None:
        try:
            self._broker.report(self.driver_status.report(self._options.holder, state, running))
        except MainstemError as error:
            self._progress.event("not reported", error=str(error))
