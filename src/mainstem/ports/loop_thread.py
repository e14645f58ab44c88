"""A private event loop on its own thread, for callers that have none or must block."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from mainstem.errors import Closed

T = TypeVar("T")

_LEFT_OVER_WAIT_S = 10.0


class LoopThread:
    """Runs coroutines for other threads. Thread-safe. The thread starts with the first call."""

    def __init__(
        self,
        closed_message: str,
        *,
        name: str = "mainstem",
        left_over_wait_s: float = _LEFT_OVER_WAIT_S,
        new_loop: Callable[[], asyncio.AbstractEventLoop] | None = None,
    ) -> None:
        """`left_over_wait_s`: how long `close` waits for running calls before it cancels them."""
        self._new_loop = new_loop  # None: uvloop
        self._closed_message = closed_message
        self._name = name
        self._left_over_wait_s = left_over_wait_s
        self._closed = False
        self._submitting = threading.Lock()  # nothing is submitted to a loop that is about to stop
        self._thread: threading.Thread | None = None
        self._main: asyncio.Task[Any] | None = None
        self._stop: asyncio.Event
        self._loop: asyncio.AbstractEventLoop

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run on the loop; return its result or raise its error here."""
        return self.submit(work).result()

    def call_soon(self, work: Callable[[], object]) -> None:
        """Run something on the loop without waiting for it. Raises Closed."""
        with self._submitting:
            self.check_open()
            self._start().call_soon_threadsafe(work)

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """Raises Closed."""
        with self._submitting:
            self.check_open()
            return self._start()

    def check_open(self) -> None:
        """Raises Closed."""
        if self._closed:
            raise Closed(self._closed_message)

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start it on the loop without waiting for it. Raises Closed."""
        with self._submitting:
            if self._closed:
                work.close()
                raise Closed(self._closed_message)
            return asyncio.run_coroutine_threadsafe(work, self._start())

    def close(self, last: Coroutine[Any, Any, None] | None = None) -> bool:
        """Refuse new calls, run `last`, end the thread. False: it was closed already, and `last` did not run."""
        with self._submitting:
            if self._closed:
                if last is not None:
                    last.close()
                return False
            self._closed = True
            if self._thread is None and last is None:
                return True
            loop = self._start()
        try:
            asyncio.run_coroutine_threadsafe(self._finish(last), loop).result()
        finally:
            loop.call_soon_threadsafe(self._stop.set)
            if self._thread is not None:
                self._thread.join()
        return True

    async def _finish(self, last: Coroutine[Any, Any, None] | None) -> None:
        if last is not None:
            await last
        left = asyncio.all_tasks() - {asyncio.current_task(), self._main}
        if left and self._left_over_wait_s:
            await asyncio.wait(left, timeout=self._left_over_wait_s)

    def _start(self) -> asyncio.AbstractEventLoop:
        if self._thread is None:
            running = threading.Event()
            # A daemon, so that a log that nobody closed does not keep the process from ending.
            self._thread = threading.Thread(target=self._run, args=(running,), name=self._name, daemon=True)
            self._thread.start()
            running.wait()
        return self._loop

    def _run(self, running: threading.Event) -> None:
        with asyncio.Runner(loop_factory=self._new_loop or _event_loop()) as runner:
            runner.run(self._until_stopped(running))

    async def _until_stopped(self, running: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        self._main = asyncio.current_task()
        self._stop = asyncio.Event()
        running.set()
        await self._stop.wait()


def _event_loop() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        import uvloop
    except ModuleNotFoundError:  # a client without the server
        return asyncio.new_event_loop
    return uvloop.new_event_loop
