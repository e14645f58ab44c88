"""A group whose partitions the broker assigns: Kafka's next generation protocol (KIP-848).

It may also have members of the classic protocol, while clients are upgraded one by one (`migration.py`). For them a
join is a heartbeat: they join again whenever their partitions change.

Members only send heartbeats. A heartbeat may change the group's subscription, which raises the group's epoch and leads
to a new target assignment. The response tells the member which partitions it may read and which to revoke.

Every decision is committed to the ledger before a member learns of it (`group_persistence.py`). So a new coordinator,
or the same one after a restart, continues from ledger state: members notice nothing, and each has a full session
timeout for its next heartbeat.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from mainstem.broker.groups.assignors import ASSIGNORS, DEFAULT_ASSIGNOR, Partitions, TopicPartition
from mainstem.broker.groups.consumer_member import (
    LEFT_FOR_NOW,
    STABLE,
    UNRELEASED,
    UNREVOKED,
    ConsumerHeartbeat,
    ConsumerHeartbeatResult,
    ConsumerMember,
)
from mainstem.broker.groups.member import Join
from mainstem.broker.groups.member_states import kept, partitions, restored
from mainstem.broker.groups.options import GroupOptions
from mainstem.broker.groups.settings import ConsumerSettings
from mainstem.broker.groups.subscription import matching
from mainstem.broker.groups.timers import Timer, Timers
from mainstem.broker.namespaces import split_id
from mainstem.errors import (
    FencedInstance,
    FencedMemberEpoch,
    GroupFull,
    IllegalGeneration,
    InconsistentProtocol,
    RebalanceInProgress,
    StaleMemberEpoch,
    UnknownMember,
    UnreleasedInstance,
)
from mainstem.ledger.consumer_groups import ConsumerMemberState, StoredGroup
from mainstem.ledger.topics import Topics

_WAITING_BEATS = 5  # a member that waits for partitions sends heartbeats this many times as often


class GroupChange(NamedTuple):
    """The decisions since the last write to the ledger."""

    epoch: int
    target_epoch: int
    members: tuple[ConsumerMemberState, ...]  # new or changed
    gone: tuple[str, ...]


class ConsumerGroup:
    kind = "Consumer"
    protocol_type = "consumer"

    def __init__(
        self,
        name: str,
        timers: Timers,
        options: GroupOptions,
        topics: Callable[[], Topics],
        *,
        settings: Callable[[], Mapping[str, str]] = dict,
        before: StoredGroup | None = None,
        expelled: Callable[[], None] = lambda: None,
    ) -> None:
        """`settings` are the group's own; `before` is the state that the last coordinator stored; `expelled` is called
        after decisions that no heartbeat made."""
        self.name = name
        self.epoch = 0  # counts changes of the subscription
        self.target_epoch = 0  # the epoch that the target is for
        self.members: dict[str, ConsumerMember] = {}
        self.target: dict[str, Partitions] = {}
        self._timers = timers
        self._options = options
        self._topics = topics
        self._own_settings = settings
        self._instances: dict[str, str] = {}
        self._owners: dict[TopicPartition, str] = {}  # the member that reads it, or must still revoke it
        self._matched: dict[str, frozenset[str]] = {}  # pattern → topic names
        self._read: frozenset[str] = frozenset()  # names of topics
        self._sizes: dict[bytes, int] = {}  # id of a subscribed topic → its number of partitions
        self._topics_seen: int | None = None  # digest of the topics at the last check
        self._expelled = expelled
        self._touched: dict[str, None] = {}  # members to write to the ledger; a dict, because it is ordered
        self._told = (0, 0)  # the epochs in the ledger
        if before is not None:
            self._go_on(before)

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
        before, known = member.assigned, member.facts
        stale = beat.epoch != member.epoch
        sees_others = self._sees_others(member, beat)
        if member.take_in(beat) or sees_others:
            self._raise_epoch()
        self._assign()
        target = self.target.get(member.member_id, frozenset())
        member.reconcile(target, self.target_epoch, beat.owned, self._owners)
        if member.facts != known:
            self._touch(member.member_id)
        self._alive(member)
        whole = beat.epoch == 0 or stale or (beat.owned is not None and beat.topics is not None)
        # Repeat the assignment until the member confirms it: librdkafka discards a late response and continues as if it
        # had received nothing.
        heard = member.assigned == before and member.assigned == member.owned
        assigned = member.assigned if whole or not heard else None
        return ConsumerHeartbeatResult(member.member_id, member.epoch, self._heartbeat_ms(member), assigned)

    def _alive(self, member: ConsumerMember) -> None:
        """Restart the session timeout: a request of the member arrived."""
        member.session.start(member.session_ms or self._settings().session_ms)

    def _settings(self) -> ConsumerSettings:
        return ConsumerSettings.of(self._own_settings(), self._options)

    def _heartbeat_ms(self, member: ConsumerMember) -> int:
        """A member that waits for partitions of others polls more often, which shortens a rebalance."""
        wait = self._settings().heartbeat_ms
        return max(wait // _WAITING_BEATS, 1) if member.state == UNRELEASED else wait

    def remove(self, instance_id: str) -> None:
        """Remove a static member on behalf of an administrator. Raises UnknownMember."""
        member_id = self._instances.get(instance_id)
        if member_id is None:
            raise UnknownMember(self.name, "")
        self._remove(self.members[member_id])

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
            if member.classic:
                raise IllegalGeneration(self.name, epoch, member.epoch)
            raise StaleMemberEpoch(f"member {member_id!r} is at epoch {member.epoch}, not {epoch}")

    # Requests of classic members, apart from joins

    @property
    def all_classic(self) -> bool:
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

    def close(self) -> None:
        for member in self.members.values():
            member.session.cancel()
            member.revocation.cancel()

    # Writes to the ledger

    @property
    def has_unsaved_changes(self) -> bool:
        """Whether there are decisions that the ledger does not have."""
        return bool(self._touched) or self._told != (self.epoch, self.target_epoch)

    def take_change(self, *, whole: bool) -> GroupChange:
        """The change to write to the ledger; it then counts as written. `whole`: the ledger lacks the group."""
        names = self.members if whole else self._touched
        change = GroupChange(
            self.epoch,
            self.target_epoch,
            tuple(
                kept(self.members[name], self.target.get(name, frozenset()))
                for name in names
                if name in self.members
            ),
            tuple(name for name in names if name not in self.members),
        )
        self._touched = {}
        self._told = (self.epoch, self.target_epoch)
        return change

    def _touch(self, member_id: str) -> None:
        self._touched[member_id] = None

    def _go_on(self, before: StoredGroup) -> None:
        self.epoch, self.target_epoch = self._told = (before.epoch, before.target_epoch)
        for state in before.members.values():
            member = restored(state, *self._timers_of(state.member_id))
            self._enter(member)
            self.target[member.member_id] = partitions(state.target)
            self._owners.update(dict.fromkeys(member.assigned | member.revoking, member.member_id))
            self._alive(member)
            if member.state == UNREVOKED:
                member.revocation.start(member.rebalance_ms)
        # A target covers every partition of every subscribed topic, so it gives their previous number.
        for given in self.target.values():
            for topic, number in given:
                self._sizes[topic] = max(self._sizes.get(topic, 0), number + 1)
        self._look_at_topics()

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
            if len(self.members) >= self._options.members_max:
                raise GroupFull(f"group {self.name!r} has {self._options.members_max} members, the maximum")
            member = self._add(beat)
            self._raise_epoch()
        if member.epoch == LEFT_FOR_NOW:
            member.epoch = 0
            self._touch(member.member_id)
        return member

    def _add(self, beat: ConsumerHeartbeat) -> ConsumerMember:
        member = ConsumerMember(
            beat.member_id,
            beat.instance_id,
            beat.client_id,
            beat.client_host,
            *self._timers_of(beat.member_id),
        )
        self._enter(member)
        self._touch(member.member_id)
        return member

    def _timers_of(self, member_id: str) -> tuple[Timer, Timer]:
        """The timers of its session and of its revocations."""
        expel = partial(self._expel, member_id)
        return self._timers.timer(expel), self._timers.timer(expel)

    def _enter(self, member: ConsumerMember) -> None:
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self._instances[member.instance_id] = member.member_id

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
        self._owners.update(dict.fromkeys(held & old.assigned, member.member_id))
        self.target[member.member_id] = self.target.pop(old.member_id, frozenset())
        return member

    def _member_of(self, beat: ConsumerHeartbeat) -> ConsumerMember:
        if beat.instance_id is not None:
            holder = self._instances.get(beat.instance_id)
            if holder is None:
                raise UnknownMember(self.name, beat.member_id)
            if holder != beat.member_id:
                raise FencedInstance(self.name, beat.instance_id)
        member = self.members.get(beat.member_id)
        if member is None:
            raise UnknownMember(self.name, beat.member_id)
        if beat.epoch != member.epoch and not _missed_last_response(member, beat):
            raise FencedMemberEpoch(
                f"member {beat.member_id!r} is at epoch {member.epoch}, not {beat.epoch}: join again"
            )
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

    def _expel(self, member_id: str) -> None:
        """Remove a member whose session expired or that did not revoke partitions in time."""
        self._remove(self.members[member_id])
        self._expelled()

    def _remove(self, member: ConsumerMember) -> None:
        self._touch(member.member_id)
        member.session.cancel()
        member.revocation.cancel()
        member.release_all(self._owners)
        del self.members[member.member_id]
        if member.instance_id is not None:
            del self._instances[member.instance_id]
        self.target.pop(member.member_id, None)
        self._raise_epoch()

    # Subscription and target

    def _raise_epoch(self) -> None:
        self.epoch = self.target_epoch + 1  # several changes before the next target count as one
        self._topics_seen = None  # the subscription changed: check the topics again

    def _assign(self) -> None:
        """Compute a new target if the members, their subscriptions or the topics have changed."""
        digest = self._topics().digest
        if digest != self._topics_seen:
            found = self._topics_by_pattern()
            sizes = self._look_at_topics()
            if sizes != self._sizes or found != self._topics_by_pattern():
                self.epoch = self.target_epoch + 1
            self._sizes, self._topics_seen = sizes, digest
        if self.epoch == self.target_epoch:
            return
        topics = self._topics()
        ids = {name: topic.topic_id for name in self._read if (topic := topics.get(name)) is not None}
        readers = {
            member.member_id: frozenset(ids[name] for name in self._names_of(member) if name in ids)
            for member in self.members.values()
        }
        self._set_target(ASSIGNORS[self.assignor](readers, self._sizes, self.target))

    def _set_target(self, target: Mapping[str, Partitions]) -> None:
        for member_id, given in target.items():
            if given != self.target.get(member_id):
                self._touch(member_id)
        self.target, self.target_epoch = dict(target), self.epoch

    def _look_at_topics(self) -> dict[bytes, int]:
        """The number of partitions of each subscribed topic."""
        topics = self._topics()
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
            topic.plain_name: topic.name for topic in self._topics() if topic.namespace == namespace
        }
        return frozenset(full_names[name] for name in matching(pattern, full_names))


def _missed_last_response(member: ConsumerMember, beat: ConsumerHeartbeat) -> bool:
    """Whether the response with the new epoch was lost: the member sends its last epoch and owns nothing more."""
    return beat.epoch == member.previous_epoch and beat.owned is not None and beat.owned <= member.assigned
