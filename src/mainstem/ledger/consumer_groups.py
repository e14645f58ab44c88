"""Groups whose partitions the broker assigns: members, their epochs and partitions, as their coordinator decided.

A coordinator keeps a group in memory, and has it here before any member hears of a change. So the next coordinator, or
the same after a start, goes on where it was, and members notice nothing. Each change names the revision that it is made
to: of two brokers that both take themselves for the coordinator only one can decide, and the other one finds out.
"""

from __future__ import annotations

import msgspec

from mainstem import limits
from mainstem.errors import GroupOvertaken, InvalidInput, MainstemError, StaleMemberEpoch, UnknownMember
from mainstem.ledger.commands import CommitOffsets
from mainstem.ledger.digest import MASK, hash_fields
from mainstem.ledger.group_commands import (
    Assignment,
    ChangeConsumerGroup,
    ConsumerMemberState,
    ForgetConsumerGroup,
)
from mainstem.ledger.results import ConsumerGroupKept
from mainstem.ledger.topics import TOPIC_ID_BYTES

_EPOCH_MAX = 2**31 - 1
_EPOCH_MIN = -2
_GROUP_BYTES = 256  # of a group beside its members
_FORGOTTEN = ConsumerGroupKept(0)

_encode = msgspec.msgpack.Encoder().encode


class ConsumerGroupState(msgspec.Struct, frozen=True, array_like=True):
    """Of one group, as a checkpoint holds it."""

    group: str
    revision: int
    epoch: int
    target_epoch: int
    members: list[ConsumerMemberState]


class ConsumerGroupsState(msgspec.Struct, frozen=True, array_like=True):
    changes: int = 0
    groups: list[ConsumerGroupState] = []


class StoredGroup:
    """One group. Its members are in the order in which they came."""

    __slots__ = ("_members_digest", "bytes", "epoch", "members", "name", "revision", "target_epoch")

    def __init__(self, name: str) -> None:
        self.name = name
        self.revision = 0
        self.epoch = 0
        self.target_epoch = 0
        self.members: dict[str, ConsumerMemberState] = {}
        self.bytes = _GROUP_BYTES  # about what it takes in a checkpoint
        self._members_digest = 0

    @property
    def digest(self) -> int:
        head = hash_fields("consumer group", self.name, self.revision, self.epoch, self.target_epoch)
        return (head + self._members_digest) & MASK

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


class ConsumerGroups:
    """By name, only of groups with members. One that takes too much room is not kept: its members are strangers to the
    next coordinator."""

    def __init__(self) -> None:
        self._groups: dict[str, StoredGroup] = {}
        self._changes = 0  # so far: each gives a revision that never was before
        self._bytes = 0
        self._groups_digest = 0

    @property
    def digest(self) -> int:
        counted = hash_fields("consumer group changes", self._changes) if self._changes else 0
        return (self._groups_digest + counted) & MASK

    def get(self, group: str) -> StoredGroup | None:
        return self._groups.get(group)

    def revision(self, group: str) -> int:
        """Of the last change; 0 if nothing is held of the group."""
        found = self._groups.get(group)
        return 0 if found is None else found.revision

    def names(self) -> list[str]:
        """The groups, in no order."""
        return list(self._groups)

    def change(self, command: ChangeConsumerGroup) -> ConsumerGroupKept | MainstemError:
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
        self._changes += 1
        group.revision, group.epoch, group.target_epoch = self._changes, command.epoch, command.target_epoch
        if (
            not group.members
            or group.bytes > limits.CONSUMER_GROUP_BYTES_MAX
            or self._bytes + group.bytes > limits.CONSUMER_GROUPS_BYTES_MAX
        ):
            return _FORGOTTEN
        self._put(group)
        return ConsumerGroupKept(group.revision)

    def forget(self, command: ForgetConsumerGroup) -> ConsumerGroupKept | MainstemError:
        if command.after != self.revision(command.group):
            return GroupOvertaken(command.group)
        self._take_out(command.group)
        return _FORGOTTEN

    def refusal(self, command: CommitOffsets) -> MainstemError | None:
        """Why a member may not commit offsets, if so: it was another coordinator that let it."""
        group = self._groups.get(command.group)
        if group is None or command.member_epoch < 0:
            return None
        member = group.members.get(command.member)
        if member is None:
            return UnknownMember(command.group, command.member)
        if member.epoch != command.member_epoch:
            return StaleMemberEpoch(
                f"member {command.member!r} is at epoch {member.epoch}, not {command.member_epoch}"
            )
        return None

    def encode(self) -> ConsumerGroupsState:
        return ConsumerGroupsState(
            self._changes,
            [
                ConsumerGroupState(
                    name, group.revision, group.epoch, group.target_epoch, list(group.members.values())
                )
                for name, group in sorted(self._groups.items())
            ],
        )

    @classmethod
    def decode(cls, state: ConsumerGroupsState) -> ConsumerGroups:
        groups = cls()
        groups._changes = state.changes
        for one in state.groups:
            group = StoredGroup(one.group)
            group.revision, group.epoch, group.target_epoch = one.revision, one.epoch, one.target_epoch
            for member in one.members:
                group.put(member)
            groups._put(group)
        return groups

    def _put(self, group: StoredGroup) -> None:
        self._groups[group.name] = group
        self._bytes += group.bytes
        self._groups_digest = (self._groups_digest + group.digest) & MASK

    def _take_out(self, name: str) -> StoredGroup | None:
        """To be changed: what it counted for is given back."""
        group = self._groups.pop(name, None)
        if group is not None:
            self._bytes -= group.bytes
            self._groups_digest = (self._groups_digest - group.digest) & MASK
        return group


def encoded_member(member: ConsumerMemberState) -> bytes:
    """As plain values: of a struct msgspec writes a header that grows with the fields it might have."""
    return _encode(msgspec.structs.astuple(member))


def _fault(command: ChangeConsumerGroup) -> str | None:
    if not 1 <= len(command.group) <= limits.NAME_CHARS_MAX:
        return f"a group name has 1 to {limits.NAME_CHARS_MAX} characters, not {len(command.group)}"
    ids = [member.member_id for member in command.members] + list(command.gone)
    if not all(ids) or len(set(ids)) != len(ids):
        return "the members of a change have ids, and each its own"
    epochs = [command.epoch, command.target_epoch]
    epochs += [epoch for member in command.members for epoch in (member.epoch, member.previous_epoch)]
    if not all(_EPOCH_MIN <= epoch <= _EPOCH_MAX for epoch in epochs):
        return f"an epoch is a number from {_EPOCH_MIN} to {_EPOCH_MAX}"
    if not all(0 <= member.rebalance_ms <= limits.GROUP_REBALANCE_MS_MAX for member in command.members):
        return f"a rebalance takes 0 to {limits.GROUP_REBALANCE_MS_MAX} ms"
    for member in command.members:
        if not all(map(_sound, (member.assigned, member.revoking, member.target))):
            return "partitions are numbers from 0 up, of topics that are named by their ids"
    return None


def _sound(assignment: Assignment) -> bool:
    return all(
        len(topic) == TOPIC_ID_BYTES and numbers and min(numbers) >= 0 and max(numbers) <= _EPOCH_MAX
        for topic, numbers in assignment
    )
