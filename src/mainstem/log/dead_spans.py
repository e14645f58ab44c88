"""Which bytes of the log nobody reads any more."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mainstem.ledger.generations import task_of
from mainstem.ledger.ledger import Ledger
from mainstem.log.extents import Rows


def dead_spans(ledger: Ledger, spans: Rows) -> npt.NDArray[np.bool_]:
    """Of span rows: those below the start of their stream or before its frontier, and of streams that are gone.

    Alive all the same is what somebody makes parts of, and what copies in other streams are read from."""
    streams, generations = ledger.streams, ledger.generations
    numbers = spans["stream"]
    floors = (streams.delete_floor, streams.evict_floor, streams.expiry_floor)
    starts = np.maximum.reduce([floor[numbers] for floor in floors])
    for row, stream in enumerate(numbers.tolist()):
        if generations.serves(stream):
            starts[row] = generations.frontier(stream)
    dead = np.asarray(~streams.alive[numbers] | (spans["end"] <= starts))
    for row in np.flatnonzero(dead).tolist() if len(ledger.tasks) else ():
        dead[row] = ledger.tasks.get(task_of(int(numbers[row]))) is None
    aliases = ledger.aliases
    for row in np.flatnonzero(dead).tolist() if aliases.feeds else ():
        dead[row] = not aliases.reaching(int(numbers[row]), int(spans["base"][row]), int(spans["end"][row]))
    return dead
