"""Appends that wait while the commit path is saturated: topics with a high priority go first, equal ones in turn.

1. The appends of a stream keep their order: producers number their batches.
2. Otherwise the highest priority goes first. Streams of equal priority take turns by the bytes that they append: one
   with thousands of waiting appends does not delay the others.
3. One admission in `OLDEST_FIRST_EVERY` goes to the append that waited longest, so none waits for ever: the n-th in
   the order of arrival is admitted after at most n times as many admissions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from heapq import heappop, heappush

from mainstem import limits
from mainstem.metrics import Metric

_BANDS = ("low", "normal", "high")


class WaitingAppend:
    __slots__ = ("admitted", "arrived_s", "number", "priority", "size", "start", "stream")

    def __init__(
        self, number: int, stream: int, priority: int, start: Callable[[], None], arrived_s: float, size: int
    ) -> None:
        self.number = number  # in the order of arrival
        self.stream = stream
        self.priority = priority
        self.start = start
        self.arrived_s = arrived_s
        self.size = size
        self.admitted = False


class WaitingAppends:
    def __init__(self) -> None:
        self._arrived = 0
        self._turns = 0
        self.count = 0
        self._by_stream: dict[int, deque[WaitingAppend]] = {}
        # The first of each stream: (-priority, turn, number, stream). Rows of removed appends are skipped.
        self._first: list[tuple[int, int, int, int]] = []
        # The turn of a stream: where the others were when it began to wait, and the bytes that it was admitted since.
        self._turn_of: dict[int, int] = {}
        self._reached = 0  # the turn of the newest admission
        self._oldest: deque[WaitingAppend] = deque()  # in the order of arrival; some may be removed
        self._counts = dict.fromkeys(_BANDS, 0)
        self._seconds = dict.fromkeys(_BANDS, 0.0)

    def add(self, stream: int, priority: int, start: Callable[[], None], now_s: float, size: int = 1) -> None:
        """`start` runs the append when its turn comes. `size`: its bytes."""
        self._arrived += 1
        self.count += 1
        append = WaitingAppend(self._arrived, stream, priority, start, now_s, size)
        line = self._by_stream.get(stream)
        if line is None:
            line = self._by_stream[stream] = deque()
            self._turn_of[stream] = self._reached
            heappush(self._first, (-priority, self._reached, append.number, stream))
        line.append(append)
        self._oldest.append(append)

    def pop(self, now_s: float) -> Callable[[], None]:
        """The next append. Call only while appends wait."""
        self._turns += 1
        while self._oldest[0].admitted:
            self._oldest.popleft()
        if self._turns % limits.OLDEST_FIRST_EVERY:
            stream = self._stream_of_highest()
        else:
            stream = self._oldest[0].stream  # of which it is the first
        line = self._by_stream[stream]
        append = line.popleft()
        append.admitted = True
        turn = self._turn_of[stream]
        self._reached = max(self._reached, turn)
        if line:
            self._turn_of[stream] = turn = turn + append.size
            heappush(self._first, (-line[0].priority, turn, line[0].number, stream))
        else:
            del self._by_stream[stream], self._turn_of[stream]
        self.count -= 1
        if not self.count:
            self._first.clear()
            self._oldest.clear()
        band = _band(append.priority)
        self._counts[band] += 1
        self._seconds[band] += now_s - append.arrived_s
        return append.start

    def _stream_of_highest(self) -> int:
        while True:
            _, _, number, stream = heappop(self._first)
            line = self._by_stream.get(stream)
            if line is not None and line[0].number == number:
                return stream

    def published(self) -> Iterator[Metric]:
        """As metrics."""
        yield Metric(
            "mainstem_saturated_appends_total",
            "counter",
            "Appends that waited because the broker was saturated, by priority: below 0, 0, above 0.",
            tuple(((("priority", band),), float(self._counts[band])) for band in _BANDS),
        )
        yield Metric(
            "mainstem_saturated_appends_seconds_total",
            "counter",
            "Time that appends waited because the broker was saturated.",
            tuple(((("priority", band),), self._seconds[band]) for band in _BANDS),
        )


def _band(priority: int) -> str:
    return _BANDS[(priority >= 0) + (priority > 0)]
