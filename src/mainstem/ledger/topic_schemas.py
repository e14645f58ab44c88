"""Schemas of topics, as clients that send them with their messages registered them, by version.

The ledger stores what a client sent and does not look inside."""

from __future__ import annotations

import msgspec

from mainstem import limits
from mainstem.errors import LimitReached, MainstemError, StreamNotFound, TooLarge
from mainstem.ledger.keyed import Keyed, fields_hash
from mainstem.ledger.section import Command, Moment, Section, applies, reacts
from mainstem.ledger.streams import Streams
from mainstem.ledger.topics import TopicDeletedEvent

TOPIC_SCHEMA_BYTES_MAX = 256 * limits.KIB
TOPIC_SCHEMA_VERSIONS_MAX = 1_000  # of one topic


class TopicSchema(msgspec.Struct, frozen=True, array_like=True):
    name: str
    type: int  # as the client numbers it
    data: bytes
    properties: tuple[tuple[str, str], ...] = ()


class RegisterTopicSchema(Command, frozen=True, tag=246):
    """Add a version, unless the topic has this schema. `stream` is the first partition of the topic."""

    stream: int
    schema: TopicSchema


class RemoveTopicSchemas(Command, frozen=True, tag=247):
    """Remove every version."""

    stream: int


class TopicSchemasState(msgspec.Struct, frozen=True, array_like=True):
    stream: int
    versions: tuple[TopicSchema, ...]


class TopicSchemas(Section[list[TopicSchemasState]]):
    """By the first stream of the topic."""

    requires = (Streams,)

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self._schemas: Keyed[int, TopicSchemasState] = Keyed(fields_hash("topic schemas"))

    def versions(self, stream: int) -> tuple[TopicSchema, ...]:
        found = self._schemas.get(stream)
        return () if found is None else found.versions

    @applies(RegisterTopicSchema)
    def register(self, command: RegisterTopicSchema, now: Moment) -> int | MainstemError:
        """Returns the number of the version, from 0 on."""
        schema, stream = command.schema, command.stream
        if not self._streams.exists(stream):
            return StreamNotFound(stream)
        if len(schema.data) > TOPIC_SCHEMA_BYTES_MAX:
            return TooLarge(f"a schema has at most {TOPIC_SCHEMA_BYTES_MAX} bytes, not {len(schema.data)}")
        versions = self.versions(stream)
        for number, known in enumerate(versions):
            if (known.type, known.data) == (schema.type, schema.data):
                return number
        if len(versions) >= TOPIC_SCHEMA_VERSIONS_MAX:
            return LimitReached(f"the topic has {TOPIC_SCHEMA_VERSIONS_MAX} versions of its schema")
        self._schemas.put(stream, TopicSchemasState(stream, (*versions, schema)))
        return len(versions)

    @applies(RemoveTopicSchemas)
    def remove(self, command: RemoveTopicSchemas, now: Moment) -> int:
        """Returns how many there were."""
        found = self._schemas.pop(command.stream)
        return 0 if found is None else len(found.versions)

    @reacts(TopicDeletedEvent)
    def on_topic_deleted(self, event: TopicDeletedEvent, now: Moment) -> None:
        if event.topic.streams:
            self._schemas.pop(event.topic.streams[0])

    @property
    def digest(self) -> int:
        return self._schemas.digest

    def encode(self) -> list[TopicSchemasState]:
        return list(self._schemas)

    def load(self, state: list[TopicSchemasState]) -> None:
        for one in state:
            self._schemas.put(one.stream, one)
