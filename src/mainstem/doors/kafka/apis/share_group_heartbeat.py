"""ShareGroupHeartbeat: join, stay in and leave a share group (KIP-932)."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.schema.share_group_heartbeat.v1.request import ShareGroupHeartbeatRequest
from kio.schema.share_group_heartbeat.v1.response import (
    Assignment,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)
from kio.static.primitive import i32, i32Timedelta

from mainstem.broker.groups.assignors import Partitions
from mainstem.broker.groups.consumer_member import ConsumerHeartbeat
from mainstem.doors.kafka.apis.by_topic import by_topic
from mainstem.doors.kafka.transport.api import Api, Call
from mainstem.doors.kafka.transport.errors import group_code_of
from mainstem.doors.kafka.transport.throttle import NO_THROTTLE
from mainstem.errors import MainstemError


async def handle(call: Call, request: ShareGroupHeartbeatRequest) -> ShareGroupHeartbeatResponse:
    names = request.subscribed_topic_names
    beat = ConsumerHeartbeat(
        group=request.group_id,
        member_id=request.member_id,
        epoch=request.member_epoch,
        rack=request.rack_id,
        topics=None if names is None else frozenset(names),
        client_id=call.client_id or "",
        client_host=f"/{call.host}",
    )
    try:
        answer = await call.context.groups.share_heartbeat(beat)
    except MainstemError as error:
        return ShareGroupHeartbeatResponse(
            throttle_time=NO_THROTTLE,
            error_code=group_code_of(error),
            error_message=str(error),
            member_epoch=i32(0),
            heartbeat_interval=NO_THROTTLE,
        )
    return ShareGroupHeartbeatResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        member_id=answer.member_id,
        member_epoch=i32(answer.epoch),
        heartbeat_interval=NO_THROTTLE
        if answer.epoch < 0
        else i32Timedelta.parse(timedelta(milliseconds=answer.heartbeat_ms)),
        assignment=None if answer.assigned is None else _assignment(answer.assigned),
    )


def _assignment(assigned: Partitions) -> Assignment:
    return Assignment(
        topic_partitions=tuple(
            TopicPartitions(topic_id=UUID(bytes=topic_id), partitions=numbers)
            for topic_id, numbers in by_topic(assigned).items()
        )
    )


API = Api(76, 1, 1, handle, coordinated=True)
