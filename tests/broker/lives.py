"""Callers at work while the broker is killed and the machine loses power, again and again."""

from __future__ import annotations

import asyncio
import contextlib
import random
from abc import ABC, abstractmethod

from mainstem.broker.broker import Broker
from mainstem.errors import MainstemError
from tests.support.files import SimulatedCrash
from tests.support.machine import Machine

_LIVES = 6
_CALLERS = 4


class Lives(ABC):
    """What callers know: what they wrote, and the results they got."""

    def __init__(self, seed: int, *, turns_max: int) -> None:
        self._random = random.Random(seed)
        self._machine = Machine.of_any_kind(self._random)
        self._turns_max = turns_max  # turns of the loop, in one run
        self._lapses = 0  # how often the clock passed all leases

    async def run(self) -> None:
        broker = await self._machine.open()
        await self._begin(broker)
        for _ in range(_LIVES):
            callers = [asyncio.create_task(self._call(broker, f"caller-{n}")) for n in range(_CALLERS)]
            for _ in range(self._random.randrange(5, self._turns_max)):
                await asyncio.sleep(0)
            await self._machine.crash_somehow(self._random)
            await asyncio.gather(*callers)
            broker = await self._machine.open()
        await self._check(broker)
        await self._machine.close()

    async def _call(self, broker: Broker, caller: str) -> None:
        with contextlib.suppress(MainstemError, SimulatedCrash):  # until the broker stops
            while True:
                await self._add(broker)
                await self._do_some(broker, caller)

    @abstractmethod
    async def _begin(self, broker: Broker) -> None:
        """Create what the callers use."""

    @abstractmethod
    async def _add(self, broker: Broker) -> None: ...

    @abstractmethod
    async def _do_some(self, broker: Broker, caller: str) -> None: ...

    @abstractmethod
    async def _check(self, broker: Broker) -> None:
        """After the last run: every promise holds."""

    def _lapse(self) -> None:
        self._lapses += 1
        self._machine.clock.advance(40_000)
