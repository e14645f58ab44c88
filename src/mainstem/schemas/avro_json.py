"""Values of JSON as an Avro schema takes them: text stands for bytes, decimals, dates and times.

It is the reverse of what `mainstem consume --decode` prints. A value that does not fit stays as it is, so that the
error of the encoder names its field.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal, DecimalException
from typing import Any

from fastavro.schema import UnknownType
from fastavro.validation import validate


def from_json(value: Any, schema: Any, named: Mapping[str, Any]) -> Any:
    """`named` are the definitions that a schema may refer to by name."""
    if isinstance(schema, list):
        return _of_union(value, schema, named)
    if isinstance(schema, str):
        if schema in named:
            return from_json(value, named[schema], named)
        return _as_bytes(value) if schema == "bytes" else value
    convert = _LOGICAL.get(str(schema.get("logicalType")))
    if convert is not None:
        try:
            return convert(value)
        except (ValueError, DecimalException):
            return value
    kind = schema["type"]
    if kind in ("record", "error") and isinstance(value, dict):
        types = {field["name"]: field["type"] for field in schema["fields"]}
        return {
            name: from_json(one, types[name], named) if name in types else one for name, one in value.items()
        }
    if kind == "array" and isinstance(value, list):
        return [from_json(one, schema["items"], named) for one in value]
    if kind == "map" and isinstance(value, dict):
        return {key: from_json(one, schema["values"], named) for key, one in value.items()}
    if kind == "fixed":
        return _as_bytes(value)
    return value if kind in ("record", "error", "array", "map", "enum") else from_json(value, kind, named)


def _of_union(value: Any, branches: list[Any], named: Mapping[str, Any]) -> Any:
    """The value for the first branch that takes it; text for a branch of text first."""
    if isinstance(value, str) and "string" in branches:
        return value
    for branch in branches:
        made = from_json(value, branch, named)
        if _fits(made, named.get(branch, branch) if isinstance(branch, str) else branch):
            return made
    return value


def _fits(value: Any, schema: Any) -> bool:
    try:
        return bool(validate(value, schema, raise_errors=False, strict=False))
    except UnknownType:  # it refers to a type that is defined outside this branch
        return isinstance(value, dict | list)


def _as_bytes(value: Any) -> Any:
    try:
        return value.encode("latin-1") if isinstance(value, str) else value
    except UnicodeEncodeError:
        return value


def _as_decimal(value: Any) -> Any:
    return (
        Decimal(str(value)) if isinstance(value, str | int | float) and not isinstance(value, bool) else value
    )


def _as_moment(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    found = datetime.fromisoformat(value)
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _of_text(parse: Callable[[str], Any]) -> Callable[[Any], Any]:
    return lambda value: parse(value) if isinstance(value, str) else value


_LOGICAL: dict[str, Callable[[Any], Any]] = {
    "decimal": _as_decimal,
    "date": _of_text(date.fromisoformat),
    **dict.fromkeys(("time-millis", "time-micros"), _of_text(time.fromisoformat)),
    **dict.fromkeys(("timestamp-millis", "timestamp-micros", "timestamp-nanos"), _as_moment),
    **dict.fromkeys(("local-timestamp-millis", "local-timestamp-micros"), _of_text(datetime.fromisoformat)),
}
