"""Metadata of Iceberg views: created, changed and serialised. No I/O.

A view has versions, each with its SQL in one or more dialects. The functions take and return plain JSON objects.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any

import msgspec

from mainstem import limits
from mainstem.errors import InvalidInput, TableChanged
from mainstem.tables.table_metadata import TableUpdates

View = dict[str, Any]

_VERSIONS_KEPT = "version.history.num-entries"
_VERSIONS_KEPT_DEFAULT = 10
_MAY_DROP_DIALECTS = "replace.drop-dialect.allowed"
_LAST_ADDED = -1


class _Version(msgspec.Struct, rename="kebab"):
    version_id: int
    schema_id: int
    timestamp_ms: int
    summary: dict[str, str]
    representations: list[dict[str, str]]
    default_namespace: list[str]
    default_catalog: str | None = None


class _CreateBody(msgspec.Struct, rename="kebab"):
    name: str
    schema: dict[str, Any]
    view_version: _Version
    properties: dict[str, str] = {}
    location: str | None = None


def parsed(data: bytes) -> View:
    found = msgspec.json.decode(data)
    if not isinstance(found, dict) or "view-uuid" not in found:
        raise InvalidInput("this is not the metadata of an Iceberg view")
    return found


def created(body: dict[str, Any], view_id: bytes, location: str) -> View:
    """Metadata of a new view, from the body of a create request."""
    asked = _converted(body, _CreateBody)
    updates = [
        {"action": "assign-uuid", "uuid": str(uuid.UUID(bytes=view_id))},
        {"action": "set-location", "location": location},
        {"action": "set-properties", "updates": asked.properties},
        {"action": "add-schema", "schema": asked.schema},
        {"action": "add-view-version", "view-version": {**body["view-version"], "schema-id": _LAST_ADDED}},
        {"action": "set-current-view-version", "view-version-id": _LAST_ADDED},
    ]
    return changed(None, TableUpdates([], updates))


def changed(view: View | None, asked: TableUpdates) -> View:
    """The metadata after the updates. Raises TableChanged if a requirement does not hold, InvalidInput for an invalid
    update."""
    for requirement in asked.requirements:
        _check(view, requirement)
    draft = _Draft(view)
    for update in asked.updates:
        draft.apply(update)
    return draft.finished()


def _check(view: View | None, requirement: dict[str, Any]) -> None:
    match requirement:
        case {"type": "assert-view-uuid", "uuid": str(wanted)}:
            found = view and view["view-uuid"]
            if found != wanted:
                raise TableChanged(
                    f"Requirement failed: view UUID does not match: expected {wanted} != {found}"
                )
        case _:
            raise InvalidInput(f"unknown requirement of a view: {str(requirement.get('type'))[:64]!r}")


class _Draft:
    def __init__(self, view: View | None) -> None:
        self._before = view
        self._view: View = {
            "format-version": 1,
            "schemas": [],
            "versions": [],
            "version-log": [],
            "properties": {},
            **(view or {}),
        }
        self._schemas: list[dict[str, Any]] = list(self._view["schemas"])
        self._versions: list[dict[str, Any]] = list(self._view["versions"])
        self._added_schema: int | None = None
        self._added_version: int | None = None

    def apply(self, update: dict[str, Any]) -> None:
        match update:
            case {"action": "assign-uuid", "uuid": str(wanted)}:
                if self._view.setdefault("view-uuid", wanted) != wanted:
                    raise InvalidInput("the UUID of a view cannot change")
            case {"action": "upgrade-format-version", "format-version": int(version)}:
                if version != 1:
                    raise InvalidInput(f"views of format version {version} are not supported")
            case {"action": "set-location", "location": str(location)}:
                self._view["location"] = location
            case {"action": "set-properties", "updates": dict(properties)}:
                self._view["properties"] = {
                    **self._view["properties"],
                    **_converted(properties, dict[str, str]),
                }
            case {"action": "remove-properties", "removals": list(names)}:
                kept = self._view["properties"].items()
                self._view["properties"] = {name: value for name, value in kept if name not in names}
            case {"action": "add-schema", "schema": dict(schema)}:
                self._add_schema(schema)
            case {"action": "add-view-version", "view-version": dict(version)}:
                self._add_version(version)
            case {"action": "set-current-view-version", "view-version-id": int(number)}:
                self._set_current(number)
            case _:
                raise InvalidInput(f"unknown update of a view: {str(update.get('action'))[:64]!r}")

    def _add_schema(self, schema: dict[str, Any]) -> None:
        _check_schema(schema)
        same = [
            each for each in self._schemas if _without(each, "schema-id") == _without(schema, "schema-id")
        ]
        if same:
            self._added_schema = same[0]["schema-id"]
            return
        self._added_schema = max((int(each["schema-id"]) + 1 for each in self._schemas), default=0)
        self._schemas.append({**schema, "schema-id": self._added_schema})

    def _add_version(self, version: dict[str, Any]) -> None:
        checked = _converted(version, _Version)
        schema = checked.schema_id
        if schema == _LAST_ADDED:
            if self._added_schema is None:
                raise InvalidInput("Cannot set last added schema: no schema has been added")
            schema = self._added_schema
        if schema not in [each["schema-id"] for each in self._schemas]:
            raise InvalidInput(f"Cannot add version with unknown schema: {schema}")
        _check_dialects(checked.representations)
        new = {**version, "schema-id": schema}
        ignored = ("version-id", "timestamp-ms")
        same = [each for each in self._versions if _without(each, *ignored) == _without(new, *ignored)]
        if same:
            self._added_version = same[0]["version-id"]
            return
        self._added_version = max((int(each["version-id"]) + 1 for each in self._versions), default=1)
        self._versions.append({**new, "version-id": self._added_version})

    def _set_current(self, number: int) -> None:
        if number == _LAST_ADDED:
            if self._added_version is None:
                raise InvalidInput("Cannot set last version id: no current version id has been set")
            number = self._added_version
        found = [each for each in self._versions if each["version-id"] == number]
        if not found:
            raise InvalidInput(f"Cannot set current version to unknown version: {number}")
        if self._view.get("current-version-id") == number:
            return
        self._view["current-version-id"] = number
        entry = {"timestamp-ms": found[0]["timestamp-ms"], "version-id": number}
        self._view["version-log"] = [*self._view["version-log"], entry]

    def finished(self) -> View:
        view = self._view
        missing = [name for name in ("view-uuid", "location", "current-version-id") if name not in view]
        if missing:
            raise InvalidInput(f"the view has no {missing[0]}")
        if self._before is not None:
            self._check_kept_dialects(self._before)
        kept = self._kept()
        numbers = {each["version-id"] for each in kept}
        log = view["version-log"]
        # The log ends where it names a version that is no longer kept.
        gone = max((at + 1 for at, each in enumerate(log) if each["version-id"] not in numbers), default=0)
        return {**view, "schemas": self._schemas, "versions": kept, "version-log": log[gone:]}

    def _kept(self) -> list[dict[str, Any]]:
        """The newest versions, the current one among them."""
        asked = str(self._view["properties"].get(_VERSIONS_KEPT, _VERSIONS_KEPT_DEFAULT))
        if not asked.isdecimal() or not int(asked):
            raise InvalidInput(f"{_VERSIONS_KEPT} must be positive but was {asked[:64]}")
        before = len(self._before["versions"]) if self._before else 0
        limit = max(int(asked), len(self._versions) - before)
        newest = sorted(self._versions, key=lambda each: int(each["version-id"]), reverse=True)
        current = self._view["current-version-id"]
        newest.sort(key=lambda each: each["version-id"] != current)
        kept = {each["version-id"] for each in newest[:limit]}
        return [each for each in self._versions if each["version-id"] in kept]

    def _check_kept_dialects(self, before: View) -> None:
        if str(self._view["properties"].get(_MAY_DROP_DIALECTS, "false")).lower() == "true":
            return
        old = _dialects(before["versions"], before["current-version-id"])
        new = _dialects(self._versions, self._view["current-version-id"])
        if not set(old) <= set(new):
            raise InvalidInput(
                f"Cannot replace view due to loss of view dialects ({_MAY_DROP_DIALECTS}=false):\n"
                f"Previous dialects: [{', '.join(old)}]\nNew dialects: [{', '.join(new)}]"
            )


def _dialects(versions: Iterable[dict[str, Any]], number: int) -> list[str]:
    found = next(each for each in versions if each["version-id"] == number)
    return sorted(str(each.get("dialect", "")).lower() for each in found["representations"])


def _check_dialects(representations: list[dict[str, str]]) -> None:
    if not representations:
        raise InvalidInput("Invalid view version: it has no representation")
    seen: set[str] = set()
    for each in representations:
        if each.get("type") != "sql" or not each.get("sql") or not each.get("dialect"):
            raise InvalidInput("a representation of a view has type sql, its sql and its dialect")
        dialect = each["dialect"].lower()
        if dialect in seen:
            raise InvalidInput(f"Invalid view version: Cannot add multiple queries for dialect {dialect}")
        seen.add(dialect)


def _check_schema(schema: dict[str, Any]) -> None:
    if schema.get("type") != "struct" or not isinstance(schema.get("fields"), list):
        raise InvalidInput("a schema must be a struct with fields")
    if len(schema["fields"]) > limits.TABLE_COLUMNS_MAX:
        raise InvalidInput(f"a view may have up to {limits.TABLE_COLUMNS_MAX} columns")


def _without(item: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in item.items() if name not in names and value is not None}


def _converted(item: Any, kind: Any) -> Any:
    try:
        return msgspec.convert(item, kind)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"invalid view: {error}") from None
