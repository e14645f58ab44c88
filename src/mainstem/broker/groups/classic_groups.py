"""Groups of the classic protocol: made here, and recorded in the ledger a generation at a time."""

from __future__ import annotations

import asyncio
from uuid import UUID

from mainstem import events
from mainstem.broker.groups.classic import ClassicGroup
from mainstem.broker.groups.group_persistence import bump_generation
from mainstem.broker.groups.options import GroupOptions
from mainstem.broker.groups.timers import Timers
from mainstem.errors import MainstemError
from mainstem.ledger.group_generations import BumpGeneration
from mainstem.log.log import Log
from mainstem.ports.clock import Random

_log = events.named("groups")


class ClassicGroups:
    def __init__(self, log: Log, timers: Timers, options: GroupOptions, random: Random) -> None:
        self._log = log
        self._timers = timers
        self._options = options
        self._random = random
        self._recording: set[asyncio.Task[None]] = set()

    def new(self, name: str) -> ClassicGroup:
        """A group that expects the members of its last recorded generation."""
        return ClassicGroup(
            name,
            self._timers,
            self._options,
            self,
            before=self._log.ledger.group_generations.get(name),
        )

    def was_in(self, name: str, member_id: str) -> bool:
        """Whether the member was in the last recorded generation of the group."""
        before = self._log.ledger.group_generations.get(name)
        return before is not None and member_id in before.members

    def new_id(self, prefix: str) -> str:
        """The id of a new member."""
        return f"{prefix}-{UUID(bytes=self._random.token(16), version=4)}"

    def record(self, group: str, generation: int, members: tuple[str, ...]) -> None:
        """Record the members of a generation in the ledger, without waiting: members' commits are ordered after it."""
        recording = asyncio.get_running_loop().create_task(
            self._propose(bump_generation(group, generation, members)), name="mainstem-generation"
        )
        self._recording.add(recording)
        recording.add_done_callback(self._recording.discard)

    async def _propose(self, command: BumpGeneration) -> None:
        try:
            await self._log.propose(command)
        except MainstemError as error:  # the next coordinator will not recognise its members
            _log.warning("group generation not persisted", group=command.group, error=str(error))

    async def recorded(self) -> None:
        """Wait until the ledger has every generation."""
        await asyncio.gather(*self._recording)
