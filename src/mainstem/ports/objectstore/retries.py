"""Trying a request again: a bounded number of times, for a bounded time, with pauses nobody else keeps step with."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from mainstem import limits
from mainstem.errors import StoreUnreachable
from mainstem.ports.clock import Clock, Random, SystemClock, SystemRandom

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RetryBudget:
    """What one request may cost before its error is the caller's."""

    attempts: int = limits.STORE_ATTEMPTS_MAX
    trying_s: float = limits.STORE_TRYING_S
    backoff_s: float = limits.STORE_BACKOFF_S
    backoff_max_s: float = limits.STORE_BACKOFF_MAX_S


@dataclass(slots=True)
class Retries:
    """Runs requests within a budget. Only StoreUnreachable is worth another attempt."""

    budget: RetryBudget = field(default_factory=RetryBudget)
    clock: Clock = field(default_factory=SystemClock)
    random: Random = field(default_factory=SystemRandom)
    wait: Callable[[float], Awaitable[None]] = asyncio.sleep

    async def run(self, call: Callable[[], Awaitable[T]]) -> T:
        """The first answer. Raises the last StoreUnreachable once the budget is spent, all else at once."""
        started = self.clock.monotonic()
        for attempt in range(1, self.budget.attempts):
            try:
                return await call()
            except StoreUnreachable:
                pause = self._pause(attempt)
                if self.clock.monotonic() - started + pause > self.budget.trying_s:
                    raise
                await self.wait(pause)
        return await call()

    def _pause(self, attempt: int) -> float:
        """Doubling, less up to half of it: writers that failed together come back one by one."""
        whole = min(self.budget.backoff_s * float(1 << (attempt - 1)), self.budget.backoff_max_s)
        return whole * (1 - int.from_bytes(self.random.token(4), "big") / 2**33)
