"""Schema validation: topics that take only records whose keys or values name a schema of the registry, and fit it.

A payload begins with a zero byte and the id of its schema in four bytes. Or a header holds a one and the schema's
guid, and the payload is bare. Records without a key or a value pass."""

from __future__ import annotations

from collections.abc import Callable

from mainstem.broker.schemas.service import SchemaService, StoredSchema
from mainstem.errors import InvalidBatch, MalformedSchema, UndecodablePayload
from mainstem.ledger.namespaces import qualify_id
from mainstem.ledger.topics import Topic
from mainstem.records.decoding import Headers, decode_records
from mainstem.records.header import Slice
from mainstem.schemas.subjects import DEFAULT_CONTEXT

KEY_HEADER, VALUE_HEADER = "__key_schema_id", "__value_schema_id"
_ID_END = 5  # magic byte and id
_BY_ID, _BY_GUID = 0, 1
_GUID_END = 17

PayloadCheck = Callable[[Slice], None]


class InvalidPayload(InvalidBatch):
    """A record of a topic with schema validation names no schema of the registry, or does not fit it."""


class UnknownSchemaId(InvalidPayload):
    """The registry, as this broker knows it, has no schema of this id."""


class PayloadChecks:
    def __init__(self, schemas: SchemaService) -> None:
        self._schemas = schemas

    def of(self, topic: Topic) -> PayloadCheck | None:
        """The check of a topic's batches, which may run on a thread; None if there is none."""
        config = topic.config
        if config.value_schema_validation == "none" and config.key_schema_validation == "none":
            return None
        return lambda batches: self._check(topic, batches)

    def _check(self, topic: Topic, batches: Slice) -> None:
        config = topic.config
        space = qualify_id(topic.namespace, DEFAULT_CONTEXT)
        parts = (
            ("key", config.key_schema_validation, KEY_HEADER),
            ("value", config.value_schema_validation, VALUE_HEADER),
        )
        try:
            for number, record in enumerate(decode_records(batches)):
                for part, level, header in parts:
                    payload = record.key if part == "key" else record.value
                    if level == "none" or payload is None:
                        continue
                    place = f"record {number} of the batch: the {part}"
                    schema, body = schema_of(self._schemas, space, payload, record.headers, header, place)
                    if level == "full":
                        self._decode(schema, body, place)
        except InvalidPayload:
            self._schemas.undecodable_total += 1
            raise

    def _decode(self, schema: StoredSchema, body: bytes, place: str) -> None:
        try:
            self._schemas.parsed(schema).decode(body)
        except (UndecodablePayload, MalformedSchema) as wrong:
            raise InvalidPayload(f"{place} does not fit schema id {schema.id}: {wrong}") from None


def schema_of(
    schemas: SchemaService, space: str, payload: bytes, headers: Headers, header: str, place: str
) -> tuple[StoredSchema, bytes]:
    """The schema that a payload or a header names, and the payload without the id. Raises InvalidPayload."""
    for name, value in headers:
        if name == header and value is not None and len(value) == _GUID_END and value[0] == _BY_GUID:
            found = schemas.by_fingerprint(space, value[1:])
            if found is None:
                raise UnknownSchemaId(f"{place} names a guid that no schema of the registry has")
            return found, payload
    if len(payload) < _ID_END or payload[0] != _BY_ID:
        raise InvalidPayload(
            f"{place} does not begin with a zero byte and a schema id, which the topic's schema validation needs"
        )
    id = int.from_bytes(payload[1:_ID_END], "big")
    schema = schemas.by_number(space, id)
    if schema is None:
        raise UnknownSchemaId(f"{place} names schema id {id}, which the registry does not have")
    return schema, payload[_ID_END:]
