"""What readers may see: the visible end of every stream, and the watchers of streams.

The ledger's end runs ahead of it: an append is applied once written, but becomes visible when its durability
class is met. Offsets of relaxed streams (acked before they are synced) are published only below a *ceiling* that is
itself synced, so that no crash of the machine can cause an offset that was seen to be assigned again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Protocol

from mainstem import limits
from mainstem.ledger.ledger import Ledger

CEILING_STEP_RECORDS = 64 * limits.KIB  # how far a relaxed stream may advance past its synced ceiling

_CEILING_STEP_MAX = 1 << 32


class VisibilityWatcher(Protocol):
    def changed(self) -> None:
        """A watched stream changed. Called during a commit: only record it."""
        ...


class Visibility:
    """State by stream number, in plain lists: they are accessed one element at a time."""

    def __init__(self, *, durable: bool = False) -> None:
        self._durable = durable  # writes to the log are durable, so no stream is relaxed
        self.ends: list[int] = []
        self.relaxed: list[bool] = []
        self._ceilings: list[int] = []  # synced: offsets below may be published at once
        self._proposed: list[int] = []  # the highest ceiling proposed so far
        self._steps: list[int] = []
        self._waiters: dict[int, list[asyncio.Future[None]]] = {}
        self._watchers: dict[int, set[VisibilityWatcher]] = {}
        # stream → first offsets of transactions whose end is applied but not synced yet
        self._ending: dict[int, list[int]] = {}
        self._closed = False

    @property
    def waiting(self) -> int:
        """How many streams have readers that wait."""
        return len(self._waiters)

    def grow(self, ledger: Ledger) -> None:
        """Add streams that a command created."""
        streams = ledger.streams
        for stream in range(len(self.ends), streams.count):
            self.ends.append(int(streams.end[stream]))
            self._ceilings.append(int(streams.ceiling[stream]))
            self._proposed.append(int(streams.ceiling[stream]))
            self._steps.append(CEILING_STEP_RECORDS)
            self.relaxed.append(not self._durable and streams.relaxed(stream))

    def resume(self, ledger: Ledger) -> None:
        """After a start, everything in the ledger is durable; ends may have jumped."""
        count = ledger.streams.count
        self.ends[:] = ledger.streams.end[:count].tolist()
        self._ceilings[:] = ledger.streams.ceiling[:count].tolist()
        self._proposed[:] = self._ceilings

    def reclassify(self, ledger: Ledger, streams: Iterable[int]) -> None:
        """Apply a changed durability class."""
        for stream in streams:
            self.relaxed[stream] = not self._durable and ledger.streams.relaxed(stream)

    def below_ceiling(self, stream: int, end: int) -> bool:
        return end <= self._ceilings[stream]

    def next_ceiling(self, stream: int, end: int) -> int | None:
        """The ceiling to propose now that the stream reaches `end`, if the room left is getting short.

        A stream that used its room up quickly gets twice as much, so that a busy stream does not wait for a
        sync every 64 Ki records. The price is a wider gap of unused offsets after a crash of the machine."""
        proposed = self._proposed[stream]
        step = self._steps[stream]
        if end + step // 2 < proposed:
            return None
        if proposed:
            step = self._steps[stream] = min(2 * step, _CEILING_STEP_MAX)
        self._proposed[stream] = end + step
        return end + step

    def raise_ceiling(self, stream: int, ceiling: int) -> None:
        """The ceiling is synced."""
        if ceiling > self._ceilings[stream]:
            self._ceilings[stream] = ceiling

    def publish(self, stream: int, end: int) -> None:
        """Let readers see offsets below `end`. Watchers run after the caller returns."""
        if end > self.ends[stream]:
            self.ends[stream] = end
            self.wake(stream)

    def publish_below(self, stream: int, end: int) -> bool:
        """Publish, if the stream has room below its ceiling and needs no higher one yet."""
        if end > self._ceilings[stream] or end + self._steps[stream] // 2 >= self._proposed[stream]:
            return False
        if end > self.ends[stream]:
            self.ends[stream] = end
            if stream in self._waiters or stream in self._watchers:
                self.wake(stream)
        return True

    def ending(self, stream: int, first: int) -> None:
        """A transaction that wrote from `first` on has ended, but that is not durable yet."""
        self._ending.setdefault(stream, []).append(first)

    def ended(self, stream: int, first: int, end: int) -> None:
        """The end of a transaction is durable, and its marker stands right before `end`."""
        if first >= 0:
            firsts = self._ending[stream]
            firsts.remove(first)
            if not firsts:
                del self._ending[stream]
        self.ends[stream] = max(end, self.ends[stream])
        self.wake(stream)  # even if later appends are visible: readers waited before the transaction

    def before_ending(self, stream: int, end: int) -> int:
        """`end`, or the start of the first transaction whose end is not durable yet."""
        firsts = self._ending.get(stream)
        return min(end, *firsts) if firsts else end

    def wake(self, stream: int) -> None:
        """Wake all waiters: something was appended, or the stream was deleted."""
        waiters = self._waiters.pop(stream, None)
        if waiters:
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)
        for watcher in self._watchers.get(stream, ()):
            watcher.changed()

    def watch(self, streams: Iterable[int], watcher: VisibilityWatcher) -> None:
        """Notify `watcher` of every change of these streams, until `unwatch`."""
        for stream in streams:
            watchers = self._watchers.get(stream)
            if watchers is None:
                self._watchers[stream] = {watcher}
            else:
                watchers.add(watcher)

    def unwatch(self, streams: Iterable[int], watcher: VisibilityWatcher) -> None:
        for stream in streams:
            watchers = self._watchers.get(stream)
            if watchers is not None:
                watchers.discard(watcher)
                if not watchers:
                    del self._watchers[stream]

    @property
    def watched(self) -> int:
        """The number of watched streams."""
        return len(self._watchers)

    def close(self) -> None:
        """Wake all waiters, and refuse new ones."""
        self._closed = True
        for stream in {*self._waiters, *self._watchers}:
            self.wake(stream)

    async def changed(self, stream: int, timeout_s: float) -> bool:
        """Wait until the stream changes; False on a timeout, or after `close`."""
        if self._closed:
            return False
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(stream, []).append(waiter)
        try:
            async with asyncio.timeout(timeout_s):
                await waiter
            return True
        except TimeoutError:
            return False
        finally:
            self._forget(stream, waiter)

    def _forget(self, stream: int, waiter: asyncio.Future[None]) -> None:
        waiters = self._waiters.get(stream)
        if waiters and waiter in waiters:
            waiters.remove(waiter)
            if not waiters:
                del self._waiters[stream]
