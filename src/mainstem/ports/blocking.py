"""Awaiting from a thread that must block: the port's reads are plain calls, an object store's are not."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from mainstem.errors import Closed

T = TypeVar("T")


class BlockingCalls:
    """An event loop of its own, on a thread of its own, so that whoever blocks never blocks what it waits for."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        """The call's result. Any thread may ask; it waits."""
        try:
            loop = self._started()
        except Closed:
            call.close()
            raise
        return asyncio.run_coroutine_threadsafe(call, loop).result()

    def close(self) -> None:
        """Idempotent. Calls that run are cancelled."""
        with self._lock:
            self._closed = True
            loop, thread, self._loop = self._loop, self._thread, None
        if loop is None or thread is None:
            return
        loop.call_soon_threadsafe(loop.stop)
        thread.join()

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._closed:
                raise Closed("the log is closed")
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=_serve, args=(self._loop,), name=self._name, daemon=True
                )
                self._thread.start()
            return self._loop


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        waiting = asyncio.all_tasks(loop)
        for task in waiting:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*waiting, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
