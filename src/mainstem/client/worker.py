"""A worker: receives jobs of one queue, extends their leases, and settles each job once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeVar

from mainstem import events, limits, tracing
from mainstem.api import routes
from mainstem.api.queues import AckResult, ExtendJobsBody, NackBody, NackResult, SettleBody
from mainstem.api.route import Route
from mainstem.client import sse
from mainstem.client.failures import event_failure
from mainstem.client.reconnect import ReconnectPolicy
from mainstem.client.responses import JobBody
from mainstem.client.transport import Query, Transport, decoded, decoded_as
from mainstem.errors import InvalidInput, LeaseLost, MainstemError, Unavailable

T = TypeVar("T")

_log = events.named("worker")

_ASK_AGAIN_S = 1.0
_EXTENSIONS_PER_LEASE = 3  # so that two may fail before a lease is lost


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    node: str
    concurrency: int
    lease_ms: int | None
    auto_extend: bool
    retry_delay_ms: int
    retry_backoff: float
    retry_delay_max_ms: int
    partition: int

    def __post_init__(self) -> None:
        if not 1 <= self.concurrency <= limits.CLAIM_JOBS_MAX:
            raise InvalidInput(f"concurrency must be 1 to {limits.CLAIM_JOBS_MAX}, not {self.concurrency}")
        if self.retry_backoff < 1:
            raise InvalidInput(f"retry_backoff must be 1 or more, not {self.retry_backoff}")

    def retry_after_ms(self, deliveries: int) -> int:
        """How long a job that failed waits after this many deliveries."""
        longest = max(self.retry_delay_max_ms, self.retry_delay_ms)
        if self.retry_delay_ms <= 0:
            return 0
        # A power of floats overflows; the longest delay is reached long before.
        doublings = min(deliveries - 1, 64)
        return int(min(self.retry_delay_ms * self.retry_backoff**doublings, longest))


class AsyncJob:
    """A job leased to this worker. In a `with` block it is acked at the end, or nacked if it raises."""

    def __init__(self, worker: AsyncWorker, body: JobBody) -> None:
        self._worker = worker
        self.body = body

    @property
    def seq(self) -> int:
        return self.body.seq

    @property
    def value(self) -> Any:
        return self.body.value

    @property
    def bytes(self) -> bytes | None:
        return self.body.bytes

    @property
    def key(self) -> str | None:
        return self.body.key

    @property
    def meta(self) -> Any:
        return self.body.meta

    @property
    def trace(self) -> str | None:
        """The trace context of its producer, for `tracing.processing`; handlers already run in it."""
        return self.body.trace

    @property
    def deliveries(self) -> int:
        """How often it was delivered, this time included."""
        return self.body.deliveries

    @property
    def deadline_ms(self) -> int:
        """When its lease ends, unless it is extended."""
        return self.body.deadline_ms

    @property
    def settled(self) -> bool:
        """Whether it was acked, returned or lost."""
        return not self._worker.holds(self.body)

    async def ack(self) -> None:
        """Acknowledge the job, which deletes it. Raises LeaseLost if the lease expired."""
        await self._worker.ack(self.body)

    async def nack(self, delay_ms: int = 0, *, error: str | None = None) -> None:
        """Return the job to the queue. A dead letter shows the `error`. Raises LeaseLost if the lease expired."""
        await self._worker.nack(self.body, delay_ms, error)

    async def extend(self, lease_ms: int) -> None:
        """Extend the lease to `lease_ms` from now. Raises LeaseLost if the lease expired."""
        if self.settled:
            raise LeaseLost(self._worker.queue, [self.seq])
        await self._worker.extend([self.body], lease_ms)

    async def __aenter__(self) -> AsyncJob:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.settled:
            return
        if kind is None:
            await self.ack()
        else:
            delay_ms = self._worker.options.retry_after_ms(self.deliveries)
            await self.nack(delay_ms, error=f"{kind.__name__}: {error}")


Handler = Callable[[AsyncJob], Awaitable[object]]


class AsyncWorker:
    """Receives jobs of a queue. Created by `client.worker(queue)`."""

    def __init__(self, transport: Transport, queue: str, options: WorkerOptions) -> None:
        self._transport = transport
        self.queue = queue
        self.options = options
        self._held: dict[str, JobBody] = {}  # by lease
        self._jobs: asyncio.Queue[AsyncJob | Exception | None] = asyncio.Queue()
        self._tasks: list[asyncio.Task[None]] = []
        self._closed = False

    async def __aenter__(self) -> AsyncWorker:
        self._start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __aiter__(self) -> AsyncWorker:
        self._start()
        return self

    async def __anext__(self) -> AsyncJob:
        while True:
            job = None if self._closed else await self._jobs.get()
            if job is None:
                raise StopAsyncIteration
            if isinstance(job, Exception):
                raise job
            if not job.settled:  # else the connection was lost before the job was delivered
                return job

    def __call__(self, handler: Handler) -> AsyncRunner:
        """Decorate the function that handles a job."""
        return AsyncRunner(self, handler)

    def holds(self, job: JobBody) -> bool:
        return job.lease_id in self._held

    def stop(self) -> None:
        """Deliver no more jobs. On the loop's thread only."""
        self._closed = True
        self._jobs.put_nowait(None)

    async def close(self) -> None:
        """Stop, and return unsettled jobs. Idempotent."""
        self.stop()
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)  # the server ends the leases with the connection
        self._held.clear()

    async def ack(self, job: JobBody) -> None:
        """Raises LeaseLost."""
        self._let_go(job)
        body = SettleBody(*self._jobs_named([job]))
        self._check_settled(job, *await self._send(routes.POST_ACK, body))

    async def nack(self, job: JobBody, delay_ms: int, error: str | None = None) -> None:
        """Raises LeaseLost."""
        self._let_go(job)
        body = NackBody(*self._jobs_named([job]), delay_ms=delay_ms, error=error)
        self._check_settled(job, *await self._send(routes.POST_NACK, body))

    async def extend(self, jobs: list[JobBody], lease_ms: int) -> None:
        """Raises LeaseLost for lost leases. A job that was settled in the meantime is not lost."""
        body = ExtendJobsBody(*self._jobs_named(jobs), lease_ms=lease_ms)
        extended, _ = await self._send(routes.POST_EXTEND, body)
        lost = []
        for job in jobs:
            if job.seq not in extended.skipped:
                job.deadline_ms = extended.deadlines.get(str(job.seq), job.deadline_ms)
            elif self._held.pop(job.lease_id, None) is not None:
                lost.append(job.seq)
        if lost:
            raise LeaseLost(self.queue, lost)

    def _let_go(self, job: JobBody) -> None:
        if self._held.pop(job.lease_id, None) is None:
            raise LeaseLost(self.queue, [job.seq])

    def _check_settled(self, job: JobBody, settled: AckResult | NackResult, repeated: bool) -> None:
        if settled.skipped and not repeated:
            raise LeaseLost(self.queue, [job.seq])

    def _jobs_named(self, jobs: list[JobBody]) -> tuple[str, list[int], list[str]]:
        return self.options.node, [job.seq for job in jobs], [job.lease_id for job in jobs]

    async def _send(self, route: Route[T], body: SettleBody) -> tuple[T, bool]:
        """The result, and whether an earlier attempt whose response was lost may have been served."""
        query = {"partition": self.options.partition or None}
        answer = await self._transport.request(route, self.queue, body=body, query=query)
        return decoded_as(route, answer), answer.repeated

    # Background tasks

    def _start(self) -> None:
        if self._tasks or self._closed:
            return
        self._tasks.append(self._transport.spawn(self._receive(), "mainstem-worker"))
        if self.options.auto_extend:
            self._tasks.append(self._transport.spawn(self._extend_leases(), "mainstem-leases"))

    async def _receive(self) -> None:
        persistence = ReconnectPolicy(self._transport.timeout_s)
        try:
            while True:
                try:
                    await self._receive_once(persistence)
                except Unavailable as error:
                    self._held.clear()  # their leases ended with the connection
                    await persistence.pause(error)
        except MainstemError as error:
            self._jobs.put_nowait(error)

    async def _receive_once(self, persistence: ReconnectPolicy) -> None:
        query: Query = {
            "node": self.options.node,
            "max": self.options.concurrency,
            "lease_ms": self.options.lease_ms,
            "partition": self.options.partition or None,
        }
        async with (
            self._transport.stream(routes.GET_WORK.url(self.queue), query=query) as chunks,
            aclosing(sse.events(chunks)) as events,
        ):
            async for event in events:
                persistence.succeeded()
                if event.name == "error":
                    raise event_failure(event.data)
                if event.name == "job":
                    job = decoded(event.data, JobBody)
                    self._held[job.lease_id] = job
                    self._jobs.put_nowait(AsyncJob(self, job))
        raise Unavailable("the stream of jobs ended")

    async def _extend_leases(self) -> None:
        """Extend the leases of held jobs well before they expire."""
        lease_ms = self.options.lease_ms
        while lease_ms is None:
            try:
                topic = await self._transport.call(routes.GET_TOPIC, self.queue, query={"touch": False})
                lease_ms = topic.config.lease_ms
            except Unavailable:
                await asyncio.sleep(_ASK_AGAIN_S)
            except MainstemError:
                return  # the consumer of jobs gets the same error
        while True:
            await asyncio.sleep(lease_ms / 1000 / _EXTENSIONS_PER_LEASE)
            if not self._held:
                continue
            try:
                await self.extend(list(self._held.values()), lease_ms)
            except LeaseLost as lost:
                _log.warning("leases lost", error=str(lost))
            except MainstemError as error:
                _log.warning("leases not extended", error=str(error))


class AsyncRunner:
    """A function that handles the jobs of a queue. Call it with a job, or `run` it."""

    def __init__(self, worker: AsyncWorker, handler: Handler) -> None:
        self._worker = worker
        self._handler = handler
        self.__doc__ = handler.__doc__

    def __call__(self, job: AsyncJob) -> Awaitable[object]:
        return self._handler(job)

    async def run(self) -> None:
        """Handle jobs until `stop`. Jobs whose handler raises are returned to the queue and logged."""
        running: set[asyncio.Task[None]] = set()
        async with self._worker as worker:
            async for job in worker:
                task = asyncio.create_task(self._handle(job))
                running.add(task)
                task.add_done_callback(running.discard)
            await asyncio.gather(*running)

    def stop(self) -> None:
        """Accept no more jobs; running jobs finish."""
        self._worker.stop()

    async def _handle(self, job: AsyncJob) -> None:
        try:
            with tracing.processing(self._worker.queue, job.trace):
                async with job:
                    await self._handler(job)
        except Exception:  # noqa: BLE001 - one job must not stop the others
            _log.exception("job failed", seq=job.seq)
