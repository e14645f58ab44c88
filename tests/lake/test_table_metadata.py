"""Metadata against updates that nobody means well with: refused, or made, and nothing else."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from mainstem.errors import InvalidInput, TableChanged
from mainstem.tables import table_metadata
from mainstem.tables.columns import declared
from mainstem.tables.table_metadata import TableUpdates

TABLE_ID = bytes(range(16))
BASE = table_metadata.of_topic(
    "records", declared([{"name": "a", "type": "long"}], []), TABLE_ID, "file:///t", "t"
)
SNAPSHOT = {
    "snapshot-id": 1,
    "sequence-number": 1,
    "timestamp-ms": 1,
    "manifest-list": "file:///t/l.avro",
    "summary": {"operation": "append"},
    "schema-id": 0,
}
UPDATES: list[dict[str, Any]] = [
    {"action": "assign-uuid", "uuid": "00010203-0405-0607-0809-0a0b0c0d0e0f"},
    {"action": "upgrade-format-version", "format-version": 2},
    {"action": "add-schema", "schema": {"type": "struct", "schema-id": 1, "fields": []}},
    {"action": "set-current-schema", "schema-id": -1},
    {"action": "add-spec", "spec": {"spec-id": 1, "fields": []}},
    {"action": "set-default-spec", "spec-id": -1},
    {"action": "add-sort-order", "sort-order": {"order-id": 1, "fields": []}},
    {"action": "set-default-sort-order", "sort-order-id": -1},
    {"action": "add-snapshot", "snapshot": SNAPSHOT},
    {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": 1},
    {"action": "remove-snapshots", "snapshot-ids": [1]},
    {"action": "remove-snapshot-ref", "ref-name": "main"},
    {"action": "set-location", "location": "file:///elsewhere"},
    {"action": "set-properties", "updates": {"a": "b"}},
    {"action": "remove-properties", "removals": ["a"]},
    {"action": "set-statistics", "statistics": {"snapshot-id": 1}},
    {"action": "remove-statistics", "snapshot-id": 1},
    {"action": "remove-partition-specs", "spec-ids": [0]},
    {"action": "remove-schemas", "schema-ids": [0]},
    {"action": "set-partition-statistics", "partition-statistics": {"snapshot-id": 1}},
    {"action": "remove-partition-statistics", "snapshot-id": 1},
]
REQUIREMENTS: list[dict[str, Any]] = [
    {"type": "assert-create"},
    {"type": "assert-table-uuid", "uuid": "00010203-0405-0607-0809-0a0b0c0d0e0f"},
    {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": None},
    {"type": "assert-current-schema-id", "current-schema-id": 0},
    {"type": "assert-default-spec-id", "default-spec-id": 0},
]

_junk: st.SearchStrategy[Any] = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=4)
    | st.just([])
    | st.just({})
    | st.just([{}])
)


@st.composite
def mangled(draw: st.DrawFn, originals: list[dict[str, Any]]) -> dict[str, Any]:
    """One of them, as it is or with a value replaced or left out."""
    chosen = dict(draw(st.sampled_from(originals)))
    if draw(st.booleans()):
        name = draw(st.sampled_from(sorted(chosen)))
        if draw(st.booleans()):
            chosen[name] = draw(_junk)
        elif isinstance(chosen[name], dict) and chosen[name]:
            inner = draw(st.sampled_from(sorted(chosen[name])))
            chosen[name] = {**chosen[name], inner: draw(_junk)}
        else:
            del chosen[name]
    return chosen


@settings(max_examples=400, deadline=None)
@given(st.lists(mangled(UPDATES), max_size=5), st.lists(mangled(REQUIREMENTS), max_size=2), st.booleans())
def test_any_updates_are_made_or_refused(
    updates: list[dict[str, Any]], requirements: list[dict[str, Any]], new: bool
) -> None:
    before = table_metadata.written(BASE)
    try:
        after = table_metadata.changed(
            None if new else BASE, "file:///m", TableUpdates(requirements, updates)
        )
    except (InvalidInput, TableChanged):
        assert table_metadata.written(BASE) == before
        return
    again = table_metadata.parsed(table_metadata.written(after.metadata))
    assert again.table_uuid == after.metadata.table_uuid
    assert table_metadata.written(BASE) == before


@settings(max_examples=200, deadline=None)
@given(
    st.fixed_dictionaries(
        {"name": st.just("t")},
        optional={
            "schema": _junk | st.just({"type": "struct", "fields": [{"id": 1, "name": "x", "type": "long"}]}),
            "partition-spec": _junk | st.just({"spec-id": 0, "fields": [{"source-id": 7}]}),
            "write-order": _junk,
            "properties": _junk | st.dictionaries(st.sampled_from(["format-version", "a"]), _junk),
        },
    )
)
def test_any_new_table_is_made_or_refused(body: dict[str, Any]) -> None:
    try:
        made = table_metadata.created(body, TABLE_ID, "file:///t")
    except InvalidInput:
        return
    assert table_metadata.parsed(table_metadata.written(made)).location == "file:///t"


@settings(max_examples=100, deadline=None)
@given(
    st.binary(max_size=50)
    | st.sampled_from([b"{}", b"[]", b'{"format-version":2}', b"\xff", b'{"format-version":"x"}'])
)
def test_what_is_no_metadata_is_refused(data: bytes) -> None:
    try:
        table_metadata.parsed(data)
    except InvalidInput:
        return
    raise AssertionError("nothing like this is metadata")
