"""Many short schedules in one test: a test for each would cost more than what it does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from tests.support.simulation.world import World

FAULTS = (
    "request lost",
    "answer lost",
    "done too late",
    "cut off",
    "crashed",
)  # what every kind of run has to meet


class Schedules:
    """Seeds to go through. `whole`: all of a block, not one that somebody runs again."""

    def __init__(self, seeds: Sequence[int], *, whole: bool = True) -> None:
        self.seeds = seeds
        self.whole = whole
        self.current = seeds[0]  # when one fails, it is this one

    def run(self, scenario: Callable[[World], Coroutine[Any, Any, Any]]) -> Counter[str]:
        """Run all of them. Returns in how many schedules each kind of trouble took effect."""
        met: Counter[str] = Counter()
        for seed in self.seeds:
            self.current = seed
            world = World(seed)
            world.run(scenario(world))
            met.update(effect for effect, count in world.trace.effects.items() if count)
        return met

    def __repr__(self) -> str:
        return f"{self.seeds[0]}-{self.seeds[-1]}"
