"""The groups with members that this broker coordinates, by name."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Protocol

from mainstem import limits
from mainstem.broker.groups.assigned_group import AssignedGroup
from mainstem.broker.groups.assigned_member import MemberHeartbeat
from mainstem.broker.groups.classic import ClassicGroup
from mainstem.broker.groups.classic_groups import ClassicGroups
from mainstem.broker.groups.consumer import ConsumerGroup
from mainstem.broker.groups.consumer_member import ConsumerHeartbeat
from mainstem.broker.groups.group_persistence import GroupPersistence
from mainstem.broker.groups.member import Join
from mainstem.broker.groups.migration import downgraded, upgraded
from mainstem.broker.groups.offsets import OWN_PREFIX
from mainstem.broker.groups.options import GroupOptions
from mainstem.broker.groups.streams_group import StreamsGroup
from mainstem.broker.groups.streams_member import StreamsHeartbeat
from mainstem.broker.groups.subscription import matching
from mainstem.broker.groups.timers import Timers
from mainstem.broker.namespaces import split_id
from mainstem.broker.share.group import ShareGroup
from mainstem.errors import (
    Closed,
    GroupFull,
    GroupLoading,
    InconsistentProtocol,
    InvalidGroupName,
    MainstemError,
    NotCoordinator,
    ProtocolChanged,
    UnknownMember,
    WrongGroupKind,
)
from mainstem.ledger.consumer_groups import ForgetConsumerGroup, StoredGroup
from mainstem.ledger.topics import Topics
from mainstem.log.log import Log

STOPPING = "the broker is stopping: find the group's coordinator again"

Group = ClassicGroup | ConsumerGroup | StreamsGroup | ShareGroup


class GroupPeers(Protocol):
    """The brokers that share the groups of a log."""

    def coordinates(self, kind: str, name: str) -> bool:
        """Whether this broker coordinates a group."""
        ...


class GroupRegistry:
    """Groups with broker-side assignment are stored in the ledger, and cached here. They are loaded from the ledger
    when another broker coordinated them before, or after a restart."""

    def __init__(
        self,
        log: Log,
        timers: Timers,
        options: GroupOptions,
        classic: ClassicGroups,
        peers: GroupPeers | None,
    ) -> None:
        """Without `peers`, this broker coordinates every group."""
        self._log = log
        self._timers = timers
        self._options = options
        self._classic = classic
        self._peers = peers
        self._groups: dict[str, Group] = {}
        self._keepers: dict[str, GroupPersistence] = {}  # of groups with broker-side assignment
        self._epoch = log.epoch  # under which the groups here are coordinated
        self._open = False
        self._closed = False

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
        if revision and unloaded and self._open and self.coordinates(name):
            self._load(name)
        return self._groups.get(name)

    def keeper(self, name: str) -> GroupPersistence:
        """The persistence of a group with broker-side assignment, which `get` has returned before."""
        return self._keepers[name]

    def new_classic(self, name: str) -> ClassicGroup:
        group = self._classic.new(name)
        self.put(group)
        return group

    def classic(self, name: str, member_id: str) -> ClassicGroup:
        """The classic group of a member. Raises UnknownMember if there is none."""
        group = self.get(name)
        if group is None and self._classic.was_in(name, member_id):
            group = self.new_classic(name)
        if not isinstance(group, ClassicGroup):
            raise UnknownMember(name, member_id)
        return group

    def classic_to_join(self, name: str, member_id: str) -> ClassicGroup:
        """The classic group that a member joins. Raises UnknownMember, InconsistentProtocol."""
        group = self.get(name)
        if group is not None and not isinstance(group, ClassicGroup):
            if not group.empty:
                raise InconsistentProtocol(f"the broker assigns the partitions of group {name!r}")
            group = None
        if group is None:
            if member_id and not self._classic.was_in(name, member_id):
                raise UnknownMember(name, member_id)
            group = self.new_classic(name)
        return group

    async def mixed(self, join: Join) -> GroupPersistence:
        """The group with broker-side assignment that a classic member joins. Raises ProtocolChanged."""
        group = self.get(join.group)
        if not isinstance(group, ConsumerGroup) or group.empty:
            raise ProtocolChanged(join.group, join.member_id)
        return self.keeper(join.group)

    async def consumers(self, beat: ConsumerHeartbeat) -> GroupPersistence:
        """The consumer group that a member joins or is in, as it is in the ledger. Raises UnknownMember,
        WrongGroupKind, GroupLoading, GroupFull."""
        group = await self._of_member(beat)
        if group is None and self._log.ledger.group_generations.get(beat.group) is not None:
            group = self.new_classic(beat.group)
        if isinstance(group, ClassicGroup) and group.expects_members:
            raise GroupLoading(beat.group)  # they have a few seconds to join again
        if group is None or (group.empty and not isinstance(group, ConsumerGroup)):
            return self._load(beat.group)
        if isinstance(group, ClassicGroup):
            return self._upgrade(group, beat)
        if not isinstance(group, ConsumerGroup):
            raise WrongGroupKind(f"group {beat.group!r} has members of another protocol: {group.kind}")
        return self.keeper(beat.group)

    async def _of_member(self, beat: MemberHeartbeat) -> Group | None:
        """The group that a member joins or is in. Raises UnknownMember."""
        group = self.get(beat.group)
        if beat.epoch != 0 and (group is None or group.empty):
            await self._log.barrier()  # another broker may have admitted it just now
            self.check_open(beat.group)
            group = self.get(beat.group)
            if group is None or group.empty:
                raise UnknownMember(beat.group, beat.member_id)
        return group

    def _upgrade(self, group: ClassicGroup, beat: ConsumerHeartbeat) -> GroupPersistence:
        """The broker assigns the partitions of a classic group from now on, because a member of the next generation
        joins. Raises WrongGroupKind, UnknownMember, GroupFull, InvalidRegex; nothing has changed then."""
        if beat.epoch != 0:
            raise UnknownMember(beat.group, beat.member_id)
        if beat.pattern:
            matching(beat.pattern, ("",))
        if len(group.members) >= self._options.members_max:
            raise GroupFull(f"group {group.name!r} has {self._options.members_max} members, the maximum")
        members = upgraded(group, self.topics)
        group.hand_over()
        return self._adopt(group.name, members)

    async def streams(self, beat: StreamsHeartbeat) -> GroupPersistence:
        """The streams group that a member joins or is in, as it is in the ledger. Raises UnknownMember,
        WrongGroupKind, GroupLoading, GroupFull."""
        group = await self._of_member(beat)
        if isinstance(group, ClassicGroup) and group.expects_members:
            raise GroupLoading(beat.group)
        if group is None or (not group.members and not isinstance(group, StreamsGroup)):
            return self._load(beat.group, StreamsGroup)
        if not isinstance(group, StreamsGroup):
            raise WrongGroupKind(f"group {beat.group!r} has members of another protocol: {group.kind}")
        return self.keeper(beat.group)

    def share(self, beat: ConsumerHeartbeat) -> ShareGroup:
        """The share group that a member joins or is in. Raises UnknownMember, WrongGroupKind, GroupFull."""
        group = self.get(beat.group)
        if group is None or (not group.members and not isinstance(group, ShareGroup)):
            if beat.epoch != 0:
                raise UnknownMember(beat.group, beat.member_id)
            group = ShareGroup(beat.group, self._timers, self._options.members_max, self)
            self.put(group)
        if not isinstance(group, ShareGroup):
            raise WrongGroupKind(f"group {beat.group!r} has members of another protocol: {group.kind}")
        return group

    async def end_streams(self, name: str) -> None:
        """A member of another protocol joins: a streams group without members ends. It keeps its offsets."""
        group = self.get(name)
        if isinstance(group, StreamsGroup) and group.empty:
            await self.forget(name)
            self.check_open(name)

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
        group = kind(name, self._timers, self._options, self, before=before)
        revision = 0 if before is None else before.revision
        keeper = GroupPersistence(self._log, group, revision, self)
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
        for name in [name for name in self._groups if not self.coordinates(name)]:
            self.drop(name)
        for name in self._log.ledger.consumer_groups.names():
            try:
                self.get(name)
            except GroupFull:
                return  # the others are loaded on request

    def _drop_unrecorded(self) -> None:
        """The others expired this broker, and coordinated its groups meanwhile. What it remembers of a group whose
        members are in memory is out of date: a new generation would wait for members that have left until their
        sessions expire."""
        self._epoch = self._log.epoch
        for name in [one.name for one in self._groups.values() if not isinstance(one, AssignedGroup)]:
            self.drop(name)

    async def close(self) -> None:
        """Fail all waiting requests, and those to come. All decisions are in the ledger then."""
        self._open = False
        self._closed = True
        for group in self._groups.values():
            _end(group, Closed(STOPPING))
        writing = [keeper.writing for keeper in self._keepers.values() if keeper.writing is not None]
        await asyncio.gather(*writing, return_exceptions=True)

    def on_lost(self, keeper: GroupPersistence) -> None:
        """The last decisions here are not in the ledger: continue from ledger state."""
        name = keeper.group.name
        if self._keepers.get(name) is keeper:
            self.drop(name)
            self.get(name)

    def on_downgraded(self, keeper: GroupPersistence) -> None:
        """The last member of the next generation left: the other members assign the partitions again."""
        name = keeper.group.name
        if self._keepers.get(name) is keeper and isinstance(keeper.group, ConsumerGroup):
            members = downgraded(keeper.group, self.topics)
            self.new_classic(name).adopt(members)

    async def forget(self, name: str) -> None:
        """Remove a group without members. Raises GroupOvertaken if one has joined meanwhile."""
        revision = self._log.ledger.consumer_groups.revision(name)
        if revision:
            await self._log.propose(ForgetConsumerGroup(name, revision))
        group = self.get(name)
        if group is not None and group.empty:
            self.drop(name)

    def coordinates(self, group: str) -> bool:
        """Whether this broker coordinates the group."""
        return self._peers is None or self._peers.coordinates("group", group)

    def check_open(self, group: str) -> None:
        if self._closed:
            raise Closed(STOPPING)
        check_not_own(group)
        plain = split_id(group)[1]
        if not 1 <= len(plain) <= limits.NAME_CHARS_MAX:
            raise InvalidGroupName(
                f"a group name has 1 to {limits.NAME_CHARS_MAX} characters, not {len(plain)}"
            )
        self.check_coordinator(group)

    def check_coordinator(self, group: str) -> None:
        """Raises NotCoordinator if another broker coordinates the group."""
        if not self.coordinates(group):
            raise NotCoordinator(group)

    # What groups need

    @property
    def topics(self) -> Topics:
        return self._log.ledger.topics

    def settings(self, group: str) -> Mapping[str, str]:
        return self._log.ledger.group_settings.effective(group)

    def save(self, group: str) -> None:
        keeper = self._keepers.get(group)
        if keeper is not None:
            keeper.begin()


def _end(group: Group, error: MainstemError) -> None:
    """Close the group."""
    if isinstance(group, ClassicGroup):
        group.close(error)
    elif isinstance(group, AssignedGroup):
        group.close()


def check_not_own(group: str) -> None:
    """Reject the broker's own cursors: changing them would make readers of other doors repeat or miss records."""
    if group.startswith(OWN_PREFIX):
        raise InvalidGroupName(f"group names that begin with {OWN_PREFIX!r} are reserved")
