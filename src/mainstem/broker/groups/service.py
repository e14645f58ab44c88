"""Consumer groups: members, assignments and committed offsets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

from mainstem import limits
from mainstem.broker.groups.assigned_group import AssignedGroup
from mainstem.broker.groups.classic import EMPTY, STABLE, ClassicGroup
from mainstem.broker.groups.classic_groups import ClassicGroups
from mainstem.broker.groups.consumer import ConsumerGroup
from mainstem.broker.groups.consumer_member import (
    ConsumerHeartbeat,
    ConsumerHeartbeatResult,
    check_consumer_heartbeat,
    check_share_heartbeat,
)
from mainstem.broker.groups.consumer_protocol import CONSUMER_PROTOCOL, read_subscription
from mainstem.broker.groups.group_persistence import GroupPersistence
from mainstem.broker.groups.member import Join, Joined, Synced
from mainstem.broker.groups.migration import assignment_for, heartbeat_of
from mainstem.broker.groups.offset_expiry import OffsetExpiry
from mainstem.broker.groups.offsets import CommittedOffsets, OffsetToCommit
from mainstem.broker.groups.options import GroupOptions
from mainstem.broker.groups.registry import Group, GroupPeers, GroupRegistry, check_not_own
from mainstem.broker.groups.streams_group import StreamsGroup
from mainstem.broker.groups.streams_member import (
    StreamsHeartbeat,
    StreamsHeartbeatResult,
    check_streams_heartbeat,
)
from mainstem.broker.groups.timers import Timers
from mainstem.broker.namespaces import split, split_id
from mainstem.broker.share.group import ShareGroup
from mainstem.broker.share.settings import ShareSettings
from mainstem.errors import (
    GroupNotEmpty,
    GroupNotFound,
    GroupOvertaken,
    GroupSubscribed,
    IllegalGeneration,
    InconsistentProtocol,
    InvalidSessionTimeout,
    MainstemError,
    MemberIdRequired,
    ProtocolChanged,
    StaleMemberEpoch,
    TooLarge,
    UnknownMember,
    UnstableOffsets,
)
from mainstem.ledger.cursors import Cursor
from mainstem.ledger.shares import DeleteShare
from mainstem.ledger.topology import InternalTopic
from mainstem.log.log import Log
from mainstem.ports.clock import Clock, Random, SystemRandom

GROUP_PROTOCOLS_PER_MEMBER_MAX = 64
GROUP_MEMBER_BYTES_MAX = 1 * limits.MIB  # of a member's metadata, and of its assignment


T = TypeVar("T")

_UNKNOWN = "Unknown"  # the state of a group that another broker coordinates
_LOOKS_MAX = 8  # attempts of one heartbeat, if other brokers change the group in between


SUBSCRIPTION = "subscription"  # the kind of a group that is a subscription of the Pulsar door


class ListedGroup(NamedTuple):
    name: str
    protocol_type: str
    state: str
    kind: str


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
        self._options = options or GroupOptions()
        self._classic = ClassicGroups(log, self.timers, self._options, random or SystemRandom())
        self._known = GroupRegistry(log, self.timers, self._options, self._classic, peers)
        self.expiry = OffsetExpiry(clock, self.timers, self._options, self.offsets, self._known)
        self._closed = False

    def start(self) -> None:
        """Start the timers: sessions and offsets expire from now on. Members from before a restart may rejoin."""
        self.timers.start()
        self.expiry.start()
        self._known.open()

    async def stop(self) -> None:
        """Fail all waiting requests. Does nothing if it was called before."""
        if self._closed:
            return
        self._closed = True
        self.timers.stop()
        await self._known.close()
        await self.expiry.stop()
        await self._classic.recorded()

    def hand_over(self) -> None:
        """Brokers joined or left: drop groups that another broker now coordinates, and notify their members. Load
        groups that this broker now coordinates from ledger state."""
        self._known.take_over()

    # Classic groups

    async def join(self, join: Join) -> Joined:
        """Join a group or its next generation. Returns once all its members have joined."""
        self._known.check_open(join.group)
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
        await self._known.end_streams(join.group)
        while True:
            found = self._known.get(join.group)
            try:
                if isinstance(found, ConsumerGroup) and not found.empty:
                    return await self._join_consumers(join)
                return await self._known.classic_to_join(join.group, join.member_id).join(join)
            except ProtocolChanged as changed:
                self._known.check_open(join.group)
                join = replace(join, member_id=changed.member)

    async def _join_consumers(self, join: Join) -> Joined:
        """A classic member joins a group whose partitions the broker assigns. It is never the leader."""
        beat = heartbeat_of(join, self._known.topics)
        if not join.member_id:
            beat = replace(
                beat, member_id=self._classic.new_id(join.instance_id or join.client_id or "member")
            )

        def decide(group: ConsumerGroup) -> ConsumerHeartbeatResult:
            group.check_join(join)
            if join.id_required and not join.member_id and join.instance_id is None:
                raise MemberIdRequired(beat.member_id)
            result = group.heartbeat(beat)
            group.await_sync(beat.member_id)
            return result

        joined = await self._decide_and_save(join.group, partial(self._known.mixed, join), decide)
        return Joined(joined.epoch, CONSUMER_PROTOCOL, join.protocols[0][0], "", joined.member_id)

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
        self._known.check_open(group)
        found = self._known.get(group)
        if isinstance(found, ConsumerGroup):
            member = found.sync(member_id, generation, instance_id)
            if protocol_type not in (None, CONSUMER_PROTOCOL) or not (
                protocol is None or any(name == protocol for name, _ in member.protocols)
            ):
                raise InconsistentProtocol(
                    f"member {member_id!r} did not join with {protocol_type} {protocol}"
                )
            assignment = assignment_for(group, member, self._known.topics)
            return Synced(CONSUMER_PROTOCOL, protocol or member.protocols[0][0], assignment)
        return await self._known.classic(group, member_id).sync(
            member_id,
            generation,
            instance_id=instance_id,
            protocol_type=protocol_type,
            protocol=protocol,
            assignments=assignments,
        )

    def heartbeat(self, group: str, member_id: str, generation: int, instance_id: str | None = None) -> None:
        """Raises RebalanceInProgress if the member must join again."""
        self._known.check_open(group)
        found = self._known.get(group)
        if isinstance(found, ConsumerGroup):
            found.classic_heartbeat(member_id, generation, instance_id)
        else:
            self._known.classic(group, member_id).heartbeat(member_id, generation, instance_id)

    async def leave(self, group: str, member_id: str, instance_id: str | None = None) -> None:
        """A member of the classic protocol leaves; or an administrator removes a static member of either protocol,
        without its member id. Raises UnknownMember, FencedInstance."""
        self._known.check_open(group)
        if not isinstance(self._known.get(group), ConsumerGroup):
            self._known.classic(group, member_id).leave(member_id, instance_id)
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
        self._known.check_open(beat.group)
        check_consumer_heartbeat(beat)
        if beat.epoch == 0:
            await self._known.end_streams(beat.group)
        if beat.epoch == 0 and not beat.member_id:
            beat = replace(beat, member_id=self._classic.new_id("member"))
        return await self._decide_and_save(
            beat.group, partial(self._known.consumers, beat), lambda group: group.heartbeat(beat)
        )

    async def _decide_and_save(
        self, name: str, find: Callable[[], Awaitable[GroupPersistence]], decide: Callable[[Any], T]
    ) -> T:
        """Run `decide` on a group with broker-side assignment, of the kind that `find` returns, and commit the
        decision."""
        for _ in range(_LOOKS_MAX):
            keeper = await find()
            try:
                if keeper.taken_over:
                    answer = decide(keeper.group)
                    await keeper.settle()
                    return answer
                await keeper.settle()
            except GroupOvertaken:
                self._known.check_open(name)  # the other broker's change has been applied here
        raise GroupOvertaken(name)

    async def streams_heartbeat(
        self, beat: StreamsHeartbeat, create: Callable[[Sequence[InternalTopic]], Awaitable[None]]
    ) -> StreamsHeartbeatResult:
        """Join, stay in or leave a streams group. `create` makes the internal topics that it lacks, as far as the
        member may. The result is durable."""
        self._known.check_open(beat.group)
        check_streams_heartbeat(beat)

        def decide(group: StreamsGroup) -> StreamsHeartbeatResult:
            return group.heartbeat(beat)

        if beat.epoch >= 0:
            group = (await self._known.streams(beat)).group
            missing = group.missing_topics(beat.topology) if isinstance(group, StreamsGroup) else ()
            if missing:
                await create(missing)
                self._known.check_open(beat.group)
        return await self._decide_and_save(beat.group, partial(self._known.streams, beat), decide)

    async def share_heartbeat(self, beat: ConsumerHeartbeat) -> ConsumerHeartbeatResult:
        """Join, stay in or leave a share group."""
        self._known.check_open(beat.group)
        check_share_heartbeat(beat)
        if beat.epoch == 0:
            await self._known.end_streams(beat.group)
        return self._known.share(beat).heartbeat(beat, ShareSettings.of(self._known.settings(beat.group)))

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
        self._known.check_open(group)
        found = self._known.get(group)
        if found is None and generation >= 0:
            found = self._known.classic(group, member_id)
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
        if isinstance(self._known.get(group), AssignedGroup):
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
        self._known.check_coordinator(group)
        found = self._known.get(group)
        if epoch >= 0 and member_id and isinstance(found, AssignedGroup):
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
        self._known.check_coordinator(group)
        check_not_own(group)
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
        self._known.check_open(group)
        found = self._known.get(group)
        if found is not None and not found.empty:
            raise GroupNotEmpty(group)

    def members(self) -> dict[str, int]:
        """The number of members of each group with members."""
        return {group.name: len(group.members) for group in self._known if not group.empty}

    def coordinates(self, group: str) -> bool:
        """Whether this broker coordinates the group."""
        return self._known.coordinates(group)

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
                stored = self._log.ledger.consumer_groups.get(name)
                kind = ConsumerGroup if stored is None or stored.topology is None else StreamsGroup
                listed[name] = ListedGroup(name, kind.protocol_type, _UNKNOWN, kind.kind)
        for group in self._known:
            listed[group.name] = ListedGroup(group.name, group.protocol_type or "", group.state, group.kind)
        return [listed[name] for name in sorted(listed)]

    async def delete(self, group: str) -> None:
        """Delete a group without members, and its offsets. Raises GroupNotFound, GroupNotEmpty."""
        self._known.check_coordinator(group)
        check_not_own(group)
        if not self.exists(group):
            raise GroupNotFound(group)
        found = self._known.get(group)
        if found is not None:
            if found.members:  # the id of a client that never came back does not count
                raise GroupNotEmpty(group)
            self._known.drop(group)
        if self.offsets.exists(group):
            await self.offsets.delete(group)
        if self._log.ledger.shares.has(group):
            await self._log.propose(DeleteShare(group))
        await self._known.forget(group)  # its members cannot rejoin

    def check_coordinator(self, group: str) -> None:
        """Raises NotCoordinator if another broker coordinates the group."""
        self._known.check_coordinator(group)

    def _check_unread(self, name: str, topic: str) -> None:
        """Raises GroupSubscribed if members read the topic, GroupNotEmpty if that is unknown."""
        group = self._known.get(name)
        if (
            group is None or not group.members
        ):  # the id of a client that has not joined with it does not count
            return
        if isinstance(group, AssignedGroup | ShareGroup):
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


def subscription_group(name: str, consumers: int) -> ListedGroup:
    """A subscription of the Pulsar door, as lists of groups show it."""
    return ListedGroup(name, "pulsar", STABLE if consumers else EMPTY, SUBSCRIPTION)
