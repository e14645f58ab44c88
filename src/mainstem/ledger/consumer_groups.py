"""Groups whose partitions or tasks the broker assigns: members, their epochs and partitions, as their coordinator
decided. A group with a topology is a streams group (KIP-1071): in place of partitions, its members have tasks.

A coordinator keeps a group in memory, and commits each change here before it answers a member. So the next coordinator,
or the same one after a restart, continues from this state, and members notice nothing. Each change names the revision
that it follows: if two brokers both act as coordinator, only one change is applied, and the other broker gets an error.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter

import msgspec

from mainstem import limits
from mainstem.errors import GroupOvertaken, InvalidInput, MainstemError, StaleMemberEpoch, UnknownMember
from mainstem.ledger.digest import MASK, hash_fields
from mainstem.ledger.keyed import Keyed
from mainstem.ledger.namespaces import id_chars
from mainstem.ledger.section import Command, Moment, Section, applies
from mainstem.ledger.topics import TOPIC_ID_BYTES
from mainstem.ledger.topology import Topology

CONSUMER_GROUPS_BYTES_MAX = 32 * limits.MIB  # of all such groups in the ledger

# (topic id, its partitions); of a streams group (role and subtopology id, its tasks)
Assignment = tuple[tuple[bytes, tuple[int, ...]], ...]


class StreamsMemberState(msgspec.Struct, frozen=True, array_like=True):
    """What only a member of a streams group has."""

    process_id: str  # members of one process share its state
    topology_epoch: int
    endpoint: tuple[str, int] | None  # host and port for queries of its state
    tags: tuple[tuple[str, str], ...]


class ConsumerMemberState(msgspec.Struct, frozen=True, array_like=True):
    """A member as its coordinator sees it; also as a checkpoint holds it."""

    member_id: str
    epoch: int  # -2 = a static member that left temporarily
    previous_epoch: int
    instance_id: str | None
    rack: str | None
    client_id: str
    client_host: str
    rebalance_ms: int
    topics: tuple[str, ...]
    pattern: str | None
    assignor: str | None
    assigned: Assignment  # partitions it may read
    revoking: Assignment  # partitions it must still release
    target: Assignment  # partitions it will read
    session_ms: int = 0  # of a member of the classic protocol; 0 = the group's setting
    protocols: tuple[
        tuple[str, bytes], ...
    ] = ()  # (name, metadata) of a member of the classic protocol; empty = not one
    streams: StreamsMemberState | None = None


class ChangeConsumerGroup(Command, frozen=True, tag=152):
    """A coordinator changes a group. Rejected if the group has changed since the revision that the coordinator knows.

    With no members and none removed, it only takes over the group: a coordinator with an older revision is rejected."""

    group: str
    after: int  # the revision it knows; 0 = the ledger does not hold the group
    epoch: int
    target_epoch: int
    members: tuple[ConsumerMemberState, ...]  # new or changed
    gone: tuple[str, ...] = ()
    topology: Topology | None = None  # of a streams group; None = unchanged


class ForgetConsumerGroup(Command, frozen=True, tag=153):
    """Keep the group only in its coordinator's memory. Rejected like ChangeConsumerGroup."""

    group: str
    after: int


@dataclass(frozen=True, slots=True)
class ConsumerGroupKept:
    revision: int  # that the next change must name; 0 = the ledger does not hold the group


TASK_KEY_BYTES_MAX = 256  # role and subtopology id
_EPOCH_MAX = 2**31 - 1
_EPOCH_MIN = -2
_GROUP_BYTES = 256  # of a group without its members
_FORGOTTEN = ConsumerGroupKept(0)

_encode = msgspec.msgpack.Encoder().encode


class ConsumerGroupState(msgspec.Struct, frozen=True, array_like=True):
    """One group, in a checkpoint."""

    group: str
    revision: int
    epoch: int
    target_epoch: int
    members: list[ConsumerMemberState]
    topology: Topology | None = None


class ConsumerGroupsState(msgspec.Struct, frozen=True, array_like=True):
    changes: int
    groups: list[ConsumerGroupState]


class StoredGroup:
    """One group. Its members are in the order in which they joined."""

    __slots__ = (
        "_members_digest",
        "_topology_digest",
        "bytes",
        "epoch",
        "members",
        "name",
        "revision",
        "target_epoch",
        "topology",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.revision = 0
        self.epoch = 0
        self.target_epoch = 0
        self.members: dict[str, ConsumerMemberState] = {}
        self.bytes = _GROUP_BYTES  # its approximate size in a checkpoint
        self.topology: Topology | None = None
        self._members_digest = 0
        self._topology_digest = 0

    @property
    def digest(self) -> int:
        head = hash_fields("consumer group", self.name, self.revision, self.epoch, self.target_epoch)
        return (head + self._members_digest + self._topology_digest) & MASK

    def put_topology(self, topology: Topology) -> None:
        if self.topology is not None:
            self.bytes -= len(encoded_topology(self.topology))
        encoded = encoded_topology(topology)
        self.topology = topology
        self.bytes += len(encoded)
        self._topology_digest = hash_fields("topology", self.name, encoded)

    def put(self, member: ConsumerMemberState) -> None:
        before = self.members.get(member.member_id)
        if before is not None:
            self._count(before, -1)
        self.members[member.member_id] = member
        self._count(member, 1)

    def remove(self, member_id: str) -> None:
        before = self.members.pop(member_id, None)
        if before is not None:
            self._count(before, -1)

    def _count(self, member: ConsumerMemberState, sign: int) -> None:
        encoded = encoded_member(member)
        self.bytes += sign * len(encoded)
        digest = hash_fields("consumer member", self.name, encoded)
        self._members_digest = (self._members_digest + sign * digest) & MASK


class ConsumerGroups(Section[ConsumerGroupsState]):
    """By name, only groups with members or a topology. A group over the size limit is not stored: the next coordinator
    does not recognise its members."""

    def __init__(self) -> None:
        self._groups: Keyed[str, StoredGroup] = Keyed(attrgetter("digest"))
        self._changes = 0  # so far; each one gives a new revision
        self.bytes = 0

    @property
    def digest(self) -> int:
        counted = hash_fields("consumer group changes", self._changes) if self._changes else 0
        return (self._groups.digest + counted) & MASK

    def get(self, group: str) -> StoredGroup | None:
        return self._groups.get(group)

    def revision(self, group: str) -> int:
        """The revision of the last change; 0 if the ledger does not hold the group."""
        found = self._groups.get(group)
        return 0 if found is None else found.revision

    def names(self) -> list[str]:
        """The groups, in no particular order."""
        return [group.name for group in self._groups.unordered()]

    @applies(ChangeConsumerGroup)
    def change(self, command: ChangeConsumerGroup, now: Moment) -> ConsumerGroupKept | MainstemError:
        fault = _fault(command)
        if fault is not None:
            return InvalidInput(fault)
        if command.after != self.revision(command.group):
            return GroupOvertaken(command.group)
        group = self._take_out(command.group) or StoredGroup(command.group)
        for member_id in command.gone:
            group.remove(member_id)
        for member in command.members:
            group.put(member)
        if command.topology is not None:
            group.put_topology(command.topology)
        self._changes += 1
        group.revision, group.epoch, group.target_epoch = self._changes, command.epoch, command.target_epoch
        if (
            not (group.members or group.topology)
            or group.bytes > limits.CONSUMER_GROUP_BYTES_MAX
            or self.bytes + group.bytes > CONSUMER_GROUPS_BYTES_MAX
        ):
            return _FORGOTTEN
        self._put(group)
        return ConsumerGroupKept(group.revision)

    @applies(ForgetConsumerGroup)
    def forget(self, command: ForgetConsumerGroup, now: Moment) -> ConsumerGroupKept | MainstemError:
        if command.after != self.revision(command.group):
            return GroupOvertaken(command.group)
        self._take_out(command.group)
        return _FORGOTTEN

    def bad_member(self, group: str, member_id: str, epoch: int) -> MainstemError | None:
        """Why a member may not commit offsets, if so. A former coordinator may have accepted the commit."""
        found = self._groups.get(group) if epoch >= 0 else None
        if found is None:
            return None
        member = found.members.get(member_id)
        if member is None:
            return UnknownMember(group, member_id)
        if member.epoch != epoch:
            return StaleMemberEpoch(f"member {member_id!r} is at epoch {member.epoch}, not {epoch}")
        return None

    def encode(self) -> ConsumerGroupsState:
        return ConsumerGroupsState(
            self._changes,
            [
                ConsumerGroupState(
                    group.name,
                    group.revision,
                    group.epoch,
                    group.target_epoch,
                    list(group.members.values()),
                    group.topology,
                )
                for group in self._groups
            ],
        )

    def load(self, state: ConsumerGroupsState) -> None:
        self._changes = state.changes
        for one in state.groups:
            group = StoredGroup(one.group)
            group.revision, group.epoch, group.target_epoch = one.revision, one.epoch, one.target_epoch
            for member in one.members:
                group.put(member)
            if one.topology is not None:
                group.put_topology(one.topology)
            self._put(group)

    def _put(self, group: StoredGroup) -> None:
        self._groups.put(group.name, group)
        self.bytes += group.bytes

    def _take_out(self, name: str) -> StoredGroup | None:
        """Remove a group, to change it or forget it."""
        group = self._groups.pop(name)
        if group is not None:
            self.bytes -= group.bytes
        return group


def encoded_member(member: ConsumerMemberState) -> bytes:
    """Encode as plain values: msgspec would encode a struct with a header that grows with its fields."""
    return _encode(msgspec.structs.astuple(member))


def encoded_topology(topology: Topology) -> bytes:
    return _encode(topology)


def _fault(command: ChangeConsumerGroup) -> str | None:
    if not 1 <= id_chars(command.group) <= limits.NAME_CHARS_MAX:
        return f"a group name has 1 to {limits.NAME_CHARS_MAX} characters, not {id_chars(command.group)}"
    ids = [member.member_id for member in command.members] + list(command.gone)
    if not all(ids) or len(set(ids)) != len(ids):
        return "each member of a change needs an id of its own"
    epochs = [command.epoch, command.target_epoch]
    epochs += [epoch for member in command.members for epoch in (member.epoch, member.previous_epoch)]
    if not all(_EPOCH_MIN <= epoch <= _EPOCH_MAX for epoch in epochs):
        return f"an epoch is a number from {_EPOCH_MIN} to {_EPOCH_MAX}"
    if not all(0 <= member.rebalance_ms <= limits.GROUP_REBALANCE_MS_MAX for member in command.members):
        return f"a rebalance timeout is 0 to {limits.GROUP_REBALANCE_MS_MAX} ms"
    if not all(0 <= member.session_ms <= limits.GROUP_SESSION_MS_MAX for member in command.members):
        return f"a session timeout is 0 to {limits.GROUP_SESSION_MS_MAX} ms"
    for member in command.members:
        key_bytes = (TOPIC_ID_BYTES, TOPIC_ID_BYTES) if member.streams is None else (2, TASK_KEY_BYTES_MAX)
        if not all(
            _sound(assignment, *key_bytes) for assignment in (member.assigned, member.revoking, member.target)
        ):
            return "an assignment needs topic ids, or subtopology ids, and partition numbers from 0"
    return None


def _sound(assignment: Assignment, shortest: int, longest: int) -> bool:
    return all(
        shortest <= len(topic) <= longest and numbers and min(numbers) >= 0 and max(numbers) <= _EPOCH_MAX
        for topic, numbers in assignment
    )
