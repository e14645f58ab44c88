"""A worker for programs without an event loop."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any

from mainstem import tracing
from mainstem.client.loop import IteratorSteps, LoopThread
from mainstem.client.worker import AsyncJob, AsyncWorker
from mainstem.errors import Closed

_log = logging.getLogger("mainstem.worker")


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
        """The context of the trace it was sent in, for `tracing.processing`; handlers are run in it already."""
        return self._job.trace

    @property
    def deliveries(self) -> int:
        """How often it was handed out, this time included."""
        return self._job.deliveries

    @property
    def deadline_ms(self) -> int:
        """When its lease ends, unless it is extended before."""
        return self._job.deadline_ms

    @property
    def settled(self) -> bool:
        """Acked, given back, or lost: nothing more can be done with it here."""
        return self._job.settled

    def ack(self) -> None:
        """It is done. Raises LeaseLost if somebody else has it by now."""
        self._thread.call(self._job.ack())

    def nack(self, delay_ms: int = 0) -> None:
        """Give it back. Raises LeaseLost if somebody else has it by now."""
        self._thread.call(self._job.nack(delay_ms))

    def extend(self, lease_ms: int) -> None:
        """Keep it for so long from now on. Raises LeaseLost if somebody else has it by now."""
        self._thread.call(self._job.extend(lease_ms))

    def __enter__(self) -> Job:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.call(self._job.__aexit__(kind, error, trace))


class Worker:
    """Made by `client.worker(queue)`."""

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
            with contextlib.suppress(Closed):  # with the client its streams are closed
                self._thread.call(steps.close())

    async def _jobs(self) -> AsyncGenerator[AsyncJob]:
        async for job in self._worker:
            yield job

    def __call__(self, handler: Callable[[Job], object]) -> Runner:
        """Decorate the function that does the work."""
        return Runner(self, handler)

    def stop(self) -> None:
        """Hand out no more jobs. From any thread."""
        self._thread.call_soon(self._worker.stop)

    def close(self) -> None:
        """Stop, and give back what is unsettled. Idempotent."""
        self._thread.call(self._worker.close())


class Runner:
    """A function that works through a queue. Call it with a job, or `run` it."""

    def __init__(self, worker: Worker, handler: Callable[[Job], object]) -> None:
        self._worker = worker
        self._handler = handler
        self.__doc__ = handler.__doc__

    def __call__(self, job: Job) -> object:
        return self._handler(job)

    def run(self) -> None:
        """Until `stop`, on as many threads as the worker has jobs at a time. Jobs that raise are given back
        and logged."""
        with self._worker, ThreadPoolExecutor(self._worker.concurrency, "mainstem-job") as pool:
            for job in self._worker:
                pool.submit(self._handle, job)
            pool.shutdown()  # those at work are finished before the worker gives back what is left

    def stop(self) -> None:
        """Take no more jobs; those at work are finished. From any thread."""
        self._worker.stop()

    def _handle(self, job: Job) -> None:
        try:
            with tracing.processing(self._worker.queue, job.trace), job:
                self._handler(job)
        except Exception:  # noqa: BLE001 - one job must not stop the others
            _log.exception("job %d failed", job.seq)
