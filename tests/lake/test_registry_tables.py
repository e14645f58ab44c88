"""Tables whose columns come from the registry, on a real server: files, snapshots, errors, SQL and access."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from confluent_kafka import Producer

from mainstem.client.schemas import SchemaRegistry

from .tabling import Tabling, tabling


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tabling]:
    with tabling(tmp_path_factory.mktemp("registry") / "data", "--text", "off") as started:
        yield started


@pytest.fixture(scope="module")
def registry(lake: Tabling) -> Iterator[SchemaRegistry]:
    with SchemaRegistry(lake.url) as opened:
        yield opened


@pytest.fixture(scope="module")
def producer(lake: Tabling) -> Producer:
    address = str(lake.server.address("kafka"))
    return Producer({"bootstrap.servers": address, "linger.ms": 0, "log_level": 0})


def produce(producer: Producer, topic: str, *values: bytes) -> None:
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(30) == 0


def record(*fields: tuple[str, Any] | tuple[str, Any, list[str]]) -> str:
    listed = [
        {"name": each[0], "type": each[1], "aliases": list(each[2:][0]) if each[2:] else []}
        for each in fields
    ]
    return json.dumps({"type": "record", "name": "Order", "fields": listed})


def by_sql(lake: Tabling, topic: str, columns: str = "*") -> list[dict[str, Any]]:
    answer = lake.ask("POST", "/v0/sql", {"query": f"select {columns} from {topic} order by _offset"})
    names = [column["name"] for column in answer["columns"]]
    return [dict(zip(names, row, strict=True)) for row in answer["rows"]]


def typed(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if not name.startswith("_")} for row in rows]


def drain(lake: Tabling) -> None:
    lake.work()
    assert lake.publish().problems == {}


MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2}
BUYER = {"type": "record", "name": "Buyer", "fields": [{"name": "name", "type": "string"}]}
OLDER = {
    "type": "record",
    "name": "Buyer",
    "fields": [{"name": "name", "type": "string"}, {"name": "age", "type": ["null", "int"], "default": None}],
}


def test_a_table_follows_the_versions_of_its_subject(
    lake: Tabling, registry: SchemaRegistry, producer: Producer
) -> None:
    topic = "followed"
    lake.topic(topic)
    lake.ask("PUT", f"/config/{topic}-value", {"compatibility": "NONE"})
    first = registry.serializer(f"{topic}-value", record(("id", "int"), ("amount", MONEY), ("buyer", BUYER)))
    status = lake.enable(topic, schema="registry")
    assert [(each["name"], each["type"]) for each in status["columns"]] == [
        ("id", "int"),
        ("amount", "decimal(8, 2)"),
        ("buyer", "struct<name: string>"),
    ]
    produce(
        producer, topic, first({"id": 1, "amount": Decimal("1.25"), "buyer": {"name": "Al"}}), b"no schema"
    )
    before = {"id": 1, "amount": "1.25", "buyer": {"name": "Al"}}
    assert typed(by_sql(lake, topic)) == [before, dict.fromkeys(before)]
    drain(lake)
    assert typed(by_sql(lake, topic)) == [before, dict.fromkeys(before)]
    old_ids = {field.name: field.field_id for field in lake.table(topic).schema().fields}

    second = registry.serializer(
        f"{topic}-value",
        record(
            ("id", "long"),
            ("total", {**MONEY, "precision": 12}, ["amount"]),
            ("buyer", OLDER),
            ("tags", {"type": "array", "items": "string"}),
        ),
    )
    value = {"id": 2**40, "total": Decimal("9999999.5"), "buyer": {"name": "Bo", "age": 7}, "tags": ["x"]}
    produce(producer, topic, second(value), first({"id": 3, "amount": Decimal(3), "buyer": {"name": "Cy"}}))
    expected = [
        {"id": 1, "total": Decimal("1.25"), "buyer": {"name": "Al", "age": None}, "tags": None},
        {"id": None, "total": None, "buyer": None, "tags": None},
        value | {"total": Decimal("9999999.50")},
        {"id": 3, "total": Decimal("3.00"), "buyer": {"name": "Cy", "age": None}, "tags": None},
    ]
    told = [{**row, "total": row["total"] and str(row["total"])} for row in expected]
    told[2]["id"] = 2**40
    assert typed(by_sql(lake, topic)) == told  # the file has the former name, the log no file
    lake.work("materialise")
    assert lake.publish().problems == {}
    for step in ("rewrite", "merge"):
        assert typed(lake.rows(topic)) == expected
        assert typed(by_sql(lake, topic)) == told
        lake.work(step)  # type: ignore[arg-type]
        assert lake.publish().problems == {}
    new_ids = {field.name: field.field_id for field in lake.table(topic).schema().fields}
    assert new_ids["total"] == old_ids["amount"]
    assert {name: new_ids[name] for name in ("id", "buyer")} == {
        name: old_ids[name] for name in ("id", "buyer")
    }
    (error,) = lake.rows(f"{topic}__errors")
    assert (error["offset"], error["value"]) == (1, b"no schema")
    assert error["reason"] == "the value does not begin with a zero byte and the id of a schema"
    assert lake.status(topic)["errors"] == 1


PROTO = 'syntax = "proto3";\nmessage Order { int64 id = 1; repeated Line lines = 2; message Line { string sku = 1; } }'
JSON_SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "lines": {
                "type": "array",
                "items": {"type": "object", "properties": {"sku": {"type": "string"}}},
            },
        },
    }
)


@pytest.mark.parametrize(("kind", "schema"), [("PROTOBUF", PROTO), ("JSON", JSON_SCHEMA)])
def test_protobuf_and_json_schema_give_the_same_columns(
    lake: Tabling, registry: SchemaRegistry, producer: Producer, kind: str, schema: str
) -> None:
    topic = f"orders_{kind.lower()}"
    lake.topic(topic)
    lake.enable(topic, schema={"subject": f"shared-{kind}"})  # before the subject has any version
    to_bytes = registry.serializer(f"shared-{kind}", schema, kind)
    value = {"id": 5, "lines": [{"sku": "a"}, {"sku": "b"}]}
    sound = to_bytes(value)
    produce(producer, topic, sound, sound[:5] + b"\xff\xff", sound)
    nothing = {"id": None, "lines": None}
    assert typed(by_sql(lake, topic)) == [value, nothing, value]
    drain(lake)
    rows = typed(lake.rows(topic))
    assert [rows[0], rows[2]] == [value, value]
    assert rows[1]["id"] is None
    assert typed(by_sql(lake, topic)) == [value, nothing, value]
    assert len(lake.rows(f"{topic}__errors")) == 1


def test_columns_come_from_one_place(lake: Tabling) -> None:
    lake.topic("mixed")
    lake.enable("mixed", schema=[{"name": "a", "type": "long"}])
    body = {"enabled": True, "schema": "registry"}
    answer = lake.http.put("/v0/topics/mixed/table", json=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "table_incompatible")
    lake.topic("bound")
    lake.enable("bound", schema="registry")
    lake.enable("bound", schema="registry")
    for schema in ([{"name": "a", "type": "long"}], {"subject": "another"}):
        answer = lake.http.put("/v0/topics/bound/table", json={"enabled": True, "schema": schema})
        assert answer.status_code == 409
    answer = lake.http.put("/v0/topics/bound/table", json={"enabled": True, "schema": {"subject": 7}})
    assert answer.status_code == 400
