"""One thread that runs calls in order.

Commit writes and fsyncs each have their own, so that neither waits behind the other or behind other blocking work, as
both could on the event loop's shared executor.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

from mainstem.errors import Closed

T = TypeVar("T")

_Job = tuple[asyncio.AbstractEventLoop, "asyncio.Future[Any]", Callable[[], Any]]


class SerialExecutor:
    """Blocking calls, one at a time, awaited from an event loop."""

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._closed = False
        self._waiting = 0  # calls whose result is not yet back on the loop
        self.idle = True  # nothing runs on it, so the loop may do the same work itself
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def run(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """Queue a call. It runs even if the caller stops waiting: a write cannot be undone half way."""
        if self._closed:
            raise Closed("the log is closed")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._waiting += 1
        self.idle = False
        self._jobs.put((loop, future, call))
        return future

    def close(self) -> None:
        """Finish the queue, then end the thread."""
        if not self._closed:
            self._closed = True
            self.idle = False
            self._jobs.put(None)
            self._thread.join()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            loop, future, call = job
            try:
                result = call()
            except BaseException as error:  # noqa: BLE001 - the caller gets it
                self._deliver(loop, future, None, error)
            else:
                self._deliver(loop, future, result, None)
            del job, future, call  # hold no buffers while waiting for the next job

    def _deliver(
        self,
        loop: asyncio.AbstractEventLoop,
        future: asyncio.Future[Any],
        result: Any,
        error: BaseException | None,
    ) -> None:
        try:
            loop.call_soon_threadsafe(self._settle, future, result, error)
        except RuntimeError:
            # The loop was closed while the call ran: nobody waits for the result.
            if not loop.is_closed():
                raise

    def _settle(self, future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
        self._waiting -= 1
        self.idle = not self._waiting and not self._closed
        if future.done():  # the caller was cancelled meanwhile
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)
