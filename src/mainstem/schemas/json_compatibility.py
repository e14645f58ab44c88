"""Whether every document that is valid under one JSON Schema is valid under another.

The check is safe, not complete: where it cannot tell, the schemas are not compatible."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

from mainstem.errors import UndecodablePayload
from mainstem.schemas.patterns import Patterns

_TYPES = {"null", "boolean", "object", "array", "number", "string"}  # "integer" is part of "number"
COMPARISONS_MAX = 20_000  # steps; schemas can be written so that comparing them takes for ever
_MEMBERS_PER_STEP = 32  # properties, values or items, each of which is looked at
_DEFINITIONS = ("definitions", "$defs")

# Bounds: keyword, and whether the reader's value may be larger (True) or smaller (False).
_BOUNDS = {
    "maxLength": True,
    "minLength": False,
    "maximum": True,
    "minimum": False,
    "maxItems": True,
    "minItems": False,
    "maxProperties": True,
    "minProperties": False,
    "maxContains": True,
    "minContains": False,
}
# The reader accepts what the writer wrote if both say the same.
_SAME = (
    "pattern",
    "not",
    "if",
    "then",
    "else",
    "contains",
    "propertyNames",
    "unevaluatedItems",
    "unevaluatedProperties",
)
_MISSING = object()
_PROBLEMS_MAX = 50


class JsonDocuments:
    """A schema, and the documents that its references name."""

    def __init__(self, schema: Any, others: dict[str, Any]) -> None:
        self.schema = schema
        self.others = others
        self._ids = dict(_identified(schema, ""))
        self._anchors: dict[int, dict[object, Any]] = {}  # by the id of the document

    def resolve(self, reference: str) -> Any:
        """What a $ref names. Raises KeyError."""
        address, fragment = urldefrag(reference)
        base = str(self.schema.get("$id", "")) if isinstance(self.schema, dict) else ""
        found: Any = _MISSING
        for name in (address, urljoin(base, address)):
            if not address or name == base.rstrip("#"):
                found = self.schema
            elif name in self.others:
                found = self.others[name]
            elif name in self._ids:
                found = self._ids[name]
            if found is not _MISSING:
                break
        if found is _MISSING:
            raise KeyError(reference)
        if fragment and not fragment.startswith("/"):
            return self._anchor(found, fragment)
        for part in unquote(fragment).split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            found = found[int(key)] if isinstance(found, list) else found[key]
        return found

    def _anchor(self, document: Any, name: str) -> Any:
        if id(document) not in self._anchors:
            self._anchors[id(document)] = _anchors(document)
        return self._anchors[id(document)][name]

    def unresolved(self) -> str | None:
        """The first $ref that names nothing."""
        for schema in _subschemas(self.schema):
            reference = schema.get("$ref") if isinstance(schema, dict) else None
            if isinstance(reference, str) and not reference.startswith(_META_SCHEMAS):
                try:
                    self.resolve(reference)
                except (KeyError, IndexError, ValueError, TypeError):
                    if not self._inner_base():
                        return reference
        return None

    def _inner_base(self) -> bool:
        """Whether a subschema has an address of its own: then only the validator can resolve references."""
        return bool(self._ids)


def _anchors(document: Any) -> dict[object, Any]:
    """The subschemas that have a name of their own; the first of several of one name."""
    found: dict[object, Any] = {}
    for schema in _subschemas(document):
        if isinstance(schema, dict):
            names = schema.get("$anchor"), schema.get("$dynamicAnchor")
            for name in (*names, str(schema.get("$id", schema.get("id", ""))).lstrip("#")):
                if isinstance(name, str):
                    found.setdefault(name, schema)
    return found


_META_SCHEMAS = ("http://json-schema.org/", "https://json-schema.org/")


def _identified(schema: Any, base: str) -> Iterator[tuple[str, Any]]:
    top = str(schema.get("$id", "")) if isinstance(schema, dict) else ""
    for inner in _subschemas(schema):
        if inner is not schema and isinstance(inner, dict) and isinstance(inner.get("$id"), str):
            yield urljoin(top, inner["$id"]), inner


def _subschemas(schema: Any) -> Iterator[Any]:
    waiting = [schema]
    while waiting:
        found = waiting.pop()
        if isinstance(found, dict):
            yield found
            waiting += [
                value for key, value in found.items() if key not in ("enum", "const", "default", "examples")
            ]
        elif isinstance(found, list):
            waiting += found


def reading_problems(reader: JsonDocuments, writer: JsonDocuments) -> list[str]:
    """Why documents of `writer` may be invalid under `reader`."""
    try:
        return list(dict.fromkeys(_Comparison(reader, writer).problems(reader.schema, writer.schema, "")))
    except _JsonTooComplex:
        return ["the schemas are too complex to compare"]


class _JsonTooComplex(Exception):
    pass


class _Comparison:
    def __init__(self, reader: JsonDocuments, writer: JsonDocuments) -> None:
        self._reader = reader
        self._writer = writer
        # What each pair was found to be; none for a pair that is being compared, since it may contain itself. The
        # schemas are kept, so that no other one gets the same id.
        self._compared: dict[tuple[int, int], tuple[Any, Any, list[str]]] = {}
        self._left = COMPARISONS_MAX
        self._patterns = Patterns(self._spend)

    def problems(self, reader: Any, writer: Any, path: str) -> list[str]:
        try:
            reader, writer = _followed(reader, self._reader), _followed(writer, self._writer)
        except (KeyError, IndexError, ValueError, TypeError) as wrong:
            return [f"{_at(path)} $ref {wrong} names nothing"]
        if _accepts_all(reader) or writer is False:
            return []
        if reader is False:
            return [f"{_at(path)} it is no longer allowed"]
        writer = {} if writer is True else writer
        pair = id(reader), id(writer)
        known = self._compared.get(pair)
        if known is not None:
            return known[2]
        self._spend(1 + (_width(reader) + _width(writer)) // _MEMBERS_PER_STEP)
        self._compared[pair] = reader, writer, []
        found = self._combined(reader, writer, path)[:_PROBLEMS_MAX]
        self._compared[pair] = reader, writer, found
        return found

    def _spend(self, steps: int) -> None:
        self._left -= steps
        if self._left <= 0:
            raise _JsonTooComplex

    def _combined(self, reader: dict[str, Any], writer: dict[str, Any], path: str) -> list[str]:
        for keyword in ("anyOf", "oneOf"):  # the reader must accept each of the writer's alternatives
            if keyword in writer:
                if _same(writer[keyword], reader.get(keyword)):
                    reader, writer = _without(reader, keyword), _without(writer, keyword)
                    return self._combined(reader, writer, path)
                rest = _without(writer, keyword)
                return [
                    found
                    for one in writer[keyword]
                    for found in self.problems(reader, _merged(rest, one), path)
                ]
        if "allOf" in writer:
            whole = _without(writer, "allOf")
            self._spend(len(writer["allOf"]))
            for one in writer["allOf"]:
                whole = _merged(whole, _followed(one, self._writer))
            return self.problems(reader, whole, path)
        found: list[str] = []
        for keyword in ("anyOf", "oneOf"):
            if keyword in reader:
                tried = [self.problems(one, writer, path) for one in reader[keyword]]
                if all(tried):
                    same_type = [one for one in tried if not any("type" in text for text in one)]
                    found += (
                        same_type[0]
                        if len(same_type) == 1
                        else [f"{_at(path)} no alternative of {keyword} accepts what was allowed"]
                    )
        for one in reader.get("allOf", ()):
            found += self.problems(one, writer, path)
        return found + self._plain(reader, writer, path)

    def _plain(self, reader: dict[str, Any], writer: dict[str, Any], path: str) -> list[str]:
        found = _types(reader, writer, path)
        if found:
            return found
        found = [*_values(reader, writer, path), *_bounds(reader, writer, path)]
        for keyword in _SAME:
            if keyword in reader and not _same(reader[keyword], writer.get(keyword, _MISSING)):
                found.append(f"{_at(path)} {keyword} was added or changed")
        types = _type_set(writer)
        if "object" in types:
            found += self._objects(reader, writer, path)
        if "array" in types:
            found += self._arrays(reader, writer, path)
        return found

    def _objects(self, reader: dict[str, Any], writer: dict[str, Any], path: str) -> list[str]:
        found = []
        properties = reader.get("properties", {})
        required = set(writer.get("required", ()))
        for name in reader.get("required", ()):
            with_default = isinstance(properties.get(name), dict) and "default" in properties[name]
            if name not in required and not with_default:
                found.append(f"field {_join(path, name)!r} is required, and was not before")
        for name in dict.fromkeys((*properties, *writer.get("properties", {}))):
            inner, before = self._property(reader, name), self._property(writer, name)
            within = _join(path, name)
            if name not in writer.get("properties", {}) and before is True and not _accepts_all(inner):
                found.append(
                    f"field {within!r} was added to an object that allowed any value under that name: "
                    "set additionalProperties to false, or give it no constraints"
                )
            elif name not in properties and inner is False and before is not False:
                found.append(f"field {within!r} was removed from an object that allows no other properties")
            else:
                found += self.problems(inner, before, within)
        found += self.problems(
            reader.get("additionalProperties", True), writer.get("additionalProperties", True), f"{path}.*"
        )
        for pattern, inner in reader.get("patternProperties", {}).items():
            before = writer.get("patternProperties", {}).get(
                pattern, writer.get("additionalProperties", True)
            )
            found += self.problems(inner, before, _join(path, pattern))
        for keyword in ("dependencies", "dependentRequired", "dependentSchemas"):
            before = writer.get(keyword, {})
            for name, wanted in reader.get(keyword, {}).items():
                had = before.get(name)
                narrowed = isinstance(wanted, list) and isinstance(had, list) and set(wanted) <= set(had)
                if wanted != had and not narrowed:
                    found.append(f"field {_join(path, name)!r} has a dependency that was added or changed")
        return found

    def _property(self, schema: dict[str, Any], name: str) -> Any:
        """What an object's schema says of the property of this name."""
        if name in schema.get("properties", {}):
            return schema["properties"][name]
        for pattern, inner in schema.get("patternProperties", {}).items():
            try:
                if self._patterns.matches(pattern, name):
                    return inner
            except UndecodablePayload:
                continue
        return schema.get("additionalProperties", True)

    def _arrays(self, reader: dict[str, Any], writer: dict[str, Any], path: str) -> list[str]:
        found = []
        if reader.get("uniqueItems") and not writer.get("uniqueItems"):
            found.append(f"{_at(path)} uniqueItems was added")
        first, rest = _items(reader)
        before, others = _items(writer)
        for place in range(max(len(first), len(before))):
            found += self.problems(
                first[place] if place < len(first) else rest,
                before[place] if place < len(before) else others,
                f"{path}[{place}]",
            )
        return found + self.problems(rest, others, f"{path}[]")


def _width(schema: dict[str, Any]) -> int:
    """How many members the parts of a schema have."""
    return sum(len(part) for part in schema.values() if isinstance(part, dict | list))


def _followed(schema: Any, documents: JsonDocuments) -> Any:
    for _ in range(_REFERENCES_MAX):
        if not isinstance(schema, dict) or not isinstance(schema.get("$ref"), str):
            return schema
        schema = documents.resolve(schema["$ref"])
    raise KeyError("it refers to itself")


_REFERENCES_MAX = 100


def _accepts_all(schema: Any) -> bool:
    if schema is True:
        return True
    says_nothing = (
        "title",
        "description",
        "default",
        "examples",
        "$comment",
        "deprecated",
        "readOnly",
        "writeOnly",
    )
    return isinstance(schema, dict) and all(
        key in says_nothing
        or key.startswith("x-")
        or key in ("$id", "$schema", "connect.index", *_DEFINITIONS)
        for key in schema
    )


def _same(first: Any, second: Any) -> bool:
    """Whether two parts of different documents say the same. Equal references may name different things."""
    return bool(first == second) and not any("$ref" in one for one in _subschemas(first))


def _without(schema: dict[str, Any], keyword: str) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key != keyword}


def _merged(first: dict[str, Any], second: Any) -> dict[str, Any]:
    """A schema that documents of both satisfy."""
    if not isinstance(second, dict):
        return first
    if not first:
        return second
    merged = {**first, **second}
    if "required" in first and "required" in second:
        merged["required"] = [*first["required"], *second["required"]]
    if "properties" in first and "properties" in second:
        merged["properties"] = {**first["properties"], **second["properties"]}
    if "allOf" in first and "allOf" in second:
        merged["allOf"] = [*first["allOf"], *second["allOf"]]
    return merged


def _type_set(schema: dict[str, Any]) -> set[str]:
    given = schema.get("type")
    if given is None:
        values = schema.get("enum", [schema["const"]] if "const" in schema else None)
        return {_type_of(value) for value in values} if values else set(_TYPES)
    return {given} if isinstance(given, str) else set(given)


def _type_of(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return "null" if value is None else "boolean"
    if isinstance(value, int | float):
        return "integer" if isinstance(value, int) else "number"
    return "string" if isinstance(value, str) else "array" if isinstance(value, list) else "object"


def _types(reader: dict[str, Any], writer: dict[str, Any], path: str) -> list[str]:
    if "type" not in reader:
        return []
    reads, wrote = _type_set(reader), _type_set(writer)
    lost = sorted(one for one in wrote - reads if not (one == "integer" and "number" in reads))
    if not lost:
        return []
    said = " or ".join(sorted(reads))
    return [f"{_at(path)} the type is now {said}, and was {', '.join(lost) if 'type' in writer else 'any'}"]


def _values(reader: dict[str, Any], writer: dict[str, Any], path: str) -> list[str]:
    allowed = reader.get("enum", [reader["const"]] if "const" in reader else None)
    if allowed is None:
        return []
    wrote = writer.get("enum", [writer["const"]] if "const" in writer else None)
    if wrote is None:
        return [f"{_at(path)} only some values are allowed now"]
    known = set(map(canonical, allowed))
    lost = [value for value in wrote if canonical(value) not in known]
    return (
        [f"{_at(path)} the values {', '.join(map(repr, lost))[:200]} are no longer allowed"] if lost else []
    )


def canonical(value: Any) -> str:
    """Equal for values that JSON Schema calls equal."""
    return json.dumps(_with_whole_numbers(value), sort_keys=True)


def _with_whole_numbers(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_with_whole_numbers(one) for one in value]
    if isinstance(value, dict):
        return {name: _with_whole_numbers(one) for name, one in value.items()}
    return value


def _bounds(reader: dict[str, Any], writer: dict[str, Any], path: str) -> Iterator[str]:
    bounds = dict(_BOUNDS)
    for keyword, larger in (("exclusiveMaximum", True), ("exclusiveMinimum", False)):
        if not isinstance(reader.get(keyword), bool):
            bounds[keyword] = larger
        elif reader[keyword] and not writer.get(keyword):
            yield f"{_at(path)} {keyword} was added"
    for keyword, larger in bounds.items():
        if keyword not in reader:
            continue
        now, before = reader[keyword], writer.get(keyword)
        if not before and not larger and keyword.startswith("min") and now == 0 and keyword != "minimum":
            continue
        if before is None or isinstance(before, bool) or (now < before if larger else now > before):
            yield f"{_at(path)} {keyword} is now {now}, and was {'not set' if before is None else before}"
    if "multipleOf" in reader:
        step, before = reader["multipleOf"], writer.get("multipleOf")
        if before is None or before % step:
            yield f"{_at(path)} multipleOf is now {step}, and was {'not set' if before is None else before}"


def _items(schema: dict[str, Any]) -> tuple[list[Any], Any]:
    """The schemas of the first items, and that of all others."""
    if "prefixItems" in schema:
        return schema["prefixItems"], schema.get("items", True)
    items = schema.get("items", True)
    return (items, schema.get("additionalItems", True)) if isinstance(items, list) else ([], items)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _at(path: str) -> str:
    return f"field {path!r}:" if path else "at the top:"
