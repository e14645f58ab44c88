"""AlterConfigs: replace all settings of a topic or a group. Settings not given return to their defaults."""

from __future__ import annotations

from functools import partial

from kio.schema.alter_configs.v2.request import AlterConfigsRequest, AlterConfigsResource
from kio.schema.alter_configs.v2.response import AlterConfigsResourceResponse, AlterConfigsResponse

from mainstem.broker.topics import configs
from mainstem.broker.topics.service import TopicConfig
from mainstem.doors.kafka.apis.bulk import ItemRefused, ItemResult, outcome_of, repeated, side_by_side
from mainstem.doors.kafka.apis.config_changes import TWICE, change_resource, check_once, value_given
from mainstem.doors.kafka.apis.config_entries import Resource
from mainstem.doors.kafka.apis.group_configs import replace_group
from mainstem.doors.kafka.transport.api import Api, Call
from mainstem.doors.kafka.transport.context import KafkaContext
from mainstem.doors.kafka.transport.throttle import NO_THROTTLE


async def handle(call: Call, request: AlterConfigsRequest) -> AlterConfigsResponse:
    twice = repeated((resource.resource_type, resource.resource_name) for resource in request.resources)

    async def alter(resource: AlterConfigsResource) -> AlterConfigsResourceResponse:
        kind, name = resource.resource_type, resource.resource_name
        outcome = TWICE
        if (kind, name) not in twice and kind == int(Resource.GROUP):
            outcome = await _replace_group(call.context, resource, dry_run=request.validate_only)
        elif (kind, name) not in twice:
            change = partial(_replaced, call.context, resource)
            outcome = await change_resource(call.context, kind, name, change, dry_run=request.validate_only)
        return AlterConfigsResourceResponse(
            error_code=outcome.code, error_message=outcome.message, resource_type=kind, resource_name=name
        )

    responses = await side_by_side(alter, request.resources)
    return AlterConfigsResponse(throttle_time=NO_THROTTLE, responses=tuple(responses))


async def _replace_group(
    context: KafkaContext, resource: AlterConfigsResource, *, dry_run: bool
) -> ItemResult:
    try:
        check_once(entry.name for entry in resource.configs)
        values = {entry.name: value_given(entry.name, entry.value) for entry in resource.configs}
    except ItemRefused as refused:
        return outcome_of(refused)
    return await replace_group(context, resource.resource_name, values, dry_run=dry_run)


def _replaced(context: KafkaContext, resource: AlterConfigsResource, config: TopicConfig) -> TopicConfig:
    check_once(entry.name for entry in resource.configs)
    settings = {entry.name: value_given(entry.name, entry.value) for entry in resource.configs}
    default = context.broker.namespaces.default_config(resource.resource_name)
    return configs.replaced(settings, default, config)


API = Api(33, 0, 2, handle, fresh=True)
