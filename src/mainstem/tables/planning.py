"""Planning: find the lake's due tasks and lease them, one stream at a time.

The tasks of one stream share a lease and its token, and are published in the order of the plan.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from mainstem import events, limits
from mainstem.api.lake import Part, Plan, PlanRequest, Sources, Task, TaskKind
from mainstem.errors import (
    BrokerFenced,
    InvalidInput,
    LimitReached,
    NotFound,
    TableIncompatible,
    TaskHeld,
    Unavailable,
    described,
)
from mainstem.ledger.generations import Generations, task_of
from mainstem.ledger.parts import prefix_of
from mainstem.ledger.tasks import ReleaseTask, TakeTask, TaskLeased
from mainstem.ledger.topics import Topic
from mainstem.log.log import Log
from mainstem.ports.clock import Clock, Random
from mainstem.tables.record_locations import RecordLocator
from mainstem.tables.registry import RegistryColumns

LAKE_RANGES_PER_LEASE_MAX = 4  # consecutive ranges of one stream, for as many workers
# that the tasks of one plan read, with LAKE_SLICE_BYTES for each slice of the log
LAKE_PLAN_BYTES = 2 * limits.GIB
LAKE_MERGE_PARTS_MIN = 8  # this many small neighbours are merged into one
LAKE_SMALL_PART_BYTES = 32 * limits.MIB
LAKE_COMPACT_DIRTY_RATIO = 0.5  # share of a stream's part bytes that were never compacted

_events = events.named("lake")

_TOKEN_BITS = (1 << 63) - 1

_KINDS: tuple[TaskKind, ...] = ("materialise", "rewrite", "merge", "compact")


@dataclass(frozen=True, slots=True)
class _LeasedWork:
    """The work of one lease: consecutive or separate ranges of one stream, in order."""

    kind: TaskKind
    sources: tuple[Sources, ...]
    cost_bytes: int  # to read
    compact_before_ms: int = 0
    tombstones_before_ms: int = 0


class LakePlanner:
    def __init__(
        self,
        log: Log,
        record_locator: RecordLocator,
        columns: RegistryColumns,
        clock: Clock,
        random: Random,
        *,
        all_topics: bool,
    ) -> None:
        self._log = log
        self._columns = columns
        self._record_locator = record_locator
        self._clock = clock
        self._random = random
        self._all_topics = all_topics
        self._last_kind: dict[int, TaskKind] = {}  # by stream: the kinds alternate
        # Stream → (frontier, since when records wait after it).
        self._waiting: dict[int, tuple[int, int]] = {}
        self._next = ""  # the topic to start with, so that every topic gets its turn
        self._problems: dict[int, str] = {}  # by stream: why planning it failed

    @property
    def _generations(self) -> Generations:
        return self._log.ledger.generations

    def wanted(self, topic: Topic) -> bool:
        """Whether the topic's records are materialised."""
        config = topic.config
        if config.type != "log" or config.durability == "ephemeral":
            return False
        return self._all_topics or config.table or "compact" in config.cleanup_policy

    async def plan(self, request: PlanRequest) -> Plan:
        """Lease the tasks that are due. Raises InvalidInput."""
        _check(request)
        due = await self._due_work(request)
        # All at once: the leases of many streams are one commit of the log.
        leased = await asyncio.gather(*(self._lease(*each, request) for each in due), return_exceptions=True)
        tasks: list[Task] = []
        for (topic, stream, _), result in zip(due, leased, strict=True):
            if isinstance(result, list):
                tasks += result
            elif not isinstance(result, NotFound | LimitReached):  # deleted meanwhile, or enough is leased
                self._failed(topic, stream, result)
        return Plan(tuple(tasks), self._clock.now_ms(), self._current_problems(request.topics))

    async def _due_work(self, request: PlanRequest) -> list[tuple[Topic, int, _LeasedWork]]:
        """The streams to lease, up to the limits of one plan."""
        room = min(request.tasks_max, limits.LAKE_TASKS_PER_PLAN_MAX)
        cost_bytes = 0
        found: list[tuple[Topic, int, _LeasedWork]] = []
        for topic in self._rotated_topics(request.topics):
            for stream in topic.streams:
                if room <= 0 or cost_bytes >= LAKE_PLAN_BYTES:
                    self._next = topic.name
                    return found
                try:
                    work = None if self._is_leased(stream) else await self._due(topic, stream, request, room)
                    if work is not None:
                        with suppress(TableIncompatible):  # settling reports it; the columns stay as they are
                            await self._columns.include(topic)
                except NotFound:
                    continue  # deleted meanwhile
                except Exception as error:  # noqa: BLE001 - only this partition fails: the others continue
                    self._failed(topic, stream, error)
                    continue
                self._problems.pop(stream, None)
                if work is not None:
                    found.append((topic, stream, work))
                    room -= len(work.sources)
                    cost_bytes += work.cost_bytes
        self._next = ""
        return found

    def _failed(self, topic: Topic, stream: int, error: BaseException) -> None:
        """Record why a stream has no plan. Raises what concerns every topic."""
        if isinstance(error, Unavailable | BrokerFenced) or not isinstance(error, Exception):
            raise error
        self._problems[stream] = described(error)
        _events.warning("planning failed", topic=topic.name, error=self._problems[stream])

    def _current_problems(self, names: tuple[str, ...]) -> dict[str, str]:
        """By topic. Forgets those of deleted streams."""
        found: dict[str, str] = {}
        for stream, error in list(self._problems.items()):
            topic = self._log.ledger.topics.of_stream(stream)
            if topic is None:
                del self._problems[stream]
            elif not names or topic.name in names:
                found.setdefault(topic.name, error)
        for stream, ranges in self._log.missing.ranges.items():
            topic = self._log.ledger.topics.of_stream(stream)
            if topic is not None and (not names or topic.name in names):
                start, end = ranges[0]
                found.setdefault(topic.name, f"the file with the records {start} to {end - 1} is missing")
        return found

    def _rotated_topics(self, names: tuple[str, ...]) -> list[Topic]:
        topics = [topic for topic in self._log.ledger.topics if not names or topic.name in names]
        return sorted(topics, key=lambda topic: (topic.name < self._next, topic.name))

    async def _lease(self, topic: Topic, stream: int, work: _LeasedWork, request: PlanRequest) -> list[Task]:
        """The tasks of a stream under a new lease; none if the work is not due any more."""
        token = int.from_bytes(self._random.token(8), "big") & _TOKEN_BITS or 1
        reach = work.sources[-1].end
        try:
            leased = await self._log.propose(
                TakeTask(
                    task_of(stream), request.holder, token, request.lease_ms, reach, work.compact_before_ms
                )
            )
        except TaskHeld:
            return []  # another holder was first
        current = self._log.ledger.topics.by_id(topic.topic_id)
        if current is None or not self._still_due(stream, work):
            await self._log.propose(ReleaseTask(task_of(stream), token))
            return []
        self._last_kind[stream] = work.kind
        columns = self._columns.resolved(current)
        return [self._task(current, stream, work, sources, columns, leased) for sources in work.sources]

    def _task(
        self, topic: Topic, stream: int, work: _LeasedWork, sources: Sources, columns: str, leased: TaskLeased
    ) -> Task:
        generation = 1 + max((part.generation for part in sources.parts), default=0)
        return Task(
            work.kind,
            topic.name,
            topic.topic_id,
            topic.streams.index(stream),
            stream,
            leased.token,
            leased.deadline_ms,
            generation,
            sources,
            f"{prefix_of(topic, stream)}{sources.base}-{sources.end}-{leased.token:016x}-",
            log_append_time=topic.config.timestamp_type == "LogAppendTime",
            schema=columns,
            compact_before_ms=work.compact_before_ms,
            tombstones_before_ms=work.tombstones_before_ms,
        )

    def _is_leased(self, stream: int) -> bool:
        lease = self._log.ledger.tasks.get(task_of(stream))
        return lease is not None and self._log.now_ms() < lease.deadline_ms

    def _still_due(self, stream: int, work: _LeasedWork) -> bool:
        """Whether the ranges are still served as they were before the lease was taken."""
        for sources in work.sources[:1] if work.kind == "materialise" else work.sources:
            parts = self._generations.parts(stream, sources.base, sources.end)
            if tuple(parts) != sources.parts:
                return False
            if work.kind == "materialise" and self._generations.frontier(stream) != sources.base:
                return False
        return True

    # What is due

    async def _due(self, topic: Topic, stream: int, request: PlanRequest, room: int) -> _LeasedWork | None:
        ranges = min(room, LAKE_RANGES_PER_LEASE_MAX)
        look: dict[TaskKind, Callable[[], Awaitable[_LeasedWork | None]]] = {
            "materialise": lambda: self._materialise(topic, stream, request, ranges),
            "rewrite": lambda: self._rewrite(stream, ranges),
            "merge": lambda: self._merge(topic, stream),
            "compact": lambda: self._compact(topic, stream),
        }
        last = self._last_kind.get(stream)
        first = _KINDS.index(last) + 1 if last else 0
        for kind in (*_KINDS[first:], *_KINDS[:first]):
            if kind in request.kinds:
                work = await look[kind]()
                if work is not None:
                    return work
        return None

    async def _materialise(
        self, topic: Topic, stream: int, request: PlanRequest, ranges: int
    ) -> _LeasedWork | None:
        at, end = self._generations.frontier(stream), self._log.streams.of(stream).stable_end(stream)
        missing = self._log.missing.next(stream, at)
        if missing is not None:
            # A part stands for all of its offsets, so these could not come back after it.
            end = min(end, max(at, missing[0]))
        if not self.wanted(topic) or end - at < max(1, request.least_records):
            self._waiting.pop(stream, None)
            return None
        frontier, since_ms = self._waiting.get(stream, (at, self._clock.now_ms()))
        if frontier != at:
            since_ms = self._clock.now_ms()
        self._waiting[stream] = (at, since_ms)
        found: list[Sources] = []
        size = 0
        while at < end and len(found) < ranges:
            logged = await self._record_locator.logged(stream, at, end)
            found.append(logged.sources)
            size += logged.cost_bytes
            at = logged.sources.end
        young = self._clock.now_ms() - since_ms < request.wait_for_ms
        if size < request.wait_for_bytes and young:
            return None
        return _LeasedWork("materialise", tuple(found), size)

    async def _rewrite(self, stream: int, ranges: int) -> _LeasedWork | None:
        stale = self._generations.stale(stream)[:ranges]
        if not stale:
            return None
        sources = tuple(self._record_locator.of_parts(stream, [part]) for part in stale)
        return _LeasedWork("rewrite", sources, sum(part.bytes for part in stale))

    async def _merge(self, topic: Topic, stream: int) -> _LeasedWork | None:
        run: list[Part] = []
        size = 0
        shown_to = self._log.ledger.tables.shown_to(topic.topic_id, stream)
        for part in self._generations.parts(stream, self._log.ledger.streams.start(stream)):
            small = part.bytes < LAKE_SMALL_PART_BYTES
            # Do not merge published and unpublished parts: one snapshot would both replace and append.
            if small and size + part.bytes <= limits.LAKE_TASK_BYTES and part.base not in shown_to:
                run.append(part)
                size += part.bytes
                continue
            if len(run) >= LAKE_MERGE_PARTS_MIN:
                break
            run, size = ([part], part.bytes) if small else ([], 0)
        if len(run) < LAKE_MERGE_PARTS_MIN:
            return None
        return _LeasedWork("merge", (self._record_locator.of_parts(stream, run),), size)

    async def _compact(self, topic: Topic, stream: int) -> _LeasedWork | None:
        config = topic.config
        if "compact" not in config.cleanup_policy or config.tracked:
            return None
        now = self._clock.now_ms()
        before_ms = now - config.min_compaction_lag_ms
        parts = self._up_to_shown(topic, stream)
        end = parts[-1].end if parts else 0
        dirty = [
            one for one in self._generations.dirty(stream) if one.end <= end and _latest(one) < before_ms
        ]
        if not dirty or before_ms <= 0:
            return None
        overdue = any(_latest(part) < now - config.max_compaction_lag_ms for part in dirty)
        ratio = sum(part.bytes for part in dirty) / max(1, sum(part.bytes for part in parts))
        if not overdue and ratio < LAKE_COMPACT_DIRTY_RATIO:
            return None
        return _LeasedWork(
            "compact",
            (self._record_locator.of_parts(stream, parts),),
            sum(part.bytes for part in parts),
            compact_before_ms=before_ms,
            tombstones_before_ms=now - config.delete_retention_ms,
        )

    def _up_to_shown(self, topic: Topic, stream: int) -> Sequence[Part]:
        """The parts that every table has published; all parts if a table has published none. The others wait."""
        parts = self._generations.parts(stream)
        inside = [
            end
            for end in self._log.ledger.tables.shown_to(topic.topic_id, stream)
            if parts and parts[0].base < end < parts[-1].end
        ]
        return [part for part in parts if part.end <= min(inside)] if inside else parts


def _check(request: PlanRequest) -> None:
    if not limits.LEASE_MS_MIN <= request.lease_ms <= limits.LEASE_MS_MAX:
        raise InvalidInput(
            f"lease_ms must be {limits.LEASE_MS_MIN} to {limits.LEASE_MS_MAX}, not {request.lease_ms}"
        )
    if request.tasks_max < 1 or len(request.holder) > limits.TASK_NAME_CHARS_MAX:
        raise InvalidInput(
            f"tasks_max must be at least 1, and the holder may have up to {limits.TASK_NAME_CHARS_MAX} characters"
        )


def _latest(part: Part) -> int:
    return max((file.max_timestamp for file in part.files), default=-1)
