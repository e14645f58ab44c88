"""Schemas of a topic, by version."""

from __future__ import annotations

import base64
from typing import Any

from mainstem.broker.access.rules import Operation
from mainstem.broker.namespaces import qualify_id, split
from mainstem.broker.schemas.topic_schemas import SCHEMA_TYPES, TopicSchema
from mainstem.broker.topics.service import Topic
from mainstem.doors.http.transport.responses import Response
from mainstem.doors.pulsar.admin.call import DONE, AdminCall, AdminRefusal, answer, text_map, whole_number
from mainstem.errors import IncompatibleSchema, InvalidInput

UNDEFINED = "UNDEFINED"  # the strategy of a namespace that has none: FULL


async def get_latest(call: AdminCall, topic: str) -> Response:
    versions = await _versions(call, topic)
    return answer(_schema_body(versions, len(versions) - 1))


async def get_version(call: AdminCall, topic: str, version: str) -> Response:
    return answer(_schema_body(await _versions(call, topic), whole_number(version, "the version")))


async def get_all(call: AdminCall, topic: str) -> Response:
    versions = await _versions(call, topic)
    return answer({"getSchemaResponses": [_schema_body(versions, at) for at in range(len(versions))]})


async def get_metadata(call: AdminCall, topic: str) -> Response:
    versions = await _versions(call, topic)
    rows = [
        {"version": at, "type": _type_name(one.type), "timestamp": 0, "user": ""}
        for at, one in enumerate(versions)
    ]
    return answer({"info": rows[-1] if rows else None, "index": rows})


async def register(call: AdminCall, topic: str) -> Response:
    _, found = await call.topic(topic, Operation.WRITE)
    version = await call.broker.topic_schemas.register(found, _schema(call, found))
    return answer({"version": {"version": version}})


async def find_version(call: AdminCall, topic: str) -> Response:
    """The version that a schema has; -1 if the topic does not have it."""
    _, found = await call.topic(topic, Operation.DESCRIBE)
    number = call.broker.topic_schemas.number_of(found, _schema(call, found))
    return answer({"version": -1 if number is None else number})


async def check_compatibility(call: AdminCall, topic: str) -> Response:
    _, found = await call.topic(topic, Operation.DESCRIBE)
    compatible = True
    try:
        call.broker.topic_schemas.check(found, _schema(call, found))
    except IncompatibleSchema:
        compatible = False
    strategy = call.broker.topic_schemas.strategy(found)
    return answer({"compatibility": compatible, "schemaCompatibilityStrategy": strategy})


async def delete_all(call: AdminCall, topic: str) -> Response:
    _, found = await call.topic(topic, Operation.ALTER)
    await call.broker.topic_schemas.delete(found)
    return DONE  # the Java client waits in vain if there is a body


async def _versions(call: AdminCall, topic: str) -> tuple[TopicSchema, ...]:
    _, found = await call.topic(topic, Operation.DESCRIBE)
    return call.broker.topic_schemas.versions(found)


def _schema(call: AdminCall, topic: Topic) -> TopicSchema:
    """The schema of a body."""
    body = call.fields()
    kind = str(body.get("type", "NONE")).upper()
    if kind not in SCHEMA_TYPES:
        raise InvalidInput(f"unknown type of schema {kind[:64]!r}: the types are {', '.join(SCHEMA_TYPES)}")
    properties = tuple(sorted(text_map(body.get("properties") or {}, "properties").items()))
    data = str(body.get("schema") or "").encode()
    return TopicSchema(split(topic.name)[1], SCHEMA_TYPES.index(kind), data, properties)


def _schema_body(versions: tuple[TopicSchema, ...], number: int) -> dict[str, Any]:
    if not 0 <= number < len(versions):
        raise AdminRefusal(404, "Schema not found")
    schema = versions[number]
    try:
        data = schema.data.decode()
    except UnicodeDecodeError:
        data = base64.b64encode(schema.data).decode()
    return {
        "version": number,
        "type": _type_name(schema.type),
        "timestamp": 0,
        "data": data,
        "properties": dict(schema.properties),
    }


def _type_name(number: int) -> str:
    return SCHEMA_TYPES[number] if 0 <= number < len(SCHEMA_TYPES) else str(number)


# Compatibility strategies of namespaces and topics


async def get_namespace_strategy(call: AdminCall, namespace: str) -> Response:
    scope = qualify_id(call.namespace(namespace), "")
    return answer(call.broker.topic_schemas.own_strategy(scope) or UNDEFINED)


async def put_namespace_strategy(call: AdminCall, namespace: str) -> Response:
    call.check_cluster(Operation.ALTER)
    await _put_strategy(call, qualify_id(call.namespace(namespace), ""))
    return DONE


async def get_topic_strategy(call: AdminCall, topic: str) -> Response:
    _, found = await call.topic(topic, Operation.DESCRIBE)
    schemas = call.broker.topic_schemas
    if call.flag("applied"):
        return answer(schemas.strategy(found))
    own = schemas.own_strategy(schemas.scope_of(found))
    return DONE if own is None else answer(own)


async def put_topic_strategy(call: AdminCall, topic: str) -> Response:
    _, found = await call.topic(topic, Operation.ALTER_CONFIGS)
    await _put_strategy(call, call.broker.topic_schemas.scope_of(found))
    return DONE


async def delete_topic_strategy(call: AdminCall, topic: str) -> Response:
    _, found = await call.topic(topic, Operation.ALTER_CONFIGS)
    await call.broker.topic_schemas.delete_strategy(call.broker.topic_schemas.scope_of(found))
    return DONE


async def _put_strategy(call: AdminCall, scope: str) -> None:
    strategy = str(call.body()).upper()
    if strategy == UNDEFINED:
        await call.broker.topic_schemas.delete_strategy(scope)
    else:
        await call.broker.topic_schemas.put_strategy(scope, strategy)
