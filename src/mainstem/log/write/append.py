"""One append to a stream, and the receiver of its outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from functools import partial
from typing import Protocol

import msgspec

from mainstem.errors import MainstemError, Rejected
from mainstem.ledger.publish_sequences import PublishExclusively, PublishSequence, SequencePublished
from mainstem.ledger.record_times import RecordsTimed, TimeRecords
from mainstem.records.header import Slice, SliceFacts

Placed = tuple[int, bool]  # base offset, and whether an idempotent retry got the original's


class AppendRequest(msgspec.Struct, frozen=True):
    """Checked batches for one stream. The log owns the buffer, and stamps offsets into it."""

    stream: int
    batches: Slice
    facts: SliceFacts
    size: int  # logical bytes, which caps count
    records: bytes = b""  # packed RECORD rows, if the stream tracks single records
    then: PublishSequence | PublishExclusively | TimeRecords | None = (
        None  # a command that is committed with it, or not at all
    )


class Waiter(Protocol):
    """Receives the outcome of an append once, never during the append call itself. Futures implement it.

    Its methods run during a commit: they must neither raise nor append."""

    def done(self) -> bool:
        """Whether the outcome is no longer wanted."""
        ...

    def set_result(self, placed: Placed, /) -> None: ...

    def set_exception(self, error: BaseException, /) -> None: ...


class FollowedAppend:
    """Passes the outcome of an append, and of the command that follows it, to one waiter."""

    __slots__ = ("_refusal", "_waiter")

    def __init__(self, waiter: Waiter) -> None:
        self._waiter = waiter
        self._refusal: BaseException | None = None

    def done(self) -> bool:
        return False

    def set_result(self, placed: Placed, /) -> None:
        """The command follows, and has the same offset."""

    def set_exception(self, error: BaseException, /) -> None:
        self._refusal = error

    def followed(self, done: asyncio.Future[SequencePublished | RecordsTimed | MainstemError]) -> None:
        """The command was applied, or not committed."""
        if done.cancelled():
            error: BaseException | None = asyncio.CancelledError()
        else:
            error = done.exception()
        outcome = None if error is not None else done.result()
        if self._waiter.done():
            return
        if isinstance(outcome, SequencePublished | RecordsTimed):
            self._waiter.set_result((outcome.base, outcome.duplicate))
        elif error is not None:
            self._waiter.set_exception(error)
        elif outcome is not None and type(outcome) is not Rejected:
            self._waiter.set_exception(outcome)  # the command was refused, and the append because of it
        else:
            self._waiter.set_exception(self._refusal or outcome or Rejected("the records were not appended"))


def promise() -> asyncio.Future[Placed]:
    """A waiter that can be awaited."""
    return asyncio.get_running_loop().create_future()


def notify(waiter: Waiter, placing: Awaitable[Placed]) -> None:
    """Pass the outcome of a coroutine to a waiter."""
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
