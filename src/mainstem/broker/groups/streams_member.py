"""A member of a streams group (KIP-1071), and what it reports. In place of partitions it has tasks."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass

from mainstem import limits
from mainstem.broker.groups.assigned_member import AssignedMember, MemberHeartbeat
from mainstem.broker.groups.assignors import Partitions, TopicPartition
from mainstem.broker.groups.task_assignor import ACTIVE
from mainstem.broker.groups.topology_topics import GroupStatus, check_topology
from mainstem.errors import InvalidInput, InvalidTopology
from mainstem.ledger.consumer_groups import TASK_KEY_BYTES_MAX, encoded_topology
from mainstem.ledger.topology import Topology

TOPOLOGY_BYTES_MAX = 1 * limits.MIB
MEMBER_TAGS_MAX = 64

Endpoint = tuple[str, int]  # host, port


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsHeartbeat(MemberHeartbeat):
    topology: Topology | None = None  # of a member that joins
    process_id: str | None = None
    endpoint: Endpoint | None = None
    tags: tuple[tuple[str, str], ...] | None = None
    shutdown: bool = False  # all members shall stop
    endpoints_version: int = -1  # of the endpoints that it knows


@dataclass(frozen=True, slots=True)
class EndpointTasks:
    """Which tasks run at an endpoint, for queries of their state."""

    endpoint: Endpoint
    tasks: Partitions


@dataclass(frozen=True, slots=True)
class StreamsHeartbeatResult:
    member_id: str
    epoch: int
    heartbeat_ms: int
    assigned: Partitions | None  # tasks; None = unchanged
    statuses: tuple[GroupStatus, ...] = ()
    endpoints_version: int = 0
    endpoints: tuple[EndpointTasks, ...] | None = None  # None = unchanged


@dataclass(slots=True, eq=False)
class StreamsMember(AssignedMember):
    process_id: str = ""
    topology_epoch: int = 0
    endpoint: Endpoint | None = None
    tags: tuple[tuple[str, str], ...] = ()

    @property
    def own_facts(self) -> tuple[object, ...]:
        return self.process_id, self.topology_epoch, self.endpoint, self.tags

    def claims(self, partition: TopicPartition) -> Iterable[Hashable]:
        """One member runs a task, and one member of each process has its state."""
        task = partition[0][1:], partition[1]
        at_process = self.process_id, task
        return (task, at_process) if partition[0][:1] == ACTIVE else (at_process,)

    def take_in(self, beat: StreamsHeartbeat) -> bool:
        """Store what it reports. Returns whether what the assignor looks at changed."""
        before = self.process_id, self.tags, self.rack
        self.note(beat)
        if beat.process_id is not None:
            self.process_id = beat.process_id
        if beat.endpoint is not None:
            self.endpoint = beat.endpoint
        if beat.tags is not None:
            self.tags = beat.tags
        if beat.topology is not None:
            self.topology_epoch = beat.topology.epoch
        return before != (self.process_id, self.tags, self.rack)


def check_streams_heartbeat(beat: StreamsHeartbeat) -> None:
    """Raises InvalidInput, InvalidTopology."""
    if beat.epoch < -1:
        raise InvalidInput("a streams group has no static members: the epoch of a member is -1 or more")
    if not 1 <= len(beat.member_id) <= limits.NAME_CHARS_MAX:
        raise InvalidInput(
            f"a member of a streams group has an id of 1 to {limits.NAME_CHARS_MAX} characters"
        )
    if beat.instance_id is not None:
        raise InvalidInput("a streams group has no static members: send no instance id")
    if beat.rack == "":
        raise InvalidInput("a rack, if given, is not empty")
    words = [beat.process_id or "", *(beat.endpoint[:1] if beat.endpoint else ())]
    words += [word for tag in beat.tags or () for word in tag]
    if any(len(word) > limits.NAME_CHARS_MAX for word in words) or len(beat.tags or ()) > MEMBER_TAGS_MAX:
        raise InvalidInput(
            f"a process id, an endpoint and tags have at most {limits.NAME_CHARS_MAX} characters"
        )
    if beat.epoch != 0:
        if beat.topology is not None:
            raise InvalidInput("only a member that joins sends its topology")
        return
    if beat.rebalance_ms is None or beat.rebalance_ms < 0:
        raise InvalidInput("a member that joins says how long a rebalance may take")
    if beat.owned:
        raise InvalidInput("a member that joins has no tasks yet")
    if beat.topology is None:
        raise InvalidInput("a member that joins sends its topology")
    if not beat.process_id:
        raise InvalidInput("a member that joins says the id of its process")
    if len(encoded_topology(beat.topology)) > TOPOLOGY_BYTES_MAX:
        raise InvalidTopology(f"a topology has at most {TOPOLOGY_BYTES_MAX} bytes")
    if any(len(one.subtopology_id.encode()) >= TASK_KEY_BYTES_MAX for one in beat.topology.subtopologies):
        raise InvalidTopology(f"the id of a subtopology has less than {TASK_KEY_BYTES_MAX} bytes")
    check_topology(beat.topology)
