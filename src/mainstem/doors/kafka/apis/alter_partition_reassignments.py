"""AlterPartitionReassignments: the cluster assigns partitions itself, so only the present assignment is accepted."""

from __future__ import annotations

from kio.schema.alter_partition_reassignments.v1.request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
)
from kio.schema.alter_partition_reassignments.v1.response import (
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from kio.schema.errors import ErrorCode

from mainstem.broker.topics.service import Topic
from mainstem.doors.kafka.transport.api import Api, Call
from mainstem.doors.kafka.transport.throttle import NO_THROTTLE


async def handle(
    call: Call, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    return AlterPartitionReassignmentsResponse(
        throttle_time=NO_THROTTLE,
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=ErrorCode.none,
        error_message=None,
        responses=tuple(
            ReassignableTopicResponse(
                name=topic.name,
                partitions=tuple(
                    _answer(call, call.context.broker.streams.get(topic.name), partition)
                    for partition in topic.partitions
                ),
            )
            for topic in request.topics
        ),
    )


def _answer(call: Call, topic: Topic | None, asked: ReassignablePartition) -> ReassignablePartitionResponse:
    code, message = ErrorCode.none, None
    if topic is None or not 0 <= asked.partition_index < len(topic.streams):
        code, message = ErrorCode.unknown_topic_or_partition, "the partition does not exist"
    elif asked.replicas is None:
        code, message = ErrorCode.no_reassignment_in_progress, "partitions are never being reassigned"
    else:
        present = call.context.peers.replicas(topic.streams[asked.partition_index])
        if sorted(asked.replicas) != sorted(present):
            code = ErrorCode.invalid_replica_assignment
            message = f"the cluster assigns partitions itself: this one is served by {list(present)}"
    return ReassignablePartitionResponse(
        partition_index=asked.partition_index, error_code=code, error_message=message
    )


API = Api(45, 0, 1, handle)
