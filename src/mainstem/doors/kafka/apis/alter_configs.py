"""AlterConfigs: replace all settings of a topic or a group. Settings not given return to their defaults."""

from __future__ import annotations

from kio.schema.alter_configs.v2.request import AlterConfigsRequest, AlterConfigsResource
from kio.schema.alter_configs.v2.response import AlterConfigsResourceResponse, AlterConfigsResponse

from mainstem.broker.topics import configs
from mainstem.broker.topics.service import TopicConfig
from mainstem.doors.kafka.apis.config_changes import change_each, unchangeable, value_given
from mainstem.doors.kafka.apis.config_entries import Resource
from mainstem.doors.kafka.apis.group_configs import replace_group
from mainstem.doors.kafka.transport.api import Api, Call
from mainstem.doors.kafka.transport.throttle import NO_THROTTLE


async def handle(call: Call, request: AlterConfigsRequest) -> AlterConfigsResponse:
    broker, dry_run = call.context.broker, request.validate_only

    async def replace(resource: AlterConfigsResource) -> None:
        kind: int = resource.resource_type
        name = resource.resource_name
        settings = {entry.name: value_given(entry.name, entry.value) for entry in resource.configs}

        def replaced(config: TopicConfig) -> TopicConfig:
            return configs.replaced(settings, broker.namespaces.default_config(name), config)

        if kind == Resource.GROUP:
            await replace_group(call.context, name, settings, dry_run=dry_run)
        elif kind == Resource.TOPIC:
            await broker.change_topic(name, replaced, dry_run=dry_run)
        else:
            raise unchangeable(kind)

    responses = await change_each(request.resources, replace, AlterConfigsResourceResponse)
    return AlterConfigsResponse(throttle_time=NO_THROTTLE, responses=responses)


API = Api(33, 0, 2, handle, fresh=True)
