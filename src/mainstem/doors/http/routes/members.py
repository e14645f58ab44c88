"""Members of consumer groups over HTTP: join, stay alive and leave. The broker assigns the partitions."""

from __future__ import annotations

import contextlib

import msgspec

from mainstem.api.access import Operation
from mainstem.api.groups import (
    AssignedPartition,
    GroupLeft,
    GroupMembership,
    HeartbeatBody,
    JoinBody,
    LeaveBody,
)
from mainstem.broker.groups.assignors import Partitions
from mainstem.broker.groups.consumer_member import ConsumerHeartbeat, ConsumerHeartbeatResult
from mainstem.broker.groups.service import Groups
from mainstem.doors.http.routes.groups import require_group
from mainstem.doors.http.transport.errors import invalid
from mainstem.doors.http.transport.requests import HttpRequest
from mainstem.doors.http.transport.responses import Response, reply
from mainstem.errors import UnknownMember

_join_body = msgspec.json.Decoder(JoinBody)
_heartbeat_body = msgspec.json.Decoder(HeartbeatBody)
_leave_body = msgspec.json.Decoder(LeaveBody)

_LEAVES = -1
_LEAVES_FOR_NOW = -2  # a static member


async def post_join(request: HttpRequest) -> Response:
    """Join a consumer group. The server assigns partitions, and expects heartbeats from now on."""
    group, body = request.parameters["group"], request.json(_join_body)
    if not body.topics:
        raise invalid("name at least one topic to read")
    require_group(request, Operation.READ, group)
    for topic in body.topics:
        request.require_topic(topic, Operation.READ)
    groups = request.broker.groups
    joined = await groups.consumer_heartbeat(
        ConsumerHeartbeat(
            group=group,
            member_id="",
            epoch=0,
            instance_id=body.instance_id,
            rebalance_ms=body.rebalance_timeout_ms,
            topics=frozenset(body.topics),
            assignor=body.assignor,
            owned=frozenset(),
            client_id=body.client_id,
            client_host=f"/{request.host}",
        )
    )
    return _membership(request, groups, group, joined)


async def post_heartbeat(request: HttpRequest) -> Response:
    """Stay in a group. Returns the partitions to read, if they changed."""
    group, body = request.parameters["group"], request.json(_heartbeat_body)
    require_group(request, Operation.READ, group)
    groups = request.broker.groups
    beat = ConsumerHeartbeat(
        group=group,
        member_id=body.member_id,
        epoch=body.epoch,
        instance_id=body.instance_id,
        owned=_owned(request, body),
        client_host=f"/{request.host}",
    )
    return _membership(request, groups, group, await groups.consumer_heartbeat(beat))


async def post_leave(request: HttpRequest) -> Response:
    """Leave a group: its partitions go to the other members at once; those of a static member, after its timeout."""
    group, body = request.parameters["group"], request.json(_leave_body)
    require_group(request, Operation.READ, group)
    epoch = _LEAVES if body.instance_id is None else _LEAVES_FOR_NOW
    beat = ConsumerHeartbeat(group=group, member_id=body.member_id, epoch=epoch, instance_id=body.instance_id)
    with contextlib.suppress(UnknownMember):  # it left before: a retry of a lost response
        await request.broker.groups.consumer_heartbeat(beat)
    return reply(GroupLeft(group, body.member_id, request.performance()))


def _owned(request: HttpRequest, body: HeartbeatBody) -> Partitions | None:
    if body.owned is None:
        return None
    found = set()
    for one in body.owned:
        topic = request.broker.streams.get(one.topic)
        if topic is not None:
            found.add((topic.topic_id, one.partition))
    return frozenset(found)


def _membership(
    request: HttpRequest, groups: Groups, group: str, member: ConsumerHeartbeatResult
) -> Response:
    assigned = None if member.assigned is None else _assigned(request, groups, group, member.assigned)
    return reply(
        GroupMembership(
            group, member.member_id, member.epoch, member.heartbeat_ms, assigned, request.performance()
        )
    )


def _assigned(
    request: HttpRequest, groups: Groups, group: str, partitions: Partitions
) -> list[AssignedPartition]:
    streams = request.broker.streams
    found = []
    for topic_id, number in partitions:
        topic = streams.get_by_id(topic_id)
        if topic is None:
            continue  # deleted in the meantime
        cursor = groups.committed(group, topic.name, number)
        start, end = streams.bounds(topic.streams[number])
        end = streams.stable_end(topic.streams[number], end)
        offset = None if cursor is None else cursor.offset
        found.append(AssignedPartition(topic.name, number, offset, start, end))
    return sorted(found, key=lambda one: (one.topic, one.partition))
