"""Background work of a log, beside what its callers wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from mainstem import events

_log = events.named("log")


class Background:
    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()  # callers may be other threads, while it does not run
        self._needed: set[asyncio.Task[None]] = set()  # must be done before the log can close
        self._chores: set[asyncio.Task[None]] = set()  # may be given up at any time

    @property
    def idle(self) -> bool:
        return not self._needed and not self._chores

    def start(self, work: Coroutine[Any, Any, None], *, needed: bool = False) -> None:
        """Have it done. `needed`: the log does not close before."""
        among = self._needed if needed else self._chores
        task = self._loop.create_task(work)
        among.add(task)
        task.add_done_callback(among.discard)
        task.add_done_callback(_report_failure)

    async def give_up_chores(self) -> None:
        await _end(self._chores)

    async def finish(self) -> None:
        """Wait for what is needed, and give up the rest."""
        while self._needed:
            await asyncio.wait(self._needed)
        await self.give_up_chores()

    async def stop(self) -> None:
        """Give up all of it."""
        await _end(self._chores | self._needed)


async def _end(tasks: set[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _report_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        # The log is sound without it: an object that is not sealed is replayed, and sealed then.
        _log.warning("background work failed", error=str(error))
