"""Whether an Avro reader's schema can read a writer's, as the Avro specification resolves them.

Both schemas are parsed: references are part of them, and names are full."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

# Writer → readers that promote its values.
_PROMOTIONS = {
    "int": {"long", "float", "double"},
    "long": {"float", "double"},
    "float": {"double"},
    "string": {"bytes"},
    "bytes": {"string"},
}
COMPARISONS_MAX = 50_000  # of two types
_NAMED = ("record", "error", "enum", "fixed")


def reading_problems(reader: Any, writer: Any) -> list[str]:
    """Why `reader` cannot read what `writer` wrote."""
    try:
        return _Resolution(_names(reader), _names(writer)).problems(reader, writer, "")
    except _AvroTooComplex:
        return ["the schemas are too complex to compare"]


class _AvroTooComplex(Exception):
    pass


def _names(schema: Any) -> dict[str, Any]:
    return dict(_named_types(schema))


def _named_types(schema: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(schema, list):
        for one in schema:
            yield from _named_types(one)
    elif isinstance(schema, dict):
        kind = schema.get("type")
        if kind in _NAMED:
            yield schema["name"], schema
        for field in schema.get("fields", ()):
            yield from _named_types(field["type"])
        for key in ("items", "values"):
            yield from _named_types(schema.get(key))
        if isinstance(kind, dict | list):
            yield from _named_types(kind)


class _Resolution:
    def __init__(self, readers: dict[str, Any], writers: dict[str, Any]) -> None:
        self._readers = readers
        self._writers = writers
        # What each pair of records was found to be; none while it is compared, since it may contain itself.
        self._compared: dict[tuple[str, str], list[str]] = {}
        self._left = COMPARISONS_MAX

    def problems(self, reader: Any, writer: Any, path: str) -> list[str]:
        reader, writer = _resolved(reader, self._readers), _resolved(writer, self._writers)
        self._left -= 1
        if self._left <= 0:
            raise _AvroTooComplex
        if isinstance(writer, list):
            return [found for one in writer for found in self.problems(reader, one, path)]
        if isinstance(reader, list):
            if any(not self.problems(one, writer, path) for one in reader):
                return []
            same = [one for one in reader if _kind(_resolved(one, self._readers)) == _kind(writer)]
            if len(same) == 1:  # the one that was meant
                return self.problems(same[0], writer, path)
            return [f"{_at(path)} the reader's union has no type for {_describe(writer)}"]
        wrote, reads = _kind(writer), _kind(reader)
        if wrote != reads:
            if reads in _PROMOTIONS.get(wrote, ()):
                return []
            return [
                f"{_at(path)} type {_describe(writer)} changed to {_describe(reader)}, which cannot read it"
            ]
        if reads in ("record", "error"):
            return self._records(reader, writer, path)
        if reads == "enum":
            return _enums(reader, writer, path)
        if reads == "fixed":
            return _fixed(reader, writer, path)
        if reads == "array":
            return self.problems(reader["items"], writer["items"], f"{path}[]")
        if reads == "map":
            return self.problems(reader["values"], writer["values"], f"{path}{{}}")
        return []

    def _records(self, reader: Any, writer: Any, path: str) -> list[str]:
        found = _names_differ(reader, writer, path)
        if found:
            return found
        pair = reader["name"], writer["name"]
        if pair in self._compared:
            return self._compared[pair]
        self._compared[pair] = []
        written = {field["name"]: field for field in writer["fields"]}
        for field in reader["fields"]:
            name = field["name"]
            source = next((written[one] for one in (name, *field.get("aliases", ())) if one in written), None)
            inner = f"{path}.{name}" if path else name
            if source is not None:
                found += self.problems(field["type"], source["type"], inner)
            elif "default" not in field:
                found.append(
                    f"field {inner!r} of record {reader['name']!r} has no default value, and the writer lacks it"
                )
        self._compared[pair] = found
        return found


def _enums(reader: Any, writer: Any, path: str) -> list[str]:
    found = _names_differ(reader, writer, path)
    known = set(reader["symbols"])
    missing = [symbol for symbol in writer["symbols"] if symbol not in known]
    if missing and "default" not in reader:
        found.append(
            f"{_at(path)} enum {reader['name']!r} lacks the symbols {', '.join(missing)}, and has no default"
        )
    return found


def _fixed(reader: Any, writer: Any, path: str) -> list[str]:
    found = _names_differ(reader, writer, path)
    if reader["size"] != writer["size"]:
        found.append(
            f"{_at(path)} fixed {reader['name']!r} has {reader['size']} bytes, and the writer's {writer['size']}"
        )
    return found


def _names_differ(reader: Any, writer: Any, path: str) -> list[str]:
    """Aliases of the reader, and equal names in other namespaces, match too."""
    wrote = writer["name"]
    if reader["name"].rpartition(".")[2] == wrote.rpartition(".")[2]:
        return []
    space = reader["name"].rpartition(".")[0]
    aliases = {
        alias if "." in alias or not space else f"{space}.{alias}" for alias in reader.get("aliases", ())
    }
    if wrote in aliases:
        return []
    return [f"{_at(path)} {reader['type']} {wrote!r} changed its name to {reader['name']!r}"]


def _resolved(schema: Any, names: dict[str, Any]) -> Any:
    while True:
        if isinstance(schema, str) and schema in names:
            schema = names[schema]
        elif isinstance(schema, dict) and isinstance(schema.get("type"), dict | list):
            schema = schema["type"]
        elif isinstance(schema, dict) and schema.get("type") in names:
            schema = names[schema["type"]]
        else:
            return schema


def _kind(schema: Any) -> str:
    return (
        "union" if isinstance(schema, list) else str(schema["type"] if isinstance(schema, dict) else schema)
    )


def _describe(schema: Any) -> str:
    kind = _kind(schema)
    return f"{kind} {schema['name']!r}" if kind in _NAMED else kind


def _at(path: str) -> str:
    return f"field {path!r}:" if path else "at the top:"
