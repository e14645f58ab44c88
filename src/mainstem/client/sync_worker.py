"""A worker for programs without an event loop."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any

from mainstem import events, tracing
from mainstem.client.loop import IteratorSteps, LoopThread
from mainstem.client.worker import AsyncJob, AsyncWorker
from mainstem.errors import Closed

_log = events.named("worker")


class Job:
    """A job leased to this worker. In a `with` block it is acked at the end, or nacked if it raises."""

    def __init__(self, thread: LoopThread, job: AsyncJob) -> None:
        self._thread = thread
        self._job = job

    @property
    def seq(self) -> int:
        return self._job.seq

    @property
    def value(self) -> Any:
        return self._job.value

    @property
    def bytes(self) -> bytes | None:
        return self._job.bytes

    @property
    def key(self) -> str | None:
        return self._job.key

    @property
    def meta(self) -> Any:
        return self._job.meta

    @property
    def trace(self) -> str | None:
        """The trace context of its producer, for `tracing.processing`; handlers already run in it."""
        return self._job.trace

    @property
    def deliveries(self) -> int:
        """How often it was delivered, this time included."""
        return self._job.deliveries

    @property
    def deadline_ms(self) -> int:
        """When its lease ends, unless it is extended."""
        return self._job.deadline_ms

    @property
    def settled(self) -> bool:
        """Whether it was acked, returned or lost."""
        return self._job.settled

    def ack(self) -> None:
        """Acknowledge the job, which deletes it. Raises LeaseLost if the lease expired."""
        self._thread.call(self._job.ack())

    def nack(self, delay_ms: int = 0, *, error: str | None = None) -> None:
        """Return the job to the queue. Raises LeaseLost if the lease expired."""
        self._thread.call(self._job.nack(delay_ms, error=error))

    def extend(self, lease_ms: int) -> None:
        """Extend the lease to `lease_ms` from now. Raises LeaseLost if the lease expired."""
        self._thread.call(self._job.extend(lease_ms))

    def __enter__(self) -> Job:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.call(self._job.__aexit__(kind, error, trace))


class Worker:
    """Receives jobs of a queue. Created by `client.worker(queue)`."""

    def __init__(self, thread: LoopThread, worker: AsyncWorker) -> None:
        self._thread = thread
        self._worker = worker

    @property
    def queue(self) -> str:
        return self._worker.queue

    @property
    def concurrency(self) -> int:
        return self._worker.options.concurrency

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[Job]:
        steps = IteratorSteps(self._jobs())
        try:
            while (job := self._thread.call(steps.next())) is not None:
                yield Job(self._thread, job)
        finally:
            with contextlib.suppress(Closed):  # the client closes its streams
                self._thread.call(steps.close())

    async def _jobs(self) -> AsyncGenerator[AsyncJob]:
        async for job in self._worker:
            yield job

    def __call__(self, handler: Callable[[Job], object]) -> Runner:
        """Decorate the function that handles a job."""
        return Runner(self, handler)

    def stop(self) -> None:
        """Deliver no more jobs. From any thread."""
        self._thread.call_soon(self._worker.stop)

    def close(self) -> None:
        """Stop, and return unsettled jobs. Idempotent."""
        self._thread.call(self._worker.close())


class Runner:
    """A function that handles the jobs of a queue. Call it with a job, or `run` it."""

    def __init__(self, worker: Worker, handler: Callable[[Job], object]) -> None:
        self._worker = worker
        self._handler = handler
        self.__doc__ = handler.__doc__

    def __call__(self, job: Job) -> object:
        return self._handler(job)

    def run(self) -> None:
        """Handle jobs until `stop`, with one thread per concurrent job. Jobs whose handler raises are returned to the
        queue and logged."""
        with self._worker, ThreadPoolExecutor(self._worker.concurrency, "mainstem-job") as pool:
            for job in self._worker:
                pool.submit(self._handle, job)
            pool.shutdown()  # running jobs finish before the worker returns the rest

    def stop(self) -> None:
        """Accept no more jobs; running jobs finish. From any thread."""
        self._worker.stop()

    def _handle(self, job: Job) -> None:
        try:
            with tracing.processing(self._worker.queue, job.trace), job:
                self._handler(job)
        except Exception:  # noqa: BLE001 - one job must not stop the others
            _log.exception("job failed", seq=job.seq)
