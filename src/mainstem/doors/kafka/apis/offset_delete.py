"""OffsetDelete: delete a group's offsets of topics that it does not consume."""

from __future__ import annotations

from kio.schema.errors import ErrorCode
from kio.schema.offset_delete.v0.request import OffsetDeleteRequest
from kio.schema.offset_delete.v0.response import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

from mainstem.doors.kafka.transport.api import Api, Call
from mainstem.doors.kafka.transport.errors import group_code_of
from mainstem.doors.kafka.transport.throttle import NO_THROTTLE
from mainstem.errors import MainstemError


async def handle(call: Call, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    wanted = [
        (topic.name, partition.partition_index) for topic in request.topics for partition in topic.partitions
    ]
    try:
        outcomes = await call.context.groups.delete_offsets(request.group_id, wanted)
    except MainstemError as error:
        return OffsetDeleteResponse(error_code=group_code_of(error), throttle_time=NO_THROTTLE, topics=())
    codes = iter([ErrorCode.none if error is None else group_code_of(error) for error in outcomes])
    topics = tuple(
        OffsetDeleteResponseTopic(
            name=topic.name,
            partitions=tuple(
                OffsetDeleteResponsePartition(
                    partition_index=partition.partition_index, error_code=next(codes)
                )
                for partition in topic.partitions
            ),
        )
        for topic in request.topics
    )
    return OffsetDeleteResponse(error_code=ErrorCode.none, throttle_time=NO_THROTTLE, topics=topics)


API = Api(47, 0, 0, handle, fresh=True, coordinated=True)
