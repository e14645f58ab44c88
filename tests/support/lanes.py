"""Executors without threads: the same seed gives the same interleaving of writes, syncs and maintenance."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import pytest

from mainstem.errors import Closed
from mainstem.ports.commitlog.local import log as local

T = TypeVar("T")
P = ParamSpec("P")

_STEPS_MAX = 6  # turns of the loop a blocking call may take


class SteppedLane:
    """Stands in for `SerialExecutor`: a call runs some turns of the loop after it was handed in, still in order."""

    def __init__(self, randomness: random.Random) -> None:
        self._random = randomness
        self._jobs: deque[tuple[asyncio.Future[Any], Callable[[], Any]]] = deque()
        self._closed = False

    @property
    def idle(self) -> bool:
        """The seed decides whether a call that could run at once is delayed."""
        return not self._jobs and not self._closed and self._random.random() < 0.5

    def run(self, call: Callable[[], T]) -> asyncio.Future[T]:
        if self._closed:
            raise Closed("the log is closed")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._jobs.append((future, call))
        if len(self._jobs) == 1:
            loop.call_soon(self._step, self._random.randrange(_STEPS_MAX))
        return future

    def close(self) -> None:
        self._closed = True
        while self._jobs:
            self._run_first()

    def _step(self, left: int) -> None:
        if not self._jobs:
            return
        loop = asyncio.get_running_loop()
        if left:
            loop.call_soon(self._step, left - 1)
            return
        self._run_first()
        if self._jobs:
            loop.call_soon(self._step, self._random.randrange(_STEPS_MAX))

    def _run_first(self) -> None:
        future, call = self._jobs[0]
        try:
            result = call()
        except Exception as error:  # noqa: BLE001 - it belongs to the caller, who gets all of it
            if not future.done():
                future.set_exception(error)
        else:
            if not future.done():
                future.set_result(result)
        self._jobs.popleft()


def step_instead_of_threads(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Run everything on the event loop, in an order that the seed alone decides."""
    randomness = random.Random(seed)

    async def to_thread(call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        for _ in range(randomness.randrange(_STEPS_MAX)):
            await asyncio.sleep(0)
        return call(*args, **kwargs)

    monkeypatch.setattr(
        "mainstem.ports.commitlog.local.log.SHORTCUT_SLOW_S", float("inf")
    )  # independent of the real clock
    monkeypatch.setattr(local, "SerialExecutor", lambda name: SteppedLane(randomness))
    monkeypatch.setattr(asyncio, "to_thread", to_thread)
