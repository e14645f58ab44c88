"""A group of Kafka Streams members, whose tasks the broker assigns (KIP-1071).

Members that join declare the topology of their application. The broker derives its tasks from the topics, has the
missing internal topics created, and assigns each task to a member, and standby copies of its state to others. As in
Apache Kafka 4.3 there are no warm-up tasks: clients do not report how far they are.
"""

from __future__ import annotations

from zlib import crc32

from mainstem.broker.groups.assigned_group import AssignedGroup
from mainstem.broker.groups.assigned_member import MemberHeartbeat
from mainstem.broker.groups.assignors import Partitions
from mainstem.broker.groups.coordinator import GroupCoordinator
from mainstem.broker.groups.member_states import restored_streams, stored_streams
from mainstem.broker.groups.options import GroupOptions
from mainstem.broker.groups.settings import StreamsSettings
from mainstem.broker.groups.streams_member import (
    EndpointTasks,
    StreamsHeartbeat,
    StreamsHeartbeatResult,
    StreamsMember,
)
from mainstem.broker.groups.task_assignor import TaskMember, assign_tasks, task_key
from mainstem.broker.groups.timers import Timers
from mainstem.broker.groups.topology_topics import GroupStatus, StatusCode, TopologyTopics, fit_topics
from mainstem.errors import InvalidInput, InvalidTopology, UnknownMember
from mainstem.ledger.consumer_groups import ConsumerMemberState, StoredGroup
from mainstem.ledger.topology import InternalTopic, Topology

_NO_TOPICS = TopologyTopics({}, {})


class StreamsGroup(AssignedGroup[StreamsMember]):
    kind = "Streams"
    protocol_type = "streams"

    def __init__(
        self,
        name: str,
        timers: Timers,
        options: GroupOptions,
        coordinator: GroupCoordinator,
        *,
        before: StoredGroup | None = None,
    ) -> None:
        self.fitted = _NO_TOPICS
        self._standbys = 0  # of the target
        self._stopped_by: str | None = None  # the member that asked all to stop
        self._endpoints_known: tuple[int, tuple[EndpointTasks, ...]] = (0, ())  # with their version
        super().__init__(name, timers, options, coordinator, before=before)
        if before is not None:
            self._standbys = self._settings().standbys
            self._look_at_topics()

    @property
    def state(self) -> str:
        return "NotReady" if self.members and not self.fitted.ready else super().state

    def reads(self, topic: str) -> bool:
        return bool(self.members) and self.topology is not None and topic in self.topology.inputs

    def partitions_of(self, tasks: Partitions, role: bytes) -> dict[str, list[int]]:
        """The partitions that tasks in this role read, by topic."""
        subtopologies = () if self.topology is None else self.topology.subtopologies
        found: dict[str, list[int]] = {}
        for one in subtopologies:
            key = task_key(role, one.subtopology_id)
            numbers = sorted(number for task, number in tasks if task == key)
            for name in one.inputs if numbers else ():
                count = self._count(name) or 0
                found.setdefault(name, []).extend(number for number in numbers if number < count)
        return found

    def missing_topics(self, topology: Topology | None) -> tuple[InternalTopic, ...]:
        """The internal topics that the group lacks once a member with this topology has joined. Raises
        InvalidTopology."""
        if topology is None or self.members:
            topology = self.topology
        return () if topology is None else fit_topics(topology, self._count).missing

    # Heartbeats

    def heartbeat(self, beat: StreamsHeartbeat) -> StreamsHeartbeatResult:
        """Raises UnknownMember, FencedMemberEpoch, GroupFull, InvalidInput, InvalidTopology."""
        if beat.epoch < 0:
            return self._leave(beat)
        if beat.topology is not None:
            self._check_topology(beat.topology)
        member = self._admit(beat) if beat.epoch == 0 else self._member_of(beat)
        known = member.facts
        if beat.topology is not None and (
            self.topology is None or beat.topology.epoch >= self.topology.epoch
        ):
            self._set_topology(beat.topology)
        if beat.process_id not in (None, member.process_id):
            member.release_all(self._owners)  # its claims depend on its process
        if member.take_in(beat):
            member.claim(member.assigned | member.revoking, self._owners)
            self._raise_epoch()
        if beat.shutdown:
            self._stopped_by = member.member_id
        assigned = self._proceed(member, beat, known, whole=beat.epoch == 0)
        version, endpoints = self._endpoints()
        return StreamsHeartbeatResult(
            member.member_id,
            member.epoch,
            self._interval_ms(member, self._settings().heartbeat_ms),
            assigned,
            self._statuses(member),
            version,
            endpoints if version != beat.endpoints_version else None,
        )

    def _check_topology(self, topology: Topology) -> None:
        """Raises InvalidInput if other members run another one, InvalidTopology if it has no solution."""
        if self.members and self.topology is not None:
            if topology.epoch >= self.topology.epoch and topology != self.topology:
                raise InvalidInput(
                    f"the members of group {self.name!r} run another topology: stop them before you change it"
                )
        else:
            fit_topics(topology, self._count)

    def _set_topology(self, topology: Topology) -> None:
        if topology != self.topology:
            self.topology = topology
            self._raise_epoch()

    def _admit(self, beat: StreamsHeartbeat) -> StreamsMember:
        member = self.members.get(beat.member_id)
        if member is None:
            member = self._add(beat)
            self._raise_epoch()
        return member

    def _leave(self, beat: StreamsHeartbeat) -> StreamsHeartbeatResult:
        member = self.members.get(beat.member_id)
        if member is None:
            raise UnknownMember(self.name, beat.member_id)
        if beat.shutdown:
            self._stopped_by = member.member_id
        self._remove(member)
        return StreamsHeartbeatResult(beat.member_id, beat.epoch, self._settings().heartbeat_ms, None)

    def _remove(self, member: StreamsMember) -> None:
        super()._remove(member)
        if not self.members:
            self._stopped_by = None

    def _statuses(self, member: StreamsMember) -> tuple[GroupStatus, ...]:
        found = []
        if self.topology is not None and member.topology_epoch < self.topology.epoch:
            found.append(
                GroupStatus(
                    StatusCode.STALE_TOPOLOGY,
                    f"the topology of the member has epoch {member.topology_epoch}, and that of the group "
                    f"{self.topology.epoch}",
                )
            )
        if self.fitted.problem is not None:
            found.append(self.fitted.problem)
        if self._stopped_by is not None:
            found.append(
                GroupStatus(
                    StatusCode.SHUTDOWN_APPLICATION,
                    f"member {self._stopped_by} asked all members to stop",
                )
            )
        return tuple(found)

    def _endpoints(self) -> tuple[int, tuple[EndpointTasks, ...]]:
        """Where tasks run. The version is a checksum, so that it means the same after a restart."""
        found = tuple(
            EndpointTasks(member.endpoint, member.assigned)
            for member in self.members.values()
            if member.endpoint is not None
        )
        if found != self._endpoints_known[1]:  # unchanged sets of tasks are the same objects
            told = repr([(one.endpoint, sorted(one.tasks)) for one in found])
            self._endpoints_known = crc32(told.encode()) & 0x7FFFFFFF, found
        return self._endpoints_known

    # Target

    def _assign(self) -> None:
        digest = self._coordinator.topics.digest
        if digest != self._topics_seen:
            before = self.fitted
            self._look_at_topics()
            if self.fitted != before:
                self.epoch = self.target_epoch + 1
            self._topics_seen = digest
        standbys = self._settings().standbys
        if standbys != self._standbys:
            self.epoch, self._standbys = self.target_epoch + 1, standbys
        if self.epoch == self.target_epoch:
            return
        members = {
            name: TaskMember(member.process_id, self.target.get(name, frozenset()))
            for name, member in self.members.items()
            if self.topology is None or member.topology_epoch == self.topology.epoch
        }
        none: dict[str, Partitions] = dict.fromkeys(self.members, frozenset())
        given = assign_tasks(members, self.fitted.workloads, standbys) if self.fitted.ready else {}
        self._set_target({**none, **given})

    def _look_at_topics(self) -> None:
        if self.topology is None:
            self.fitted = _NO_TOPICS
            return
        try:
            self.fitted = fit_topics(self.topology, self._count)
        except InvalidTopology as error:  # the topics have changed since the topology was accepted
            problem = GroupStatus(StatusCode.INCORRECTLY_PARTITIONED_TOPICS, str(error))
            self.fitted = TopologyTopics({}, {}, (), problem)

    def _count(self, name: str) -> int | None:
        topic = self._coordinator.topics.get(name)
        return None if topic is None else len(topic.streams)

    # Members

    def _settings(self) -> StreamsSettings:
        return StreamsSettings.of(self._coordinator.settings(self.name), self._options)

    def _session_ms(self, member: StreamsMember) -> int:
        return self._settings().session_ms

    def _new_member(self, beat: MemberHeartbeat) -> StreamsMember:
        return StreamsMember(
            beat.member_id, None, beat.client_id, beat.client_host, *self._timers_of(beat.member_id)
        )

    def _restored(self, state: ConsumerMemberState) -> StreamsMember:
        return restored_streams(state, *self._timers_of(state.member_id))

    def _stored(self, member: StreamsMember, target: Partitions) -> ConsumerMemberState:
        return stored_streams(member, target)
