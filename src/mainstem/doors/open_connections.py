"""The open connections of a door and their running work, which the door drains when it closes."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Generic, Protocol, TypeVar


class OpenConnection(Protocol):
    def finish(self) -> None:
        """Stop reading, respond to what was received, then close."""
        ...

    def abort(self) -> None:
        """Close now."""
        ...


C = TypeVar("C", bound=OpenConnection)


class OpenConnections(Generic[C]):
    def __init__(self) -> None:
        self._held: set[C] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._held)

    def forget(self, connection: C) -> None:
        self._held.discard(connection)
        self._changed.set()

    def work(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start work that a drain waits for."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._changed.set()

    async def drain(self, within_s: float) -> int:
        """Finish every connection; abort those left after `within_s`. Returns how many those were."""
        for connection in list(self._held):
            connection.finish()
        try:
            async with asyncio.timeout(within_s):
                while self._held or self._tasks:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            left = list(self._held)
            for connection in left:
                connection.abort()
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            return len(left)
        return 0
