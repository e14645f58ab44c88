"""What of the objects to be repacked is needed any more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from mainstem import limits
from mainstem.ledger.intervals import DELETED, is_loss
from mainstem.ledger.ledger import Ledger
from mainstem.log.extents import Rows, SealedExtents

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(slots=True)
class Liveness:
    """Of some streams, by number, as the ledger had it at one moment. Nothing that is dead comes back to life."""

    streams: Int64s
    floors: Int64s  # what ends at or before these is not read any more
    transactional: Bools  # slices of these stay apart: some may be aborted
    gone: dict[int, tuple[Int64s, Int64s]] = field(default_factory=dict)  # stream → ranges deleted or lost

    def needed(self, rows: Rows) -> Bools:
        """Which extents, by stream and base, hold something that may be read."""
        at = np.searchsorted(self.streams, rows["stream"])
        ends = rows["base"] + rows["count"]
        needed: Bools = ends > self.floors[at]
        for stream, (firsts, lasts) in self.gone.items():
            low, high = np.searchsorted(rows["stream"], (stream, stream + 1))
            hole = np.searchsorted(firsts, rows["base"][low:high], side="right") - 1
            needed[low:high] &= (hole < 0) | (lasts[hole] < ends[low:high])
        return needed

    def kept_apart(self, rows: Rows) -> Bools:
        """Which extents must not be joined with their neighbours."""
        return self.transactional[np.searchsorted(self.streams, rows["stream"])]


def liveness(ledger: Ledger, indexes: Sequence[SealedExtents]) -> Liveness:
    """Of the streams that objects hold slices of."""
    spans = np.concatenate([one.spans[one.spans["bytes"] > 0] for one in indexes])
    streams, which = np.unique(spans["stream"].astype(np.int64), return_inverse=True)
    bases = np.full(len(streams), limits.OFFSET_MAX, np.int64)
    ends = np.zeros(len(streams), np.int64)
    np.minimum.at(bases, which, spans["base"])
    np.maximum.at(ends, which, spans["end"])
    floors = live_from(ledger, streams, bases, ends)
    transactions = ledger.streams.transactions
    found = Liveness(
        streams, floors, np.array([transactions.touched(one) for one in streams.tolist()], np.bool_)
    )
    for stream, base, end in zip(streams.tolist(), bases.tolist(), ends.tolist(), strict=True):
        ranges = _gone(ledger, stream, base, end)
        if ranges:
            found.gone[stream] = (np.array([one[0] for one in ranges]), np.array([one[1] for one in ranges]))
    return found


def _gone(ledger: Ledger, stream: int, base: int, end: int) -> list[tuple[int, int]]:
    """What of a range is lost, or was deleted and is needed by no copy in another stream: those stay."""
    holes = ledger.streams.holes(stream)
    if not len(holes):
        return []
    return [
        (first, last)
        for first, last, reason in holes.overlapping(base, end)
        if is_loss(reason) or (reason == DELETED and not ledger.aliases.reaching(stream, first, last))
    ]


def live_from(ledger: Ledger, streams: Int64s, bases: Int64s, ends: Int64s) -> Int64s:
    """Below which offset the bytes of streams, of which [base, end) is asked for, are not read any more: it is before
    their start, or served by parts, and no copy in another stream needs it."""
    columns, generations, aliases = ledger.streams, ledger.generations, ledger.aliases
    floors: Int64s = np.maximum.reduce(
        [floor[streams] for floor in (columns.delete_floor, columns.evict_floor, columns.expiry_floor)]
    )
    for row, stream in enumerate(streams.tolist()):
        if generations.serves(stream):
            floors[row] = generations.frontier(stream)
    floors[~columns.alive[streams]] = limits.OFFSET_MAX
    for row in np.flatnonzero(floors > bases).tolist() if aliases.feeds else ():
        if aliases.reaching(int(streams[row]), int(bases[row]), min(int(floors[row]), int(ends[row]))):
            floors[row] = bases[row]
    return floors
