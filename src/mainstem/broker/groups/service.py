"""Consumer groups: members, assignments and committed offsets."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from dataclasses import replace
from functools import partial
from typing import NamedTuple, Protocol, TypeVar
from uuid import UUID

from mainstem import limits
from mainstem.broker.groups.classic import EMPTY, STABLE, ClassicGroup
from mainstem.broker.groups.consumer import ConsumerGroup
from mainstem.broker.groups.consumer_member import (
    ConsumerHeartbeat,
    ConsumerHeartbeatResult,
    check_consumer_heartbeat,
    check_share_heartbeat,
)
from mainstem.broker.groups.consumer_protocol import CONSUMER_PROTOCOL, read_subscription
from mainstem.broker.groups.group_persistence import GroupPersistence, bump_generation
from mainstem.broker.groups.member import Join, Joined, Synced
from mainstem.broker.groups.migration import assignment_for, heartbeat_of
from mainstem.broker.groups.offsets import OWN_PREFIX, CommittedOffsets, OffsetToCommit
from mainstem.broker.groups.options import GroupOptions
from mainstem.broker.groups.registry import Group, GroupRegistry
from mainstem.broker.groups.subscription import matching
from mainstem.broker.groups.timers import Timers
from mainstem.broker.namespaces import split, split_id
from mainstem.broker.share.group import ShareGroup
from mainstem.broker.share.settings import ShareSettings
from mainstem.errors import (
    Closed,
    GroupFull,
    GroupLoading,
    GroupNotEmpty,
    GroupNotFound,
    GroupOvertaken,
    GroupSubscribed,
    IllegalGeneration,
    InconsistentProtocol,
    InvalidGroupName,
    InvalidSessionTimeout,
    MainstemError,
    MemberIdRequired,
    NotCoordinator,
    ProtocolChanged,
    StaleMemberEpoch,
    TooLarge,
    UnknownMember,
    UnstableOffsets,
    WrongGroupKind,
)
from mainstem.ledger.consumer_groups import ForgetConsumerGroup
from mainstem.ledger.cursors import Cursor
from mainstem.ledger.group_generations import BumpGeneration
from mainstem.ledger.shares import DeleteShare
from mainstem.ledger.topics import Topics
from mainstem.log.log import Log
from mainstem.ports.clock import Clock, Random, SystemRandom

GROUP_PROTOCOLS_PER_MEMBER_MAX = 64
GROUP_MEMBER_BYTES_MAX = 1 * limits.MIB  # of a member's metadata, and of its assignment
OFFSETS_EXPIRY_EVERY_MS = 600_000
OFFSETS_EXPIRY_GRACE_MS = 600_000  # after a start, so that members rejoin before their group counts as empty

_log = logging.getLogger("mainstem.groups")

T = TypeVar("T")

_UNKNOWN = "Unknown"  # the state of a group that another broker coordinates
_LOOKS_MAX = 8  # attempts of one heartbeat, if other brokers change the group in between
_SWEPT_AT_ONCE = 1_000  # groups checked before other tasks may run


SUBSCRIPTION = "subscription"  # the kind of a group that is a subscription of the Pulsar door


class ListedGroup(NamedTuple):
    name: str
    protocol_type: str
    state: str
    kind: str


class GroupPeers(Protocol):
    """The brokers that share the groups of a log."""

    def coordinates(self, kind: str, name: str) -> bool:
        """Whether this broker coordinates a group."""
        ...


class Groups:
    """Manages members. Committed offsets and group membership are stored in the ledger.

    After a restart, members of classic groups must join again. Groups with broker-side assignment continue from ledger
    state."""

    def __init__(
        self,
        log: Log,
        clock: Clock,
        options: GroupOptions | None = None,
        random: Random | None = None,
        peers: GroupPeers | None = None,
    ) -> None:
        self.offsets = CommittedOffsets(log)
        self.timers = Timers(clock)
        self._log = log
        self._clock = clock
        self._options = options or GroupOptions()
        self._random = random or SystemRandom()
        self._peers = peers  # None: this broker coordinates every group
        self._known = GroupRegistry(log, self.timers, self._options, self.coordinates, self._new_classic)
        self._occupied_ms: dict[str, int] = {}  # group → when a sweep last found members in it
        self._expiry = self.timers.timer(self._start_expiring)
        self._expiring: asyncio.Task[None] | None = None
        self._telling: set[asyncio.Task[None]] = set()  # writes of generations in flight
        self._closed = False

    def start(self) -> None:
        """Start the timers: sessions and offsets expire from now on. Members from before a restart may rejoin."""
        self.timers.start()
        self._expiry.start(OFFSETS_EXPIRY_GRACE_MS)
        self._known.open()

    async def stop(self) -> None:
        """Fail all waiting requests. Does nothing if it was called before."""
        if self._closed:
            return
        self._closed = True
        self.timers.stop()
        closing = Closed("the broker is stopping: find the group's coordinator again")
        await self._known.close(closing)
        if self._expiring is not None:
            self._expiring.cancel()
            await asyncio.gather(self._expiring, return_exceptions=True)
        await asyncio.gather(*self._telling)

    def hand_over(self) -> None:
        """Brokers joined or left: drop groups that another broker coordinates now, and tell their members. Continue
        groups that this broker coordinates now from ledger state."""
        self._known.take_over()

    # Classic groups

    async def join(self, join: Join) -> Joined:
        """Join a group or its next generation. Returns once all its members have joined."""
        self._check_open(join.group)
        bounds = self._options
        if not bounds.session_ms_min <= join.session_ms <= bounds.session_ms_max:
            raise InvalidSessionTimeout(
                f"a session timeout of {join.session_ms} ms is outside the allowed {bounds.session_ms_min} to "
                f"{bounds.session_ms_max} ms"
            )
        if len(join.protocols) > GROUP_PROTOCOLS_PER_MEMBER_MAX:
            raise TooLarge(f"a member sends at most {GROUP_PROTOCOLS_PER_MEMBER_MAX} protocols")
        if sum(len(metadata) for _, metadata in join.protocols) > GROUP_MEMBER_BYTES_MAX:
            raise TooLarge(f"the metadata of a member has at most {GROUP_MEMBER_BYTES_MAX} bytes")
        rebalance_ms = join.rebalance_ms if join.rebalance_ms >= 0 else join.session_ms
        rebalance_ms = min(rebalance_ms, limits.GROUP_REBALANCE_MS_MAX)
        join = replace(join, rebalance_ms=rebalance_ms)
        while True:
            found = self._known.get(join.group)
            try:
                if isinstance(found, ConsumerGroup) and not found.empty:
                    return await self._join_consumers(join)
                return await self._classic_to_join(join.group, join.member_id).join(join)
            except ProtocolChanged as changed:
                self._check_open(join.group)
                join = replace(join, member_id=changed.member)

    async def _join_consumers(self, join: Join) -> Joined:
        """A classic member joins a group whose partitions the broker assigns. It is never the leader."""
        beat = heartbeat_of(join, self._topics())
        if not join.member_id:
            beat = replace(beat, member_id=self._new_id(join.instance_id or join.client_id or "member"))

        def decide(group: ConsumerGroup) -> ConsumerHeartbeatResult:
            group.check_join(join)
            if join.id_required and not join.member_id and join.instance_id is None:
                raise MemberIdRequired(beat.member_id)
            result = group.heartbeat(beat)
            group.await_sync(beat.member_id)
            return result

        joined = await self._decide_and_save(join.group, partial(self._mixed, join), decide)
        return Joined(joined.epoch, CONSUMER_PROTOCOL, join.protocols[0][0], "", joined.member_id)

    async def _mixed(self, join: Join) -> GroupPersistence:
        """The group of a classic member, whose partitions the broker assigns. Raises ProtocolChanged."""
        group = self._known.get(join.group)
        if not isinstance(group, ConsumerGroup) or group.empty:
            raise ProtocolChanged(join.group, join.member_id)
        return self._known.keeper(join.group)

    async def sync(
        self,
        group: str,
        member_id: str,
        generation: int,
        *,
        instance_id: str | None = None,
        protocol_type: str | None = None,
        protocol: str | None = None,
        assignments: Mapping[str, bytes],
    ) -> Synced:
        """A member's assignment, once the leader has sent all of them."""
        if any(len(part) > GROUP_MEMBER_BYTES_MAX for part in assignments.values()):
            raise TooLarge(f"the assignment of a member has at most {GROUP_MEMBER_BYTES_MAX} bytes")
        self._check_open(group)
        found = self._known.get(group)
        if isinstance(found, ConsumerGroup):
            member = found.sync(member_id, generation, instance_id)
            if protocol_type not in (None, CONSUMER_PROTOCOL) or not (
                protocol is None or any(name == protocol for name, _ in member.protocols)
            ):
                raise InconsistentProtocol(
                    f"member {member_id!r} did not join with {protocol_type} {protocol}"
                )
            assignment = assignment_for(group, member, self._topics())
            return Synced(CONSUMER_PROTOCOL, protocol or member.protocols[0][0], assignment)
        return await self._classic(group, member_id).sync(
            member_id,
            generation,
            instance_id=instance_id,
            protocol_type=protocol_type,
            protocol=protocol,
            assignments=assignments,
        )

    def heartbeat(self, group: str, member_id: str, generation: int, instance_id: str | None = None) -> None:
        """Raises RebalanceInProgress if the member must join again."""
        self._check_open(group)
        found = self._known.get(group)
        if isinstance(found, ConsumerGroup):
            found.classic_heartbeat(member_id, generation, instance_id)
        else:
            self._classic(group, member_id).heartbeat(member_id, generation, instance_id)

    async def leave(self, group: str, member_id: str, instance_id: str | None = None) -> None:
        """A member of the classic protocol leaves; or an administrator removes a static member of either protocol,
        without its member id. Raises UnknownMember, FencedInstance."""
        self._check_open(group)
        if not isinstance(self._known.get(group), ConsumerGroup):
            self._classic(group, member_id).leave(member_id, instance_id)
            return

        async def consumers() -> GroupPersistence:
            if not isinstance(self._known.get(group), ConsumerGroup):
                raise UnknownMember(group, member_id)
            return self._known.keeper(group)

        def decide(found: ConsumerGroup) -> None:
            if instance_id is not None and not member_id:
                found.remove(instance_id)
            else:
                found.classic_leave(member_id, instance_id)

        await self._decide_and_save(group, consumers, decide)

    # Groups with broker-side assignment

    async def consumer_heartbeat(self, beat: ConsumerHeartbeat) -> ConsumerHeartbeatResult:
        """Join, stay in or leave a group whose partitions the broker assigns. The result is durable."""
        self._check_open(beat.group)
        check_consumer_heartbeat(beat)
        if beat.epoch == 0 and not beat.member_id:
            beat = replace(beat, member_id=self._new_id("member"))
        return await self._decide_and_save(
            beat.group, partial(self._consumers, beat), lambda group: group.heartbeat(beat)
        )

    async def _decide_and_save(
        self, name: str, find: Callable[[], Awaitable[GroupPersistence]], decide: Callable[[ConsumerGroup], T]
    ) -> T:
        """Run `decide` on a group with broker-side assignment, and commit the decision."""
        for _ in range(_LOOKS_MAX):
            keeper = await find()
            try:
                if keeper.taken_over:
                    answer = decide(keeper.group)
                    await keeper.settle()
                    return answer
                await keeper.settle()
            except GroupOvertaken:
                self._check_open(name)  # the other broker's change has been applied here
        raise GroupOvertaken(name)

    async def _consumers(self, beat: ConsumerHeartbeat) -> GroupPersistence:
        """The group of a member, as it is in the ledger. Raises UnknownMember, WrongGroupKind."""
        group = self._known.get(beat.group)
        if beat.epoch != 0 and (group is None or group.empty):
            await self._log.barrier()  # another broker may have admitted it just now
            self._check_open(beat.group)
            group = self._known.get(beat.group)
            if group is None or group.empty:
                raise UnknownMember(beat.group, beat.member_id)
        if group is None and self._log.ledger.group_generations.get(beat.group) is not None:
            group = self._new_classic(beat.group)
        if isinstance(group, ClassicGroup) and group.expects_members:
            raise GroupLoading(beat.group)  # they have a few seconds to join again
        if group is None or (group.empty and not isinstance(group, ConsumerGroup)):
            return self._known.new_consumers(beat.group)
        if isinstance(group, ClassicGroup):
            return self._upgrade(group, beat)
        if not isinstance(group, ConsumerGroup):
            raise WrongGroupKind(f"group {beat.group!r} has members of another protocol: {group.kind}")
        return self._known.keeper(beat.group)

    def _upgrade(self, group: ClassicGroup, beat: ConsumerHeartbeat) -> GroupPersistence:
        """The broker assigns the partitions of a classic group from now on, because a member of the next generation
        joins. Raises WrongGroupKind, UnknownMember, GroupFull, InvalidRegex; nothing has changed then."""
        if beat.epoch != 0:
            raise UnknownMember(beat.group, beat.member_id)
        if beat.pattern:
            matching(beat.pattern, ("",))
        if len(group.members) >= self._options.members_max:
            raise GroupFull(f"group {group.name!r} has {self._options.members_max} members, the maximum")
        return self._known.upgrade(group)

    def share_heartbeat(self, beat: ConsumerHeartbeat) -> ConsumerHeartbeatResult:
        """Join, stay in or leave a share group."""
        self._check_open(beat.group)
        check_share_heartbeat(beat)
        group = self._known.get(beat.group)
        if group is None or (group.empty and not isinstance(group, ShareGroup)):
            if beat.epoch != 0:
                raise UnknownMember(beat.group, beat.member_id)
            group = ShareGroup(beat.group, self.timers, self._options.members_max, self._topics)
            self._known.put(group)
        if not isinstance(group, ShareGroup):
            raise WrongGroupKind(f"group {beat.group!r} has members of another protocol: {group.kind}")
        return group.heartbeat(beat, ShareSettings.of(self._log.ledger.group_settings.effective(beat.group)))

    # Offsets

    async def check_commit(
        self,
        group: str,
        member_id: str = "",
        generation: int = -1,
        instance_id: str | None = None,
        *,
        transactional: bool = False,
    ) -> None:
        """Raise unless the caller may commit offsets of a group. A generation of -1 means a non-member."""
        check = partial(
            self._check_commit, group, member_id, generation, instance_id, transactional=transactional
        )
        try:
            check()
        except (UnknownMember, StaleMemberEpoch, IllegalGeneration):
            await self._log.barrier()  # another broker may have admitted it just now
            check()

    def _check_commit(
        self, group: str, member_id: str, generation: int, instance_id: str | None, *, transactional: bool
    ) -> None:
        self._check_open(group)
        found = self._known.get(group)
        if found is None and generation >= 0:
            found = self._classic(group, member_id)
        if found is not None:
            found.check_commit(member_id, generation, instance_id, transactional=transactional)

    async def commit(
        self,
        group: str,
        offsets: Sequence[OffsetToCommit],
        *,
        member_id: str = "",
        generation: int = -1,
        instance_id: str | None = None,
    ) -> list[MainstemError | None]:
        """Commit offsets of a group. Returns one error or None per offset."""
        await self.check_commit(group, member_id, generation, instance_id)
        if isinstance(self._known.get(group), ConsumerGroup):
            try:
                return await self.offsets.commit(group, offsets, member=member_id, epoch=generation)
            except StaleMemberEpoch:
                await self.check_commit(
                    group, member_id, generation, instance_id
                )  # the error of its protocol
                raise
        return await self.offsets.commit(group, offsets)

    def check_fetch(self, group: str, member_id: str | None, epoch: int) -> None:
        """Raise unless the caller may read the group's offsets: a member at its epoch, or a non-member."""
        self.check_coordinator(group)
        found = self._known.get(group)
        if epoch >= 0 and member_id and isinstance(found, ConsumerGroup):
            found.check_epoch(member_id, epoch)
        elif epoch >= 0 and member_id and found is None:
            raise UnknownMember(group, member_id)

    def unstable(self, group: str) -> Set[int]:
        """Streams whose offset in the group an open transaction will commit."""
        return self._log.ledger.transactions.pending(group)

    def committed(
        self, group: str, topic: str, partition: int, unstable: Set[int] = frozenset()
    ) -> Cursor | None:
        """The committed offset of a group; None if there is none.

        Raises TopicNotFound, PartitionNotFound, and UnstableOffsets for a stream among `unstable`."""
        stream = self.offsets.stream(topic, partition)
        if stream in unstable:
            raise UnstableOffsets(group)
        return self._log.ledger.cursors.get(group, stream)

    async def delete_offsets(
        self, group: str, partitions: Sequence[tuple[str, int]]
    ) -> list[MainstemError | None]:
        """Delete offsets of topics that the group does not read. Returns one error or None per partition."""
        self.check_coordinator(group)
        _check_not_own(group)
        if not self.exists(group):
            raise GroupNotFound(group)
        outcomes: list[MainstemError | None] = []
        streams = []
        for topic, partition in partitions:
            try:
                stream = self.offsets.stream(topic, partition)
                self._check_unread(group, topic)
                streams.append(stream)
                outcomes.append(None)
            except GroupNotEmpty:
                raise
            except MainstemError as error:
                outcomes.append(error)
        if streams and self.offsets.exists(group):
            await self.offsets.delete(group, streams)
        return outcomes

    async def expire_offsets(self) -> int:
        """Delete offsets of groups without members and commits during the retention time."""
        now = self._clock.now_ms()
        before_ms = now - self._options.offsets_retention_ms
        expired = 0
        for group in self._known:
            if not group.empty:
                self._occupied_ms[group.name] = now
            elif not self.offsets.exists(group.name):
                self._known.drop(group.name)
        self._occupied_ms = {
            name: at for name, at in self._occupied_ms.items() if at > before_ms and self.offsets.exists(name)
        }
        for number, name in enumerate(self.offsets.names()):
            if not number % _SWEPT_AT_ONCE:
                await asyncio.sleep(0)  # let other tasks run
            if not self.coordinates(name):
                continue
            if self._occupied_ms.get(name, 0) <= before_ms and not name.startswith(OWN_PREFIX):
                expired += await self.offsets.expire(name, before_ms)
        return expired

    # Administration

    def get(self, group: str) -> Group | None:
        """A group that has members, or had some recently."""
        return self._known.get(group)

    def exists(self, group: str) -> bool:
        return (
            self._known.get(group) is not None
            or self.offsets.exists(group)
            or self._log.ledger.shares.has(group)
        )

    def topics_of(self, group: str) -> set[str]:
        """Topics in which the group has a position."""
        topics = self._log.ledger.topics
        owners = [topics.of_stream(stream) for stream in self._log.ledger.shares.of_group(group)]
        return {*self.offsets.of_group(group), *(topic.name for topic in owners if topic is not None)}

    def check_share_change(self, group: str) -> None:
        """Raise unless a share group can be reset. Raises NotCoordinator, GroupNotEmpty."""
        self._check_open(group)
        found = self._known.get(group)
        if found is not None and not found.empty:
            raise GroupNotEmpty(group)

    def members(self) -> dict[str, int]:
        """The number of members of each group with members."""
        return {group.name: len(group.members) for group in self._known if not group.empty}

    def coordinates(self, group: str) -> bool:
        """Whether this broker coordinates the group."""
        return self._peers is None or self._peers.coordinates("group", group)

    def list(self, *, everywhere: bool = False) -> list[ListedGroup]:
        """Groups with members or offsets that this broker coordinates; `everywhere`: also those of other brokers."""
        listed = {}
        for name in self.offsets.groups():
            here = self.coordinates(name)
            if here or everywhere:
                listed[name] = ListedGroup(name, "", EMPTY if here else _UNKNOWN, ClassicGroup.kind)
        for name in self._log.ledger.shares.groups():
            here = self.coordinates(name)
            if here or everywhere:
                state = EMPTY if here else _UNKNOWN
                listed[name] = ListedGroup(name, ShareGroup.protocol_type, state, ShareGroup.kind)
        for name in self._log.ledger.consumer_groups.names():
            if self._known.get(name) is None and everywhere:
                listed[name] = ListedGroup(name, ConsumerGroup.protocol_type, _UNKNOWN, ConsumerGroup.kind)
        for group in self._known:
            listed[group.name] = ListedGroup(group.name, group.protocol_type or "", group.state, group.kind)
        return [listed[name] for name in sorted(listed)]

    async def delete(self, group: str) -> None:
        """Delete a group without members, and its offsets. Raises GroupNotFound, GroupNotEmpty."""
        self.check_coordinator(group)
        _check_not_own(group)
        if not self.exists(group):
            raise GroupNotFound(group)
        found = self._known.get(group)
        if found is not None:
            if not found.empty:
                raise GroupNotEmpty(group)
            self._known.drop(group)
        if self.offsets.exists(group):
            await self.offsets.delete(group)
        if self._log.ledger.shares.has(group):
            await self._log.propose(DeleteShare(group))
        revision = self._log.ledger.consumer_groups.revision(group)
        if revision:  # its members cannot rejoin
            await self._log.propose(ForgetConsumerGroup(group, revision))

    # Finding groups

    def _check_open(self, group: str) -> None:
        if self._closed:
            raise Closed("the broker is stopping: find the group's coordinator again")
        _check_not_own(group)
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

    def _classic(self, name: str, member_id: str) -> ClassicGroup:
        """The group of a member. Raises UnknownMember if the group does not exist."""
        self._check_open(name)
        group = self._known.get(name)
        if group is None and self._was_in(name, member_id):
            group = self._new_classic(name)
        if not isinstance(group, ClassicGroup):
            raise UnknownMember(name, member_id)
        return group

    def _classic_to_join(self, name: str, member_id: str) -> ClassicGroup:
        group = self._known.get(name)
        if group is not None and not isinstance(group, ClassicGroup):
            if not group.empty:
                raise InconsistentProtocol(f"the broker assigns the partitions of group {name!r}")
            group = None
        if group is None:
            if member_id and not self._was_in(name, member_id):
                raise UnknownMember(name, member_id)
            group = self._new_classic(name)
        return group

    def _new_classic(self, name: str) -> ClassicGroup:
        group = ClassicGroup(
            name,
            self.timers,
            self._options,
            self._new_id,
            before=self._log.ledger.group_generations.get(name),
            bumped=partial(self._bumped, name),
        )
        self._known.put(group)
        return group

    def _was_in(self, name: str, member_id: str) -> bool:
        """Whether the member was in the last recorded generation of the group."""
        before = self._log.ledger.group_generations.get(name)
        return before is not None and member_id in before.members

    def _bumped(self, name: str, generation: int, members: tuple[str, ...]) -> None:
        """Record the members of a group in the ledger, without waiting: members' commits are ordered after it."""
        told = asyncio.get_running_loop().create_task(
            self._tell(bump_generation(name, generation, members)), name="mainstem-generation"
        )
        self._telling.add(told)
        told.add_done_callback(self._telling.discard)

    async def _tell(self, command: BumpGeneration) -> None:
        try:
            await self._log.propose(command)
        except MainstemError as error:  # the next coordinator will not recognise its members
            _log.warning(
                "group generation not persisted", extra={"group": command.group, "error": str(error)}
            )

    def _new_id(self, prefix: str) -> str:
        return f"{prefix}-{UUID(bytes=self._random.token(16), version=4)}"

    def _topics(self) -> Topics:
        return self._log.ledger.topics

    def _check_unread(self, name: str, topic: str) -> None:
        """Raises GroupSubscribed if members read the topic, GroupNotEmpty if that is unknown."""
        group = self._known.get(name)
        if group is None or group.empty:
            return
        if isinstance(group, ConsumerGroup | ShareGroup):
            if group.reads(topic):
                raise GroupSubscribed(name, topic)
            return
        if group.protocol_type != ConsumerGroup.protocol_type:
            raise GroupNotEmpty(name)
        names = {topic}
        if split(topic)[0] == split_id(name)[0]:
            names.add(split(topic)[1])  # what members call a topic of their namespace
        for member in group.members.values():
            for _, metadata in member.protocols:
                told = read_subscription(metadata)
                if told is None or not names.isdisjoint(told.topics):
                    raise GroupSubscribed(name, topic)

    def _start_expiring(self) -> None:
        self._expiring = asyncio.get_running_loop().create_task(self._expire(), name="mainstem-offsets")

    async def _expire(self) -> None:
        try:
            await self.expire_offsets()
        except MainstemError as error:
            _log.warning("offset expiry failed", extra={"error": str(error)})
        finally:
            self._expiry.start(OFFSETS_EXPIRY_EVERY_MS)


def subscription_group(name: str, consumers: int) -> ListedGroup:
    """A subscription of the Pulsar door, as lists of groups show it."""
    return ListedGroup(name, "pulsar", STABLE if consumers else EMPTY, SUBSCRIPTION)


def _check_not_own(group: str) -> None:
    """Reject the broker's own cursors: changing them would make readers of other doors repeat or miss records."""
    if group.startswith(OWN_PREFIX):
        raise InvalidGroupName(f"group names that begin with {OWN_PREFIX!r} are reserved")
