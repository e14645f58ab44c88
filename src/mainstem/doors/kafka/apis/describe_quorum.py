"""DescribeQuorum: the metadata log as Kafka's tools expect it. The controller is its voter, other brokers observe.

The commit log holds the metadata, and its storage replicates it: brokers form no quorum.
"""

from __future__ import annotations

from kio.schema.describe_quorum.v2.request import DescribeQuorumRequest
from kio.schema.describe_quorum.v2.response import (
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionData,
    ReplicaState,
    TopicData,
)
from kio.schema.errors import ErrorCode
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i32, i64, u16

from mainstem.doors.kafka.transport.api import Api, Call
from mainstem.doors.kafka.transport.context import KafkaContext

METADATA_TOPIC = "__cluster_metadata"
_UNKNOWN = i64(-1)


async def handle(call: Call, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    return DescribeQuorumResponse(
        error_code=ErrorCode.none,
        error_message=None,
        topics=tuple(
            TopicData(
                topic_name=topic.topic_name,
                partitions=tuple(
                    _partition(call.context, topic.topic_name, asked.partition_index)
                    for asked in topic.partitions
                ),
            )
            for topic in request.topics
        ),
        nodes=tuple(
            Node(
                node_id=BrokerId(peer.node_id),
                listeners=(Listener(name="PLAINTEXT", host=peer.host, port=u16(peer.port)),),
            )
            for peer in call.context.peers.all()
        ),
    )


def _partition(context: KafkaContext, topic: TopicName, index: i32) -> PartitionData:
    if topic != METADATA_TOPIC or index != 0:
        return PartitionData(
            partition_index=index,
            error_code=ErrorCode.unknown_topic_or_partition,
            error_message=f"only partition 0 of {METADATA_TOPIC} has a quorum",
            leader_id=BrokerId(-1),
            leader_epoch=i32(-1),
            high_watermark=_UNKNOWN,
            current_voters=(),
            observers=(),
        )
    controller, end = context.peers.controller(), i64(context.broker.position)
    now = i64(context.broker.clock.now_ms())
    return PartitionData(
        partition_index=index,
        error_code=ErrorCode.none,
        error_message=None,
        leader_id=BrokerId(controller),
        leader_epoch=i32(0),
        high_watermark=end,
        current_voters=(_replica(controller, end, now),),
        observers=tuple(
            _replica(peer.node_id, _UNKNOWN, _UNKNOWN)
            for peer in context.peers.all()
            if peer.node_id != controller
        ),
    )


def _replica(node: int, end: i64, caught_up: i64) -> ReplicaState:
    return ReplicaState(
        replica_id=BrokerId(node),
        replica_directory_id=None,
        log_end_offset=end,
        last_fetch_timestamp=caught_up,
        last_caught_up_timestamp=caught_up,
    )


API = Api(55, 0, 2, handle)
