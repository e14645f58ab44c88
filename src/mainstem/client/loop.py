"""Asynchronous iterators for threads without an event loop; `LoopThread` runs their steps."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, Generic, TypeVar

from mainstem.ports.loop_thread import LoopThread

__all__ = ["IteratorSteps", "LoopThread"]

T = TypeVar("T")


class IteratorSteps(Generic[T]):
    """An asynchronous iterator that another thread advances, and may close in the middle of a step."""

    def __init__(self, items: AsyncGenerator[T]) -> None:
        self._items = items
        self._step: asyncio.Task[Any] | None = None

    async def next(self) -> T | None:
        """None at the end."""
        self._step = asyncio.current_task()
        try:
            return await anext(self._items, None)
        finally:
            self._step = None

    async def close(self) -> None:
        step = self._step
        if step is not None:  # its caller was interrupted
            step.cancel()
            await asyncio.gather(step, return_exceptions=True)
        await self._items.aclose()
