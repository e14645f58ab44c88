"""Keys and values by schemas of the registry, as JSON: for people who look at messages, and for their searches."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from mainstem import limits
from mainstem.broker.schemas.service import SchemaService
from mainstem.broker.schemas.validation import KEY_HEADER, VALUE_HEADER, schema_of
from mainstem.ledger.namespaces import qualify_id
from mainstem.ledger.topics import Topic
from mainstem.records.decoding import Headers, StoredRecord
from mainstem.schemas.subjects import DEFAULT_CONTEXT

_DECODED_BYTES_MAX = limits.MIB  # of a key or a value; larger ones stay bytes


class Decoded(NamedTuple):
    schema_id: int
    kind: str  # AVRO, JSON or PROTOBUF
    json: bytes


class DecodedPayloads:
    """The payloads of one topic. Its methods may run on a thread."""

    def __init__(self, schemas: SchemaService, topic: Topic) -> None:
        self._schemas = schemas
        self._space = qualify_id(topic.namespace, DEFAULT_CONTEXT)

    def key(self, record: StoredRecord) -> Decoded | None:
        return self._decoded(record.key, record.headers, KEY_HEADER)

    def value(self, record: StoredRecord) -> Decoded | None:
        return self._decoded(record.value, record.headers, VALUE_HEADER)

    def _decoded(self, payload: bytes | None, headers: Headers, header: str) -> Decoded | None:
        """None if the payload names no schema of the registry, or does not fit it."""
        if not payload or len(payload) > _DECODED_BYTES_MAX:
            return None
        if payload[0] != 0 and not any(name == header for name, _ in headers):
            return None
        try:
            schema, body = schema_of(self._schemas, self._space, payload, headers, header, "the payload")
            value = self._schemas.parsed(schema).decode(body)
            return Decoded(schema.id, schema.kind, msgspec.json.encode(value, enc_hook=repr))
        except Exception:  # noqa: BLE001 - clients chose schema and payload: one must not hide the others
            return None
