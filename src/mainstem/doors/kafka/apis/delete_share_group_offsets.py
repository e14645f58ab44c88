"""DeleteShareGroupOffsets: delete the offsets of a share group without members in some topics."""

from __future__ import annotations

from uuid import UUID

from kio.schema.delete_share_group_offsets.v0.request import DeleteShareGroupOffsetsRequest
from kio.schema.delete_share_group_offsets.v0.response import (
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from kio.schema.errors import ErrorCode
from kio.schema.types import TopicName

from mainstem.doors.kafka.apis.bulk import DONE, ItemRefused, ItemResult, outcome_of
from mainstem.doors.kafka.transport.api import Api, Call
from mainstem.doors.kafka.transport.errors import group_code_of
from mainstem.doors.kafka.transport.throttle import NO_THROTTLE
from mainstem.errors import GroupNotFound, MainstemError


async def handle(call: Call, request: DeleteShareGroupOffsetsRequest) -> DeleteShareGroupOffsetsResponse:
    code, message = ErrorCode.none, None
    responses: list[DeleteShareGroupOffsetsResponseTopic] = []
    try:
        call.context.groups.check_share_change(request.group_id)
        if not call.context.broker.shares.has(request.group_id):
            raise GroupNotFound(request.group_id)
        responses = [await _delete(call, request.group_id, topic.topic_name) for topic in request.topics]
    except MainstemError as error:
        code, message = group_code_of(error), str(error)
    return DeleteShareGroupOffsetsResponse(
        throttle_time=NO_THROTTLE, error_code=code, error_message=message, responses=tuple(responses)
    )


async def _delete(call: Call, group: str, name: TopicName) -> DeleteShareGroupOffsetsResponseTopic:
    outcome: ItemResult = DONE
    topic_id = None
    try:
        topic = call.context.broker.streams.topic(name)
        topic_id = UUID(bytes=topic.topic_id)
        if call.context.broker.shares.of_group(group).keys().isdisjoint(topic.streams):
            raise ItemRefused(ErrorCode.unknown_topic_or_partition, "the group has no offsets of this topic")
        await call.context.broker.shares.delete(group, topic.streams)
    except (ItemRefused, MainstemError) as error:
        outcome = outcome_of(error)
    return DeleteShareGroupOffsetsResponseTopic(
        topic_name=name, topic_id=topic_id, error_code=outcome.code, error_message=outcome.message
    )


API = Api(92, 0, 0, handle, coordinated=True)
