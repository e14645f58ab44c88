"""IncrementalAlterConfigs: single settings of a topic, a group or all brokers. Those not given stay as they are."""

from __future__ import annotations

from functools import partial

from kio.schema.errors import ErrorCode
from kio.schema.incremental_alter_configs.v1.request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kio.schema.incremental_alter_configs.v1.response import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)

from mainstem.broker.topics import configs
from mainstem.broker.topics.configs import ConfigEdit, Operation
from mainstem.broker.topics.service import TopicConfig
from mainstem.doors.kafka.apis.bulk import ItemRefused, ItemResult, outcome_of, repeated, side_by_side
from mainstem.doors.kafka.apis.config_changes import TWICE, change_resource, check_once, value_given
from mainstem.doors.kafka.apis.config_entries import Resource
from mainstem.doors.kafka.apis.group_configs import edit_defaults, edit_group
from mainstem.doors.kafka.transport.api import Api, Call
from mainstem.doors.kafka.transport.context import KafkaContext
from mainstem.doors.kafka.transport.throttle import NO_THROTTLE

_OPERATIONS: tuple[Operation, ...] = ("set", "delete", "append", "subtract")  # the index is Kafka's number


async def handle(call: Call, request: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse:
    twice = repeated((resource.resource_type, resource.resource_name) for resource in request.resources)

    async def alter(resource: AlterConfigsResource) -> AlterConfigsResourceResponse:
        kind, name = resource.resource_type, resource.resource_name
        outcome = TWICE
        if (kind, name) not in twice and kind in _BY_SETTING:
            outcome = await _edit_settings(call.context, resource, dry_run=request.validate_only)
        elif (kind, name) not in twice:
            change = partial(_edited, call.context, resource)
            outcome = await change_resource(call.context, kind, name, change, dry_run=request.validate_only)
        return AlterConfigsResourceResponse(
            error_code=outcome.code, error_message=outcome.message, resource_type=kind, resource_name=name
        )

    responses = await side_by_side(alter, request.resources)
    return IncrementalAlterConfigsResponse(throttle_time=NO_THROTTLE, responses=tuple(responses))


async def _edit_settings(
    context: KafkaContext, resource: AlterConfigsResource, *, dry_run: bool
) -> ItemResult:
    try:
        check_once(entry.name for entry in resource.configs)
        edits = [_edit(entry) for entry in resource.configs]
    except ItemRefused as refused:
        return outcome_of(refused)
    edit = _BY_SETTING[resource.resource_type]
    return await edit(context, resource.resource_name, edits, dry_run=dry_run)


def _edited(context: KafkaContext, resource: AlterConfigsResource, config: TopicConfig) -> TopicConfig:
    check_once(entry.name for entry in resource.configs)
    edits = [_edit(entry) for entry in resource.configs]
    default = context.broker.namespaces.default_config(resource.resource_name)
    return configs.edited(config, edits, default)


def _edit(entry: AlterableConfig) -> ConfigEdit:
    if not 0 <= entry.config_operation < len(_OPERATIONS):
        raise ItemRefused(
            ErrorCode.invalid_request,
            f"{entry.name[:64]}: no operation has the number {entry.config_operation}",
        )
    operation = _OPERATIONS[entry.config_operation]
    if operation == "delete":
        return ConfigEdit(entry.name, operation)
    return ConfigEdit(entry.name, operation, value_given(entry.name, entry.value))


_BY_SETTING = {int(Resource.GROUP): edit_group, int(Resource.BROKER): edit_defaults}
API = Api(44, 0, 1, handle, fresh=True)
