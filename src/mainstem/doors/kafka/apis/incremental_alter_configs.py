"""IncrementalAlterConfigs: single settings of a topic, a group or all brokers. Those not given stay as they are."""

from __future__ import annotations

from collections.abc import Container

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

from mainstem.broker.groups.settings import GROUP_SETTINGS
from mainstem.broker.topics import configs
from mainstem.broker.topics.configs import ConfigEdit, Operation
from mainstem.broker.topics.service import TopicConfig
from mainstem.broker.topics.topic_settings import BY_NAME
from mainstem.doors.kafka.apis.bulk import ItemRefused
from mainstem.doors.kafka.apis.config_changes import change_each, unchangeable, value_given
from mainstem.doors.kafka.apis.config_entries import Resource
from mainstem.doors.kafka.apis.group_configs import edit_defaults, edit_group
from mainstem.doors.kafka.transport.api import Api, Call
from mainstem.doors.kafka.transport.throttle import NO_THROTTLE

_OPERATIONS: tuple[Operation, ...] = ("set", "delete", "append", "subtract")  # the index is Kafka's number

_NAMES: dict[int, Container[str]] = {Resource.TOPIC: BY_NAME, Resource.GROUP: GROUP_SETTINGS}


async def handle(call: Call, request: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse:
    broker, dry_run = call.context.broker, request.validate_only

    async def edit(resource: AlterConfigsResource) -> None:
        kind: int = resource.resource_type
        name = resource.resource_name
        edits = [_edit(entry) for entry in resource.configs if not _unsets_unknown(kind, entry)]

        def edited(config: TopicConfig) -> TopicConfig:
            return configs.edited(config, edits, broker.namespaces.default_config(name))

        if kind == Resource.GROUP:
            await edit_group(call.context, name, edits, dry_run=dry_run)
        elif kind == Resource.BROKER:
            await edit_defaults(call.context, name, edits, dry_run=dry_run)
        elif kind == Resource.TOPIC:
            await broker.change_topic(name, edited, dry_run=dry_run)
        else:
            raise unchangeable(kind)

    responses = await change_each(request.resources, edit, AlterConfigsResourceResponse)
    return IncrementalAlterConfigsResponse(throttle_time=NO_THROTTLE, responses=responses)


def _unsets_unknown(kind: int, entry: AlterableConfig) -> bool:
    """Whether it removes a setting that does not exist, which changes nothing: MirrorMaker removes from its copy of a
    topic every setting that has its default in the other cluster, whatever that cluster is."""
    names = _NAMES.get(kind, (entry.name,))
    return entry.config_operation == _OPERATIONS.index("delete") and entry.name not in names


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


API = Api(44, 0, 1, handle, fresh=True)
