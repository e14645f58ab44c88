"""Waits for other tasks and threads, also on a busy machine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from mainstem.errors import invariant

if TYPE_CHECKING:
    from mainstem.broker.broker import Broker

_PATIENCE_S = 60.0  # seconds, not turns: the length of a turn is unrelated to the awaited thread
_TURNS_IN_A_ROW = 1_000_000  # seconds, in which nothing that passes is missed; then threads may have the core
_PAUSE_S = 0.001


async def until(condition: Callable[[], bool]) -> None:
    """Give the loop turns until the condition holds."""
    give_up_at = time.monotonic() + _PATIENCE_S
    turns = 0
    while not condition():
        invariant(time.monotonic() < give_up_at, "what was waited for never came")
        turns += 1
        await asyncio.sleep(0 if turns < _TURNS_IN_A_ROW else _PAUSE_S)


async def settle(turns: int = 50) -> None:
    """Let every task that can run do so."""
    for _ in range(turns):
        await asyncio.sleep(0)


async def finished(broker: Broker) -> None:
    """Wait until the log's objects that ended are sealed, and the checkpoint that was due with one of them is made.

    Checkpoints are made one at a time, and an object that ends meanwhile waits for the next one: who needs one at
    the end of every object waits after every append."""
    log = broker.log
    await until(lambda: log.settled)
