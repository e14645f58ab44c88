"""What one append hands to a stream, and who learns what became of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from functools import partial
from typing import Protocol

import msgspec

from mainstem.records.header import Slice, SliceFacts

Placed = tuple[int, bool]  # base offset, and whether it is an idempotent retry's original one


class AppendRequest(msgspec.Struct, frozen=True):
    """Checked batches for one stream. Whoever appends them owns the buffer, and stamps it with offsets."""

    stream: int
    batches: Slice
    facts: SliceFacts
    size: int  # logical bytes, which caps count
    records: bytes = b""  # packed RECORD rows, if the stream tracks its records one by one


class Waiter(Protocol):
    """Receives the outcome of an append, once, and never from within the call that appends. A future is one.

    Its methods run in the middle of a commit: they must neither fail nor append."""

    def done(self) -> bool:
        """Nobody wants the outcome any more."""
        ...

    def set_result(self, placed: Placed, /) -> None: ...

    def set_exception(self, error: BaseException, /) -> None: ...


def promise() -> asyncio.Future[Placed]:
    """A waiter to await."""
    return asyncio.get_running_loop().create_future()


def notify(waiter: Waiter, placing: Awaitable[Placed]) -> None:
    """Pass the outcome of a coroutine on."""
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
