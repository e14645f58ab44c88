"""A private event loop on its own thread, for callers that have none."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

from mainstem.errors import Closed

T = TypeVar("T")

_LEFT_OVER_WAIT_S = 10.0


class IteratorSteps(Generic[T]):
    """An asynchronous iterator taken one step at a time by another thread, and closed even in the middle of one."""

    def __init__(self, items: AsyncGenerator[T]) -> None:
        self._items = items
        self._step: asyncio.Task[Any] | None = None

    async def next(self) -> T | None:
        """None at the end."""
        self._step = asyncio.current_task()
        try:
            return await anext(self._items, None)
        finally:
            self._step = None

    async def close(self) -> None:
        step = self._step
        if step is not None:  # whoever waited for it was interrupted
            step.cancel()
            await asyncio.gather(step, return_exceptions=True)
        await self._items.aclose()


class LoopThread:
    """Runs coroutines for other threads. Thread-safe."""

    def __init__(self, closed_message: str) -> None:
        self._closed_message = closed_message
        self._closed = False
        self._submitting = threading.Lock()  # nothing is handed to a loop that is about to stop
        self._stop: asyncio.Event
        self._loop: asyncio.AbstractEventLoop
        running = threading.Event()
        # A daemon, so that a log nobody closed does not keep the process from ending.
        self._thread = threading.Thread(target=self._run, args=(running,), name="mainstem", daemon=True)
        self._thread.start()
        running.wait()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run on the loop; return its result or raise its error here."""
        return self.submit(work).result()

    def call_soon(self, work: Callable[[], object]) -> None:
        """Have the loop do something, without waiting for it."""
        with self._submitting:
            self.check_open()
            self._loop.call_soon_threadsafe(work)

    def check_open(self) -> None:
        """Raises Closed."""
        if self._closed:
            raise Closed(self._closed_message)

    def close(self, last: Coroutine[Any, Any, None] | None = None) -> bool:
        """Refuse new calls, run `last`, end the thread. False: closed before, and `last` was not run."""
        with self._submitting:
            if self._closed:
                if last is not None:
                    last.close()
                return False
            self._closed = True
        try:
            asyncio.run_coroutine_threadsafe(self._finish(last), self._loop).result()
        finally:
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()
        return True

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start it on the loop, without waiting for it. Raises Closed."""
        with self._submitting:
            if self._closed:
                work.close()
                raise Closed(self._closed_message)
            return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def _finish(self, last: Coroutine[Any, Any, None] | None) -> None:
        if last is not None:
            await last
        # Calls other threads have under way get their answer before the loop goes.
        left = asyncio.all_tasks() - {asyncio.current_task(), self._main}
        if left:
            await asyncio.wait(left, timeout=_LEFT_OVER_WAIT_S)

    def _run(self, running: threading.Event) -> None:
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._until_stopped(running))

    async def _until_stopped(self, running: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        self._main = asyncio.current_task()
        self._stop = asyncio.Event()
        running.set()
        await self._stop.wait()
