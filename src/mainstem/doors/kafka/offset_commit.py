"""OffsetCommit: a group stores how far it has read."""

from __future__ import annotations

from collections.abc import Iterator

from kio.schema.errors import ErrorCode
from kio.schema.offset_commit.v9.request import OffsetCommitRequest
from kio.schema.offset_commit.v9.response import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

from mainstem.broker.group.offsets import OffsetToCommit
from mainstem.doors.kafka.api import Api, Call
from mainstem.doors.kafka.errors import group_code_of
from mainstem.doors.kafka.throttle import NO_THROTTLE
from mainstem.errors import MainstemError


async def handle(call: Call, request: OffsetCommitRequest) -> OffsetCommitResponse:
    offsets = [
        OffsetToCommit(
            topic.name,
            partition.partition_index,
            partition.committed_offset,
            partition.committed_metadata or "",
            partition.committed_leader_epoch,
        )
        for topic in request.topics
        for partition in topic.partitions
    ]
    try:
        outcomes = await call.context.groups.commit(
            request.group_id,
            offsets,
            member_id=request.member_id,
            generation=request.generation_id_or_member_epoch,
            instance_id=request.group_instance_id,
        )
    except MainstemError as error:
        outcomes = [error] * len(offsets)
    codes = iter([ErrorCode.none if error is None else group_code_of(error) for error in outcomes])
    return _answer(request, codes)


def _answer(request: OffsetCommitRequest, codes: Iterator[ErrorCode]) -> OffsetCommitResponse:
    """One code for each partition, in the order of the request."""
    topics = tuple(
        OffsetCommitResponseTopic(
            name=topic.name,
            partitions=tuple(
                OffsetCommitResponsePartition(
                    partition_index=partition.partition_index, error_code=next(codes)
                )
                for partition in topic.partitions
            ),
        )
        for topic in request.topics
    )
    return OffsetCommitResponse(throttle_time=NO_THROTTLE, topics=topics)


API = Api(8, 2, 9, handle)
