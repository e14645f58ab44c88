"""The groups that this broker knows, each by its name: all that it looks after and somebody is in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from mainstem.broker.groups.classic import ClassicGroup
from mainstem.broker.groups.consumer import ConsumerGroup
from mainstem.broker.groups.group_persistence import GroupPersistence
from mainstem.broker.groups.options import GroupOptions
from mainstem.broker.groups.timers import Timers
from mainstem.broker.share.group import ShareGroup
from mainstem.errors import GroupFull, MainstemError, NotCoordinator
from mainstem.ledger.topics import Topics
from mainstem.log.log import Log

Group = ClassicGroup | ConsumerGroup | ShareGroup


class GroupRegistry:
    """Groups that the broker assigns to are the ledger's before they are anybody's; they are here to be quick, and are
    fetched from there when another broker looked after them last, or this one before it was started again."""

    def __init__(
        self, log: Log, timers: Timers, options: GroupOptions, coordinates: Callable[[str], bool]
    ) -> None:
        self._log = log
        self._timers = timers
        self._options = options
        self._coordinates = coordinates
        self._groups: dict[str, Group] = {}
        self._keepers: dict[str, GroupPersistence] = {}  # of groups that the broker assigns to
        self._open = False

    def __iter__(self) -> Iterator[Group]:
        return iter(list(self._groups.values()))

    def get(self, name: str) -> Group | None:
        """A group that has members, or had some lately. Before `open` nobody has: there is no way in."""
        keeper = self._keepers.get(name)
        if keeper is not None and keeper.writing is not None:
            return keeper.group
        revision = self._log.ledger.consumer_groups.revision(name)
        if keeper is not None and keeper.revision != revision:
            self.drop(name)  # another broker decided something
        group = self._groups.get(name)
        if revision and (group is None or group.empty) and self._open and self._coordinates(name):
            return self.new_consumers(name).group
        return group

    def keeper(self, name: str) -> GroupPersistence:
        """Of a group that the broker assigns to, and that was got before."""
        return self._keepers[name]

    def new_consumers(self, name: str) -> GroupPersistence:
        """A group that the broker assigns to: as the ledger knows it, or one without members. Raises GroupFull."""
        before = self._log.ledger.consumer_groups.get(name)
        group = ConsumerGroup(
            name,
            self._timers,
            self._options,
            self._topics,
            settings=lambda: self._log.ledger.group_settings.get(name),
            before=before,
            expelled=lambda: keeper.begin(),
        )
        keeper = GroupPersistence(self._log, group, 0 if before is None else before.revision, self._lost)
        self.put(group)
        self._keepers[name] = keeper
        return keeper

    def put(self, group: Group) -> None:
        """In place of the one of its name. Raises GroupFull."""
        if group.name not in self._groups and len(self._groups) >= self._options.groups_max:
            for name in [name for name, known in self._groups.items() if known.empty]:
                self.drop(name)
            if len(self._groups) >= self._options.groups_max:
                raise GroupFull(f"there are {self._options.groups_max} groups, the most there may be")
        self.drop(group.name)
        self._groups[group.name] = group

    def drop(self, name: str) -> None:
        group = self._groups.pop(name, None)
        self._keepers.pop(name, None)
        if group is not None:
            _end(group, NotCoordinator(name))

    def open(self) -> None:
        """Members may come, and those that were there before may come back."""
        self._open = True
        self.take_over()

    def take_over(self) -> None:
        """Know every group that this broker looks after, and no other: who does not come back has to be missed."""
        for name in [name for name in self._groups if not self._coordinates(name)]:
            self.drop(name)
        for name in self._log.ledger.consumer_groups.names():
            try:
                self.get(name)
            except GroupFull:
                return  # the others are taken over when somebody asks for them

    async def close(self, error: MainstemError) -> None:
        """Answer everybody who waits for others. What was decided is in the ledger then."""
        self._open = False
        for group in self._groups.values():
            _end(group, error)
        writing = [keeper.writing for keeper in self._keepers.values() if keeper.writing is not None]
        await asyncio.gather(*writing, return_exceptions=True)

    def _lost(self, keeper: GroupPersistence) -> None:
        """What was decided here last is not in the ledger: go on with what is."""
        name = keeper.group.name
        if self._keepers.get(name) is keeper:
            self.drop(name)
            self.get(name)

    def _topics(self) -> Topics:
        return self._log.ledger.topics


def _end(group: Group, error: MainstemError) -> None:
    """Nothing happens in it from here on."""
    if isinstance(group, ClassicGroup):
        group.close(error)
    elif isinstance(group, ConsumerGroup):
        group.close()
