"""DescribeConfigs: the settings of topics, of groups and of this broker, with where each value comes from.

Most topics have equal settings, and tools repeatedly ask for the settings of all topics. So the encoded settings of a
config are cached, and only the frame around them is written by hand. Response body (flexible from 4):

| field            | type            |
|------------------|-----------------|
| throttle_time_ms | i4              |
| results          | array           |
| · error_code     | i2              |
| · error_message  | nullable string |
| · resource_type  | i1              |
| · resource_name  | string          |
| · configs        | array           |
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import struct
from collections.abc import Collection
from dataclasses import replace
from functools import lru_cache, partial
from importlib import import_module
from typing import NamedTuple

from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
from kio.schema.describe_configs.v4.response import DescribeConfigsResourceResult, DescribeConfigsSynonym
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer
from kio.static.primitive import i8

from mainstem import limits
from mainstem.broker.access.rules import CLUSTER_NAME, Operation, ResourceType
from mainstem.broker.broker_settings import BROKER_SETTINGS
from mainstem.broker.share.shares import ALL_GROUPS
from mainstem.broker.topics import configs
from mainstem.broker.topics.configs import ConfigEntry
from mainstem.broker.topics.service import TopicConfig
from mainstem.doors.kafka.apis import messages
from mainstem.doors.kafka.apis.broker_configs import BrokerSetting, broker_settings
from mainstem.doors.kafka.apis.bulk import DONE, ItemRefused, outcome_of
from mainstem.doors.kafka.apis.config_entries import (
    ALL_BROKERS_SOURCE,
    GROUP_SOURCE,
    SOURCES,
    TYPES,
    Resource,
)
from mainstem.doors.kafka.apis.group_configs import GroupConfig, group_configs
from mainstem.doors.kafka.security.refusals import FORBIDDEN
from mainstem.doors.kafka.transport import namespaces
from mainstem.doors.kafka.transport.api import Call, FastApi, Reply, off_loop
from mainstem.doors.kafka.transport.context import KafkaContext
from mainstem.doors.kafka.transport.versions import convert
from mainstem.doors.kafka.transport.wire import INT16, INT32, NO_TAGS, write_count, write_string
from mainstem.errors import MainstemError, Unavailable

KAFKA_CONFIGS_INLINE_BYTES_MAX = 8 * limits.KIB  # a larger request is read on a thread

_FLEXIBLE_FROM = 4
_INT8 = struct.Struct(">b")
_NO_THROTTLE = INT32.pack(0)


def handle(call: Call, body: memoryview, reply: Reply) -> None:
    reply.run(_read_and_answer(call, bytes(body), reply))


async def _read_and_answer(call: Call, body: bytes, reply: Reply) -> None:
    read = partial(messages.read, API, call.version, body)
    small = len(body) <= KAFKA_CONFIGS_INLINE_BYTES_MAX
    await _answer(call, read() if small else await off_loop(call, read), reply)


async def _answer(call: Call, request: DescribeConfigsRequest, reply: Reply) -> None:
    # Administrators check their changes through any broker. If the store is unreachable, respond with what is known.
    with contextlib.suppress(Unavailable):
        await call.context.broker.barrier()
    flexible = call.version >= _FLEXIBLE_FROM
    form = _ConfigFormat(call.version, request.include_synonyms, request.include_documentation)
    resources = dict.fromkeys(request.resources)  # duplicates get one response, which bounds the memory
    out = [_NO_THROTTLE, write_count(len(resources), flexible)]
    failed = False
    for number, sent_resource in enumerate(resources, 1):
        sent, resource = sent_resource.resource_name, sent_resource
        if call.view is not None:
            resource = namespaces.qualified(call.view, call.context.broker.streams, replace(sent_resource))
        if number % limits.KAFKA_CHANGES_AT_ONCE == 0:
            await asyncio.sleep(0)  # there may be many thousands
        outcome, described = DONE, b""
        try:
            _check_access(call, resource)
            described = _describe_resource(call.context, resource, form)
        except (MainstemError, ItemRefused) as error:
            failed = True
            outcome, described = outcome_of(error), write_count(0, flexible)
        out += (
            INT16.pack(outcome.code),
            write_string(outcome.message and call.text(outcome.message), flexible),
            _INT8.pack(resource.resource_type),
            write_string(sent, flexible),
            described,
            NO_TAGS if flexible else b"",
        )
    out.append(NO_TAGS if flexible else b"")
    reply.send([b"".join(out)], failed=failed)


class _ConfigFormat(NamedTuple):
    """What a response shows of each setting."""

    version: int
    synonyms: bool
    documentation: bool


def _check_access(call: Call, resource: DescribeConfigsResource) -> None:
    if resource.resource_type == int(Resource.TOPIC):
        if not call.may_or_audit(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, resource.resource_name):
            raise ItemRefused(ErrorCode.topic_authorization_failed, FORBIDDEN)
    elif resource.resource_type == int(Resource.GROUP):
        if not call.may_or_audit(Operation.DESCRIBE_CONFIGS, ResourceType.GROUP, resource.resource_name):
            raise ItemRefused(ErrorCode.group_authorization_failed, FORBIDDEN)
    elif not call.may_or_audit(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME):
        raise ItemRefused(ErrorCode.cluster_authorization_failed, FORBIDDEN)


def _describe_resource(
    context: KafkaContext, resource: DescribeConfigsResource, form: _ConfigFormat
) -> bytes:
    names = resource.configuration_keys  # none or an empty list: all
    match resource.resource_type:
        case Resource.TOPIC:
            config = context.broker.topic(resource.resource_name).config
            default = context.broker.namespaces.default_config(resource.resource_name)
            return (
                _topic_settings(config, default, form)
                if not names
                else _selected_entries(config, default, form, names)
            )
        case Resource.BROKER:
            settings = _broker_settings(context, resource.resource_name)
            shown = [_of_broker(setting, form) for setting in settings if not names or setting.name in names]
            changeable = [
                _of_all_groups(config, form)
                for config in group_configs(context, ALL_GROUPS, None)
                if not names or config.broker_name in names
                if resource.resource_name or config.default is not None
            ]
            return _encoded(shown + changeable, form)
        case Resource.GROUP:
            found = group_configs(context, resource.resource_name, names)
            return _encoded([_of_group(config, form) for config in found], form)
        case _:
            raise ItemRefused(
                ErrorCode.invalid_request,
                f"resources of type {resource.resource_type} have no settings here: ask for a topic (2), a "
                "broker (4) or a group (32)",
            )


@lru_cache(maxsize=limits.KAFKA_DESCRIBED_CONFIGS_KEPT)
def _topic_settings(config: TopicConfig, default: TopicConfig, form: _ConfigFormat) -> bytes:
    return _encoded([_of_topic(entry, form) for entry in configs.entries(config, default)], form)


def _selected_entries(
    config: TopicConfig, default: TopicConfig, form: _ConfigFormat, names: Collection[str]
) -> bytes:
    entries = configs.entries(config, default)
    return _encoded([_of_topic(entry, form) for entry in entries if entry.setting.name in names], form)


def _encoded(settings: list[DescribeConfigsResourceResult], form: _ConfigFormat) -> bytes:
    """The array of settings, in the format of the version."""
    older = import_module(
        f"kio.schema.describe_configs.v{form.version}.response"
    ).DescribeConfigsResourceResult
    write = entity_writer(older)
    out = io.BytesIO()
    out.write(write_count(len(settings), form.version >= _FLEXIBLE_FROM))
    for setting in settings:
        write(out, convert(setting, older))
    return out.getvalue()


def _broker_settings(context: KafkaContext, name: str) -> list[BrokerSetting]:
    if not name:
        return [setting for setting in broker_settings(context) if setting.changed is not None]
    if name != str(context.node_id):
        raise ItemRefused(
            ErrorCode.invalid_request,
            f"this is broker {context.node_id}: it does not have the settings of {name!r}",
        )
    return broker_settings(context)


def _of_topic(entry: ConfigEntry, form: _ConfigFormat) -> DescribeConfigsResourceResult:
    row = entry.setting
    return DescribeConfigsResourceResult(
        name=row.name,
        value=entry.value,
        read_only=False,
        config_source=i8(SOURCES[entry.source]),
        is_sensitive=False,
        synonyms=_synonyms(entry) if form.synonyms else (),
        config_type=i8(TYPES[row.kind]),
        documentation=row.help if form.documentation else None,
    )


def _synonyms(entry: ConfigEntry) -> tuple[DescribeConfigsSynonym, ...]:
    """The sources of the value, in order of precedence."""
    row = entry.setting
    server_name = row.server_name or row.name
    found = [DescribeConfigsSynonym(name=server_name, value=row.default, source=i8(SOURCES["default"]))]
    if entry.server_value != row.default:
        server = i8(SOURCES["server"])
        found.insert(0, DescribeConfigsSynonym(name=server_name, value=entry.server_value, source=server))
    if entry.source == "topic":
        topic = i8(SOURCES["topic"])
        found.insert(0, DescribeConfigsSynonym(name=row.name, value=entry.value, source=topic))
    return tuple(found)


def _of_group(config: GroupConfig, form: _ConfigFormat) -> DescribeConfigsResourceResult:
    row = config.setting
    synonyms = _default_synonyms(config)
    if config.own is not None:
        own = DescribeConfigsSynonym(name=row.name, value=config.own, source=i8(GROUP_SOURCE))
        synonyms.insert(0, own)
    return _of_setting(row.name, config, synonyms, form)


def _of_all_groups(config: GroupConfig, form: _ConfigFormat) -> DescribeConfigsResourceResult:
    return _of_setting(config.broker_name, config, _default_synonyms(config), form)


def _default_synonyms(config: GroupConfig) -> list[DescribeConfigsSynonym]:
    row, name = config.setting, config.broker_name
    synonyms = [DescribeConfigsSynonym(name=name, value=row.default, source=i8(SOURCES["default"]))]
    if config.default is not None:
        changed = DescribeConfigsSynonym(name=name, value=config.default, source=i8(ALL_BROKERS_SOURCE))
        synonyms.insert(0, changed)
    return synonyms


def _of_setting(
    name: str, config: GroupConfig, synonyms: list[DescribeConfigsSynonym], form: _ConfigFormat
) -> DescribeConfigsResourceResult:
    """A setting whose first synonym is its value."""
    row = config.setting
    return DescribeConfigsResourceResult(
        name=name,
        value=synonyms[0].value,
        read_only=False,
        config_source=synonyms[0].source,
        is_sensitive=False,
        synonyms=tuple(synonyms) if form.synonyms else (),
        config_type=i8(TYPES[row.kind]),
        documentation=row.help if form.documentation else None,
    )


def _of_broker(setting: BrokerSetting, form: _ConfigFormat) -> DescribeConfigsResourceResult:
    source = i8(SOURCES["server"])
    synonyms = [DescribeConfigsSynonym(name=setting.name, value=setting.value, source=source)]
    if setting.changed is not None:
        changed = i8(ALL_BROKERS_SOURCE)
        synonyms.insert(0, DescribeConfigsSynonym(name=setting.name, value=setting.changed, source=changed))
    return DescribeConfigsResourceResult(
        name=setting.name,
        value=synonyms[0].value,
        read_only=setting.name not in BROKER_SETTINGS,
        config_source=synonyms[0].source,
        is_sensitive=False,
        synonyms=tuple(synonyms) if form.synonyms else (),
        config_type=i8(TYPES[setting.kind]),
        documentation=setting.help if form.documentation else None,
    )


API = FastApi(32, 1, 4, _FLEXIBLE_FROM, handle)
