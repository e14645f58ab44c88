"""AlterShareGroupOffsets: reset the start offsets of a share group without members, and discard its other state."""

from __future__ import annotations

from kio.schema.alter_share_group_offsets.v0.request import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestTopic,
)
from kio.schema.alter_share_group_offsets.v0.response import (
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from kio.schema.errors import ErrorCode

from mainstem.doors.kafka.apis.bulk import DONE, ItemResult, outcome_of
from mainstem.doors.kafka.apis.topic_ids import id_of
from mainstem.doors.kafka.transport.api import Api, Call
from mainstem.doors.kafka.transport.errors import group_code_of
from mainstem.doors.kafka.transport.throttle import NO_THROTTLE
from mainstem.errors import MainstemError, TopicNotFound


async def handle(call: Call, request: AlterShareGroupOffsetsRequest) -> AlterShareGroupOffsetsResponse:
    code, message = ErrorCode.none, None
    responses: list[AlterShareGroupOffsetsResponseTopic] = []
    try:
        call.context.groups.check_share_change(request.group_id)
        responses = [await _alter(call, request.group_id, topic) for topic in request.topics]
    except MainstemError as error:
        code, message = group_code_of(error), str(error)
    return AlterShareGroupOffsetsResponse(
        throttle_time=NO_THROTTLE, error_code=code, error_message=message, responses=tuple(responses)
    )


async def _alter(
    call: Call, group: str, topic: AlterShareGroupOffsetsRequestTopic
) -> AlterShareGroupOffsetsResponseTopic:
    partitions = []
    for part in topic.partitions:
        outcome = await _move(call, group, topic.topic_name, part.partition_index, part.start_offset)
        partitions.append(
            AlterShareGroupOffsetsResponsePartition(
                partition_index=part.partition_index, error_code=outcome.code, error_message=outcome.message
            )
        )
    try:
        topic_id = id_of(call, topic.topic_name)
    except TopicNotFound:
        topic_id = None
    return AlterShareGroupOffsetsResponseTopic(
        topic_name=topic.topic_name, topic_id=topic_id, partitions=tuple(partitions)
    )


async def _move(call: Call, group: str, topic: str, partition: int, offset: int) -> ItemResult:
    try:
        stream = call.context.broker.streams.of(topic, partition)
        await call.context.broker.shares.move(group, [(stream, offset)])
    except MainstemError as error:
        return outcome_of(error)
    return DONE


API = Api(91, 0, 0, handle, coordinated=True)
