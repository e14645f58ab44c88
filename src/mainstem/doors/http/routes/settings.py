"""A topic's partitions, and its settings by the names that Kafka's tools use."""

from __future__ import annotations

import asyncio

import msgspec

from mainstem import limits
from mainstem.api.access import Operation
from mainstem.api.topics import (
    PartitionDescription,
    SettingDescription,
    SettingDescriptions,
    SettingsBody,
    TopicSettings,
)
from mainstem.broker.namespaces import split
from mainstem.broker.topics import configs
from mainstem.broker.topics.names import valid_name
from mainstem.broker.topics.topic_settings import TOPIC_SETTINGS
from mainstem.doors.http.routes.topics import DEFAULT_CONFIG, check_dead_letter, new_config
from mainstem.doors.http.transport.errors import invalid
from mainstem.doors.http.transport.requests import HttpRequest
from mainstem.doors.http.transport.responses import Response, reply
from mainstem.errors import InvalidName

_settings_body = msgspec.json.Decoder(SettingsBody)


async def get_settings(request: HttpRequest) -> Response:
    """Get the partitions and settings of a topic."""
    return reply(_settings(request))


async def list_settings(request: HttpRequest) -> Response:
    """List the settings that topics have, with their defaults and what they change."""
    rows = [
        SettingDescription(row.name, row.kind, row.default, row.help, row.inert, row.fixed)
        for row in TOPIC_SETTINGS
    ]
    return reply(SettingDescriptions(rows, request.performance()))


async def patch_settings(request: HttpRequest) -> Response:
    """Change settings by name, add partitions, or create a topic with several partitions."""
    body = request.json(_settings_body)
    if body.create:
        await _create(request, body)
        return reply(_settings(request), 201)
    if body.config is not None:
        raise invalid("config is for topics to be made: PUT the topic to replace the config of one")
    broker, name = request.broker, request.topic
    broker.topic(name)  # it is there, or nothing is looked at further
    edits = [configs.ConfigEdit(setting, "set", text) for setting, text in body.settings.items()]
    default = broker.namespaces.default_config(name)
    if edits:
        await broker.change_topic(name, lambda config: configs.edited(config, edits, default), dry_run=True)
    if body.partitions is not None:
        request.require_topic(name, Operation.ALTER)
        await broker.add_partitions(name, body.partitions)
    if edits:
        await broker.change_topic(name, lambda config: configs.edited(config, edits, default))
    return reply(_settings(request))


async def _create(request: HttpRequest, body: SettingsBody) -> None:
    broker, name = request.broker, request.topic
    request.require_create(name)
    if not valid_name(split(name)[1]):
        raise InvalidName(
            f"invalid topic name {name[:64]!r}: use 1 to {limits.NAME_CHARS_MAX} letters, digits "
            "and . _ : -, the first a letter or digit"
        )
    wanted = body.config or DEFAULT_CONFIG
    check_dead_letter(request, name, wanted)
    default = broker.namespaces.default_config(name)
    config = new_config(broker, name, wanted) if body.config is not None else default
    await broker.create_topic(
        name,
        partitions=body.partitions or broker.namespaces.default_partitions(name),
        config=await asyncio.to_thread(configs.parse, body.settings, config),
    )


def _settings(request: HttpRequest) -> TopicSettings:
    info = request.broker.topic(request.topic)
    states = [request.broker.partition(info.name, number) for number in range(info.partitions)]
    partitions = [
        PartitionDescription(
            state.partition, state.start, state.end, state.records, state.bytes, state.max_timestamp_ms
        )
        for state in states
    ]
    return TopicSettings(
        info.name, info.topic_id.hex(), partitions, configs.describe(info.config), request.performance()
    )
