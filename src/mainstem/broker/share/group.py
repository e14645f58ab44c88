"""The members of a share group, and which partitions each reads. shares.py handles the records.

Members only send heartbeats. Several members may read one partition, so no member waits for another: it reads its new
assignment at once.
"""

from __future__ import annotations

from dataclasses import dataclass

from mainstem.broker.groups.assignors import Partitions
from mainstem.broker.groups.consumer_member import ConsumerHeartbeat, ConsumerHeartbeatResult
from mainstem.broker.groups.coordinator import GroupCoordinator
from mainstem.broker.groups.timers import Timer, Timers
from mainstem.broker.share.assignor import assign_shared
from mainstem.broker.share.settings import ShareSettings
from mainstem.errors import FencedMemberEpoch, GroupFull, UnknownMember, WrongGroupKind


@dataclass(slots=True, eq=False)
class ShareMember:
    member_id: str
    session: Timer
    instance_id: str | None = None  # share groups have no static members
    client_id: str = ""
    client_host: str = ""
    rack: str | None = None
    topics: frozenset[str] = frozenset()
    epoch: int = 0
    previous_epoch: int = 0
    assigned: Partitions = frozenset()


class ShareGroup:
    kind = "Share"
    protocol_type = "share"

    def __init__(self, name: str, timers: Timers, members_max: int, coordinator: GroupCoordinator) -> None:
        self.name = name
        self.epoch = 0  # counts changes of the subscription
        self.members: dict[str, ShareMember] = {}
        self._timers = timers
        self._members_max = members_max
        self._coordinator = coordinator
        self._sizes: dict[str, tuple[bytes, int]] = {}  # subscribed topic → id, partitions
        self._topics_seen: int | None = None  # digest of the topics at the last check
        self._changed = False  # members or subscriptions changed since the last assignment
        self._target: dict[str, Partitions] = {}

    @property
    def empty(self) -> bool:
        return not self.members

    @property
    def state(self) -> str:
        return "Stable" if self.members else "Empty"

    def heartbeat(self, beat: ConsumerHeartbeat, settings: ShareSettings) -> ConsumerHeartbeatResult:
        """Join, stay in or leave. Raises UnknownMember, FencedMemberEpoch, GroupFull."""
        if beat.epoch < 0:
            self._remove(self._member_of(beat))
            return ConsumerHeartbeatResult(beat.member_id, beat.epoch, settings.heartbeat_ms, None)
        member = self._admit(beat) if beat.epoch == 0 else self._member_of(beat)
        stale = beat.epoch != member.epoch
        self._take_in(member, beat)
        self._assign()
        before = member.assigned
        member.assigned = self._target.get(member.member_id, frozenset())
        if member.epoch != self.epoch:
            member.previous_epoch, member.epoch = member.epoch, self.epoch
        member.session.start(settings.session_ms)
        told = member.assigned if stale or beat.topics is not None or member.assigned != before else None
        return ConsumerHeartbeatResult(member.member_id, member.epoch, settings.heartbeat_ms, told)

    def check_commit(
        self, member_id: str, epoch: int, instance_id: str | None, *, transactional: bool = False
    ) -> None:
        """Raise: offsets of a share group with members cannot be committed."""
        if self.members:
            raise WrongGroupKind(f"group {self.name!r} is a share group: it has no offsets to commit")

    def reads(self, topic: str) -> bool:
        return topic in self._sizes

    def _admit(self, beat: ConsumerHeartbeat) -> ShareMember:
        member = self.members.get(beat.member_id)
        if member is None:
            if len(self.members) >= self._members_max:
                raise GroupFull(f"group {self.name!r} has {self._members_max} members, the maximum")
            member = self._add(beat.member_id)
        return member

    def _add(self, member_id: str) -> ShareMember:
        member = ShareMember(member_id, self._timers.timer(lambda: self._remove(member)))
        self.members[member_id] = member
        self._changed = True
        return member

    def _member_of(self, beat: ConsumerHeartbeat) -> ShareMember:
        member = self.members.get(beat.member_id)
        if member is None:
            raise UnknownMember(self.name, beat.member_id)
        if beat.epoch > 0 and beat.epoch not in (member.epoch, member.previous_epoch):
            raise FencedMemberEpoch(
                f"member {beat.member_id!r} is at epoch {member.epoch}, not {beat.epoch}: join again"
            )
        return member

    def _take_in(self, member: ShareMember, beat: ConsumerHeartbeat) -> None:
        member.client_id, member.client_host = beat.client_id, beat.client_host
        if beat.rack is not None:
            member.rack = beat.rack
        if beat.topics is not None and beat.topics != member.topics:
            member.topics = beat.topics
            self._changed = True

    def _remove(self, member: ShareMember) -> None:
        """The member left, or its session expired."""
        member.session.cancel()
        del self.members[member.member_id]
        self._changed = True

    def _assign(self) -> None:
        """Assign again if the members, their subscriptions or the topics have changed."""
        topics = self._coordinator.topics
        if not self._changed and topics.digest == self._topics_seen:
            return
        names = frozenset[str]().union(*(member.topics for member in self.members.values()))
        found = ((name, topics.get(name)) for name in sorted(names))
        sizes = {name: (topic.topic_id, len(topic.streams)) for name, topic in found if topic is not None}
        if self._changed or sizes != self._sizes:
            readers = {
                member.member_id: frozenset(sizes[name][0] for name in member.topics if name in sizes)
                for member in self.members.values()
            }
            self._target = assign_shared(readers, dict(sizes.values()))
            self.epoch += 1
        self._sizes, self._topics_seen, self._changed = sizes, topics.digest, False
