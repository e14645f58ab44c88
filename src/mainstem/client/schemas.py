"""Values by the schema registry: what they are on the wire, and back.

    registry = SchemaRegistry("http://127.0.0.1:4000")
    to_bytes = registry.serializer("orders-value", '{"type": "record", …}')
    client.write("orders", to_bytes({"id": 1}))
    registry.deserialize(record.value)  # {"id": 1}

The bytes are Confluent's wire format, so its serialisers read and write the same."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

import httpx
import msgspec

from mainstem.api import routes
from mainstem.api.lake import WriterSchema
from mainstem.api.route import REGISTRY_JSON, Route
from mainstem.api.schemas import SchemaBody, SchemaError, SchemaReferenceBody, SchemaText, SchemaVersion
from mainstem.client.environment import KEY_ENV, NAMESPACE_ENV, URL_DEFAULT, URL_ENV
from mainstem.errors import SchemaRefused, UndecodablePayload, Unreachable
from mainstem.schemas.schema import AVRO, ParsedSchema, ReferencedSchema, parse
from mainstem.schemas.subjects import beside

_HEAD = struct.Struct(">bI")  # magic byte 0, id
_TIMEOUT_S = 30.0


class SchemaRegistry:
    """A client of the registry. Schemas are kept once they are known: an id never changes its schema."""

    def __init__(
        self, url: str | None = None, *, api_key: str | None = None, namespace: str | None = None
    ) -> None:
        key = api_key if api_key is not None else os.environ.get(KEY_ENV)
        namespace = namespace or os.environ.get(NAMESPACE_ENV)
        self._http = httpx.Client(
            base_url=url or os.environ.get(URL_ENV) or URL_DEFAULT,
            headers={"authorization": f"Bearer {key}"} if key else {},
            params={"namespace": namespace} if namespace else {},
            timeout=_TIMEOUT_S,
        )
        self._by_id: dict[int, ParsedSchema] = {}

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> SchemaRegistry:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def register(
        self, subject: str, schema: str, kind: str = AVRO, references: Sequence[SchemaReferenceBody] = ()
    ) -> int:
        """Register a schema under a subject. Returns its id. Raises SchemaRefused."""
        body = SchemaBody(schema=schema, schema_type=kind, references=list(references))
        found: SchemaVersion = self._call(routes.REGISTER_SCHEMA, subject, body=body)
        return found.id

    def latest(self, subject: str) -> tuple[int, ParsedSchema]:
        """The latest schema of a subject, and its id. Raises SchemaRefused."""
        id = self.version(subject)
        return id, self.schema(id)

    def version(self, subject: str, version: str = "latest") -> int:
        """The id of a version of a subject. Raises SchemaRefused."""
        found: SchemaVersion = self._call(routes.GET_SCHEMA_VERSION, subject, version)
        return found.id

    def schema(self, id: int) -> ParsedSchema:
        """The schema of an id. Raises SchemaRefused."""
        known = self._by_id.get(id)
        if known is None:
            found = self.writer(id)
            references = [ReferencedSchema(*each) for each in found.references]
            known = self._by_id[id] = parse(found.kind, found.text, references)
        return known

    def writer(self, id: int) -> WriterSchema:
        """The text of an id's schema, with everything that it refers to. Raises SchemaRefused."""
        found: SchemaText = self._call(routes.GET_SCHEMA, str(id))
        references = tuple((each.name, each.text) for each in self._resolved("", found.references))
        return WriterSchema(id, found.schema_type or AVRO, found.schema, references)

    def serializer(self, subject: str, schema: str | None = None, kind: str = AVRO) -> Callable[[Any], bytes]:
        """What turns values into bytes: by this schema, which it registers, or by the latest of the subject.

        The serialiser raises UndecodablePayload for a value that does not fit."""
        if schema is None:
            id, parsed = self.latest(subject)
        else:
            id = self.register(subject, schema, kind)
            parsed = self.schema(id)
        head = _HEAD.pack(0, id)
        return lambda value: head + parsed.encode(value)

    def deserialize(self, payload: bytes | None) -> Any:
        """The value of bytes that begin with a schema id; None of None. Raises UndecodablePayload, SchemaRefused."""
        if payload is None:
            return None
        if len(payload) < _HEAD.size or payload[0]:
            raise UndecodablePayload("the bytes do not begin with a zero byte and a schema id")
        return self.schema(_HEAD.unpack_from(payload)[1]).decode(bytes(payload[_HEAD.size :]))

    def _resolved(self, parent: str, references: Sequence[SchemaReferenceBody]) -> list[ReferencedSchema]:
        found: dict[str, ReferencedSchema] = {}
        for reference in references:
            subject = beside(parent, reference.subject)
            target: SchemaVersion = self._call(
                routes.GET_SCHEMA_VERSION, subject, str(reference.version), query={"deleted": "true"}
            )
            for inner in self._resolved(subject, target.references):
                found.setdefault(inner.name, inner)
            found.setdefault(reference.name, ReferencedSchema(reference.name, target.schema))
        return list(found.values())

    def _call(
        self, route: Route[Any], *names: str, body: object = None, query: dict[str, str] | None = None
    ) -> Any:
        try:
            answer = self._http.request(
                route.method,
                route.url(*names),
                content=None if body is None else msgspec.json.encode(body),
                params=query,
                headers={"content-type": REGISTRY_JSON},
            )
        except httpx.TransportError as silent:
            raise Unreachable(str(self._http.base_url), str(silent)) from None
        if answer.status_code != 200:
            try:
                message = msgspec.json.decode(answer.content, type=SchemaError).message
            except msgspec.MsgspecError:
                message = answer.text[:500]
            raise SchemaRefused(message)
        return msgspec.json.decode(answer.content, type=route.response)
