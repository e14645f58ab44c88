"""Acknowledgements on their way to the ledger: all that arrive while one commit is under way share the next one."""

from __future__ import annotations

import asyncio

from mainstem.errors import LimitReached, MainstemError
from mainstem.ledger.subscriptions import (
    ACKED_RANGES_MAX,
    ACKED_RANGES_PER_COMMAND_MAX,
    AckedRecords,
    AckRecords,
    Range,
    merged,
)
from mainstem.log.log import Log


class Acks:
    """The acknowledgements of one subscription. A subscription that is not durable applies them at once."""

    def __init__(self, log: Log, stream: int, name: str, volatile: AckedRecords | None) -> None:
        self._log = log
        self._stream = stream
        self._name = name
        self._volatile = volatile
        self._mark = 0
        self._ranges: list[Range] = []
        self._waiters: list[asyncio.Future[None]] = []
        self._last: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self.term = 0  # under which the broker serves the subscription

    def add(self, mark: int, ranges: list[Range]) -> asyncio.Future[None]:
        """Acknowledge what is below `mark`, and the ranges. The future is done once that is durable."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._volatile is not None:
            self._apply(self._volatile, mark, ranges, done)
            return done
        self._mark = max(self._mark, mark)
        self._ranges += ranges
        self._waiters.append(done)
        self._last = done
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._commit())
        return done

    @staticmethod
    def _apply(acked: AckedRecords, mark: int, ranges: list[Range], done: asyncio.Future[None]) -> None:
        fills_gap = mark > acked.mark or any(first <= acked.mark for first, _ in ranges)
        if ranges and len(acked) >= ACKED_RANGES_MAX and not fills_gap:  # as in the ledger
            done.set_exception(LimitReached(f"{len(acked)} ranges of records are acknowledged out of order"))
            done.exception()  # a client that asked for no receipt never looks at it
            return
        for first, end in ranges:
            acked.add(first, end)
        acked.raise_mark(mark, lambda offset: offset)
        done.set_result(None)

    async def settled(self) -> None:
        """Wait until everything added so far is applied."""
        if self._last is not None and not self._last.done():
            await asyncio.wait([self._last])

    async def _commit(self) -> None:
        try:
            while self._waiters:
                waiters, self._waiters = self._waiters, []
                mark, self._mark = self._mark, 0
                ranges = merged(self._ranges)
                self._ranges = []
                error: MainstemError | None = None
                for at in range(0, max(1, len(ranges)), ACKED_RANGES_PER_COMMAND_MAX):
                    some = tuple(ranges[at : at + ACKED_RANGES_PER_COMMAND_MAX])
                    try:
                        await self._log.propose(AckRecords(self._stream, self._name, mark, some, self.term))
                    except MainstemError as refused:
                        error = refused
                for waiter in waiters:
                    if waiter.done():
                        continue
                    if error is None:
                        waiter.set_result(None)
                    else:
                        waiter.set_exception(error)
                        waiter.exception()  # a client that asked for no receipt never looks at it
        finally:
            self._task = None
