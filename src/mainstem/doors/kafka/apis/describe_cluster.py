"""DescribeCluster: the cluster's id and its brokers."""

from __future__ import annotations

from kio.schema.describe_cluster.v2.request import DescribeClusterRequest
from kio.schema.describe_cluster.v2.response import DescribeClusterBroker, DescribeClusterResponse
from kio.schema.errors import ErrorCode
from kio.schema.types import BrokerId
from kio.static.primitive import i32

from mainstem.broker.access.rules import ResourceType
from mainstem.doors.kafka.transport.api import Api, Call
from mainstem.doors.kafka.transport.operations import NOT_ASKED, operations_on
from mainstem.doors.kafka.transport.throttle import NO_THROTTLE

_BROKERS, _CONTROLLERS = 1, 2  # types of endpoints


async def handle(call: Call, request: DescribeClusterRequest) -> DescribeClusterResponse:
    context = call.context
    if request.endpoint_type != _BROKERS:
        return DescribeClusterResponse(
            throttle_time=NO_THROTTLE,
            error_code=ErrorCode.mismatched_endpoint_type
            if request.endpoint_type == _CONTROLLERS
            else ErrorCode.unsupported_endpoint_type,
            error_message="this is a broker: it lists brokers (1) only",
            cluster_id=context.cluster_id,
            brokers=(),
        )
    brokers = tuple(
        DescribeClusterBroker(
            broker_id=BrokerId(peer.node_id),
            host=peer.host,
            port=i32(peer.port),
            rack=peer.rack,
            is_fenced=False,
        )
        for peer in context.peers.all()
    )
    asked = request.include_cluster_authorized_operations
    operations = operations_on(call, ResourceType.CLUSTER) if asked else NOT_ASKED
    return DescribeClusterResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        cluster_id=context.cluster_id,
        controller_id=BrokerId(context.peers.controller()),
        brokers=brokers,
        cluster_authorized_operations=operations,
    )


API = Api(60, 0, 2, handle)
