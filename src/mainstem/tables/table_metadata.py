"""Metadata of Iceberg tables, created, changed and serialised with PyIceberg. No I/O.

PyIceberg is imported where it is used: a server without tables never loads it. These functions take milliseconds
and run on threads.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import msgspec

from mainstem.api.lake import Column, TableKind
from mainstem.errors import InvalidInput, TableChanged, Unavailable
from mainstem.tables.column_types import iceberg_type
from mainstem.tables.columns import field_of

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.table.metadata import TableMetadata

# Properties that the server sets on a topic's table; users may set all others.
OWN_PROPERTIES = ("gc.", "mainstem.", "write.", "commit.", "history.", "format-version", "schema.")

PARTITION_FIELD_ID = 1000
TIMESTAMP_FIELD_ID = 3  # in both kinds of table

_FORMAT_VERSION_MAX = 3  # PyIceberg reads and builds it, but does not upgrade to it by itself

# What PyIceberg raises for invalid input, besides its own errors.
_SENSELESS = (
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    StopIteration,
    ArithmeticError,
    RecursionError,
)

_KEPT_METADATA = "10"  # older metadata files that the newest one lists; each commit writes one


class TableUpdates(msgspec.Struct, frozen=True):
    """The changes that a client requests, if its requirements hold."""

    requirements: list[dict[str, Any]] = []
    updates: list[dict[str, Any]] = []


class Changed(msgspec.Struct, frozen=True):
    """Metadata after a change, and which snapshots the change added and removed."""

    metadata: Any  # pyiceberg's TableMetadata
    added_snapshots: tuple[int, ...]
    removed_snapshots: tuple[int, ...]


@cache
def check_available() -> None:
    """Raises Unavailable unless PyIceberg is installed."""
    if find_spec("pyiceberg") is None:
        raise Unavailable(
            "tables need more packages: run pip install 'mainstem[spark]' and restart the server"
        )


def parsed(data: bytes) -> TableMetadata:
    """Raises InvalidInput if the data is not table metadata."""
    check_available()
    from pydantic import ValidationError
    from pyiceberg.exceptions import ValidationError as IcebergValidationError
    from pyiceberg.table.metadata import TableMetadataUtil

    try:
        return TableMetadataUtil.parse_raw(data.decode())
    except (ValidationError, IcebergValidationError, *_SENSELESS) as wrong:
        raise InvalidInput(f"this is not the metadata of an Iceberg table: {_first_line(wrong)}") from None


def written(metadata: TableMetadata) -> bytes:
    from pyiceberg.typedef import IcebergBaseModel

    # Not the method of the metadata itself: PyIceberg's own refuses format version 3.
    return IcebergBaseModel.model_dump_json(metadata, by_alias=True, exclude_none=True).encode()


def created(body: dict[str, Any], table_id: bytes, location: str) -> TableMetadata:
    """Metadata of a user's new table, from the body of a create request. Assigns new column ids."""
    check_available()
    from pydantic import ValidationError
    from pyiceberg.exceptions import ValidationError as IcebergValidationError
    from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table.metadata import new_table_metadata
    from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder

    try:
        spec, order = body.get("partition-spec"), body.get("write-order")
        schema = Schema.model_validate(body.get("schema"))
        metadata = new_table_metadata(
            schema,
            PartitionSpec.model_validate(spec) if spec else UNPARTITIONED_PARTITION_SPEC,
            SortOrder.model_validate(order) if order else UNSORTED_SORT_ORDER,
            location,
            dict(body.get("properties") or {}),
            uuid.UUID(bytes=table_id),
        )
        defaults = _with_defaults(_dumped(metadata.schema()), _dumped(schema))
        metadata = metadata.model_copy(update={"schemas": [Schema.model_validate(defaults)]})
    except (ValidationError, IcebergValidationError, *_SENSELESS) as wrong:
        raise InvalidInput(f"the table cannot be created: {_first_line(wrong)}") from None
    return _with_row_ids(metadata)


def changed(
    metadata: TableMetadata | None, location: str | None, asked: TableUpdates, *, trusted: bool = False
) -> Changed:
    """The metadata after the updates. `metadata` None: the table does not exist yet. `trusted`: skip the validation.

    Raises TableChanged if a requirement does not hold, InvalidInput if an update is invalid."""
    check_available()
    from pydantic import TypeAdapter, ValidationError
    from pyiceberg.exceptions import ValidationError as IcebergValidationError
    from pyiceberg.schema import Schema
    from pyiceberg.table import update as pyiceberg_update
    from pyiceberg.table.metadata import TableMetadataUtil, TableMetadataV1
    from pyiceberg.table.update import (
        AddSnapshotUpdate,
        RemoveSnapshotsUpdate,
        TableRequirement,
        TableUpdate,
        update_table_metadata,
    )

    pyiceberg_update.SUPPORTED_TABLE_FORMAT_VERSION = _FORMAT_VERSION_MAX  # type: ignore[attr-defined]
    try:
        TypeAdapter(tuple[TableRequirement, ...]).validate_python(asked.requirements)
        for requirement in asked.requirements:
            _check_requirement(metadata, requirement)
        # Not validated yet: the updates add the required fields.
        base = metadata or TableMetadataV1.model_construct(last_column_id=-1, schema=Schema())
        updates = TypeAdapter(tuple[TableUpdate, ...]).validate_python(_renumbered(base, asked.updates))
        result = _with_row_ids(update_table_metadata(base, updates, metadata is None, location))
        if not trusted:
            result = TableMetadataUtil.parse_raw(written(result).decode())
    except (ValidationError, IcebergValidationError, *_SENSELESS) as wrong:
        raise InvalidInput(f"the updates cannot be applied: {_first_line(wrong)}") from None
    except NotImplementedError as wrong:
        raise InvalidInput(f"an update is not supported: {_first_line(wrong)}") from None
    added = [each.snapshot.snapshot_id for each in updates if isinstance(each, AddSnapshotUpdate)]
    removed = [id for each in updates if isinstance(each, RemoveSnapshotsUpdate) for id in each.snapshot_ids]
    if any(not 0 <= id < 1 << 63 for id in added):
        raise InvalidInput("a snapshot id must be a positive number of 63 bits")
    return Changed(result, tuple(added), tuple(removed))


def _check_requirement(metadata: TableMetadata | None, requirement: dict[str, Any]) -> None:
    """Raises TableChanged if it does not hold, in the words of Iceberg's library: engines show them to their users."""
    if requirement["type"] == "assert-create":
        if metadata is not None:
            raise TableChanged("Requirement failed: table already exists")
        return
    if metadata is None:
        raise TableChanged("Requirement failed: current table metadata is missing")
    if requirement["type"] == "assert-ref-snapshot-id":
        _check_reference(metadata, requirement["ref"], requirement.get("snapshot-id"))
        return
    what, key, found = {
        "assert-table-uuid": ("UUID does not match: expected", "uuid", str(metadata.table_uuid)),
        "assert-last-assigned-field-id": (
            "last assigned field id changed: expected id",
            "last-assigned-field-id",
            metadata.last_column_id,
        ),
        "assert-current-schema-id": (
            "current schema changed: expected id",
            "current-schema-id",
            metadata.current_schema_id,
        ),
        "assert-last-assigned-partition-id": (
            "last assigned partition id changed: expected id",
            "last-assigned-partition-id",
            metadata.last_partition_id,
        ),
        "assert-default-spec-id": (
            "default partition spec changed: expected id",
            "default-spec-id",
            metadata.default_spec_id,
        ),
        "assert-default-sort-order-id": (
            "default sort order changed: expected id",
            "default-sort-order-id",
            metadata.default_sort_order_id,
        ),
    }[requirement["type"]]
    if requirement[key] != found:
        raise TableChanged(f"Requirement failed: {what} {requirement[key]} != {found}")


def _check_reference(metadata: TableMetadata, name: str, wanted: int | None) -> None:
    present = metadata.refs.get(name)
    if present is None:
        if wanted is not None:
            raise TableChanged(f"Requirement failed: branch or tag {name} is missing, expected {wanted}")
        return
    kind = present.snapshot_ref_type.value
    if wanted is None:
        raise TableChanged(f"Requirement failed: {kind} {name} was created concurrently")
    if wanted != present.snapshot_id:
        raise TableChanged(
            f"Requirement failed: {kind} {name} has changed: expected id {wanted} != {present.snapshot_id}"
        )


# What updates add with a number: the update that adds it, its key and the key of its number; the update that selects
# it and the key of the number there.
_NUMBERED = (
    ("add-schema", "schema", "schema-id", "set-current-schema", "schema-id"),
    ("add-spec", "spec", "spec-id", "set-default-spec", "spec-id"),
    ("add-sort-order", "sort-order", "order-id", "set-default-sort-order", "sort-order-id"),
)


def _renumbered(base: TableMetadata, updates: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The updates with the numbers that schemas, specs and sort orders get: clients propose numbers without knowing
    which ones are taken. What the table already has is not added again."""
    present: dict[str, dict[int, Any]] = {
        "add-schema": {each.schema_id: _dumped(each) for each in base.schemas},
        "add-spec": {each.spec_id: _dumped(each) for each in base.partition_specs},
        "add-sort-order": {each.order_id: _dumped(each) for each in base.sort_orders},
    }
    added: dict[str, int] = {}
    result = []
    for update in updates:
        for add, key, number, select, selected in _NUMBERED:
            if update.get("action") == add and isinstance(update.get(key), dict):
                known, new = present[add], {**update[key]}
                proposed = new.get(number, 0)
                same = [at for at, each in known.items() if _same(each, new, number)]
                if same:
                    added[select] = same[0]
                    break
                if proposed in known and not (add == "add-sort-order" and not new.get("fields")):
                    proposed = max(known) + 1
                added[select] = new[number] = proposed
                known[proposed] = new
                result.append({**update, key: new})
                break
            if update.get("action") == select and update.get(selected) == -1 and select in added:
                result.append({**update, selected: added[select]})
                break
        else:
            result.append(update)
    return result


def _dumped(part: Any) -> dict[str, Any]:
    dumped: dict[str, Any] = part.model_dump(by_alias=True, mode="json", exclude_none=True)
    return dumped


def _same(one: dict[str, Any], other: dict[str, Any], number: str) -> bool:
    ignored = {number, "type", "identifier-field-ids"}
    return (
        {name: value for name, value in one.items() if name not in ignored}
        == {name: value for name, value in other.items() if name not in ignored}
    ) and (one.get("identifier-field-ids") or []) == (other.get("identifier-field-ids") or [])


def _with_defaults(fresh: Any, asked: Any) -> Any:
    """A schema with new ids, with the default values of the schema that it was made from: PyIceberg drops them."""
    if isinstance(fresh, list) and isinstance(asked, list):
        return [_with_defaults(*pair) for pair in zip(fresh, asked, strict=True)]
    if not isinstance(fresh, dict) or not isinstance(asked, dict):
        return fresh
    same = {name: _with_defaults(value, asked.get(name)) for name, value in fresh.items()}
    return same | {name: asked[name] for name in ("initial-default", "write-default") if name in asked}


def _with_row_ids(metadata: TableMetadata) -> TableMetadata:
    """Format version 3 requires the next row id, which PyIceberg does not set for a new table."""
    if metadata.format_version < 3 or getattr(metadata, "next_row_id", None) is not None:
        return metadata
    ends = [(each.first_row_id or 0) + (each.added_rows or 0) for each in metadata.snapshots]
    return metadata.model_copy(update={"next_row_id": max(ends, default=0)})


def of_topic(
    kind: TableKind, columns: Sequence[Column], table_id: bytes, location: str, topic: str
) -> TableMetadata:
    """Metadata of a topic's table before its first snapshot. Column ids are those of the Parquet files."""
    check_available()
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.table.metadata import TableMetadataV2
    from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
    from pyiceberg.transforms import DayTransform

    schema = schema_of(kind, columns)
    by_day = PartitionSpec(
        PartitionField(TIMESTAMP_FIELD_ID, PARTITION_FIELD_ID, DayTransform(), "_timestamp_day"), spec_id=0
    )
    return TableMetadataV2.model_validate(
        {
            "location": location,
            "table-uuid": uuid.UUID(bytes=table_id),
            "schemas": [schema],
            "current-schema-id": schema.schema_id,
            "last-column-id": schema.highest_field_id,
            "partition-specs": [by_day],
            "default-spec-id": by_day.spec_id,
            "last-partition-id": PARTITION_FIELD_ID,
            "sort-orders": [UNSORTED_SORT_ORDER],
            "default-sort-order-id": UNSORTED_SORT_ORDER.order_id,
            "properties": {
                "gc.enabled": "false",  # the log owns the files: engines must not delete them
                "mainstem.topic": topic,
                "write.metadata.previous-versions-max": _KEPT_METADATA,
            },
        }
    )


def widening(metadata: TableMetadata, columns: Sequence[Column]) -> list[dict[str, Any]]:
    """Updates that add the declared columns to a topic's table; none if it has them."""
    present = metadata.schema()
    wanted = schema_of("records", columns, 1 + max(schema.schema_id for schema in metadata.schemas))
    if wanted.fields == present.fields:
        return []
    added = {"action": "add-schema", "schema": wanted.model_dump(by_alias=True, mode="json")}
    return [added, {"action": "set-current-schema", "schema-id": -1}]


def schema_of(kind: TableKind, columns: Sequence[Column], schema_id: int = 0) -> Schema:
    """The columns of a topic's table."""
    from pyiceberg.schema import Schema
    from pyiceberg.types import (
        BinaryType,
        IntegerType,
        ListType,
        LongType,
        NestedField,
        StringType,
        StructType,
        TimestamptzType,
    )

    if kind == "errors":
        fields = [
            NestedField(1, "topic", StringType(), required=False),
            NestedField(2, "partition", IntegerType(), required=False),
            NestedField(4, "offset", LongType(), required=False),
            NestedField(3, "timestamp", TimestamptzType(), required=False),
            NestedField(5, "reason", StringType(), required=False),
            NestedField(6, "value", BinaryType(), required=False),
        ]
        return Schema(*fields, schema_id=schema_id)
    header = StructType(
        NestedField(8, "key", StringType(), required=True),
        NestedField(9, "value", BinaryType(), required=False),
    )
    fields = [
        NestedField(1, "_partition_id", IntegerType(), required=True),
        NestedField(2, "_offset", LongType(), required=True),
        NestedField(3, "_timestamp", TimestamptzType(), required=True),
        NestedField(4, "_key", BinaryType(), required=False),
        NestedField(5, "_value", BinaryType(), required=False),
        NestedField(6, "_headers", ListType(7, header, element_required=True), required=False),
    ]
    for column in map(field_of, columns):
        fields.append(NestedField(column.id, column.name, iceberg_type(column), required=False))
    return Schema(*fields, schema_id=schema_id)


def check_harmless(asked: TableUpdates) -> None:
    """Raises InvalidInput for anything but setting properties: users may not change a topic's table otherwise."""
    for update in asked.updates:
        match update:
            case {"action": "set-properties", "updates": dict(named)}:
                names = list(named)
            case {"action": "remove-properties", "removals": list(named)}:
                names = [str(name) for name in named]
            case _:
                raise InvalidInput(
                    "this is the table of a topic: write to the topic instead; only properties may be set "
                    "here"
                )
        for name in names:
            if name.startswith(OWN_PROPERTIES):
                raise InvalidInput(f"property {name!r} of a topic's table is set by the server")


def _first_line(error: Exception) -> str:
    return " ".join(str(error).split())[:500]
