"""Schemas of topics: versions, compatibility strategies, and the subjects of the registry."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Iterator

import httpx
import pulsar
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from pulsar.schema import JsonSchema, Record, String

from mainstem.testing.server import ServerProcess

from .test_admin import Admin


@pytest.fixture
def admin(server: ServerProcess) -> Iterator[Admin]:
    opened = Admin(server)
    yield opened
    opened.close()


@pytest.fixture
def topic(admin: Admin) -> str:
    """The name of a new topic in a new namespace."""
    namespace = f"schemas/n{uuid.uuid4().hex[:12]}"
    admin.ask("PUT", f"/admin/v2/namespaces/{namespace}")
    admin.ask("PUT", f"/admin/v2/persistent/{namespace}/t")
    return f"{namespace}/t"


def _avro(**fields: object) -> str:
    rows = [
        {"name": name, "type": kind}
        if not isinstance(kind, tuple)
        else dict(zip(("type", "default"), kind, strict=True), name=name)
        for name, kind in fields.items()
    ]
    return json.dumps({"type": "record", "name": "R", "fields": rows})


def _register(admin: Admin, topic: str, schema: str, type: str = "AVRO") -> int:
    body = {"type": type, "schema": schema, "properties": {}}
    version: int = admin.ask("POST", f"/admin/v2/schemas/{topic}/schema", body)["version"]["version"]
    return version


def _refusal(admin: Admin, topic: str, schema: str, type: str = "AVRO") -> int:
    body = {"type": type, "schema": schema, "properties": {}}
    return admin.refused("POST", f"/admin/v2/schemas/{topic}/schema", body)[0]


_FIRST, _WITH_DEFAULT, _WITHOUT = (
    _avro(a="string"),
    _avro(a="string", b=("int", 0)),
    _avro(a="string", b="int"),
)


def test_versions_are_subjects_of_the_registry(admin: Admin, topic: str, server: ServerProcess) -> None:
    assert _register(admin, topic, _FIRST) == 0
    assert _register(admin, topic, _WITH_DEFAULT) == 1
    assert _register(admin, topic, _FIRST) == 0
    path = f"/admin/v2/schemas/{topic}"
    assert [one["version"] for one in admin.ask("GET", f"{path}/schemas")["getSchemaResponses"]] == [0, 1]
    assert json.loads(admin.ask("GET", f"{path}/schema")["data"]) == json.loads(_WITH_DEFAULT)
    assert admin.ask("POST", f"{path}/version", {"type": "AVRO", "schema": _FIRST})["version"] == 0
    namespace = topic.rpartition("/")[0]
    registry = f"http://{server.address('http')}/subjects/t-value/versions"
    found = httpx.get(registry, params={"namespace": namespace})
    assert found.json() == [1, 2], found.text
    admin.ask("DELETE", f"{path}/schema")
    assert admin.refused("GET", f"{path}/schema")[0] == 404
    assert httpx.get(registry, params={"namespace": namespace}).status_code == 404


@pytest.mark.parametrize(
    ("strategy", "taken", "refused"),
    [
        ("FULL", _WITH_DEFAULT, _WITHOUT),
        ("BACKWARD", _WITH_DEFAULT, _WITHOUT),
        ("FORWARD", _WITHOUT, _avro(b="int")),
        ("FULL_TRANSITIVE", _WITH_DEFAULT, _WITHOUT),
        ("ALWAYS_COMPATIBLE", _avro(c="long"), None),
        ("ALWAYS_INCOMPATIBLE", None, _WITH_DEFAULT),
    ],
)
def test_the_strategy_of_a_namespace_decides(
    admin: Admin, topic: str, strategy: str, taken: str | None, refused: str | None
) -> None:
    path = f"/admin/v2/namespaces/{topic.rpartition('/')[0]}/schemaCompatibilityStrategy"
    assert admin.ask("GET", path) == "UNDEFINED"
    admin.ask("PUT", path, strategy)
    assert admin.ask("GET", path) == strategy
    _register(admin, topic, _FIRST)
    compatibility = f"/admin/v2/schemas/{topic}/compatibility"
    if refused is not None:
        assert admin.ask("POST", compatibility, {"type": "AVRO", "schema": refused}) == {
            "compatibility": False,
            "schemaCompatibilityStrategy": strategy,
        }
        assert _refusal(admin, topic, refused) == 409
    if taken is not None:
        assert _register(admin, topic, taken) == 1


def test_the_strategy_of_a_topic_comes_first(admin: Admin, topic: str) -> None:
    path = f"/admin/v2/persistent/{topic}/schemaCompatibilityStrategy"
    assert admin.ask("GET", path) is None
    assert admin.ask("GET", path, applied="true") == "FULL"
    admin.ask("PUT", path, "ALWAYS_COMPATIBLE")
    _register(admin, topic, _FIRST)
    assert _register(admin, topic, _WITHOUT) == 1
    admin.ask("DELETE", path)
    assert _refusal(admin, topic, _avro(z="long")) == 409
    assert admin.refused("PUT", path, "SOMETIMES")[0] in (400, 422)


def test_a_record_may_change_its_name(admin: Admin, topic: str) -> None:
    """Pulsar compares the fields of records only."""
    _register(admin, topic, _FIRST)
    assert _register(admin, topic, _WITH_DEFAULT.replace('"R"', '"Renamed"')) == 1
    assert _refusal(admin, topic, _WITHOUT.replace('"R"', '"Again"').replace("a", "c")) == 409


def test_other_types_are_checked_by_their_own_rules(admin: Admin, topic: str) -> None:
    namespace = topic.rpartition("/")[0]

    def fresh() -> str:
        name = f"{namespace}/x{uuid.uuid4().hex[:8]}"
        admin.ask("PUT", f"/admin/v2/persistent/{name}")
        return name

    text = fresh()
    assert _register(admin, text, "", "STRING") == 0
    assert _refusal(admin, text, "", "INT32") == 409
    described = fresh()
    assert _register(admin, described, _FIRST, "JSON") == 0
    assert _refusal(admin, described, _WITHOUT, "JSON") == 409
    native = fresh()
    assert _register(admin, native, _proto(("a", 1)), "PROTOBUF_NATIVE") == 0
    assert _register(admin, native, _proto(("a", 1), ("b", 2)), "PROTOBUF_NATIVE") == 1
    assert _refusal(admin, native, _proto(("a", 1, "number")), "PROTOBUF_NATIVE") == 409


def _proto(*fields: tuple[object, ...]) -> str:
    file = FileDescriptorProto(name="r.proto", syntax="proto3")
    message = file.message_type.add(name="R")
    for name, number, *rest in fields:
        message.field.add(name=name, number=number, label=1, type=3 if rest else 9)
    encoded = base64.b64encode(FileDescriptorSet(file=[file]).SerializeToString()).decode()
    return json.dumps(
        {
            "fileDescriptorSet": encoded,
            "rootMessageTypeName": "R",
            "rootFileDescriptorName": "r.proto",
        }
    )


class One(Record):  # type: ignore[misc]
    a = String()


class Other(Record):  # type: ignore[misc]
    a = String()
    b = String(required=True)


def test_a_producer_with_a_schema_that_does_not_fit_is_refused(client: pulsar.Client, topic: str) -> None:
    url = f"persistent://{topic}"
    client.create_producer(url, schema=JsonSchema(One)).send(One(a="x"))
    with pytest.raises(pulsar.IncompatibleSchema):
        client.create_producer(url, schema=JsonSchema(Other))
    consumer = client.subscribe(
        url, "s", schema=JsonSchema(One), initial_position=pulsar.InitialPosition.Earliest
    )
    assert consumer.receive(10_000).value().a == "x"
