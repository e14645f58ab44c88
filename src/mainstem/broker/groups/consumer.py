"""A group whose partitions the broker assigns: Kafka's next generation protocol (KIP-848).

It may also have members of the classic protocol, while clients are upgraded one by one (`migration.py`). For them a
join is a heartbeat: they join again whenever their partitions change.

What it needs is its members' subscription; `assigned_group.py` has the rest.
"""

from __future__ import annotations

from collections import Counter

from mainstem.broker.groups.assigned_group import AssignedGroup
from mainstem.broker.groups.assigned_member import LEFT_FOR_NOW, UNRELEASED, UNREVOKED, MemberHeartbeat
from mainstem.broker.groups.assignors import ASSIGNORS, DEFAULT_ASSIGNOR, Partitions
from mainstem.broker.groups.consumer_member import (
    ConsumerHeartbeat,
    ConsumerHeartbeatResult,
    ConsumerMember,
)
from mainstem.broker.groups.coordinator import GroupCoordinator
from mainstem.broker.groups.member import Join
from mainstem.broker.groups.member_states import restored_consumer, stored_consumer
from mainstem.broker.groups.options import GroupOptions
from mainstem.broker.groups.settings import ConsumerSettings
from mainstem.broker.groups.subscription import matching
from mainstem.broker.groups.timers import Timers
from mainstem.broker.namespaces import split_id
from mainstem.errors import (
    FencedInstance,
    IllegalGeneration,
    InconsistentProtocol,
    RebalanceInProgress,
    UnknownMember,
    UnreleasedInstance,
)
from mainstem.ledger.consumer_groups import ConsumerMemberState, StoredGroup


class ConsumerGroup(AssignedGroup[ConsumerMember]):
    kind = "Consumer"
    protocol_type = "consumer"

    def __init__(
        self,
        name: str,
        timers: Timers,
        options: GroupOptions,
        coordinator: GroupCoordinator,
        *,
        before: StoredGroup | None = None,
    ) -> None:
        self._matched: dict[str, frozenset[str]] = {}  # pattern → topic names
        self._read: frozenset[str] = frozenset()  # names of topics
        self._sizes: dict[bytes, int] = {}  # id of a subscribed topic → its number of partitions
        super().__init__(name, timers, options, coordinator, before=before)
        if before is not None:
            # A target covers every partition of every subscribed topic, so it gives their previous number.
            for given in self.target.values():
                for topic, number in given:
                    self._sizes[topic] = max(self._sizes.get(topic, 0), number + 1)
            self._look_at_topics()

    @property
    def assignor(self) -> str:
        """The assignor that most members request."""
        votes = Counter(member.assignor for member in self.members.values() if member.assignor)
        return votes.most_common(1)[0][0] if votes else DEFAULT_ASSIGNOR

    # Requests of members

    def heartbeat(self, beat: ConsumerHeartbeat) -> ConsumerHeartbeatResult:
        """Raises UnknownMember, FencedMemberEpoch, FencedInstance, UnreleasedInstance, GroupFull."""
        if beat.epoch < 0:
            return self._leave(beat)
        if beat.pattern:
            matching(beat.pattern, ("",))  # rejects an invalid pattern before anything changes
        member = self._admit(beat) if beat.epoch == 0 else self._member_of(beat)
        known = member.facts
        sees_others = self._sees_others(member, beat)
        if member.take_in(beat) or sees_others:
            self._raise_epoch()
        whole = beat.epoch == 0 or (beat.owned is not None and beat.topics is not None)
        assigned = self._proceed(member, beat, known, whole=whole)
        return ConsumerHeartbeatResult(
            member.member_id, member.epoch, self._interval_ms(member, self._settings().heartbeat_ms), assigned
        )

    def _session_ms(self, member: ConsumerMember) -> int:
        return member.session_ms or self._settings().session_ms

    def _settings(self) -> ConsumerSettings:
        return ConsumerSettings.of(self._coordinator.settings(self.name), self._options)

    def remove(self, instance_id: str) -> None:
        """Remove a static member on behalf of an administrator. Raises UnknownMember."""
        member_id = self._instances.get(instance_id)
        if member_id is None:
            raise UnknownMember(self.name, "")
        self._remove(self.members[member_id])

    def check_epoch(self, member_id: str, epoch: int) -> None:
        """Raises UnknownMember, StaleMemberEpoch; IllegalGeneration for a classic member."""
        member = self.members.get(member_id)
        if member is not None and member.classic and member.epoch != epoch:
            raise IllegalGeneration(self.name, epoch, member.epoch)
        super().check_epoch(member_id, epoch)

    # Requests of classic members, apart from joins

    @property
    def all_classic(self) -> bool:  # type: ignore[override]  # changes with the members
        """Whether there are members, and all use the classic protocol: they can assign the partitions themselves."""
        return bool(self.members) and all(member.classic for member in self.members.values())

    def check_join(self, join: Join) -> None:
        """Raise unless a classic member may join. Raises InconsistentProtocol, FencedInstance, UnknownMember."""
        common = {name for name, _ in join.protocols}
        for member in self.members.values():
            same = join.instance_id is not None and member.instance_id == join.instance_id
            if member.classic and member.member_id != join.member_id and not same:
                common.intersection_update(name for name, _ in member.protocols)
        if not common:
            raise InconsistentProtocol(
                f"the members of group {self.name!r} know none of the protocols offered"
            )
        if join.member_id:
            self._check_instance(join.member_id, join.instance_id)
            known = self.members.get(join.member_id)
            if known is not None and not known.classic:
                raise UnknownMember(self.name, join.member_id)

    def await_sync(self, member_id: str) -> None:
        """A classic member has joined, and has to ask for its assignment within its rebalance timeout."""
        member = self.members[member_id]
        member.revocation.start(member.rebalance_ms)

    def sync(self, member_id: str, generation: int, instance_id: str | None) -> ConsumerMember:
        """The member, which may read its assigned partitions. Raises RebalanceInProgress if it must join again."""
        member = self._classic(member_id, generation, instance_id)
        self._alive(member)
        if member.epoch < self.epoch and member.state != UNREVOKED:
            raise RebalanceInProgress(self.name)
        if member.state != UNREVOKED:
            member.revocation.cancel()
        return member

    def classic_heartbeat(self, member_id: str, generation: int, instance_id: str | None) -> None:
        """Raises RebalanceInProgress if the member must join again."""
        member = self._classic(member_id, generation, instance_id)
        self._alive(member)
        waits = member.state == UNRELEASED and any(
            self._owners.get(part, member_id) != member_id for part in self.target.get(member_id, ())
        )
        if (
            member.epoch < self.epoch
            or member.state == UNREVOKED
            or (member.state == UNRELEASED and not waits)
        ):
            if not member.revocation.running:
                member.revocation.start(member.rebalance_ms)
            raise RebalanceInProgress(self.name)

    def classic_leave(self, member_id: str, instance_id: str | None) -> None:
        self._remove(self._classic(member_id, None, instance_id))

    def _classic(self, member_id: str, generation: int | None, instance_id: str | None) -> ConsumerMember:
        """Raises FencedInstance, UnknownMember, IllegalGeneration."""
        self._check_instance(member_id, instance_id)
        member = self.members.get(member_id)
        if member is None or not member.classic:
            raise UnknownMember(self.name, member_id)
        if generation is not None and generation != member.epoch:
            raise IllegalGeneration(self.name, generation, member.epoch)
        return member

    def reads(self, topic: str) -> bool:
        return topic in self._read

    # Joining and leaving

    def _admit(self, beat: ConsumerHeartbeat) -> ConsumerMember:
        """A member that joins: new, fenced before, or a static one that restarted."""
        if beat.instance_id is not None and beat.instance_id in self._instances:
            holder = self.members[self._instances[beat.instance_id]]
            if holder.member_id != beat.member_id:
                if holder.epoch != LEFT_FOR_NOW and not (holder.classic or beat.protocols):
                    raise UnreleasedInstance(self.name, beat.instance_id)
                return self._replace(holder, beat)
        member = self.members.get(beat.member_id)
        if member is None:
            member = self._add(beat)
            self._raise_epoch()
        if member.epoch == LEFT_FOR_NOW:
            member.epoch = 0
            self._touch(member.member_id)
        return member

    def _replace(self, old: ConsumerMember, beat: ConsumerHeartbeat) -> ConsumerMember:
        """The new process of a static member takes over the old one's partitions."""
        held = old.assigned | old.revoking
        old.session.cancel()
        old.revocation.cancel()
        del self.members[old.member_id]
        self._touch(old.member_id)
        member = self._add(beat)
        member.topics, member.pattern, member.assignor = old.topics, old.pattern, old.assignor
        member.rebalance_ms, member.rack = old.rebalance_ms, old.rack
        member.found = old.found
        member.assigned = old.assigned
        old.release_all(self._owners)
        member.claim(held & old.assigned, self._owners)
        self.target[member.member_id] = self.target.pop(old.member_id, frozenset())
        return member

    def _leave(self, beat: ConsumerHeartbeat) -> ConsumerHeartbeatResult:
        member = self.members.get(beat.member_id)
        if member is None:
            raise UnknownMember(self.name, beat.member_id)
        if beat.instance_id is not None and self._instances.get(beat.instance_id) != beat.member_id:
            raise FencedInstance(self.name, beat.instance_id)
        if beat.epoch == LEFT_FOR_NOW and member.instance_id is not None:
            # It has stopped reading, so its revocations are complete. It keeps its other partitions.
            if member.state == UNREVOKED:
                member.reconcile(
                    self.target.get(member.member_id, frozenset()),
                    self.target_epoch,
                    frozenset(),
                    self._owners,
                )
            member.epoch, member.previous_epoch = LEFT_FOR_NOW, 0
            self._touch(member.member_id)
        else:
            self._remove(member)
        return ConsumerHeartbeatResult(beat.member_id, beat.epoch, self._settings().heartbeat_ms, None)

    # Subscription and target

    def _assign(self) -> None:
        """Compute a new target if the members, their subscriptions or the topics have changed."""
        digest = self._coordinator.topics.digest
        if digest != self._topics_seen:
            found = self._topics_by_pattern()
            sizes = self._look_at_topics()
            if sizes != self._sizes or found != self._topics_by_pattern():
                self.epoch = self.target_epoch + 1
            self._sizes, self._topics_seen = sizes, digest
        if self.epoch == self.target_epoch:
            return
        topics = self._coordinator.topics
        ids = {name: topic.topic_id for name in self._read if (topic := topics.get(name)) is not None}
        readers = {
            member.member_id: frozenset(ids[name] for name in self._names_of(member) if name in ids)
            for member in self.members.values()
        }
        self._set_target(ASSIGNORS[self.assignor](readers, self._sizes, self.target))

    def _look_at_topics(self) -> dict[bytes, int]:
        """The number of partitions of each subscribed topic."""
        topics = self._coordinator.topics
        patterns = {member.pattern for member in self.members.values() if member.pattern}
        matched = {pattern: self._matching(pattern) for pattern in patterns}
        # Unchanged values stay the same object: many members share them, and identity makes comparisons fast.
        self._matched = {
            pattern: before if (before := self._matched.get(pattern)) == now else now
            for pattern, now in matched.items()
        }
        for member in self.members.values():
            member.found = self._found_by(member)
        names = frozenset[str]().union(*(self._names_of(member) for member in self.members.values()))
        found = [topic for name in sorted(names) if (topic := topics.get(name)) is not None]
        self._read = frozenset(topic.name for topic in found)
        return {topic.topic_id: len(topic.streams) for topic in found}

    def _names_of(self, member: ConsumerMember) -> frozenset[str]:
        return member.topics | member.found

    def _topics_by_pattern(self) -> list[frozenset[str]]:
        """The topics that each member's pattern matches, in the order of the members."""
        return [member.found for member in self.members.values()]

    def _found_by(self, member: ConsumerMember) -> frozenset[str]:
        matched = self._matched.get(member.pattern or "", frozenset())
        return matched if member.sees is None else frozenset(filter(member.sees, matched))

    def _sees_others(self, member: ConsumerMember, beat: ConsumerHeartbeat) -> bool:
        """Store which topics the member's pattern may match. Returns whether that changed."""
        same = beat.rights == member.rights
        member.sees, member.rights = beat.sees, beat.rights
        return not same and self._found_by(member) != member.found

    def _matching(self, pattern: str) -> frozenset[str]:
        """The full names of the topics in the group's namespace whose plain names match."""
        namespace = split_id(self.name)[0]
        full_names = {
            topic.plain_name: topic.name for topic in self._coordinator.topics if topic.namespace == namespace
        }
        return frozenset(full_names[name] for name in matching(pattern, full_names))

    # Members

    def _new_member(self, beat: MemberHeartbeat) -> ConsumerMember:
        return ConsumerMember(
            beat.member_id,
            beat.instance_id,
            beat.client_id,
            beat.client_host,
            *self._timers_of(beat.member_id),
        )

    def _restored(self, state: ConsumerMemberState) -> ConsumerMember:
        return restored_consumer(state, *self._timers_of(state.member_id))

    def _stored(self, member: ConsumerMember, target: Partitions) -> ConsumerMemberState:
        return stored_consumer(member, target)
