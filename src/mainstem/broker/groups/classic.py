"""A group whose members assign the partitions: Kafka's classic protocol.

    Empty ──join──▶ PreparingRebalance ──all are in, or time is up──▶ CompletingRebalance
      ▲                  │        ▲                                      │        │
      └─nobody is left───┘        └──a member joins, leaves, is lost─────┘        ▼
                                  └──────────────────────────────────────────── Stable

All join responses are sent when the join phase ends, and all sync responses when the leader's assignment arrives. The
members decide whether they give up their partitions in the meantime (eager) or not (cooperative).

A group that another broker coordinated before, or this one before a restart, begins with its previous members: each
must join again, may commit offsets until it does, and the group waits for it for a limited time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from functools import partial

from mainstem.broker.groups.coordinator import GenerationRecorder
from mainstem.broker.groups.former_members import FormerMembers
from mainstem.broker.groups.member import ClassicMember, CommonProtocols, Join, Joined, JoinedMember, Synced
from mainstem.broker.groups.options import GroupOptions
from mainstem.broker.groups.timers import Timer, Timers
from mainstem.errors import (
    FencedInstance,
    GroupFull,
    IllegalGeneration,
    InconsistentProtocol,
    MainstemError,
    MemberIdRequired,
    ProtocolChanged,
    RebalanceInProgress,
    UnknownMember,
    invariant,
)
from mainstem.ledger.group_generations import GroupGeneration

EMPTY = "Empty"
PREPARING = "PreparingRebalance"
COMPLETING = "CompletingRebalance"
STABLE = "Stable"
DEAD = "Dead"  # the state of groups that do not exist


class ClassicGroup:
    kind = "Classic"

    def __init__(
        self,
        name: str,
        timers: Timers,
        options: GroupOptions,
        recorder: GenerationRecorder,
        *,
        before: GroupGeneration | None = None,
    ) -> None:
        """`before` is the last recorded generation."""
        self.name = name
        self.state = EMPTY
        self.generation = 0 if before is None else before.generation
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members: dict[str, ClassicMember] = {}
        self._timers = timers
        self._options = options
        self._recorder = recorder
        self._instances: dict[str, str] = {}  # instance id → member id
        self._pending: dict[str, Timer] = {}  # ids of members that must still join with them
        self._protocols = CommonProtocols()
        self._awaited: set[str] = set()  # members that have not joined again, while preparing
        self._unsynced: set[str] = set()  # members of this generation that have not sent SyncGroup
        self._phase = timers.timer(self._joining_timed_out)
        self._sync_phase = timers.timer(self._syncing_timed_out)
        self._known_generations: dict[str, int] = {}  # of adopted members that have not joined again
        self._gathering = False  # waiting for the first members of an empty group
        self._gathered_ms = 0
        self._gathered_more = False
        self._former = FormerMembers(
            () if before is None else before.members, timers, self._end_joining_if_complete
        )

    @property
    def empty(self) -> bool:
        """Whether the group has neither members nor pending joins."""
        return not self.members and not self._pending

    # Requests of members

    def join(self, join: Join) -> asyncio.Future[Joined]:
        """The future resolves when the join phase ends."""
        rejoining = self.members.get(join.member_id) or self._of_instance(join.instance_id)
        self._protocols.check(join, self.protocol_type, rejoining)
        if not join.member_id:
            return self._join_new(join)
        if join.member_id in self._pending:
            self._pending.pop(join.member_id).cancel()
            return self._admit(join, join.member_id)
        if join.member_id in self._former and join.instance_id not in self._instances:
            self._former.remove(join.member_id)
            return self._admit(join, join.member_id)
        return self._rejoin(self._member(join.member_id, join.instance_id), join)

    def sync(
        self,
        member_id: str,
        generation: int,
        *,
        instance_id: str | None = None,
        protocol_type: str | None = None,
        protocol: str | None = None,
        assignments: Mapping[str, bytes],
    ) -> asyncio.Future[Synced]:
        """The future resolves when the leader has sent the assignment."""
        self._check_joined(member_id, generation)
        member = self._current(member_id, instance_id, generation)
        for given, known in ((protocol_type, self.protocol_type), (protocol, self.protocol)):
            if given is not None and known is not None and given != known:
                raise InconsistentProtocol(f"group {self.name!r} agreed on {known!r}, not {given!r}")
        if self.state == PREPARING:
            raise RebalanceInProgress(self.name)
        self._unsynced.discard(member_id)
        if not self._unsynced:
            self._sync_phase.cancel()
        future = self._wait_for_sync(member)
        if self.state == STABLE:
            self._answer_sync(member)
        elif member_id == self.leader:
            self.state = STABLE
            for other in self.members.values():
                other.assignment = assignments.get(other.member_id, b"")
                self._answer_sync(other)
        return future

    def heartbeat(self, member_id: str, generation: int, instance_id: str | None = None) -> None:
        """Raises RebalanceInProgress if the member must join again."""
        self._check_joined(member_id, generation)
        member = self._current(member_id, instance_id, generation)
        member.alive()
        if self.state == PREPARING:
            raise RebalanceInProgress(self.name)

    def leave(self, member_id: str, instance_id: str | None = None) -> None:
        pending = self._pending.pop(member_id, None)
        if pending is not None:
            pending.cancel()
            self._end_joining_if_complete()
            return
        if member_id in self._former:
            self._former.remove(member_id)
            self._end_joining_if_complete()
            return
        if not member_id and instance_id is not None:  # an administrator removes a static member
            member_id = self._instances.get(instance_id, "")
        self._remove(self._member(member_id, instance_id))

    def check_commit(
        self, member_id: str, generation: int, instance_id: str | None, *, transactional: bool = False
    ) -> None:
        """Raise unless the caller may commit offsets: a member of this generation, or any client of an empty group."""
        if generation < 0 and not self.members:
            return
        if generation == self.generation and member_id in self._former:
            return
        if generation >= 0 or member_id or instance_id is not None:
            self._current(member_id, instance_id, generation).alive()
        elif not transactional:
            raise UnknownMember(self.name, member_id)
        if self.state == COMPLETING and not transactional:
            raise RebalanceInProgress(self.name)

    def close(self, error: MainstemError) -> None:
        """Fail all waiting requests. The group must not be used afterwards."""
        self._phase.cancel()
        self._sync_phase.cancel()
        self._former.clear()
        for timer in self._pending.values():
            timer.cancel()
        for member in self.members.values():
            member.session.cancel()
            member.refuse(error)

    # Changing the protocol

    @property
    def expects_members(self) -> bool:
        """Whether members from before a restart may still join."""
        return self._former.awaited

    def hand_over(self) -> None:
        """The broker assigns the partitions from now on. The group must not be used afterwards."""
        for member in self.members.values():
            member.answer_join(ProtocolChanged(self.name, member.member_id))
        self.close(RebalanceInProgress(self.name))

    def adopt(self, members: Iterable[tuple[Join, int, bytes]]) -> None:
        """Take in members of a group whose partitions the broker assigned: each with the generation that it knows and
        its assignment. They keep their partitions, and must join again."""
        for join, generation, assignment in members:
            member = self._add(join, join.member_id)
            member.assignment = assignment
            member.alive()
            self._known_generations[member.member_id] = generation
            self.generation = max(self.generation, generation)
        self._former.clear()
        self.leader = next(iter(self.members), None)
        self.protocol = self._protocols.select(self.members.values())
        self.state = STABLE
        self._rebalance()

    # Joining

    def _join_new(self, join: Join) -> asyncio.Future[Joined]:
        member_id = self._recorder.new_id(join.instance_id or join.client_id or "member")
        if join.instance_id in self._instances:
            return self._take_over_instance(join, member_id)
        if len(self.members) + len(self._pending) >= self._options.members_max:
            raise GroupFull(f"group {self.name!r} has {self._options.members_max} members, the maximum")
        if join.id_required and join.instance_id is None:
            self._pending[member_id] = timer = self._timers.timer(partial(self.leave, member_id))
            timer.start(join.session_ms)
            raise MemberIdRequired(member_id)
        return self._admit(join, member_id)

    def _admit(self, join: Join, member_id: str) -> asyncio.Future[Joined]:
        member = self._add(join, member_id)
        self.leader = self.leader or member_id
        self._gathered_more = self._gathering
        future = self._wait_for_join(member)
        self._rebalance()
        return future

    def _add(self, join: Join, member_id: str) -> ClassicMember:
        member = ClassicMember(
            member_id,
            join.instance_id,
            join.client_id,
            join.client_host,
            join.session_ms,
            join.rebalance_ms,
            join.protocols,
            self._timers.timer(lambda: self._remove(member)),
        )
        self.members[member_id] = member
        self.protocol_type = join.protocol_type
        if join.instance_id is not None:
            self._instances[join.instance_id] = member_id
        self._protocols.add(member)
        return member

    def _rejoin(self, member: ClassicMember, join: Join) -> asyncio.Future[Joined]:
        same = member.protocols == join.protocols
        # A member that repeats its join lost the response. A leader that repeats it wants a rebalance, because only the
        # leader watches for changes of topics.
        if same and (self.state == COMPLETING or (self.state == STABLE and member.member_id != self.leader)):
            member.alive()
            return _answered(self._generation_for(member))
        self._update(member, join)
        future = self._wait_for_join(member)
        self._rebalance()
        return future

    def _update(self, member: ClassicMember, join: Join) -> None:
        self._protocols.remove(member)
        self.protocol_type = join.protocol_type
        member.protocols = join.protocols
        member.session_ms, member.rebalance_ms = join.session_ms, join.rebalance_ms
        member.client_id, member.client_host = join.client_id, join.client_host
        self._protocols.add(member)

    def _take_over_instance(self, join: Join, member_id: str) -> asyncio.Future[Joined]:
        """A static member restarted: it gets its member slot and assignment back, without a rebalance."""
        invariant(join.instance_id is not None, "a static member has an instance id")
        old = self.members[self._instances[join.instance_id or ""]]
        old.session.cancel()
        old.refuse(FencedInstance(self.name, join.instance_id or ""))
        self._forget(old)
        member = self._add(join, member_id)
        member.assignment = old.assignment
        led = self.leader
        if led == old.member_id:
            self.leader = member_id
        if self.state == STABLE and self._protocols.select(self.members.values()) == self.protocol:
            member.alive()
            self._recorder.record(self.name, self.generation, tuple(self.members))
            return _answered(self._unchanged_for(member, led or "", join.may_skip_assignment))
        future = self._wait_for_join(member)
        self._rebalance()
        return future

    def _unchanged_for(self, member: ClassicMember, led: str, may_skip: bool) -> Joined:
        """The current generation for a static member that rejoined: it does not assign, even as the leader."""
        if member.member_id != self.leader:
            return self._generation_for(member)
        if may_skip:
            return self._generation_for(member, skip_assignment=True)
        # A client without SkipAssignment support must act as a follower, so its old id is named as the leader.
        return Joined(self.generation, self.protocol_type, self.protocol, led, member.member_id)

    # Leaving

    def _remove(self, member: ClassicMember) -> None:
        """The member left, or its session expired."""
        self._forget(member)
        member.session.cancel()
        member.refuse(UnknownMember(self.name, member.member_id))
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), None)
        self._rebalance()

    def _forget(self, member: ClassicMember) -> None:
        del self.members[member.member_id]
        if member.instance_id is not None:
            del self._instances[member.instance_id]
        self._protocols.remove(member)
        self._awaited.discard(member.member_id)
        self._unsynced.discard(member.member_id)

    # Rebalancing

    def _rebalance(self) -> None:
        """Start the join phase, or end it if all members have joined."""
        if self.state != PREPARING:
            self._gathering = self.state == EMPTY
            self.state = PREPARING
            self._sync_phase.cancel()
            self._unsynced.clear()
            self._awaited = {name for name, member in self.members.items() if member.joining is None}
            for member in self.members.values():
                if member.syncing is not None:
                    member.answer_sync(RebalanceInProgress(self.name))
                    member.alive()
            if self._gathering:
                self._gathered_ms, self._gathered_more = self._options.initial_delay_ms, False
                self._phase.start(self._gathered_ms)
                self._gathering = self._gathered_ms > 0
            else:
                self._phase.start(self._rebalance_ms())
        self._end_joining_if_complete()

    def _rebalance_ms(self) -> int:
        """The longest rebalance timeout of the members."""
        return max((member.rebalance_ms for member in self.members.values()), default=0)

    def _end_joining_if_complete(self) -> None:
        if self.state == PREPARING and not (
            self._gathering or self._awaited or self._pending or self._former.awaited
        ):
            self._end_joining()

    def _joining_timed_out(self) -> None:
        step = min(self._options.initial_delay_ms, self._rebalance_ms() - self._gathered_ms)
        if self._gathering and self._gathered_more and step > 0:
            self._gathered_ms, self._gathered_more = self._gathered_ms + step, False
            self._phase.start(step)
            return
        gathered, self._gathering = self._gathering, False
        if gathered and self._former.awaited:
            self._phase.start(self._rebalance_ms())
        else:
            self._end_joining()

    def _end_joining(self) -> None:
        """Start a generation with the members that joined. Static members stay until their session expires."""
        for member_id in self._awaited.copy():
            member = self.members[member_id]
            if member.instance_id is None:
                self._forget(member)
                member.session.cancel()
        if self.members and len(self._awaited) == len(self.members):
            self._phase.start(self._rebalance_ms())  # no member joined, and a generation needs a leader
            return
        self._phase.cancel()
        self._former.clear()
        self._known_generations.clear()
        self.generation += 1
        self._recorder.record(self.name, self.generation, tuple(self.members))
        if not self.members:
            self.state, self.leader, self.protocol = EMPTY, None, None
            return
        if self.leader not in self.members or self.leader in self._awaited:
            self.leader = next(name for name in self.members if name not in self._awaited)
        self.protocol = self._protocols.select(self.members.values())
        self.state = COMPLETING
        self._awaited.clear()
        self._unsynced = set(self.members)
        self._sync_phase.start(self._rebalance_ms())
        for member in self.members.values():
            if member.joining is not None:
                member.answer_join(self._generation_for(member))
                member.alive()

    def _syncing_timed_out(self) -> None:
        """Remove members that never requested their assignment."""
        for member_id in sorted(self._unsynced):
            if member_id in self._unsynced:  # an earlier removal may have started another rebalance
                self._remove(self.members[member_id])

    # Waiting and responding

    def _wait_for_join(self, member: ClassicMember) -> asyncio.Future[Joined]:
        member.refuse(RebalanceInProgress(self.name))  # this request replaces an earlier one
        member.session.cancel()
        member.joining = future = asyncio.get_running_loop().create_future()
        self._awaited.discard(member.member_id)
        future.add_done_callback(partial(self._join_given_up, member))
        return future

    def _join_given_up(self, member: ClassicMember, future: asyncio.Future[Joined]) -> None:
        """The connection closed before the response: the member's session timeout starts."""
        if not future.cancelled() or member.joining is not future:
            return
        member.joining = None
        member.alive()
        if self.state == PREPARING and self.members.get(member.member_id) is member:
            self._awaited.add(member.member_id)

    def _wait_for_sync(self, member: ClassicMember) -> asyncio.Future[Synced]:
        member.answer_sync(RebalanceInProgress(self.name))
        member.session.cancel()
        member.syncing = future = asyncio.get_running_loop().create_future()
        future.add_done_callback(partial(self._sync_given_up, member))
        return future

    def _sync_given_up(self, member: ClassicMember, future: asyncio.Future[Synced]) -> None:
        if future.cancelled() and member.syncing is future:
            member.syncing = None
            member.alive()

    def _answer_sync(self, member: ClassicMember) -> None:
        if member.syncing is not None:
            member.answer_sync(Synced(self.protocol_type, self.protocol, member.assignment))
            member.alive()

    def _generation_for(self, member: ClassicMember, *, skip_assignment: bool = False) -> Joined:
        seen: tuple[JoinedMember, ...] = ()
        if member.member_id == self.leader:
            seen = tuple(
                JoinedMember(other.member_id, other.instance_id, other.metadata(self.protocol))
                for other in self.members.values()
            )
        return Joined(
            self.generation,
            self.protocol_type,
            self.protocol,
            self.leader or "",
            member.member_id,
            seen,
            skip_assignment,
        )

    # Lookups

    def _check_joined(self, member_id: str, generation: int) -> None:
        """Raises RebalanceInProgress for a member of the last generation that has not joined again here."""
        if generation == self.generation and member_id in self._former:
            self._former.hear(member_id)
            raise RebalanceInProgress(self.name)

    def _of_instance(self, instance_id: str | None) -> ClassicMember | None:
        return self.members.get(self._instances.get(instance_id, "")) if instance_id is not None else None

    def _member(self, member_id: str, instance_id: str | None) -> ClassicMember:
        """Raises UnknownMember, FencedInstance."""
        if instance_id is not None:
            holder = self._instances.get(instance_id)
            if holder is None:
                raise UnknownMember(self.name, member_id)
            if holder != member_id:
                raise FencedInstance(self.name, instance_id)
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMember(self.name, member_id)
        return member

    def _current(self, member_id: str, instance_id: str | None, generation: int) -> ClassicMember:
        """Raises IllegalGeneration too."""
        member = self._member(member_id, instance_id)
        current = self._known_generations.get(member_id, self.generation)
        if generation != current:
            raise IllegalGeneration(self.name, generation, current)
        return member


def _answered(answer: Joined) -> asyncio.Future[Joined]:
    future: asyncio.Future[Joined] = asyncio.get_running_loop().create_future()
    future.set_result(answer)
    return future
