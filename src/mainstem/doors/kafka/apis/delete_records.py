"""DeleteRecords: delete the records of a partition below an offset."""

from __future__ import annotations

from kio.schema.delete_records.v2.request import DeleteRecordsPartition, DeleteRecordsRequest
from kio.schema.delete_records.v2.response import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from kio.schema.errors import ErrorCode
from kio.static.primitive import i64

from mainstem.broker.broker import Broker
from mainstem.doors.kafka.transport.api import Api, Call
from mainstem.doors.kafka.transport.errors import code_of
from mainstem.doors.kafka.transport.throttle import NO_THROTTLE
from mainstem.errors import MainstemError, OffsetOutOfRange, Rejected

_TO_THE_END = -1


async def handle(call: Call, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    broker = call.context.broker
    topics = []
    for topic in request.topics:
        done = [await _partition(broker, topic.name, part) for part in topic.partitions]
        topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=tuple(done)))
    return DeleteRecordsResponse(throttle_time=NO_THROTTLE, topics=tuple(topics))


async def _partition(
    broker: Broker, name: str, wanted: DeleteRecordsPartition
) -> DeleteRecordsPartitionResult:
    code, low = ErrorCode.none, -1
    try:
        low = await _trim(broker, name, wanted)
    except MainstemError as error:
        code = code_of(error)
    return DeleteRecordsPartitionResult(
        partition_index=wanted.partition_index, low_watermark=i64(low), error_code=code
    )


async def _trim(broker: Broker, name: str, wanted: DeleteRecordsPartition) -> int:
    if broker.topic(name).config.cleanup_policy == "compact":
        raise Rejected("the cleanup policy of the topic is compact: its records cannot be deleted by offset")
    start, end = broker.streams.bounds(broker.streams.of(name, wanted.partition_index))
    offset = end if wanted.offset == _TO_THE_END else wanted.offset
    if not 0 <= offset <= end:
        raise OffsetOutOfRange(offset, start, end)
    return await broker.trim(name, offset, wanted.partition_index)


API = Api(21, 0, 2, handle, fresh=True)
