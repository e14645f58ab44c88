"""ListConfigResources: everything that has settings. Version 0 lists client metrics only: there are none."""

from __future__ import annotations

from kio.schema.errors import ErrorCode
from kio.schema.list_config_resources.v0.request import ListConfigResourcesRequest as ClientMetricsRequest
from kio.schema.list_config_resources.v1.request import ListConfigResourcesRequest
from kio.schema.list_config_resources.v1.response import ConfigResource, ListConfigResourcesResponse
from kio.static.primitive import i8

from mainstem.doors.kafka.apis.config_entries import Resource
from mainstem.doors.kafka.transport.api import Api, Call
from mainstem.doors.kafka.transport.context import KafkaContext
from mainstem.doors.kafka.transport.throttle import NO_THROTTLE
from mainstem.doors.kafka.transport.versions import bridge


async def handle(call: Call, request: ListConfigResourcesRequest) -> ListConfigResourcesResponse:
    wanted: set[int] = set(request.resource_types)
    wanted = wanted or set(Resource)
    known = wanted <= set(Resource)
    return ListConfigResourcesResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none if known else ErrorCode.unsupported_version,
        config_resources=tuple(_resources(call.context, wanted)) if known else (),
    )


def _resources(context: KafkaContext, wanted: set[int]) -> list[ConfigResource]:
    found = []
    if Resource.TOPIC in wanted:
        found += [_resource(Resource.TOPIC, topic.name) for topic in context.broker.streams.topics()]
    if Resource.BROKER in wanted:
        found.append(_resource(Resource.BROKER, str(context.node_id)))
    if Resource.GROUP in wanted:
        found += [_resource(Resource.GROUP, name) for name in context.broker.shares.groups_with_settings()]
    return found


def _resource(kind: Resource, name: str) -> ConfigResource:
    return ConfigResource(resource_name=name, resource_type=i8(kind))


def _client_metrics(request: ClientMetricsRequest) -> ListConfigResourcesRequest:
    return ListConfigResourcesRequest(resource_types=(i8(Resource.CLIENT_METRICS),))


bridge(ClientMetricsRequest, ListConfigResourcesRequest, _client_metrics)

API = Api(74, 0, 1, handle)
