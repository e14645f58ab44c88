"""ConsumerGroupHeartbeat: join, stay in and leave a group whose partitions the broker assigns (KIP-848)."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from uuid import UUID

from kio.schema.consumer_group_heartbeat.v1.request import ConsumerGroupHeartbeatRequest
from kio.schema.consumer_group_heartbeat.v1.response import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from kio.schema.errors import ErrorCode
from kio.static.primitive import i32, i32Timedelta

from mainstem.broker.access.principal import Principal
from mainstem.broker.access.rules import Operation, ResourceType
from mainstem.broker.groups.assignors import Partitions
from mainstem.broker.groups.consumer_member import ConsumerHeartbeat
from mainstem.doors.kafka.apis.by_topic import by_topic
from mainstem.doors.kafka.transport.api import Api, Call
from mainstem.doors.kafka.transport.errors import group_code_of
from mainstem.doors.kafka.transport.throttle import NO_THROTTLE
from mainstem.errors import InvalidInput, MainstemError

_MS = timedelta(milliseconds=1)


async def handle(call: Call, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
    try:
        answer = await call.context.groups.consumer_heartbeat(_beat(call, request))
    except MainstemError as error:
        return ConsumerGroupHeartbeatResponse(
            throttle_time=NO_THROTTLE,
            error_code=group_code_of(error),
            error_message=str(error),
            member_epoch=i32(0),
            heartbeat_interval=i32Timedelta.parse(timedelta(0)),
        )
    return ConsumerGroupHeartbeatResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        member_id=answer.member_id,
        member_epoch=i32(answer.epoch),
        heartbeat_interval=i32Timedelta.parse((answer.heartbeat_ms if answer.epoch >= 0 else 0) * _MS),
        assignment=None if answer.assigned is None else _assignment(answer.assigned),
    )


def _beat(call: Call, request: ConsumerGroupHeartbeatRequest) -> ConsumerHeartbeat:
    if request.member_epoch == 0 and request.topic_partitions is None:
        raise InvalidInput("a member that joins says that it owns no partitions yet")
    rebalance_ms = request.rebalance_timeout // _MS
    names = request.subscribed_topic_names
    access = call.context.access
    return ConsumerHeartbeat(
        group=request.group_id,
        member_id=request.member_id,
        epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack=request.rack_id,
        rebalance_ms=None if rebalance_ms == -1 else rebalance_ms,
        topics=None if names is None else frozenset(names),
        pattern=request.subscribed_topic_regex,
        assignor=request.server_assignor,
        owned=_owned(request),
        client_id=call.client_id or "",
        client_host=f"/{call.host}",
        sees=partial(access.allows, *_describer(call)) if call.restricted else None,
        rights=access.state,
    )


def _describer(call: Call) -> tuple[Principal, str, Operation, ResourceType]:
    """A pattern matches only topics that the client may describe."""
    return call.principal, call.host, Operation.DESCRIBE, ResourceType.TOPIC


def _owned(request: ConsumerGroupHeartbeatRequest) -> Partitions | None:
    if request.topic_partitions is None:
        return None
    return frozenset(
        (topic.topic_id.bytes, number)
        for topic in request.topic_partitions
        if topic.topic_id is not None
        for number in topic.partitions
    )


def _assignment(assigned: Partitions) -> Assignment:
    return Assignment(
        topic_partitions=tuple(
            TopicPartitions(topic_id=UUID(bytes=topic_id), partitions=numbers)
            for topic_id, numbers in by_topic(assigned).items()
        )
    )


API = Api(68, 0, 1, handle, coordinated=True)
