"""Bounds: where a stream begins and ends for those who read it."""

from __future__ import annotations

from mainstem.errors import NotFound, OffsetOutOfRange, RecordsLost
from mainstem.ledger.ledger import Ledger
from mainstem.log.views import View
from mainstem.log.visibility import Visibility


class Bounds:
    def __init__(self, ledger: Ledger, visibility: Visibility) -> None:
        self._ledger = ledger
        self._visibility = visibility

    def of(self, stream: int) -> tuple[int, int]:
        """The first offset still there and the visible end. Raises NotFound."""
        streams = self._ledger.streams
        if not streams.exists(stream):
            raise NotFound("the topic was deleted")
        start = streams.start(stream)
        # A trim is applied before it is synced, so the start can be past what is visible for a moment.
        return start, max(start, self._visibility.ends[stream])

    def stable_end(self, stream: int) -> int:
        """Where what open transactions wrote begins; the visible end if there are none.

        A transaction whose end is applied but not synced still counts as open: it might be lost."""
        start, end = self.of(stream)
        first = self._ledger.streams.transactions.first_open(stream)
        if first is not None and first < end:
            end = first
        return max(start, self._visibility.before_ending(stream, end))

    def readable_end(self, stream: int, offset: int, view: View) -> int:
        """Up to where a read from `offset` may go. Raises OffsetOutOfRange, RecordsLost."""
        start, end = self.of(stream)
        if not start <= offset <= end:
            raise OffsetOutOfRange(offset, start, end)
        if view is View.COMMITTED and self._ledger.streams.transactions.touched(stream):
            end = max(offset, self.stable_end(stream))
        loss = self._ledger.streams.holes(stream).next_loss(offset)
        if loss is None:
            return end
        if loss[0] <= offset:
            raise RecordsLost(offset, loss[1], loss[2])
        return min(end, loss[0])
