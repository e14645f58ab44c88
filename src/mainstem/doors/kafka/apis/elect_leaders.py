"""ElectLeaders: every partition has its preferred leader, so there is nothing to elect."""

from __future__ import annotations

from collections.abc import Iterable

from kio.schema.elect_leaders.v2.request import ElectLeadersRequest
from kio.schema.elect_leaders.v2.response import ElectLeadersResponse, PartitionResult, ReplicaElectionResult
from kio.schema.errors import ErrorCode
from kio.schema.types import TopicName
from kio.static.primitive import i32

from mainstem.doors.kafka.transport.api import Api, Call
from mainstem.doors.kafka.transport.context import KafkaContext
from mainstem.doors.kafka.transport.throttle import NO_THROTTLE


async def handle(call: Call, request: ElectLeadersRequest) -> ElectLeadersResponse:
    # Without a list the request covers all partitions, and the response omits those that need no election.
    asked = request.topic_partitions or ()
    results = tuple(_of_topic(call.context, topic.topic, topic.partitions) for topic in asked)
    return ElectLeadersResponse(
        throttle_time=NO_THROTTLE, error_code=ErrorCode.none, replica_election_results=results
    )


def _of_topic(context: KafkaContext, name: TopicName, partitions: Iterable[i32]) -> ReplicaElectionResult:
    topic = context.broker.streams.get(name)
    present = range(0 if topic is None else len(topic.streams))
    return ReplicaElectionResult(
        topic=name,
        partition_result=tuple(_of_partition(partition, partition in present) for partition in partitions),
    )


def _of_partition(partition: i32, exists: bool) -> PartitionResult:
    code = ErrorCode.election_not_needed if exists else ErrorCode.unknown_topic_or_partition
    message = "the partition has its leader" if exists else "there is no such partition"
    return PartitionResult(partition_id=partition, error_code=code, error_message=message)


API = Api(43, 0, 2, handle)
