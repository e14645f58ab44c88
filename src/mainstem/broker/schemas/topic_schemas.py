"""Schemas that clients send with their topics, by version: Pulsar's. They are also subjects of the schema registry.

| type                  | subject            | kind in the registry                                  |
|-----------------------|--------------------|-------------------------------------------------------|
| AVRO, JSON, PROTOBUF  | `TOPIC-value`      | AVRO: Pulsar describes all three in Avro's language   |
| PROTOBUF_NATIVE       | `TOPIC-value`      | PROTOBUF                                              |
| primitives            | `TOPIC-value`      | AVRO: the primitive that is nearest                   |
| KEY_VALUE             | `TOPIC-key`, `TOPIC-value` | as above, by the type of each                 |

The property `pulsar.type` of the metadata names the type. The strategy of a topic is the compatibility level of its
subject, then that of its namespace, then FULL.
"""

from __future__ import annotations

import base64
import contextlib
import json
from typing import NamedTuple

from mainstem.broker.schemas.service import SchemaService, Submission, canonical_json
from mainstem.errors import (
    IncompatibleSchema,
    InvalidCompatibility,
    MalformedSchema,
    SubjectNotFound,
    SubjectSoftDeleted,
)
from mainstem.ledger.namespaces import qualify_id, split
from mainstem.ledger.topic_schemas import RegisterTopicSchema, RemoveTopicSchemas, TopicSchema
from mainstem.ledger.topics import Topic
from mainstem.log.log import Log
from mainstem.schemas.schema import AVRO, PROTOBUF, parse

__all__ = ["DEFAULT_STRATEGY", "SCHEMA_TYPES", "STRATEGIES", "TopicSchema", "TopicSchemaService"]

SCHEMA_TYPES = (
    *("NONE", "STRING", "JSON", "PROTOBUF", "AVRO", "BOOLEAN", "INT8", "INT16", "INT32", "INT64", "FLOAT"),
    *("DOUBLE", "DATE", "TIME", "TIMESTAMP", "KEY_VALUE", "INSTANT", "LOCAL_DATE", "LOCAL_TIME"),
    *("LOCAL_DATE_TIME", "PROTOBUF_NATIVE"),
)  # by number
ALWAYS_COMPATIBLE, ALWAYS_INCOMPATIBLE = "ALWAYS_COMPATIBLE", "ALWAYS_INCOMPATIBLE"
STRATEGIES = (
    *(ALWAYS_INCOMPATIBLE, ALWAYS_COMPATIBLE, "BACKWARD", "FORWARD", "FULL"),
    *("BACKWARD_TRANSITIVE", "FORWARD_TRANSITIVE", "FULL_TRANSITIVE"),
)
DEFAULT_STRATEGY = "FULL"
FROZEN = "frozen"  # of a scope: no schema may follow another one

_AVRO_TEXTS = ("JSON", "PROTOBUF", "AVRO")
_PRIMITIVES = {
    "STRING": "string",
    "BOOLEAN": "boolean",
    "FLOAT": "float",
    "DOUBLE": "double",
    **dict.fromkeys(("INT8", "INT16", "INT32"), "int"),
}  # others are a long


class _Part(NamedTuple):
    """A schema of the registry."""

    suffix: str
    kind: str
    text: str
    type: str


class TopicSchemaService:
    def __init__(self, log: Log, schemas: SchemaService) -> None:
        self._log = log
        self._stored = log.ledger.topic_schemas
        self._schemas = schemas

    def versions(self, topic: Topic) -> tuple[TopicSchema, ...]:
        """By version, from 0 on."""
        return self._stored.versions(topic.streams[0])

    def number_of(self, topic: Topic, schema: TopicSchema) -> int | None:
        """The version that has this schema."""
        for number, known in enumerate(self.versions(topic)):
            if (known.type, known.data) == (schema.type, schema.data):
                return number
        return None

    async def register(self, topic: Topic, schema: TopicSchema, *, reads: bool = False) -> int:
        """The number of the version that has the schema, which is added if it is new.

        `reads`: it is that of a consumer, which adds one only if the topic has none. Raises IncompatibleSchema,
        TooLarge, LimitReached, and what the registry refuses."""
        number = self.number_of(topic, schema)
        if number is not None:
            return number
        versions = self.versions(topic)
        self.check(topic, schema)
        if reads and versions:
            return len(versions) - 1
        known = {part.suffix: part for one in versions[-1:] for part in _parts(one)}
        for part in _parts(schema):
            metadata = {"metadata": {"properties": {"pulsar.type": part.type}}}
            submission = Submission(part.text, part.kind, extras=canonical_json(metadata))
            only_topic: tuple[type[Exception], ...] = (MalformedSchema,)  # then only the topic has it
            if part.suffix in known and _record_name(part) != _record_name(known[part.suffix]):
                only_topic += (IncompatibleSchema,)  # the registry compares names of records, Pulsar does not
            with contextlib.suppress(*only_topic):
                await self._schemas.register(_subject(topic, part.suffix), submission)
        version: int = await self._log.propose(RegisterTopicSchema(topic.streams[0], schema))
        return version

    def check(self, topic: Topic, schema: TopicSchema) -> None:
        """Raises IncompatibleSchema if the strategy of the topic does not allow a schema."""
        versions, strategy = self.versions(topic), self.strategy(topic)
        if not versions or strategy == ALWAYS_COMPATIBLE:
            return
        if strategy == ALWAYS_INCOMPATIBLE:
            raise IncompatibleSchema(
                f"topic {topic.name!r} takes no further schema: its strategy is {strategy}"
            )
        for known in versions if strategy.endswith("_TRANSITIVE") else versions[-1:]:
            if known.type != schema.type:
                raise IncompatibleSchema(
                    f"topic {topic.name!r} has a schema of type {_type_name(known.type)}, not "
                    f"{_type_name(schema.type)}"
                )
            problems = _problems(strategy, _parts(schema), _parts(known))
            if problems:
                raise IncompatibleSchema(
                    f"the schema does not fit the schemas of topic {topic.name!r}, whose strategy is {strategy}: "
                    + "; ".join(problems[:_PROBLEMS_MAX])
                )

    async def delete(self, topic: Topic) -> int:
        """Delete every version, also from the registry. Returns how many there were."""
        for part in {part.suffix for schema in self.versions(topic) for part in _parts(schema)}:
            subject = _subject(topic, part)
            with contextlib.suppress(SubjectNotFound, SubjectSoftDeleted):
                await self._schemas.delete_subject(subject, permanent=False)
            with contextlib.suppress(SubjectNotFound):
                await self._schemas.delete_subject(subject, permanent=True)
        removed: int = await self._log.propose(RemoveTopicSchemas(topic.streams[0]))
        return removed

    # Strategies

    def strategy(self, topic: Topic) -> str:
        """The one that holds for a topic."""
        own = self.own_strategy(_subject(topic, "-value"))
        return own or self.own_strategy(qualify_id(topic.namespace, "")) or DEFAULT_STRATEGY

    def own_strategy(self, scope: str) -> str | None:
        """What is set for a scope alone: a subject, or all of a namespace."""
        config = self._schemas.settings.set_config(scope)
        if config.get(FROZEN):
            return ALWAYS_INCOMPATIBLE
        level = config.get("compatibilityLevel")
        return ALWAYS_COMPATIBLE if level == "NONE" else level

    async def put_strategy(self, scope: str, strategy: str) -> None:
        """Raises InvalidCompatibility."""
        if strategy not in STRATEGIES:
            raise InvalidCompatibility(
                f"unknown strategy {strategy[:64]!r}: the strategies are {', '.join(STRATEGIES)}"
            )
        frozen = strategy == ALWAYS_INCOMPATIBLE
        changes: dict[str, object] = {
            "compatibilityLevel": {ALWAYS_COMPATIBLE: "NONE", ALWAYS_INCOMPATIBLE: "FULL_TRANSITIVE"}.get(
                strategy, strategy
            )
        }
        if frozen or FROZEN in self._schemas.settings.set_config(scope):
            changes[FROZEN] = frozen
        await self._schemas.settings.put_config(scope, changes)

    async def delete_strategy(self, scope: str) -> None:
        if self._schemas.settings.set_config(scope):
            await self._schemas.settings.delete_config(scope)

    @staticmethod
    def scope_of(topic: Topic) -> str:
        return _subject(topic, "-value")


_PROBLEMS_MAX = 5


def _subject(topic: Topic, suffix: str) -> str:
    return qualify_id(topic.namespace, split(topic.name)[1] + suffix)


def _type_name(number: int) -> str:
    return SCHEMA_TYPES[number] if 0 <= number < len(SCHEMA_TYPES) else str(number)


def _parts(schema: TopicSchema) -> list[_Part]:
    """The schemas of the registry that a schema consists of. Empty: it cannot be read."""
    name = _type_name(schema.type)
    try:
        if name == "KEY_VALUE":
            key, value = _key_and_value(schema.data)
            properties = dict(schema.properties)
            return [
                _part("-key", properties.get("key.schema.type", "").upper(), key),
                _part("-value", properties.get("value.schema.type", "").upper(), value),
            ]
        return [_part("-value", name, schema.data)]
    except (ValueError, KeyError, TypeError):
        return []


def _part(suffix: str, name: str, data: bytes) -> _Part:
    """Raises ValueError, KeyError, TypeError."""
    if name == "PROTOBUF_NATIVE":
        return _Part(suffix, PROTOBUF, _root_file(data), name)
    if name in _AVRO_TEXTS:
        return _Part(suffix, AVRO, data.decode(), name)
    return _Part(suffix, AVRO, json.dumps(_PRIMITIVES.get(name, "long")), name or "BYTES")


def _key_and_value(data: bytes) -> tuple[bytes, bytes]:
    """Each after its length, in 4 bytes. Raises ValueError."""
    found: list[bytes] = []
    for _ in range(2):
        size = max(int.from_bytes(data[:4], "big", signed=True), 0)
        if len(data) < 4 + size:
            raise ValueError("the schema of a key and a value is cut off")
        found.append(data[4 : 4 + size])
        data = data[4 + size :]
    return found[0], found[1]


def _root_file(data: bytes) -> str:
    """The file of the message, as the registry takes it. Raises ValueError, KeyError, TypeError."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.message import DecodeError

    try:
        described = json.loads(data)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    try:
        files = FileDescriptorSet.FromString(base64.b64decode(described["fileDescriptorSet"])).file
    except DecodeError as wrong:
        raise ValueError(str(wrong)) from None
    root = described["rootFileDescriptorName"]
    file = next(one for one in (*files, None) if one is None or one.name == root)
    if file is None:
        raise KeyError(root)
    return base64.b64encode(file.SerializeToString(deterministic=True)).decode()


def _record_name(part: _Part) -> str | None:
    """The name of the record that the whole schema is."""
    try:
        described = json.loads(part.text) if part.kind == AVRO else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(described, dict) or described.get("type") != "record":
        return None
    return str(described.get("name"))


def _named_as(part: _Part, other: _Part) -> str:
    """The text of a schema, whose record has the name of another one."""
    name = _record_name(other)
    if name is None or _record_name(part) in (None, name):
        return part.text
    return json.dumps({**json.loads(part.text), "name": name})


def _problems(strategy: str, new: list[_Part], old: list[_Part]) -> list[str]:
    """Why one schema may not follow another."""
    if not new or not old or [one.type for one in new] != [one.type for one in old]:
        return ["it is of another type, or cannot be read"]
    found: list[str] = []
    for after, before in zip(new, old, strict=True):
        try:
            fresh, known = parse(after.kind, after.text), parse(before.kind, _named_as(before, after))
        except MalformedSchema as wrong:
            return [str(wrong)]
        for level, reader, writer in (("BACKWARD", fresh, known), ("FORWARD", known, fresh)):
            if strategy.startswith((level, "FULL")):
                found += reader.differences(writer)
    return found
