"""The lake's driver: plan tasks, run them on Spark, publish the parts, repeat.

The driver keeps no durable state. A killed driver leaves unreferenced files, which the garbage collector deletes, and
leases, which expire; the next driver continues from ledger state.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple

from mainstem import limits
from mainstem.api.lake import PlanRequest, Publication, Task
from mainstem.client.broker import BrokerClient
from mainstem.errors import MainstemError, StalePlan, Unavailable, described
from mainstem.spark.driver.jobs import TaskOutcome
from mainstem.spark.driver.progress import Progress
from mainstem.spark.driver.status import DriverStatus

if TYPE_CHECKING:
    from mainstem.tables.publishing.publisher import (
        TablesRound,  # imports PyIceberg, which only publishing needs
    )

LAKE_PUBLISHED_PER_CALL = 256  # publications and files that a driver sends together

RunTasks = Callable[[Sequence[Task]], list[TaskOutcome]]
PublishTables = Callable[[BrokerClient], "TablesRound"]

_PAUSE_S = 0.25
_PAUSE_MAX_S = 5.0
_REST = 4  # the driver and new records wait this many times as long as a round took
_WAIT_GROWTH = 10
_ERROR_PAUSE_MAX_S = 10.0
_STATUS_EVERY_S = 30.0
_STATUS_EVERY_PUBLISHED_S = 2.0  # while there is progress
_TOPICS_SHOWN = 20


@dataclass(frozen=True, kw_only=True)
class DriverOptions:
    holder: str  # name of this driver in leases and reports
    topics: tuple[str, ...] = ()  # only these; empty: all
    tasks_max: int = limits.LAKE_TASKS_PER_PLAN_MAX  # in one round; the broker also limits their bytes
    lease_ms: int = 60_000
    wait_for_bytes: int = 32 * limits.MIB  # a stream with fewer new bytes is materialised …
    wait_for_ms: int = 1_000  # … only after this time; if rounds take long, up to _WAIT_GROWTH times that


class DriverRound(NamedTuple):
    """What one round of a driver did."""

    tasks: int
    published: int


class Driver:
    """`run_tasks` runs the tasks; the broker plans, stores and reports."""

    def __init__(
        self,
        broker: BrokerClient,
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
        self._status_at = -_STATUS_EVERY_S
        self._rest_s = 0.0  # after the last round that published
        self.driver_status = DriverStatus()

    def run(self) -> None:
        """Run rounds until `stop` is set; errors of the broker do not end it. Raises SparkLost."""
        pause_s = _PAUSE_S
        while not self._stop.is_set():
            started = time.monotonic()
            try:
                result = self.round()
            except MainstemError as error:
                event = "broker away" if isinstance(error, Unavailable) else "refused"
                self._progress.event(event, error=str(error), url=self._broker.url)
                pause_s = min(max(2 * pause_s, _PAUSE_S), _ERROR_PAUSE_MAX_S)
            else:
                rest_s = _REST * (time.monotonic() - started)
                if result.published:
                    self._rest_s = rest_s
                pause_s = 0.0 if result.published else min(max(rest_s, _PAUSE_S), _PAUSE_MAX_S)
            self._stop.wait(pause_s)
        self._report("stopping")

    def run_once(self) -> DriverStatus:
        """Run everything that is due now, but nothing that becomes due later. Raises MainstemError, SparkLost."""
        ends = {
            partition.stream: partition.end
            for topic in self._broker.status().topics
            for partition in topic.partitions
        }
        published = 0
        while not self._stop.is_set():
            tasks = self._plan(wait_for_bytes=0, wait_for_ms=0)
            streams = {task.stream for task in tasks if self._due_in_pass(task, ends)}
            due = self._taken(tasks, streams)
            if not due:
                break
            published += self._work(due)
        self._finish_round(published, collect=True)
        return self.driver_status

    def round(self) -> DriverRound:
        """One round: plan, work, publish, tables, garbage. Raises MainstemError, SparkLost."""
        options = self._options
        wait_for_ms = min(
            max(int(1000 * self._rest_s), options.wait_for_ms), _WAIT_GROWTH * options.wait_for_ms
        )
        planned = self._plan(wait_for_bytes=options.wait_for_bytes, wait_for_ms=wait_for_ms)
        streams = {task.stream for task in planned if not self.driver_status.in_backoff(task.stream)}
        tasks = self._taken(planned, streams)
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

    def _taken(self, tasks: Sequence[Task], streams: Collection[int]) -> list[Task]:
        """The tasks of these streams. Releases the others: all tasks of a stream share one lease."""
        self._release({task.stream: task.token for task in tasks if task.stream not in streams})
        return [task for task in tasks if task.stream in streams]

    def _due_in_pass(self, task: Task, ends: dict[int, int]) -> bool:
        """Whether the task covers records from before the pass, and its stream did not fail in the pass."""
        newer = task.kind == "materialise" and task.sources.base >= ends.get(task.stream, 0)
        return not newer and not self.driver_status.is_failing(task.stream)

    def _work(self, tasks: Sequence[Task]) -> int:
        """Run the tasks and publish their parts. Returns the number of published tasks."""
        topics = sorted({task.topic for task in tasks})
        self._progress.event("tasks", count=len(tasks), of=", ".join(topics[:_TOPICS_SHOWN]))
        self._report("working", running=len(tasks))
        leases = {task.stream: task.token for task in tasks}
        reach = {task.stream: task.sources.end for task in tasks}  # the end of its last task
        try:
            with _LeaseExtender(self._broker, leases, self._options.lease_ms):
                outcomes = self._run_tasks(tasks)
                if self._stop.is_set():  # cancelled tasks are not failures
                    outcomes = [outcome for outcome in outcomes if outcome.publication is not None]
                published = self._publish_outcomes(outcomes, leases, reach)
        finally:
            self._release(leases)
        self.driver_status.rounds += 1
        return published

    def _publish_outcomes(
        self, outcomes: Sequence[TaskOutcome], leases: dict[int, int], reach: Mapping[int, int]
    ) -> int:
        """Publish the tasks that succeeded. Removes the leases that end with that: those whose last task is published.
        Returns the number of tasks."""
        by_stream = groupby(outcomes, key=lambda outcome: outcome.task.stream)
        streams = [_before_gap(list(group)) for _, group in by_stream]
        made = [outcome.publication for stream in streams for outcome in stream if outcome.publication]
        results = iter(self._publish(made))
        published = 0
        for stream in streams:
            refused = False
            for task, publication, error, seconds, damaged_at in stream:
                result = None if publication is None else next(results)
                if refused and task.kind == "materialise":
                    continue  # a consequence of the first refusal; the broker plans the rest again
                if isinstance(result, MainstemError):
                    error, refused = described(result), True  # a stale plan or a deleted topic
                elif publication is not None:
                    self._task_published(task, publication, seconds)
                    published += 1
                if error:
                    self._task_failed(task, error)
                if damaged_at is not None:
                    self._probe_loss(task, damaged_at)
            task, publication = stream[-1][:2]
            if not refused and publication and publication.parts[-1].end >= reach[task.stream]:
                del leases[task.stream]
        return published

    def _publish(self, publications: Sequence[Publication]) -> list[int | MainstemError]:
        """The result of each. Raises Unavailable."""
        results: list[int | MainstemError] = []
        chunk: list[Publication] = []
        files = 0
        for publication in publications:
            chunk.append(publication)
            files += sum(len(part.files) for part in publication.parts)
            if len(chunk) + files >= LAKE_PUBLISHED_PER_CALL:
                results += self._publish_call(chunk)
                chunk, files = [], 0
        return results + (self._publish_call(chunk) if chunk else [])

    def _publish_call(self, publications: Sequence[Publication]) -> list[int | MainstemError]:
        """Retries while the broker is unavailable, up to the lease time: a repeated publication changes nothing."""
        deadline = time.monotonic() + self._options.lease_ms / 1000
        while True:
            try:
                results = self._broker.publish_all(publications)
                unavailable = next((each for each in results if isinstance(each, Unavailable)), None)
            except Unavailable as error:
                unavailable = error
            if unavailable is None:
                return results
            if time.monotonic() >= deadline or self._stop.wait(_PAUSE_S):
                raise unavailable

    def _task_published(self, task: Task, publication: Publication, seconds: float) -> None:
        self.driver_status.task_published(publication, seconds)
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

    def _task_failed(self, task: Task, error: str) -> None:
        failures = self.driver_status.task_failed(task, error)
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

    def _probe_loss(self, task: Task, offset: int) -> None:
        """Have the broker read the damaged records: it then records the loss and plans around it."""
        try:
            self._broker.probe_loss(task.topic, task.partition, offset)
        except MainstemError as error:
            self._progress.event("loss probe failed", topic=task.topic, offset=offset, error=str(error))

    def _finish_round(self, published: int, *, collect: bool) -> None:
        """Publish tables, collect garbage, show the status and report to the broker."""
        self._update_tables()
        if collect:
            self._collected_at = time.monotonic()
            self._collect()
        now = time.monotonic()
        # A status costs the broker a pass over all topics.
        if now - self._status_at > (_STATUS_EVERY_PUBLISHED_S if published else _STATUS_EVERY_S):
            self._status_at = now
            self._progress.status(self._broker.status())
        self._report("idle")

    def _collect(self) -> None:
        try:
            wal_objects, files = self._broker.collect()
        except Unavailable:
            raise
        except MainstemError as error:  # does not fail the round: the driver still has to report
            self._progress.event("garbage collection failed", error=str(error))
            return
        if wal_objects or files:
            self._progress.event("collected", wal_objects=wal_objects, files=files)

    def _update_tables(self) -> None:
        self.driver_status.tables_error = ""
        if self._publish_tables is None:
            return
        try:
            done = self._publish_tables(self._broker)
        except Exception as error:  # noqa: BLE001 - a table problem must not stop materialisation
            self.driver_status.tables_error = f"{type(error).__name__}: {error}"
            self._progress.event("tables failed", error=self.driver_status.tables_error)
            return
        for topic in self.driver_status.tables_behind(done.problems, done.waiting):
            self._progress.event("table behind", topic=topic, error=done.problems[topic])
        if done.commits:
            self._progress.event("tables", commits=done.commits)

    def _release(self, leases: Mapping[int, int]) -> None:
        for stream, token in sorted(leases.items()):
            try:
                self._broker.release(stream, token)
            except MainstemError as error:
                # The lease expires by itself; until then no other driver can work on the stream.
                self._progress.event("lease release failed", stream=stream, error=str(error))

    def _report(self, state: str, running: int = 0) -> None:
        try:
            self._broker.report(self.driver_status.report(self._options.holder, state, running))
        except MainstemError as error:
            self._progress.event("report failed", error=str(error))


def _before_gap(outcomes: list[TaskOutcome]) -> list[TaskOutcome]:
    """The outcomes of one stream up to the first that leaves a gap behind it: the broker plans the rest again."""
    for number, (task, publication, *_) in enumerate(outcomes):
        ended_early = publication is None or publication.parts[-1].end < task.sources.end
        if task.kind == "materialise" and ended_early:
            return outcomes[: number + 1]
    return outcomes


class _LeaseExtender:
    """Extends the leases of tasks on a thread until the `with` block ends."""

    def __init__(self, broker: BrokerClient, leases: Mapping[int, int], lease_ms: int) -> None:
        self._broker = broker
        self._lease_ms = lease_ms
        self._leases = set(leases.items())
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._extend, name="leases", daemon=True)

    def __enter__(self) -> _LeaseExtender:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()

    def _extend(self) -> None:
        while self._leases and not self._done.wait(self._lease_ms / 3000):
            for lease in sorted(self._leases):
                try:
                    self._broker.extend(*lease, self._lease_ms)
                except StalePlan:
                    self._leases.discard(
                        lease
                    )  # another driver took over; the broker will reject the publication
                except MainstemError:
                    break  # the broker is unavailable; the next attempt comes before the lease expires
