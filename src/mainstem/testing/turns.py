"""Waiting for other tasks and threads without a clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from mainstem.errors import invariant

_TURNS_MAX = 1_000_000


async def until(condition: Callable[[], bool]) -> None:
    """Give the loop turns until the condition holds."""
    for _ in range(_TURNS_MAX):
        if condition():
            return
        await asyncio.sleep(0)
    invariant(False, "what was waited for never came")


async def settle(turns: int = 50) -> None:
    """Let every task that can run do so."""
    for _ in range(turns):
        await asyncio.sleep(0)
