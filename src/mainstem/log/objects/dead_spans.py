"""Which bytes of the log no reader can reach any more."""

from __future__ import annotations

import numpy as np

from mainstem.ledger.generations import task_of
from mainstem.ledger.ledger import Ledger
from mainstem.log.read.extents import Rows


def all_dead(ledger: Ledger, spans: Rows) -> bool:
    """Whether every span is below the start of its stream, before the stream's frontier, or of a deleted stream. Stops
    at the first live span: most objects have one.

    A span is also live while a task materialises its stream, and while aliases in other streams refer to it."""
    streams, generations = ledger.streams, ledger.generations
    numbers = spans["stream"]
    floors = (streams.delete_floor, streams.evict_floor, streams.expiry_floor)
    starts = np.maximum.reduce([floor[numbers] for floor in floors])
    left = np.flatnonzero(streams.alive[numbers] & (spans["end"] > starts))
    served = all(
        generations.serves(stream) and end <= generations.frontier(stream)
        for stream, end in zip(numbers[left].tolist(), spans["end"][left].tolist(), strict=True)
    )
    return served and not (len(ledger.tasks) and _in_work(ledger, spans)) and not _copied(ledger, spans)


def _in_work(ledger: Ledger, spans: Rows) -> bool:
    return any(ledger.tasks.get(task_of(stream)) is not None for stream in spans["stream"].tolist())


def _copied(ledger: Ledger, spans: Rows) -> bool:
    if not ledger.aliases.feeds:
        return False
    columns = (spans[name].tolist() for name in ("stream", "base", "end"))
    return any(ledger.aliases.reaching(*row) for row in zip(*columns, strict=True))
