"""OffsetForLeaderEpoch: where the records of a leader epoch end, so that a client can detect truncation.

This log is never truncated: its one epoch ends at the end.
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode
from kio.schema.offset_for_leader_epoch.v4.request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
)
from kio.schema.offset_for_leader_epoch.v4.response import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from kio.static.primitive import i32, i64

from mainstem.broker.streams import StreamService
from mainstem.doors.kafka.apis.leader_epochs import LEADER_EPOCH, wrong_epoch
from mainstem.doors.kafka.transport.api import Api, Call
from mainstem.doors.kafka.transport.errors import code_of
from mainstem.doors.kafka.transport.throttle import NO_THROTTLE
from mainstem.errors import MainstemError


async def handle(call: Call, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
    streams = call.context.broker.streams
    topics = tuple(
        OffsetForLeaderTopicResult(
            topic=topic.topic,
            partitions=tuple(_partition(streams, topic.topic, part) for part in topic.partitions),
        )
        for topic in request.topics
    )
    return OffsetForLeaderEpochResponse(throttle_time=NO_THROTTLE, topics=topics)


def _partition(streams: StreamService, name: str, wanted: OffsetForLeaderPartition) -> EpochEndOffset:
    code = wrong_epoch(wanted.current_leader_epoch)
    epoch = end = -1
    if code is ErrorCode.none:
        try:
            _, end = streams.bounds(streams.of(name, wanted.partition))
            epoch = LEADER_EPOCH
        except MainstemError as error:
            code = code_of(error)
    if wanted.leader_epoch != LEADER_EPOCH:
        epoch = end = -1  # an unknown epoch is not an error
    return EpochEndOffset(
        error_code=code, partition=wanted.partition, leader_epoch=i32(epoch), end_offset=i64(end)
    )


API = Api(23, 2, 4, handle)
