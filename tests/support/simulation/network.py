"""Calls from nodes to what they share, with all that can become of a call on its way."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import TypeVar

from tests.support.simulation.faults import Faults
from tests.support.simulation.nodes import Life
from tests.support.simulation.trace import Trace

T = TypeVar("T")


class CallLost(Exception):
    """No answer came in time. Whether the call was done, or will yet be, is unknown."""


class Network:
    def __init__(self, randomness: random.Random, faults: Faults, trace: Trace) -> None:
        self.faults = faults
        self.inline = False  # calls are done at once: somebody blocks, so no time can pass
        self._random = randomness
        self._trace = trace
        self._last_arrival = 0.0  # of the calls made so far

    async def call(self, life: Life, what: str, act: Callable[[], T], timeout_s: float) -> T:
        """Have `act` done at the other end. Raises what it raises, or CallLost."""
        if self.inline:
            return act()
        check_alive(life)
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        delay = self._latency()
        if self._random.random() < self.faults.stall:
            delay += self._random.uniform(*self.faults.stall_s)
        if self._random.random() < self.faults.lose_request:
            self._trace.note(life.name, f"{what} is lost")
            self._trace.effects["request lost"] += 1
        else:
            self._last_arrival = max(self._last_arrival, loop.time() + delay)
            loop.call_later(delay, self._arrive, life, what, act, answer)
        # Not asyncio.timeout, which costs as much as all the rest of a call: there are millions of them.
        deadline = loop.call_later(timeout_s, _give_up, answer, what, timeout_s)
        try:
            return await answer
        finally:
            deadline.cancel()
            check_alive(life)

    async def emptied(self) -> None:
        """Wait until all that is under way has arrived, however late it is."""
        while (left := self._last_arrival - asyncio.get_running_loop().time()) > 0:  # noqa: ASYNC110 - no event tells
            await asyncio.sleep(left)

    def later(self, callback: Callable[[], None]) -> None:
        """After the time a message takes one way."""
        asyncio.get_running_loop().call_later(self._latency(), callback)

    def watch_is_lost(self) -> bool:
        lost = self._random.random() < self.faults.lose_watch
        self._trace.effects["watch lost"] += lost
        return lost

    def _arrive(self, life: Life, what: str, act: Callable[[], T], answer: asyncio.Future[T]) -> None:
        if life.node.cut_off:
            self._trace.note(life.name, f"{what} does not get through")
            self._trace.effects["cut off"] += 1
            return
        self._trace.effects["done too late"] += answer.done()
        error: Exception | None = None
        result: T | None = None
        try:
            result = act()
        except Exception as failure:  # noqa: BLE001 - it is the answer
            error = failure
        lost = self._random.random() < self.faults.lose_answer
        self._trace.note(life.name, f"{what}: {error or 'done'}{', answer lost' if lost else ''}")
        self._trace.effects["answer lost"] += lost
        if not lost:
            self.later(lambda: _deliver(life, answer, result, error))

    def _latency(self) -> float:
        return self._random.uniform(*self.faults.latency_s)


def check_alive(life: Life) -> None:
    """A node that crashed gets no answers; what runs of it still, ends here."""
    if not life.alive:
        raise asyncio.CancelledError


def _give_up(answer: asyncio.Future[T], what: str, timeout_s: float) -> None:
    if not answer.done():
        answer.set_exception(CallLost(f"{what} got no answer within {timeout_s:g} s"))


def _deliver(life: Life, answer: asyncio.Future[T], result: T | None, error: Exception | None) -> None:
    if answer.done() or life.node.cut_off:
        return
    if error is not None:
        answer.set_exception(error)
    else:
        answer.set_result(result)  # type: ignore[arg-type]  # None where T allows it
