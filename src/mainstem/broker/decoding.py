"""Work on large batches and bodies, on a thread of its own: one job at a time, and principals in turn.

Such work takes processor time and memory out of proportion to what a client sent. Nothing else waits behind it: the
threads that read files and serve other requests are others.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple, TypeVar

from mainstem import limits
from mainstem.errors import Closed, Throttled
from mainstem.records.undecodable import FAULTS, decoded

DECODES_WAITING_MAX = 256  # compressed bodies and large batches of one principal that wait to be decoded

T = TypeVar("T")


class _Job(NamedTuple):
    work: Callable[[], Any]
    done: asyncio.Future[Any]


class Decoding:
    """Serves the principal that used the least processor time first."""

    def __init__(self) -> None:
        self._thread: ThreadPoolExecutor | None = None
        self._waiting: dict[str, deque[_Job]] = {}
        self._used_s: dict[str, float] = {}  # of principals with jobs; forgotten when nobody waits
        self._running = False
        self._stopped = False
        self.seconds = 0.0  # processor time of all jobs

    async def run(self, principal: str, work: Callable[[], T], *, bounded: bool = True) -> T:
        """The result of the work. Raises Throttled if the principal has too many jobs waiting.

        Without `bounded` it waits behind any number of them: each connection of the caller has one."""
        if self._stopped:
            raise Closed("the server is stopping")
        line = self._waiting.setdefault(principal, deque())
        bound = DECODES_WAITING_MAX
        if bounded and len(line) >= bound:
            raise Throttled(
                "decoding", bound, f"{bound} compressed bodies or batches of this client wait already"
            )
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        line.append(_Job(work, done))
        if not self._running:
            self._next()
        return await done

    def _next(self) -> None:
        while self._waiting:
            principal = min(self._waiting, key=lambda name: self._used_s.get(name, 0.0))
            line = self._waiting[principal]
            job = line.popleft() if line else None
            if not line:
                del self._waiting[principal]
            if job is None or job.done.done():  # nobody waits for it any more
                continue
            if self._thread is None:
                self._thread = ThreadPoolExecutor(1, thread_name_prefix="mainstem-decoding")
            self._running = True
            running = asyncio.get_running_loop().run_in_executor(self._thread, _timed, job.work)
            running.add_done_callback(partial(self._ended, principal, job))
            return
        self._running = False
        self._used_s.clear()

    def _ended(self, principal: str, job: _Job, ended: asyncio.Future[tuple[Any, float]]) -> None:
        if ended.cancelled():
            job.done.cancel()
        elif (error := ended.exception()) is not None:
            if not job.done.done():
                job.done.set_exception(error)
        else:
            result, seconds = ended.result()
            self.seconds += seconds
            self._used_s[principal] = self._used_s.get(principal, 0.0) + seconds
            if not job.done.done():
                job.done.set_result(result)
        self._next()

    def stop_waiting(self) -> None:
        """Refuse the jobs that wait, and all that come."""
        self._stopped = True
        for line in self._waiting.values():
            for job in line:
                if not job.done.done():
                    job.done.set_exception(Closed("the server is stopping"))

    def close(self) -> None:
        """Wait for no job: a job that runs ends by itself."""
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)


async def decode_bounded(
    run: Callable[[Callable[[], tuple[T, int]]], Awaitable[tuple[T, int]]],
    batches: Sequence[memoryview],
    offset: int,
    next_offset: int,
    decode: Callable[[Sequence[memoryview], int], T],
) -> tuple[T, int]:
    """As `decoded`: on the event loop if no batch exceeds what `decode` may decompress there, else by `run`."""
    try:
        return decode(batches, limits.DECODED_INLINE_BYTES_MAX), next_offset
    except FAULTS:
        pass

    def any_size(some: Sequence[memoryview]) -> T:
        return decode(some, limits.BATCH_DECODED_BYTES_MAX)

    return await run(partial(decoded, batches, offset, next_offset, any_size))


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    began = time.thread_time()
    result = work()
    return result, time.thread_time() - began
