"""What the network of a simulation does to calls."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(slots=True)
class Faults:
    """Chances are of one call. All may be changed while the simulation runs."""

    latency_s: tuple[float, float] = (0.0002, 0.003)  # one way
    lose_request: float = 0.0  # it never arrives
    lose_answer: float = 0.0  # it was done, and the caller never learns it
    stall: float = 0.0  # it arrives late, maybe long after its caller has given up
    stall_s: tuple[float, float] = (0.5, 20.0)
    lose_watch: float = 0.0  # a watch ends instead of giving its next answer

    @classmethod
    def none(cls) -> Faults:
        return cls()

    @classmethod
    def drawn(cls, randomness: random.Random) -> Faults:
        """A mix that the seed decides: often calm, at times rough."""
        rough = randomness.choice((0.0, 0.02, 0.1))
        return cls(
            latency_s=(0.0002, randomness.choice((0.001, 0.01, 0.2))),
            lose_request=rough * randomness.random(),
            lose_answer=rough * randomness.random(),
            stall=rough * randomness.random(),
            stall_s=(0.5, randomness.choice((8.0, 8.0, 25.0))),
            lose_watch=rough * randomness.random(),
        )
