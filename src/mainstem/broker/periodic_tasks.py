"""Rounds: work that comes up again and again, and must not end because it failed once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from mainstem.errors import described

_log = logging.getLogger("mainstem.rounds")


class PeriodicTask:
    """Does `work` every so many seconds, from `start` to `stop`."""

    def __init__(self, name: str, every_s: float, work: Callable[[], Awaitable[object]]) -> None:
        self.name = name
        self.when: Callable[[], bool] = lambda: True  # whether it is this broker's turn to do it
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
                if self.when():
                    await self._work()
            except Exception as error:  # noqa: BLE001 - the next round may do better
                _log.warning("a round failed", extra={"round": self.name, "error": described(error)})
