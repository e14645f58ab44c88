"""A group whose partitions the broker assigns: Kafka's next generation protocol (KIP-848).

Members only send heartbeats. Each may change what the group wants to read, which raises the group's epoch and
gives a new target; each learns from the answer what it may read and what it has to give up.

What is decided here is to be in the ledger before a member hears of it (`group_persistence.py`). So a group that
another broker
looked after, or this one before it was started again, goes on where it was: members notice nothing, and each has a
whole session to be heard of.
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
    StaleMemberEpoch,
    UnknownMember,
    UnreleasedInstance,
)
from mainstem.ledger.consumer_groups import ConsumerMemberState, StoredGroup
from mainstem.ledger.topics import Topics

_WAITING_BEATS = 5  # heartbeats of a member that waits, for one of any other


class GroupChange(NamedTuple):
    """What was decided since the ledger was told last."""

    epoch: int
    target_epoch: int
    members: tuple[ConsumerMemberState, ...]  # new, or others than they were
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
        """`settings` are the group's own, `before` is what the last coordinator decided; `expelled` hears of decisions
        that no heartbeat made."""
        self.name = name
        self.epoch = 0  # counts changes of what the group wants to read
        self.target_epoch = 0  # the epoch that the target is for
        self.members: dict[str, ConsumerMember] = {}
        self.target: dict[str, Partitions] = {}
        self._timers = timers
        self._options = options
        self._topics = topics
        self._own_settings = settings
        self._instances: dict[str, str] = {}
        self._owners: dict[TopicPartition, str] = {}  # who reads it, or has yet to give it up
        self._matched: dict[str, frozenset[str]] = {}  # pattern → topic names
        self._read: frozenset[str] = frozenset()  # names of topics
        self._sizes: dict[bytes, int] = {}  # id of a topic that is read → how many partitions it has
        self._topics_seen: int | None = None  # digest of the topics when they were looked at
        self._expelled = expelled
        self._touched: dict[str, None] = {}  # members of whom the ledger is to hear; a dict for its order
        self._told = (0, 0)  # the epochs that the ledger knows
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
        """What most members ask for."""
        votes = Counter(member.assignor for member in self.members.values() if member.assignor)
        return votes.most_common(1)[0][0] if votes else DEFAULT_ASSIGNOR

    # What members ask

    def heartbeat(self, beat: ConsumerHeartbeat) -> ConsumerHeartbeatResult:
        """Raises UnknownMember, FencedMemberEpoch, FencedInstance, UnreleasedInstance, GroupFull."""
        if beat.epoch < 0:
            return self._leave(beat)
        if beat.pattern:
            matching(beat.pattern, ("",))  # refused before anything changes
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
        member.session.start(self._settings().session_ms)
        whole = beat.epoch == 0 or stale or (beat.owned is not None and beat.topics is not None)
        # It is told until it says so too: an answer that came too late is lost on librdkafka, which then asks on as if
        # it had heard of nothing new.
        heard = member.assigned == before and member.assigned == member.owned
        assigned = member.assigned if whole or not heard else None
        return ConsumerHeartbeatResult(member.member_id, member.epoch, self._heartbeat_ms(member), assigned)

    def _settings(self) -> ConsumerSettings:
        return ConsumerSettings.of(self._own_settings(), self._options)

    def _heartbeat_ms(self, member: ConsumerMember) -> int:
        """Who waits for others to let go asks more often: that is what most of a rebalance takes."""
        wait = self._settings().heartbeat_ms
        return max(wait // _WAITING_BEATS, 1) if member.state == UNRELEASED else wait

    def remove(self, instance_id: str) -> None:
        """An administrator has a static member go. Raises UnknownMember."""
        member_id = self._instances.get(instance_id)
        if member_id is None:
            raise UnknownMember(self.name, "")
        self._remove(self.members[member_id])

    def check_commit(
        self, member_id: str, epoch: int, instance_id: str | None, *, transactional: bool = False
    ) -> None:
        """Whether these may commit offsets: a member at its epoch, or anybody while there is none."""
        if epoch < 0 and (not self.members or (transactional and not member_id)):
            return
        self.check_epoch(member_id, epoch)

    def check_epoch(self, member_id: str, epoch: int) -> None:
        """Raises UnknownMember, StaleMemberEpoch."""
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMember(self.name, member_id)
        if member.epoch != epoch:
            raise StaleMemberEpoch(f"member {member_id!r} is at epoch {member.epoch}, not {epoch}")

    def reads(self, topic: str) -> bool:
        return topic in self._read

    def close(self) -> None:
        for member in self.members.values():
            member.session.cancel()
            member.revocation.cancel()

    # What the ledger hears

    @property
    def has_unsaved_changes(self) -> bool:
        """Whether something was decided that the ledger does not know."""
        return bool(self._touched) or self._told != (self.epoch, self.target_epoch)

    def take_change(self, *, whole: bool) -> GroupChange:
        """What the ledger is to be told; `whole`: it knows nothing of the group. From here on it counts as told."""
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
            member.session.start(self._settings().session_ms)
            if member.state == UNREVOKED:
                member.revocation.start(member.rebalance_ms)
        # A target covers every partition of every topic that is read, so it tells how many there were.
        for given in self.target.values():
            for topic, number in given:
                self._sizes[topic] = max(self._sizes.get(topic, 0), number + 1)
        self._look_at_topics()

    # Members come and go

    def _admit(self, beat: ConsumerHeartbeat) -> ConsumerMember:
        """A member that joins: new, back after it lost its epoch, or a static one that started again."""
        if beat.instance_id is not None and beat.instance_id in self._instances:
            holder = self.members[self._instances[beat.instance_id]]
            if holder.member_id != beat.member_id:
                if holder.epoch != LEFT_FOR_NOW:
                    raise UnreleasedInstance(self.name, beat.instance_id)
                return self._replace(holder, beat)
        member = self.members.get(beat.member_id)
        if member is None:
            if len(self.members) >= self._options.members_max:
                raise GroupFull(
                    f"group {self.name!r} has {self._options.members_max} members, the most allowed"
                )
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
        """Of its session, and of what it has to give up."""
        expel = partial(self._expel, member_id)
        return self._timers.timer(expel), self._timers.timer(expel)

    def _enter(self, member: ConsumerMember) -> None:
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self._instances[member.instance_id] = member.member_id

    def _replace(self, old: ConsumerMember, beat: ConsumerHeartbeat) -> ConsumerMember:
        """The new process of a static member takes over what the old one had."""
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
            # It reads nothing any more, so what it was to give up is given up. The rest waits for it.
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
        """It was not heard of, or did not give up its partitions in time."""
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

    # What the group reads

    def _raise_epoch(self) -> None:
        self.epoch = self.target_epoch + 1  # several changes before the next target are one
        self._topics_seen = None  # another subscription: look at the topics again

    def _assign(self) -> None:
        """A new target, if the members, what they want to read or the topics themselves have changed."""
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
        """How many partitions each topic has that somebody reads."""
        topics = self._topics()
        patterns = {member.pattern for member in self.members.values() if member.pattern}
        matched = {pattern: self._matching(pattern) for pattern in patterns}
        # What did not change stays the same object, which many members hold and are quickly compared by.
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
        """What the members' patterns found, in the order of the members."""
        return [member.found for member in self.members.values()]

    def _found_by(self, member: ConsumerMember) -> frozenset[str]:
        matched = self._matched.get(member.pattern or "", frozenset())
        return matched if member.sees is None else frozenset(filter(member.sees, matched))

    def _sees_others(self, member: ConsumerMember, beat: ConsumerHeartbeat) -> bool:
        """Note what its pattern may find. Says whether that is something else than before."""
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
    """It speaks of the epoch before, and owns no more than it may: the answer with the new epoch was lost."""
    return beat.epoch == member.previous_epoch and beat.owned is not None and beat.owned <= member.assigned
