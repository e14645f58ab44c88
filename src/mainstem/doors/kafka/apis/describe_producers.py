"""DescribeProducers: the producers of a partition, and their open transactions."""

from __future__ import annotations

from kio.schema.describe_producers.v0.request import DescribeProducersRequest
from kio.schema.describe_producers.v0.response import (
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from kio.schema.errors import ErrorCode
from kio.schema.types import ProducerId
from kio.static.primitive import i32, i64

from mainstem.broker.transactions.service import ProducerInfo
from mainstem.doors.kafka.transport.api import Api, Call
from mainstem.doors.kafka.transport.errors import code_of
from mainstem.doors.kafka.transport.throttle import NO_THROTTLE
from mainstem.errors import NotFound

_COORDINATOR_EPOCH = 0  # the epoch in every marker


async def handle(call: Call, request: DescribeProducersRequest) -> DescribeProducersResponse:
    topics = []
    for topic in request.topics:
        partitions = [await _partition(call, topic.name, index) for index in topic.partition_indexes]
        topics.append(TopicResponse(name=topic.name, partitions=tuple(partitions)))
    return DescribeProducersResponse(throttle_time=NO_THROTTLE, topics=tuple(topics))


async def _partition(call: Call, topic: str, index: i32) -> PartitionResponse:
    try:
        stream = call.context.broker.streams.of(topic, index)
    except NotFound as error:
        return PartitionResponse(
            partition_index=index, error_code=code_of(error), error_message=str(error), active_producers=()
        )
    found = [await _state(call, stream, info) for info in call.context.transactions.producers(stream)]
    return PartitionResponse(partition_index=index, error_code=ErrorCode.none, active_producers=tuple(found))


async def _state(call: Call, stream: int, info: ProducerInfo) -> ProducerState:
    time_ms = await call.context.broker.streams.batch_time(stream, info.last_offset)
    return ProducerState(
        producer_id=ProducerId(info.producer),
        producer_epoch=i32(info.epoch),
        last_sequence=i32(info.last_sequence),
        last_timestamp=i64(info.heard_ms if time_ms is None else time_ms),
        coordinator_epoch=i32(_COORDINATOR_EPOCH),
        current_txn_start_offset=i64(info.open_since),
    )


API = Api(61, 0, 0, handle, fresh=True)
