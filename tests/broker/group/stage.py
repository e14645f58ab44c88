"""Groups of a broker on a simulated disk, with a manual clock."""

from __future__ import annotations

from mainstem.broker.groups.options import GroupOptions
from mainstem.broker.groups.service import Groups
from tests.support.clock import ManualClock
from tests.support.machine import Machine


class GroupsStage:
    def __init__(self, machine: Machine, **options: int) -> None:
        self.machine = machine
        self.clock: ManualClock = machine.clock
        self._options = GroupOptions(**{"initial_delay_ms": 0, **options})

    async def open(self) -> None:
        self.broker = await self.machine.open()
        self.groups = Groups(self.broker.log, self.clock, self._options)
        self.groups.start()
        self.groups.timers.stop()  # the test moves the clock

    async def restart(self) -> None:
        await self.groups.stop()
        await self.machine.close()
        await self.open()
