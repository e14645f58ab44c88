"""The groups with members that this broker coordinates, by name."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from mainstem.broker.groups.assigned_group import AssignedGroup
from mainstem.broker.groups.classic import ClassicGroup
from mainstem.broker.groups.consumer import ConsumerGroup
from mainstem.broker.groups.group_persistence import GroupPersistence
from mainstem.broker.groups.migration import downgraded, upgraded
from mainstem.broker.groups.options import GroupOptions
from mainstem.broker.groups.streams_group import StreamsGroup
from mainstem.broker.groups.timers import Timers
from mainstem.broker.share.group import ShareGroup
from mainstem.errors import GroupFull, MainstemError, NotCoordinator
from mainstem.ledger.consumer_groups import StoredGroup
from mainstem.ledger.topics import Topics
from mainstem.log.log import Log

Group = ClassicGroup | ConsumerGroup | StreamsGroup | ShareGroup


class GroupRegistry:
    """Groups with broker-side assignment are stored in the ledger, and cached here. They are loaded from the ledger
    when another broker coordinated them before, or after a restart."""

    def __init__(
        self,
        log: Log,
        timers: Timers,
        options: GroupOptions,
        coordinates: Callable[[str], bool],
        new_classic: Callable[[str], ClassicGroup],
    ) -> None:
        """`new_classic` makes a classic group and adds it here."""
        self._log = log
        self._timers = timers
        self._options = options
        self._coordinates = coordinates
        self._new_classic = new_classic
        self._groups: dict[str, Group] = {}
        self._keepers: dict[str, GroupPersistence] = {}  # of groups with broker-side assignment
        self._epoch = log.epoch  # under which the groups here are coordinated
        self._open = False

    def __iter__(self) -> Iterator[Group]:
        return iter(list(self._groups.values()))

    def get(self, name: str) -> Group | None:
        """A group that has members, or had some recently. Before `open` there are none."""
        if self._log.epoch != self._epoch:
            self._drop_unrecorded()
        keeper = self._keepers.get(name)
        if keeper is not None and keeper.writing is not None:
            return keeper.group
        revision = self._log.ledger.consumer_groups.revision(name)
        if keeper is not None and keeper.revision != revision:
            self.drop(name)  # another broker changed the group
        group = self._groups.get(name)
        unloaded = group is None or (group.empty and name not in self._keepers)
        if revision and unloaded and self._open and self._coordinates(name):
            self._load(name)
        return self._groups.get(name)

    def keeper(self, name: str) -> GroupPersistence:
        """The persistence of a group with broker-side assignment, which `get` has returned before."""
        return self._keepers[name]

    def new_consumers(self, name: str) -> GroupPersistence:
        """A group with broker-side assignment: from the ledger, or one without members. Raises GroupFull."""
        return self._load(name)

    def new_streams(self, name: str) -> GroupPersistence:
        """A streams group: from the ledger, or one without members. Raises GroupFull."""
        return self._load(name, StreamsGroup)

    def upgrade(self, group: ClassicGroup) -> GroupPersistence:
        """The broker assigns the partitions of a classic group from now on. Raises WrongGroupKind."""
        members = upgraded(group, self._topics())
        group.hand_over()
        return self._adopt(group.name, members)

    def _load(
        self, name: str, kind: type[ConsumerGroup] | type[StreamsGroup] = ConsumerGroup
    ) -> GroupPersistence:
        """`kind`: that of a group that the ledger does not hold."""
        before = self._log.ledger.consumer_groups.get(name)
        if before is not None:
            kind = ConsumerGroup if before.topology is None else StreamsGroup
        return self._adopt(name, before, kind)

    def _adopt(
        self,
        name: str,
        before: StoredGroup | None,
        kind: type[ConsumerGroup] | type[StreamsGroup] = ConsumerGroup,
    ) -> GroupPersistence:
        group = kind(
            name,
            self._timers,
            self._options,
            self._topics,
            settings=lambda: self._log.ledger.group_settings.effective(name),
            before=before,
            expelled=lambda: keeper.begin(),
        )
        revision = 0 if before is None else before.revision
        keeper = GroupPersistence(self._log, group, revision, self._lost, self._downgrade)
        self.put(group)
        self._keepers[name] = keeper
        return keeper

    def put(self, group: Group) -> None:
        """Add a group, or replace the one with its name. Raises GroupFull."""
        if group.name not in self._groups and len(self._groups) >= self._options.groups_max:
            for name in [name for name, known in self._groups.items() if known.empty]:
                self.drop(name)
            if len(self._groups) >= self._options.groups_max:
                raise GroupFull(f"there are {self._options.groups_max} groups, the maximum")
        self.drop(group.name)
        self._groups[group.name] = group

    def drop(self, name: str) -> None:
        group = self._groups.pop(name, None)
        self._keepers.pop(name, None)
        if group is not None:
            _end(group, NotCoordinator(name))

    def open(self) -> None:
        """Accept members, including those from before a restart."""
        self._open = True
        self.take_over()

    def take_over(self) -> None:
        """Load every group that this broker coordinates, so that missing members expire; drop the others."""
        if self._log.epoch != self._epoch:
            self._drop_unrecorded()
        for name in [name for name in self._groups if not self._coordinates(name)]:
            self.drop(name)
        for name in self._log.ledger.consumer_groups.names():
            try:
                self.get(name)
            except GroupFull:
                return  # the others are loaded on request

    def _drop_unrecorded(self) -> None:
        """The others expired this broker, and coordinated its groups meanwhile. What it remembers of a group whose
        members are in memory is out of date: a new generation would wait for members that are no more until their
        sessions expire."""
        self._epoch = self._log.epoch
        for name in [one.name for one in self._groups.values() if not isinstance(one, AssignedGroup)]:
            self.drop(name)

    async def close(self, error: MainstemError) -> None:
        """Fail all waiting requests. All decisions are in the ledger then."""
        self._open = False
        for group in self._groups.values():
            _end(group, error)
        writing = [keeper.writing for keeper in self._keepers.values() if keeper.writing is not None]
        await asyncio.gather(*writing, return_exceptions=True)

    def _lost(self, keeper: GroupPersistence) -> None:
        """The last decisions here are not in the ledger: continue from ledger state."""
        name = keeper.group.name
        if self._keepers.get(name) is keeper:
            self.drop(name)
            self.get(name)

    def _downgrade(self, keeper: GroupPersistence) -> None:
        """The last member of the next generation left: the other members assign the partitions again."""
        name = keeper.group.name
        if self._keepers.get(name) is keeper and isinstance(keeper.group, ConsumerGroup):
            members = downgraded(keeper.group, self._topics())
            self._new_classic(name).adopt(members)

    def _topics(self) -> Topics:
        return self._log.ledger.topics


def _end(group: Group, error: MainstemError) -> None:
    """Close the group."""
    if isinstance(group, ClassicGroup):
        group.close(error)
    elif isinstance(group, AssignedGroup):
        group.close()
