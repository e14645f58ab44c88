"""Periodic tasks: work that repeats at an interval, and continues after a failure."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from mainstem import events
from mainstem.errors import described

_log = events.named("tasks")


class PeriodicTask:
    """Runs `work` every `every_s` seconds, from `start` to `stop`."""

    def __init__(self, name: str, every_s: float, work: Callable[[], Awaitable[object]]) -> None:
        self.name = name
        self.runs_here: Callable[[], bool] = lambda: True  # whether this broker does it
        self._every_s = every_s
        self._work = work
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run_loop(), name=f"mainstem-{self.name}")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run_loop(self) -> None:
        while True:
            await asyncio.sleep(self._every_s)
            try:
                if self.runs_here():
                    await self._work()
            except Exception as error:  # noqa: BLE001 - the next run may succeed
                _log.warning("periodic task failed", task=self.name, error=described(error))
