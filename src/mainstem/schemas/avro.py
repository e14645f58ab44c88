"""Avro schemas. fastavro parses them and their payloads; references become part of the schema that uses them."""

from __future__ import annotations

import io
import json
import struct
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any

import fastavro
from fastavro.schema import SchemaParseException, UnknownType
from fastavro.validation import ValidationError, validate

from mainstem.errors import MalformedSchema, UndecodablePayload
from mainstem.schemas.avro_bounds import AvroBounds
from mainstem.schemas.avro_compatibility import reading_problems
from mainstem.schemas.avro_json import from_json
from mainstem.schemas.schema import (
    AVRO,
    ParsedSchema,
    ReferencedSchema,
)

_PRIMITIVE = {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}
_NAMED = ("record", "error", "enum", "fixed")
_ORDER = (
    "type",
    "name",
    "namespace",
    "doc",
    "fields",
    "symbols",
    "items",
    "values",
    "size",
    "order",
    "aliases",
)
_REFUSED = (SchemaParseException, UnknownType, ValueError, KeyError, TypeError, AttributeError, IndexError)
UNREADABLE = (EOFError, OverflowError, MemoryError, struct.error, *_REFUSED)


class AvroSchema(ParsedSchema):
    kind = AVRO

    def __init__(self, text: str, references: Sequence[ReferencedSchema] = ()) -> None:
        self._given = _ordered(_loaded(text))
        known: dict[str, Any] = {}
        for reference in references:
            for name, definition in _definitions(_loaded(reference.text), ""):
                known.setdefault(name, definition)
        try:
            resolved = _Inliner(known).inlined(self._given, "")
            self.resolved: Any = fastavro.parse_schema(resolved)
            self._named = dict(_definitions(self.resolved, ""))
            self.bounds = AvroBounds(self.resolved, self._named)
        except RecursionError:
            raise
        except _REFUSED as wrong:
            raise MalformedSchema(f"Invalid schema: {told(wrong)}") from None

    @property
    def text(self) -> str:
        return _compact(self._given)

    def normal_text(self) -> str:
        return _compact(_normal(self._given, ""))

    def differences(self, writer: ParsedSchema) -> list[str]:
        assert isinstance(writer, AvroSchema)
        return reading_problems(self.resolved, writer.resolved)

    def decode(self, payload: bytes) -> Any:
        self.bounds.check(payload)
        source = io.BytesIO(payload)
        try:
            value = fastavro.schemaless_reader(source, self.resolved, None)
        except UNREADABLE as wrong:
            raise UndecodablePayload(
                f"the bytes do not fit {self.title}: {self._place(payload)}{told(wrong)}"
            ) from None
        if source.tell() != len(payload):
            raise UndecodablePayload(
                f"the bytes do not fit {self.title}: {len(payload) - source.tell()} bytes are left over"
            )
        return value

    def encode(self, value: Any) -> bytes:
        target = io.BytesIO()
        try:
            validate(value, self.resolved, strict=False)
            fastavro.schemaless_writer(target, self.resolved, value)
        except ValidationError as wrong:
            raise UndecodablePayload(f"the value does not fit {self.title}: {told(wrong)}") from None
        except (*_REFUSED, OverflowError, struct.error) as wrong:
            raise UndecodablePayload(f"the value does not fit {self.title}: {told(wrong)}") from None
        return target.getvalue()

    def from_json(self, value: Any) -> Any:
        return from_json(value, self.resolved, self._named)

    def _place(self, payload: bytes) -> str:
        """The first field of a record that the payload has no value for."""
        schema = self.resolved
        if not isinstance(schema, dict) or schema.get("type") not in ("record", "error"):
            return ""
        fields = schema["fields"]

        def lacks(count: int) -> bool:
            first = fastavro.parse_schema(_unparsed({**schema, "fields": fields[:count]}))
            try:
                fastavro.schemaless_reader(io.BytesIO(payload), first, None)
            except UNREADABLE:
                return True
            return False

        if not fields or not lacks(len(fields)):
            return ""
        found = bisect_left(range(1, len(fields)), True, key=lacks)
        return f"field {fields[found]['name']!r}: "

    @property
    def title(self) -> str:
        schema = self.resolved
        return (
            f"record {schema['name']!r}" if isinstance(schema, dict) and "name" in schema else f"{schema!r}"
        )


def _unparsed(schema: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if not key.startswith("__")}


def told(wrong: BaseException) -> str:
    if isinstance(wrong, EOFError):
        return "the bytes end too early"
    if isinstance(wrong, IndexError):
        return "the number of a union branch or enum symbol is out of range"
    return " ".join(str(wrong).split())[:500] or type(wrong).__name__


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as wrong:
        raise MalformedSchema(f"Invalid schema: the text is not JSON: {wrong}") from None


def _compact(schema: Any) -> str:
    return json.dumps(schema, separators=(",", ":"), ensure_ascii=False)


def _ordered(schema: Any) -> Any:
    """The same schema with its attributes in Avro's order, and primitive types by their name alone."""
    if isinstance(schema, list):
        return [_ordered(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if len(schema) == 1 and isinstance(schema.get("type"), str) and schema["type"] in _PRIMITIVE:
        return schema["type"]
    keys = [key for key in _ORDER if key in schema] + [key for key in schema if key not in _ORDER]
    nested = ("type", "items", "values")
    ordered = {key: _ordered(schema[key]) if key in nested else schema[key] for key in keys}
    fields = schema.get("fields")
    if isinstance(fields, list):
        ordered["fields"] = [_ordered_field(field) for field in fields]
    return ordered


def _ordered_field(field: Any) -> Any:
    if not isinstance(field, dict):
        return field
    order = ("name", "type", "doc", "default", "order", "aliases")
    keys = [key for key in order if key in field] + [key for key in field if key not in order]
    return {key: _ordered(field[key]) if key == "type" else field[key] for key in keys}


def _full_name(definition: dict[str, Any], namespace: str) -> str:
    name = str(definition["name"])
    if "." in name:
        return name
    space = definition.get("namespace", namespace)
    return f"{space}.{name}" if space else name


def _children(schema: dict[str, Any]) -> Iterator[Any]:
    for key in ("items", "values"):
        if key in schema:
            yield schema[key]
    for field in schema.get("fields") or ():
        if isinstance(field, dict):
            yield field.get("type")
    if isinstance(schema.get("type"), dict | list):
        yield schema["type"]


def _definitions(schema: Any, namespace: str) -> Iterator[tuple[str, Any]]:
    """The named types that a schema defines, with names in full."""
    if isinstance(schema, list):
        for one in schema:
            yield from _definitions(one, namespace)
    elif isinstance(schema, dict):
        if schema.get("type") in _NAMED and "name" in schema:
            name = _full_name(schema, namespace)
            namespace = name.rpartition(".")[0]
            yield name, {**schema, "name": name}
        for child in _children(schema):
            yield from _definitions(child, namespace)


class _Inliner:
    """Puts the definition of each referenced type where its name is used first."""

    def __init__(self, known: dict[str, Any]) -> None:
        self._known = known
        self._defined: set[str] = set()

    def inlined(self, schema: Any, namespace: str) -> Any:
        if isinstance(schema, str):
            return self._resolve_name(schema, namespace)
        if isinstance(schema, list):
            return [self.inlined(one, namespace) for one in schema]
        if not isinstance(schema, dict):
            return schema
        if schema.get("type") in _NAMED and "name" in schema:
            name = _full_name(schema, namespace)
            namespace = name.rpartition(".")[0]
            self._defined.add(name)
        changed = dict(schema)
        for key in ("items", "values"):
            if key in changed:
                changed[key] = self.inlined(changed[key], namespace)
        if isinstance(changed.get("fields"), list):
            changed["fields"] = [
                {**field, "type": self.inlined(field["type"], namespace)}
                if isinstance(field, dict) and "type" in field
                else field
                for field in changed["fields"]
            ]
        kind = changed.get("type")
        if isinstance(kind, dict | list) or (isinstance(kind, str) and kind not in (*_NAMED, "array", "map")):
            changed["type"] = self.inlined(kind, namespace)
        return changed

    def _resolve_name(self, name: str, namespace: str) -> Any:
        if name in _PRIMITIVE:
            return name
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        for each in (full, name):
            if each in self._defined:
                return each
            if each in self._known:
                return self.inlined(self._known[each], "")
        return name


def _normal(schema: Any, namespace: str) -> Any:
    """With full names and sorted attributes."""
    if isinstance(schema, str):
        return schema if schema in _PRIMITIVE or "." in schema or not namespace else f"{namespace}.{schema}"
    if isinstance(schema, list):
        return [_normal(one, namespace) for one in schema]
    if not isinstance(schema, dict):
        return schema
    changed = dict(schema)
    if changed.get("type") in _NAMED and "name" in changed:
        changed["name"] = _full_name(changed, namespace)
        namespace = changed["name"].rpartition(".")[0]
        changed.pop("namespace", None)
    for key in ("items", "values"):
        if key in changed:
            changed[key] = _normal(changed[key], namespace)
    if isinstance(changed.get("fields"), list):
        changed["fields"] = [
            dict(sorted({**field, "type": _normal(field.get("type"), namespace)}.items()))
            if isinstance(field, dict)
            else field
            for field in changed["fields"]
        ]
    kind = changed.get("type")
    if isinstance(kind, dict | list):
        changed["type"] = _normal(kind, namespace)
    return dict(sorted(changed.items()))
