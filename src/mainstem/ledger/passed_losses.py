"""Passed losses: offsets below a stream's start whose records were lost before a delete moved the start past them.

A deletion is silent, a loss is not: readers and routers that were below the lost offsets still get the loss reported.
Where retention moves the start, its own floor reports everything below."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mainstem.ledger.digest import MASK, hash_fields
from mainstem.ledger.intervals import SOURCE_TRIM

PASSED_LOSSES_MAX = 128  # lost ranges of a stream that deletes passed over; beyond it, the oldest are merged

Loss = tuple[int, int, str]  # start, end, reason: half-open, as in Holes


class PassedLosses:
    """By stream, in order. `digest` is the sum of their hashes, kept as they change."""

    def __init__(self) -> None:
        self.digest = 0
        self._by_stream: dict[int, list[Loss]] = {}

    def __contains__(self, stream: int) -> bool:
        return stream in self._by_stream

    def above(self, stream: int, offset: int) -> Iterator[Loss]:
        """The losses that end after `offset`, clipped to it."""
        for start, end, reason in self._by_stream.get(stream, ()):
            if end > offset:
                yield max(start, offset), end, reason

    def reach(self, stream: int, *, uncopied: bool) -> int:
        """The end of the last loss with reason SOURCE_TRIM (`uncopied`), or of the last other one; 0 if none."""
        for _, end, reason in reversed(self._by_stream.get(stream, ())):
            if (reason == SOURCE_TRIM) == uncopied:
                return end
        return 0

    def add(self, stream: int, losses: Iterable[Loss]) -> None:
        """Add losses above all present ones."""
        together = list(self._by_stream.get(stream, ()))
        for start, end, reason in losses:
            if together and together[-1][1:] == (start, reason):
                start = together.pop()[0]  # one loss, which the start passed in two steps
            together.append((start, end, reason))
        if together:
            self._put(stream, together)

    def cut(self, stream: int, floor: int) -> None:
        """Drop what is below `floor`."""
        if stream in self and self._by_stream[stream][0][0] < floor:
            self._put(stream, list(self.above(stream, floor)))

    def forget(self, stream: int) -> None:
        self._put(stream, [])

    def _put(self, stream: int, losses: list[Loss]) -> None:
        old = self._by_stream.pop(stream, [])
        while len(losses) > PASSED_LOSSES_MAX:
            # Merge the lowest two: reporting too much is safer than reporting too little.
            (start, _, first), (_, end, second) = losses[:2]
            losses[:2] = [(start, end, second if first == SOURCE_TRIM else first)]
        if losses:
            self._by_stream[stream] = losses
        change = sum(_hash(stream, loss) for loss in losses) - sum(_hash(stream, loss) for loss in old)
        self.digest = (self.digest + change) & MASK

    # Checkpoints

    def encode(self) -> list[tuple[int, list[Loss]]]:
        return sorted(self._by_stream.items())

    @classmethod
    def decode(cls, state: list[tuple[int, list[Loss]]]) -> PassedLosses:
        passed = cls()
        for stream, losses in state:
            passed._put(stream, losses)
        return passed


def _hash(stream: int, loss: Loss) -> int:
    return hash_fields("passed", stream, *loss)
