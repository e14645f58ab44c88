"""Stores a group in the ledger: decisions are committed before any member learns of them.

One command per group is in flight at a time, and carries all decisions since the previous one. So a rebalance of many
members takes few commits, and a heartbeat that changes nothing takes none.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from mainstem import events, limits
from mainstem.broker.groups.consumer import ConsumerGroup
from mainstem.broker.groups.streams_group import StreamsGroup
from mainstem.errors import GroupOvertaken, MainstemError
from mainstem.ledger.consumer_groups import (
    ChangeConsumerGroup,
    ConsumerGroupKept,
    ForgetConsumerGroup,
    encoded_member,
)
from mainstem.ledger.group_generations import BumpGeneration
from mainstem.log.log import Log

_log = events.named("groups")


class PersistenceOwner(Protocol):
    def on_lost(self, keeper: GroupPersistence) -> None:
        """The last decisions are not in the ledger: discard the group, and continue from ledger state."""
        ...

    def on_downgraded(self, keeper: GroupPersistence) -> None:
        """The last member of the next generation left. The other members assign the partitions again, and the ledger
        does not hold the group."""
        ...


class GroupPersistence:
    """Persistence of one group.

    On a shared log, a group that another broker may have coordinated is taken over first: from then on the other
    broker's changes are rejected, and all its earlier changes are known."""

    def __init__(
        self,
        log: Log,
        group: ConsumerGroup | StreamsGroup,
        revision: int,
        owner: PersistenceOwner,
    ) -> None:
        self.group = group
        self.revision = revision  # of the group in the ledger; 0 = not in the ledger
        self.taken_over = log.sharing is None or not revision
        self._log = log
        self._owner = owner
        self._over = False
        self._unkept_epoch: int | None = None  # the group's epoch when it was too large to store
        self._writing: asyncio.Task[None] | None = None

    @property
    def writing(self) -> asyncio.Task[None] | None:
        """The command in flight, if any: the ledger may be newer than `revision`."""
        return self._writing

    async def settle(self) -> None:
        """Return once all decisions so far are in the ledger. Raises the error that prevented it; GroupOvertaken:
        another broker changed the group first."""
        for _ in range((self._writing is not None) + self._unwritten):
            self.begin()
            if self._over:
                raise GroupOvertaken(self.group.name)
            if self._writing is not None:
                await asyncio.shield(self._writing)

    def begin(self) -> None:
        """Start a write without waiting, after the one in flight."""
        if self._writing is None and self._unwritten and not self._over:
            self._writing = asyncio.get_running_loop().create_task(self._write(), name="mainstem-group")
            self._writing.add_done_callback(self._written)

    @property
    def _unwritten(self) -> bool:
        if not self.revision and self._unkept_epoch == self.group.epoch:
            return False
        return self.group.has_unsaved_changes or not self.taken_over

    async def _write(self) -> None:
        whole = not self.revision
        change = self.group.take_change(whole=whole)
        if self.group.all_classic and self.taken_over:
            await self._hand_back()
            return
        command = ChangeConsumerGroup(self.group.name, self.revision, *change)
        size = sum(len(encoded_member(member)) for member in change.members)
        kept = ConsumerGroupKept(0)
        if size <= limits.CONSUMER_GROUP_BYTES_MAX and (change.members or change.topology or not whole):
            kept = await self._log.propose(command)
        elif not whole:
            kept = await self._log.propose(ForgetConsumerGroup(self.group.name, self.revision))
        self.revision = kept.revision
        self.taken_over = True
        self._unkept_epoch = None
        if not kept.revision and not self.group.empty:
            # The next coordinator will not recognise its members. The next rebalance may make the group smaller.
            self._unkept_epoch = change.epoch
            _log.warning("group too large to persist", group=self.group.name)
        before = self._log.ledger.group_generations.get(self.group.name)
        if before is not None:  # the group was a classic one
            await self._log.propose(BumpGeneration(before.group, before.generation, ()))

    async def _hand_back(self) -> None:
        """The last member of the next generation left: store the group as a classic one."""
        generation = max(member.epoch for member in self.group.members.values())
        await self._log.propose(bump_generation(self.group.name, generation, tuple(self.group.members)))
        if self.revision:
            kept = await self._log.propose(ForgetConsumerGroup(self.group.name, self.revision))
            self.revision = kept.revision

    def _written(self, task: asyncio.Task[None]) -> None:
        self._writing = None
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            if self.group.all_classic and not self.revision and not self.group.has_unsaved_changes:
                self._over = True
                self._owner.on_downgraded(self)
                return
            self.begin()  # also write changes that no request waits for
            return
        self._over = True
        if not isinstance(error, MainstemError):
            _log.failure("group not persisted", error, group=self.group.name)
        elif not isinstance(error, GroupOvertaken):
            _log.warning("group not persisted", group=self.group.name, error=str(error))
        self._owner.on_lost(self)


def bump_generation(group: str, generation: int, members: tuple[str, ...]) -> BumpGeneration:
    """The command that stores the members of a classic group, or none if they are over the limits."""
    if len(members) > limits.GROUP_GENERATION_MEMBERS_MAX or any(
        len(member) > limits.GROUP_GENERATION_CHARS_MAX for member in members
    ):
        members = ()
    return BumpGeneration(group, generation, members)
