"""AlterReplicaLogDirs: a broker has one directory, so partitions can only be moved to where they are."""

from __future__ import annotations

from kio.schema.alter_replica_log_dirs.v2.request import AlterReplicaLogDirsRequest
from kio.schema.alter_replica_log_dirs.v2.response import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from kio.schema.errors import ErrorCode

from mainstem.broker.access.rules import CLUSTER_NAME, Operation, ResourceType
from mainstem.doors.kafka.transport.api import Api, Call
from mainstem.doors.kafka.transport.throttle import NO_THROTTLE


async def handle(call: Call, request: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse:
    here = str(call.context.broker.options.data_dir.absolute())
    allowed = call.may_or_audit(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
    return AlterReplicaLogDirsResponse(
        throttle_time=NO_THROTTLE,
        results=tuple(
            AlterReplicaLogDirTopicResult(
                topic_name=topic.name,
                partitions=tuple(
                    AlterReplicaLogDirPartitionResult(
                        partition_index=partition,
                        error_code=_code(call, topic.name, partition, same=directory.path == here)
                        if allowed
                        else ErrorCode.cluster_authorization_failed,
                    )
                    for partition in topic.partitions
                ),
            )
            for directory in request.dirs
            for topic in directory.topics
        ),
    )


def _code(call: Call, name: str, partition: int, *, same: bool) -> ErrorCode:
    topic = call.context.broker.streams.get(name)
    if topic is None or not 0 <= partition < len(topic.streams):
        return ErrorCode.unknown_topic_or_partition
    return ErrorCode.none if same else ErrorCode.log_dir_not_found


API = Api(34, 1, 2, handle)
