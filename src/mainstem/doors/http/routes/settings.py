"""A topic's partitions, and its settings by the names that Kafka's tools use."""

from __future__ import annotations

import asyncio

import msgspec

from mainstem import limits
from mainstem.api.topics import PartitionDescription, SettingsBody, TopicSettings
from mainstem.broker.topics import configs
from mainstem.broker.topics.names import valid_name
from mainstem.doors.http.routes.topics import DEFAULT_CONFIG, applied, check_dead_letter
from mainstem.doors.http.transport.errors import invalid
from mainstem.doors.http.transport.requests import HttpRequest
from mainstem.doors.http.transport.responses import Response, reply
from mainstem.errors import InvalidName, Throttled

_settings_body = msgspec.json.Decoder(SettingsBody)


async def get_settings(request: HttpRequest) -> Response:
    """Get the partitions and settings of a topic."""
    return reply(_settings(request))


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
    default = broker.options.default_config
    if edits:
        await broker.change_topic(name, lambda config: configs.edited(config, edits, default), dry_run=True)
    if body.partitions is not None:
        await broker.add_partitions(name, body.partitions)
    if edits:
        await broker.change_topic(name, lambda config: configs.edited(config, edits, default))
    return reply(_settings(request))


async def _create(request: HttpRequest, body: SettingsBody) -> None:
    broker, name = request.broker, request.topic
    if not valid_name(name):
        raise InvalidName(
            f"invalid topic name {name[:64]!r}: use 1 to {limits.NAME_CHARS_MAX} letters, digits "
            "and . _ : -, the first a letter or digit"
        )
    bound = broker.options.topics_max
    if bound and broker.streams.get(name) is None and broker.streams.topic_count >= bound:
        raise Throttled("max_topics", bound, f"there are {bound} topics, the most this server makes")
    wanted = body.config or DEFAULT_CONFIG
    check_dead_letter(name, wanted)
    base = broker.options.default_config
    config = applied(wanted, base) if body.config is not None else base
    await broker.create_topic(
        name,
        partitions=body.partitions or 1,
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
