"""Schemas of a topic, by version."""

from __future__ import annotations

import base64
from typing import Any

from mainstem.broker.access.rules import Operation
from mainstem.broker.namespaces import split
from mainstem.broker.subscriptions.service import TopicSchema
from mainstem.broker.topics.service import Topic
from mainstem.doors.http.transport.responses import Response
from mainstem.doors.pulsar.admin.call import AdminCall, AdminRefusal, answer, text_map, whole_number
from mainstem.errors import InvalidInput

SCHEMA_TYPES = (
    *("NONE", "STRING", "JSON", "PROTOBUF", "AVRO", "BOOLEAN", "INT8", "INT16", "INT32", "INT64", "FLOAT"),
    *("DOUBLE", "DATE", "TIME", "TIMESTAMP", "KEY_VALUE", "INSTANT", "LOCAL_DATE", "LOCAL_TIME"),
    *("LOCAL_DATE_TIME", "PROTOBUF_NATIVE"),
)  # by number


async def get_latest(call: AdminCall, topic: str) -> Response:
    versions = await _versions(call, topic)
    return answer(_shown(versions, len(versions) - 1))


async def get_version(call: AdminCall, topic: str, version: str) -> Response:
    return answer(_shown(await _versions(call, topic), whole_number(version, "the version")))


async def get_all(call: AdminCall, topic: str) -> Response:
    versions = await _versions(call, topic)
    return answer({"getSchemaResponses": [_shown(versions, at) for at in range(len(versions))]})


async def get_metadata(call: AdminCall, topic: str) -> Response:
    versions = await _versions(call, topic)
    rows = [
        {"version": at, "type": _type_name(one.type), "timestamp": 0, "user": ""}
        for at, one in enumerate(versions)
    ]
    return answer({"info": rows[-1] if rows else None, "index": rows})


async def register(call: AdminCall, topic: str) -> Response:
    _, found = await call.topic(topic, Operation.WRITE)
    version = await call.broker.subscriptions.register_schema(found, _schema(call, found))
    return answer({"version": {"version": version}})


async def find_version(call: AdminCall, topic: str) -> Response:
    """The version that a schema has; -1 if the topic does not have it."""
    _, found = await call.topic(topic, Operation.DESCRIBE)
    wanted = _schema(call, found)
    versions = call.broker.subscriptions.schemas(found)
    number = next(
        (at for at, one in enumerate(versions) if (one.type, one.data) == (wanted.type, wanted.data)), -1
    )
    return answer({"version": number})


async def delete_all(call: AdminCall, topic: str) -> Response:
    _, found = await call.topic(topic, Operation.ALTER)
    count = await call.broker.subscriptions.delete_schemas(found)
    return answer({"version": {"version": count}})


async def _versions(call: AdminCall, topic: str) -> tuple[TopicSchema, ...]:
    _, found = await call.topic(topic, Operation.DESCRIBE)
    return call.broker.subscriptions.schemas(found)


def _schema(call: AdminCall, topic: Topic) -> TopicSchema:
    """The schema of a body."""
    body = call.fields()
    kind = str(body.get("type", "NONE")).upper()
    if kind not in SCHEMA_TYPES:
        raise InvalidInput(f"unknown type of schema {kind[:64]!r}: the types are {', '.join(SCHEMA_TYPES)}")
    properties = tuple(sorted(text_map(body.get("properties") or {}, "properties").items()))
    data = str(body.get("schema") or "").encode()
    return TopicSchema(split(topic.name)[1], SCHEMA_TYPES.index(kind), data, properties)


def _shown(versions: tuple[TopicSchema, ...], number: int) -> dict[str, Any]:
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
