"""StreamsGroupHeartbeat: join, stay in and leave a group of Kafka Streams members (KIP-1071).

The broker creates the internal topics of the application, with the rights of the member that needs them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import TypeVar

from kio.schema.errors import ErrorCode
from kio.schema.streams_group_heartbeat.v0 import request as asked
from kio.schema.streams_group_heartbeat.v0.request import StreamsGroupHeartbeatRequest
from kio.schema.streams_group_heartbeat.v0.response import (
    Endpoint,
    EndpointToPartitions,
    Status,
    StreamsGroupHeartbeatResponse,
    TaskIds,
    TopicPartition,
)
from kio.schema.types import TopicName
from kio.static.primitive import i8, i32, i32Timedelta, u16

from mainstem.broker.groups.assignors import Partitions
from mainstem.broker.groups.streams_group import StreamsGroup
from mainstem.broker.groups.streams_member import EndpointTasks, StreamsHeartbeat
from mainstem.broker.groups.task_assignor import ACTIVE, STANDBY, WARMUP, subtopology_of, task_key
from mainstem.broker.groups.topology_topics import (
    GroupStatus,
    InternalTopic,
    StatusCode,
    Subtopology,
    Topology,
)
from mainstem.broker.topics import configs
from mainstem.doors.kafka.apis.auto_create import check_name, may_create
from mainstem.doors.kafka.apis.by_topic import by_topic
from mainstem.doors.kafka.transport.api import Api, Call
from mainstem.doors.kafka.transport.errors import group_code_of
from mainstem.doors.kafka.transport.throttle import NO_THROTTLE
from mainstem.errors import InvalidInput, MainstemError

_MS = timedelta(milliseconds=1)
_NO_DURATION = i32Timedelta.parse(timedelta(0))

T = TypeVar("T")


async def handle(call: Call, request: StreamsGroupHeartbeatRequest) -> StreamsGroupHeartbeatResponse:
    creation = _Creation(call)
    try:
        answer = await call.context.groups.streams_heartbeat(_beat(call, request), creation.create)
    except MainstemError as error:
        return StreamsGroupHeartbeatResponse(
            throttle_time=NO_THROTTLE,
            error_code=group_code_of(error),
            error_message=str(error),
            member_id=request.member_id,
            member_epoch=i32(0),
            heartbeat_interval=_NO_DURATION,
            acceptable_recovery_lag=i32(0),
            task_offset_interval=_NO_DURATION,
            status=(),
            active_tasks=None,
            standby_tasks=None,
            warmup_tasks=None,
            endpoint_information_epoch=i32(0),
            partitions_by_user_endpoint=None,
        )
    tasks = answer.assigned
    return StreamsGroupHeartbeatResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        member_id=answer.member_id,
        member_epoch=i32(answer.epoch),
        heartbeat_interval=i32Timedelta.parse(answer.heartbeat_ms * _MS),
        acceptable_recovery_lag=i32(0),
        task_offset_interval=_NO_DURATION,
        status=tuple(map(creation.status, answer.statuses)),
        active_tasks=None if tasks is None else task_ids(tasks, ACTIVE, TaskIds),
        standby_tasks=None if tasks is None else task_ids(tasks, STANDBY, TaskIds),
        warmup_tasks=None if tasks is None else (),
        endpoint_information_epoch=i32(answer.endpoints_version),
        partitions_by_user_endpoint=(
            None if answer.endpoints is None else _endpoints(call, request.group_id, answer.endpoints)
        ),
    )


def task_ids(tasks: Partitions, role: bytes, entity: type[T]) -> tuple[T, ...]:
    """The tasks that a member has in a role, by subtopology."""
    return tuple(
        entity(subtopology_id=subtopology_of(key), partitions=numbers)  # type: ignore[call-arg]  # TaskIds
        for key, numbers in by_topic(tasks).items()
        if key[:1] == role
    )


class _Creation:
    """Creates internal topics for a client, and explains which ones it could not create."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._refused: dict[str, str] = {}

    async def create(self, topics: Sequence[InternalTopic]) -> None:
        broker = self._call.context.broker
        for topic in topics:
            try:
                check_name(topic.name)
                if not may_create(self._call, topic.name):
                    self._refused[topic.name] = "the access rules do not let you create it"
                    continue
                config = configs.replaced(dict(topic.configs), broker.namespaces.default_config(topic.name))
                await broker.create_topic(
                    topic.name, partitions=topic.partitions, config=config, exist_ok=True
                )
            except MainstemError as error:
                self._refused[topic.name] = str(error)

    def status(self, status: GroupStatus) -> Status:
        detail = status.detail
        if status.code == StatusCode.MISSING_INTERNAL_TOPICS and self._refused:
            detail += f" ({'; '.join(f'{name}: {why}' for name, why in self._refused.items())})"
        return Status(status_code=i8(status.code), status_detail=self._call.text(detail))


def _beat(call: Call, request: StreamsGroupHeartbeatRequest) -> StreamsHeartbeat:
    """Raises InvalidInput for what streams groups do not have."""
    if request.task_offsets or request.task_end_offsets:
        raise InvalidInput("offsets of tasks are not used: send none")
    rebalance_ms = request.rebalance_timeout // _MS
    endpoint, tags = request.user_endpoint, request.client_tags
    return StreamsHeartbeat(
        group=request.group_id,
        member_id=request.member_id,
        epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack=request.rack_id,
        rebalance_ms=None if rebalance_ms == -1 else rebalance_ms,
        owned=_owned(request),
        client_id=call.client_id or "",
        client_host=f"/{call.host}",
        topology=None if request.topology is None else _topology(request.topology),
        process_id=request.process_id,
        endpoint=None if endpoint is None else (endpoint.host, endpoint.port),
        tags=None if tags is None else tuple(sorted((tag.key, tag.value) for tag in tags)),
        shutdown=request.shutdown_application,
        endpoints_version=request.endpoint_information_epoch,
    )


def _owned(request: StreamsGroupHeartbeatRequest) -> Partitions | None:
    roles = {ACTIVE: request.active_tasks, STANDBY: request.standby_tasks, WARMUP: request.warmup_tasks}
    if all(tasks is None for tasks in roles.values()):
        return None
    if any(tasks is None for tasks in roles.values()):
        raise InvalidInput("a member that reports tasks of one kind reports all kinds")
    return frozenset(
        (task_key(role, one.subtopology_id), number)
        for role, tasks in roles.items()
        for one in tasks or ()
        for number in one.partitions
    )


def _topology(topology: asked.Topology) -> Topology:
    return Topology(topology.epoch, tuple(map(_subtopology, topology.subtopologies)))


def _subtopology(one: asked.Subtopology) -> Subtopology:
    if one.source_topic_regex:
        raise InvalidInput("patterns of source topics are not supported: name the topics")
    sources, repartitioned = one.source_topics, [topic.name for topic in one.repartition_source_topics]
    try:
        groups = tuple(
            tuple(
                sorted(
                    {
                        *(sources[_index(place)] for place in group.source_topics),
                        *(repartitioned[_index(place)] for place in group.repartition_source_topics),
                    }
                )
            )
            for group in one.copartition_groups
        )
    except IndexError:
        raise InvalidInput(
            f"a copartition group of subtopology {one.subtopology_id!r} names a topic that it does not have"
        ) from None
    return Subtopology(
        one.subtopology_id,
        tuple(sorted(sources)),
        _internal(one.state_changelog_topics),
        tuple(sorted(one.repartition_sink_topics)),
        _internal(one.repartition_source_topics),
        tuple(sorted(groups)),
    )


def _index(place: int) -> int:
    if place < 0:
        raise IndexError(place)
    return place


def _internal(topics: Iterable[asked.TopicInfo]) -> tuple[InternalTopic, ...]:
    found = [
        InternalTopic(
            topic.name,
            topic.partitions,
            tuple(sorted((one.key, one.value) for one in topic.topic_configs)),
            topic.replication_factor,
        )
        for topic in topics
    ]
    return tuple(sorted(found, key=lambda topic: topic.name))


def _endpoints(
    call: Call, group_id: str, endpoints: Sequence[EndpointTasks]
) -> tuple[EndpointToPartitions, ...]:
    group = call.context.groups.get(group_id)
    if not isinstance(group, StreamsGroup):
        return ()
    return tuple(
        EndpointToPartitions(
            user_endpoint=Endpoint(host=one.endpoint[0], port=u16(one.endpoint[1])),
            active_partitions=_partitions(group.partitions_of(one.tasks, ACTIVE)),
            standby_partitions=_partitions(group.partitions_of(one.tasks, STANDBY)),
        )
        for one in endpoints
    )


def _partitions(found: Mapping[str, Sequence[int]]) -> tuple[TopicPartition, ...]:
    return tuple(
        TopicPartition(topic=TopicName(name), partitions=tuple(map(i32, numbers)))
        for name, numbers in found.items()
    )


API = Api(88, 0, 0, handle, coordinated=True)
