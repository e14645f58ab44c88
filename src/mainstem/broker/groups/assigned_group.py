"""A group whose partitions the broker assigns (KIP-848), or whose tasks (KIP-1071): members, epochs and the target.

Members only send heartbeats. A heartbeat may change what the group needs, which raises the group's epoch and leads to a
new target assignment. The response tells the member which partitions it has and which to revoke.

Every decision is committed to the ledger before a member learns of it (`group_persistence.py`). So a new coordinator,
or the same one after a restart, continues from ledger state: members notice nothing, and each has a full session
timeout for its next heartbeat.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping
from functools import partial
from typing import ClassVar, Generic, NamedTuple, TypeVar

from mainstem.broker.groups.assigned_member import (
    STABLE,
    UNRELEASED,
    UNREVOKED,
    AssignedMember,
    MemberHeartbeat,
)
from mainstem.broker.groups.assignors import Partitions
from mainstem.broker.groups.coordinator import GroupCoordinator
from mainstem.broker.groups.member_states import partitions
from mainstem.broker.groups.options import GroupOptions
from mainstem.broker.groups.timers import Timer, Timers
from mainstem.errors import FencedInstance, FencedMemberEpoch, GroupFull, StaleMemberEpoch, UnknownMember
from mainstem.ledger.consumer_groups import ConsumerMemberState, StoredGroup
from mainstem.ledger.topology import Topology

_WAITING_BEATS = 5  # a member that waits for partitions sends heartbeats this many times as often

M = TypeVar("M", bound=AssignedMember)


class GroupChange(NamedTuple):
    """The decisions since the last write to the ledger."""

    epoch: int
    target_epoch: int
    members: tuple[ConsumerMemberState, ...]  # new or changed
    gone: tuple[str, ...]
    topology: Topology | None = None  # None = unchanged


class AssignedGroup(ABC, Generic[M]):
    kind: ClassVar[str]
    protocol_type: ClassVar[str]
    all_classic = False  # whether the members could assign the partitions themselves

    def __init__(
        self,
        name: str,
        timers: Timers,
        options: GroupOptions,
        coordinator: GroupCoordinator,
        *,
        before: StoredGroup | None = None,
    ) -> None:
        """`before` is the state that the last coordinator stored."""
        self.name = name
        self.epoch = 0  # counts changes of what the group needs
        self.target_epoch = 0  # the epoch that the target is for
        self.members: dict[str, M] = {}
        self.target: dict[str, Partitions] = {}
        self.topology: Topology | None = None  # of a streams group
        self._timers = timers
        self._options = options
        self._coordinator = coordinator
        self._instances: dict[str, str] = {}
        self._owners: dict[Hashable, str] = {}  # the member that has it, or must still revoke it
        self._topics_seen: int | None = None  # digest of the topics at the last check
        self._touched: dict[str, None] = {}  # members to write to the ledger; a dict, because it is ordered
        self._told = (0, 0)  # the epochs in the ledger
        self._topology_told: Topology | None = None
        if before is not None:
            self._go_on(before)

    @abstractmethod
    def _new_member(self, beat: MemberHeartbeat) -> M: ...

    @abstractmethod
    def _restored(self, state: ConsumerMemberState) -> M: ...

    @abstractmethod
    def _stored(self, member: M, target: Partitions) -> ConsumerMemberState: ...

    @abstractmethod
    def _assign(self) -> None:
        """Compute a new target if what the group needs has changed."""

    @abstractmethod
    def _session_ms(self, member: M) -> int: ...

    @abstractmethod
    def reads(self, topic: str) -> bool: ...

    @property
    def empty(self) -> bool:
        return not self.members

    @property
    def state(self) -> str:
        if not self.members:
            return "Empty"
        if self.epoch != self.target_epoch:
            return "Assigning"
        if all(m.state == STABLE and m.epoch == self.target_epoch for m in self.members.values()):
            return "Stable"
        return "Reconciling"

    # Requests of members

    def _proceed(
        self, member: M, beat: MemberHeartbeat, known: tuple[object, ...], *, whole: bool
    ) -> Partitions | None:
        """Move a member towards the target. Returns its assignment, or None if it knows it. `known` are its facts
        before the heartbeat."""
        before, stale = member.assigned, beat.epoch != member.epoch
        self._assign()
        target = self.target.get(member.member_id, frozenset())
        member.reconcile(target, self.target_epoch, beat.owned, self._owners)
        if member.facts != known:
            self._touch(member.member_id)
        self._alive(member)
        # Repeat the assignment until the member confirms it: librdkafka discards a late response and continues as if it
        # had received nothing.
        heard = member.assigned == before and member.assigned == member.owned
        return member.assigned if whole or stale or not heard else None

    def _interval_ms(self, member: M, usual_ms: int) -> int:
        """A member that waits for partitions of others polls more often, which shortens a rebalance."""
        return max(usual_ms // _WAITING_BEATS, 1) if member.state == UNRELEASED else usual_ms

    def _alive(self, member: M) -> None:
        """Restart the session timeout: a request of the member arrived."""
        member.session.start(self._session_ms(member))

    def check_commit(
        self, member_id: str, epoch: int, instance_id: str | None, *, transactional: bool = False
    ) -> None:
        """Raise unless the caller may commit offsets: a member at its epoch, or any client of an empty group."""
        if epoch < 0 and (not self.members or (transactional and not member_id)):
            return
        self._check_instance(member_id, instance_id)
        self.check_epoch(member_id, epoch)

    def _check_instance(self, member_id: str, instance_id: str | None) -> None:
        """Raises FencedInstance if another member has the instance id."""
        if instance_id is not None and self._instances.get(instance_id, member_id) != member_id:
            raise FencedInstance(self.name, instance_id)

    def check_epoch(self, member_id: str, epoch: int) -> None:
        """Raises UnknownMember, StaleMemberEpoch."""
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMember(self.name, member_id)
        if member.epoch != epoch:
            raise StaleMemberEpoch(f"member {member_id!r} is at epoch {member.epoch}, not {epoch}")

    def close(self) -> None:
        for member in self.members.values():
            member.session.cancel()
            member.revocation.cancel()

    # Writes to the ledger

    @property
    def has_unsaved_changes(self) -> bool:
        """Whether there are decisions that the ledger does not have."""
        return (
            bool(self._touched)
            or self._told != (self.epoch, self.target_epoch)
            or self._topology_told is not self.topology
        )

    def take_change(self, *, whole: bool) -> GroupChange:
        """The change to write to the ledger; it then counts as written. `whole`: the ledger lacks the group."""
        names = self.members if whole else self._touched
        change = GroupChange(
            self.epoch,
            self.target_epoch,
            tuple(
                self._stored(self.members[name], self.target.get(name, frozenset()))
                for name in names
                if name in self.members
            ),
            tuple(name for name in names if name not in self.members),
            self.topology if whole or self._topology_told is not self.topology else None,
        )
        self._touched = {}
        self._topology_told = self.topology
        self._told = (self.epoch, self.target_epoch)
        return change

    def _touch(self, member_id: str) -> None:
        self._touched[member_id] = None

    def _go_on(self, before: StoredGroup) -> None:
        self.epoch, self.target_epoch = self._told = (before.epoch, before.target_epoch)
        self.topology = self._topology_told = before.topology
        for state in before.members.values():
            member = self._restored(state)
            self._enter(member)
            self.target[member.member_id] = partitions(state.target)
            member.claim(member.assigned | member.revoking, self._owners)
            self._alive(member)
            if member.state == UNREVOKED:
                member.revocation.start(member.rebalance_ms)

    # Joining and leaving

    def _add(self, beat: MemberHeartbeat) -> M:
        """Raises GroupFull."""
        if len(self.members) >= self._options.members_max:
            raise GroupFull(f"group {self.name!r} has {self._options.members_max} members, the maximum")
        member = self._new_member(beat)
        self._enter(member)
        self._touch(member.member_id)
        return member

    def _timers_of(self, member_id: str) -> tuple[Timer, Timer]:
        """The timers of its session and of its revocations."""
        expel = partial(self._expel, member_id)
        return self._timers.timer(expel), self._timers.timer(expel)

    def _enter(self, member: M) -> None:
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self._instances[member.instance_id] = member.member_id

    def _member_of(self, beat: MemberHeartbeat) -> M:
        """Raises UnknownMember, FencedInstance, FencedMemberEpoch."""
        if beat.instance_id is not None:
            holder = self._instances.get(beat.instance_id)
            if holder is None:
                raise UnknownMember(self.name, beat.member_id)
            if holder != beat.member_id:
                raise FencedInstance(self.name, beat.instance_id)
        member = self.members.get(beat.member_id)
        if member is None:
            raise UnknownMember(self.name, beat.member_id)
        if beat.epoch != member.epoch and not member.missed_last_response(beat.epoch, beat.owned):
            raise FencedMemberEpoch(
                f"member {beat.member_id!r} is at epoch {member.epoch}, not {beat.epoch}: join again"
            )
        return member

    def _expel(self, member_id: str) -> None:
        """Remove a member whose session expired or that did not revoke partitions in time."""
        self._remove(self.members[member_id])
        self._coordinator.save(self.name)

    def _remove(self, member: M) -> None:
        self._touch(member.member_id)
        member.session.cancel()
        member.revocation.cancel()
        member.release_all(self._owners)
        del self.members[member.member_id]
        if member.instance_id is not None:
            del self._instances[member.instance_id]
        self.target.pop(member.member_id, None)
        self._raise_epoch()

    # Target

    def _raise_epoch(self) -> None:
        self.epoch = self.target_epoch + 1  # several changes before the next target count as one
        self._topics_seen = None  # what the group needs changed: check the topics again

    def _set_target(self, target: Mapping[str, Partitions]) -> None:
        for member_id, given in target.items():
            if given != self.target.get(member_id):
                self._touch(member_id)
        self.target, self.target_epoch = dict(target), self.epoch
