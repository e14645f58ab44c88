"""Who is told what became of an append."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from functools import partial
from typing import Protocol

Placed = tuple[int, bool]  # base offset, and whether it is an idempotent retry's original one


class Waiter(Protocol):
    """A future is one. It is told once, and never from within the call that appends.

    What it does about it may neither fail nor append: it is in the middle of a commit."""

    def done(self) -> bool:
        """It is not to be told any more."""
        ...

    def set_result(self, placed: Placed, /) -> None: ...

    def set_exception(self, error: BaseException, /) -> None: ...


def promise() -> asyncio.Future[Placed]:
    """A waiter to be awaited."""
    return asyncio.get_running_loop().create_future()


def notify(waiter: Waiter, placing: Awaitable[Placed]) -> None:
    """Tell it once this is done."""
    asyncio.ensure_future(placing).add_done_callback(partial(_hand_on, waiter))


def _hand_on(waiter: Waiter, done: asyncio.Future[Placed]) -> None:
    if done.cancelled():
        error: BaseException | None = asyncio.CancelledError()
    else:
        error = done.exception()
    if waiter.done():
        return
    if error is None:
        waiter.set_result(done.result())
    else:
        waiter.set_exception(error)
