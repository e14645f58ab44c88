"""Walks: lists of steps whose arguments are plain numbers, chosen before the walk begins.

They get their meaning when they run, so the other steps still mean something if one is left out. That is how a
failing walk is shortened.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, NamedTuple

_WEIGHTS = {
    "put": 4, "write": 22, "diff": 10, "read_on": 8, "delete": 5, "state": 3, "drop": 1, "put_router": 4,
    "get_router": 2, "drop_router": 1, "claim": 8, "ack": 5, "nack": 4, "extend": 2, "wait": 7, "restart": 3,
}  # fmt: skip


class Step(NamedTuple):
    name: str
    dice: tuple[int, ...]

    def pick(self, at: int, options: Sequence[Any]) -> Any:
        return options[self.dice[at] % len(options)]

    def other(self, turn: int) -> Step:
        """The same step with other numbers, for the next of several things it creates."""
        return Step(self.name, tuple(number // (turn + 1) + turn for number in self.dice))


def steps(seed: int, count: int, **more: int) -> list[Step]:
    """`more`: the weights of further steps."""
    dice = random.Random(seed)
    weights = {**_WEIGHTS, **more}
    names = dice.choices(list(weights), list(weights.values()), k=count)
    return [Step(name, tuple(dice.randrange(5040) for _ in range(6))) for name in names]
