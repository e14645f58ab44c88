"""ListOffsets: the first offset, the end offset, or the offset of a timestamp."""

from __future__ import annotations

from kio.schema.errors import ErrorCode
from kio.schema.list_offsets.v11.request import ListOffsetsPartition, ListOffsetsRequest
from kio.schema.list_offsets.v11.response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kio.static.primitive import i32, i64

from mainstem.broker.streams import StreamService
from mainstem.doors.kafka.apis.leader_epochs import LEADER_EPOCH, wrong_epoch
from mainstem.doors.kafka.transport.api import Api, Call
from mainstem.doors.kafka.transport.errors import code_of
from mainstem.doors.kafka.transport.throttle import NO_THROTTLE
from mainstem.errors import MainstemError

_FIRST, _LAST = 1, 11

# Timestamps with a special meaning.
_LATEST = -1
_EARLIEST = -2
_OF_THE_LATEST_TIME = -3
_EARLIEST_LOCAL = -4  # every record counts as local
_LATEST_TIERED = -5  # no record counts as tiered
_EARLIEST_PENDING_UPLOAD = -6  # no record waits for an upload
_KNOWN_FROM = {  # version of the request
    _LATEST: 1,
    _EARLIEST: 1,
    _OF_THE_LATEST_TIME: 7,
    _EARLIEST_LOCAL: 8,
    _LATEST_TIERED: 9,
    _EARLIEST_PENDING_UPLOAD: 11,
}
_READ_COMMITTED = 1


async def handle(call: Call, request: ListOffsetsRequest) -> ListOffsetsResponse:
    committed_only = request.isolation_level == _READ_COMMITTED
    streams = call.context.broker.streams
    await call.context.broker.barrier()  # a lagging broker must not move a client back
    topics = []
    for topic in request.topics:
        found = [
            await _partition(streams, topic.name, part, committed_only)
            if part.timestamp >= 0 or call.version >= _KNOWN_FROM.get(part.timestamp, _LAST + 1)
            else _refused(part)
            for part in topic.partitions
        ]
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=tuple(found)))
    return ListOffsetsResponse(throttle_time=NO_THROTTLE, topics=tuple(topics))


async def _partition(
    streams: StreamService, name: str, wanted: ListOffsetsPartition, committed_only: bool
) -> ListOffsetsPartitionResponse:
    code = wrong_epoch(wanted.current_leader_epoch)
    offset = time = -1
    if not code:
        try:
            stream = streams.of(name, wanted.partition_index)
            offset, time = await _place(streams, stream, wanted.timestamp, committed_only)
        except MainstemError as error:
            code = code_of(error)
    return ListOffsetsPartitionResponse(
        partition_index=wanted.partition_index,
        error_code=code,
        timestamp=i64(time),
        offset=i64(offset),
        leader_epoch=i32(LEADER_EPOCH if offset >= 0 else -1),
    )


def _refused(wanted: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
    """The response to a timestamp that has no meaning in the version of the request."""
    return ListOffsetsPartitionResponse(
        partition_index=wanted.partition_index, error_code=ErrorCode.unsupported_version
    )


async def _place(streams: StreamService, stream: int, time: int, committed_only: bool) -> tuple[int, int]:
    """Offset and timestamp; -1 where there is none."""
    start, end = streams.bounds(stream)
    if committed_only:
        end = streams.stable_end(stream, end)
    if time == _LATEST:
        return end, -1
    if time in (_EARLIEST, _EARLIEST_LOCAL):
        return start, -1
    if time in (_LATEST_TIERED, _EARLIEST_PENDING_UPLOAD):
        return -1, -1
    if time == _OF_THE_LATEST_TIME:
        found = await streams.of_latest_time(stream)
    else:
        found = await streams.at_time(stream, time)
    return found if found is not None and found[0] < end else (-1, -1)


API = Api(2, _FIRST, _LAST, handle)
