"""JSON values that name a JSON Schema, as columns. A field is known by its key.

| JSON Schema | column |
|---|---|
| boolean, integer, number, string | boolean, long, double, string |
| format date-time, date, uuid; contentEncoding base64 | timestamp, date, uuid; binary |
| array with one schema for its items | list<…> |
| object with properties; with a schema for all others alone | struct<…>; map<string, …> |
| `anyOf`, `oneOf` or `type` with null and one other type | that type |
| anything else, and a schema that contains itself | json |
"""

from __future__ import annotations

from typing import Any

from mainstem.schemas.json_schema import JsonSchema
from mainstem.tables.column_types import (
    DEPTH_MAX,
    ColumnType,
    Field,
    PrimitiveType,
    StructType,
    list_of,
    map_of,
)
from mainstem.tables.evolution import unique_name
from mainstem.tables.payloads.conversion import JSON_TEXT, FieldBudget, column_name, field_name

_TYPES: dict[str, ColumnType] = {
    "boolean": PrimitiveType("boolean"),
    "integer": PrimitiveType("long"),
    "number": PrimitiveType("double"),
    "string": PrimitiveType("string"),
}
_FORMATS: dict[object, ColumnType] = {
    "date-time": PrimitiveType("timestamp"),
    "date": PrimitiveType("date"),
    "uuid": PrimitiveType("uuid"),
}


class JsonPayloads:
    """The fields of one schema. Values are decoded by the table's columns alone."""

    def __init__(self, schema: JsonSchema) -> None:
        self._documents = schema.documents
        self._budget = FieldBudget()
        node, above = self._resolved(self._documents.schema, ())
        properties = node.get("properties") if isinstance(node, dict) else None
        self.fields = self._fields(properties, above, column_name) if isinstance(properties, dict) else ()

    def _fields(self, properties: dict[str, Any], above: tuple[int, ...], named: Any) -> tuple[Field, ...]:
        self._budget.take(len(properties))
        found: list[Field] = []
        for key, node in properties.items():
            name = unique_name(named(key) or "field", [known.name for known in found])
            found.append(Field(name, self._type(node, above), sources=(key,)))
        return tuple(found)

    def _resolved(self, node: Any, above: tuple[int, ...]) -> tuple[Any, tuple[int, ...]]:
        """The schema that a $ref names, or the only one apart from null; None for a schema that contains itself."""
        while isinstance(node, dict):
            if id(node) in above:
                return None, above
            above = (*above, id(node))
            if "$ref" in node:
                try:
                    node = self._documents.resolve(str(node["$ref"]))
                except (KeyError, IndexError, ValueError, TypeError):
                    return None, above
                continue
            choices = next((node[key] for key in ("anyOf", "oneOf", "allOf") if key in node), None)
            if choices is None or "properties" in node:
                return node, above
            present = [each for each in choices if each != {"type": "null"}]
            if len(present) != 1:
                return None, above
            node = present[0]
        return None, above

    def _type(self, node: Any, above: tuple[int, ...]) -> ColumnType:
        node, above = self._resolved(node, above)
        if node is None or len(above) > 2 * DEPTH_MAX:
            return JSON_TEXT
        kinds = node.get("type", "object" if "properties" in node else None)
        if isinstance(kinds, list):
            present = [each for each in kinds if each != "null"]
            kinds = present[0] if len(present) == 1 else None
        match kinds:
            case "string":
                if node.get("contentEncoding") == "base64":
                    return PrimitiveType("binary")
                return _FORMATS.get(node.get("format"), PrimitiveType("string"))
            case "array":
                items = node.get("items")
                return list_of(self._type(items, above)) if isinstance(items, dict) else JSON_TEXT
            case "object":
                return self._object(node, above)
            case str():
                return _TYPES.get(kinds, JSON_TEXT)
        values = node.get("enum", [node["const"]] if "const" in node else None)
        texts = isinstance(values, list) and all(isinstance(each, str) for each in values)
        return PrimitiveType("string") if texts else JSON_TEXT

    def _object(self, node: dict[str, Any], above: tuple[int, ...]) -> ColumnType:
        properties, others = node.get("properties"), node.get("additionalProperties")
        if isinstance(properties, dict) and properties:
            return StructType(self._fields(properties, above, field_name))
        if isinstance(others, dict) and "patternProperties" not in node:
            return map_of(PrimitiveType("string"), self._type(others, above))
        return JSON_TEXT
