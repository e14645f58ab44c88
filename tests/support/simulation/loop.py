"""An asyncio event loop whose time is virtual: a wait costs nothing, and order depends on nothing outside."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, TypeVarTuple

from mainstem.errors import invariant

Ts = TypeVarTuple("Ts")

_CALL_S_MAX = 0.002  # what a call handed to a thread takes, at most


class Deadlock(Exception):
    """Nothing is left to do and the scenario has not ended: somebody waits for what can no longer come."""


class OutOfTime(Exception):
    """The scenario takes more virtual time than it was given."""


class _NoEvents:
    """Replaces the selector. Without sockets, waiting only moves the clock."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise Deadlock(f"at {self._loop.time():.3f} s nothing is left to do")
        if timeout > 0:
            self._loop.advance(timeout)
        return []


class SimulatedLoop(asyncio.BaseEventLoop):
    """Runs callbacks in the order they were asked for, timers by virtual time, threads not at all."""

    def __init__(self, randomness: random.Random, limit_s: float) -> None:
        super().__init__()
        self._virtual_s = 0.0
        self._limit_s = limit_s
        self._random = randomness
        self._selector = _NoEvents(self)

    def time(self) -> float:
        return self._virtual_s

    def advance(self, seconds: float) -> None:
        self._virtual_s += seconds
        if self._virtual_s > self._limit_s:
            raise OutOfTime(f"the scenario is not over after {self._limit_s:g} s of its time")

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*Ts], Any], *args: *Ts
    ) -> asyncio.Future[Any]:
        """Run the call here, a moment later: a thread would bring its own order."""
        future = self.create_future()
        self.call_later(self._random.uniform(0, _CALL_S_MAX), _settle, future, func, args)
        return future

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - asyncio's own
        """There is none."""

    def _process_events(self, event_list: list[Any]) -> None:
        invariant(not event_list, "a simulation has no sockets")

    def _write_to_self(self) -> None:
        """Nothing waits in a selector that would have to be woken."""


def _settle(future: asyncio.Future[Any], func: Callable[..., Any], args: tuple[Any, ...]) -> None:
    if future.done():
        return
    try:
        future.set_result(func(*args))
    except Exception as error:  # noqa: BLE001 - it belongs to the caller, who gets all of it
        future.set_exception(error)
