"""The schema registry on the wire: Confluent's API with all its error codes, and topics that validate records."""

from __future__ import annotations

import contextlib
import json
import struct
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from mainstem import Client
from mainstem.cli.main import run
from mainstem.client.schemas import SchemaRegistry
from mainstem.errors import SchemaRefused, UndecodablePayload
from mainstem.records.building import build_batch
from mainstem.testing.server import ServerProcess

JSON_TYPE = "application/vnd.schemaregistry.v1+json"
STRING, INT, LONG = '"string"', '"int"', '"long"'


def record(*fields: dict[str, Any]) -> str:
    return json.dumps({"type": "record", "name": "R", "fields": list(fields)})


ONE = record({"name": "a", "type": "int"})
TWO = record({"name": "a", "type": "int"}, {"name": "b", "type": "int", "default": 0})
BROKEN = record({"name": "a", "type": "int"}, {"name": "c", "type": "string"})


class Registry:
    def __init__(self, server: ServerProcess) -> None:
        self.server = server
        self.client = httpx.Client(
            base_url=f"http://{server.address('http')}", headers={"content-type": JSON_TYPE}
        )

    def close(self) -> None:
        self.client.close()

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        answer = self.client.request(method, path, content=None if body is None else json.dumps(body))
        assert answer.headers["content-type"] == JSON_TYPE, answer.text
        if answer.status_code != 200:
            refused = answer.json()
            assert set(refused) == {"error_code", "message"}
            return answer.status_code, refused["error_code"], refused["message"]
        return answer.json()

    def get(self, path: str) -> Any:
        return self.ask("GET", path)

    def register(self, subject: str, schema: str, query: str = "", **more: Any) -> Any:
        found = self.ask("POST", f"/subjects/{subject}/versions{query}", {"schema": schema, **more})
        return found["id"] if isinstance(found, dict) else found


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    with (
        ServerProcess(tmp_path_factory.mktemp("schemas") / "data") as server,
        contextlib.closing(Registry(server)) as registry,
    ):
        yield registry


def code(answer: Any) -> tuple[int, int]:
    assert isinstance(answer, tuple), answer
    return answer[:2]


def test_versions_ids_and_lookups(registry: Registry) -> None:
    first = registry.register("v", ONE)
    assert registry.register("v", ONE.replace(" ", "\n  ")) == first  # white space means nothing
    second = registry.register("v", TWO)
    assert registry.get("/subjects/v/versions") == [1, 2]
    assert registry.register("other", ONE) == first  # one id for one schema
    latest = registry.get("/subjects/v/versions/latest")
    assert (latest["subject"], latest["version"], latest["id"]) == ("v", 2, second)
    assert "schemaType" not in latest
    assert json.loads(registry.get(f"/schemas/ids/{first}")["schema"]) == json.loads(ONE)
    assert registry.get(f"/schemas/ids/{first}/schema") == json.loads(ONE)
    assert registry.get(f"/schemas/ids/{first}/subjects") == ["other", "v"]
    assert registry.get(f"/schemas/ids/{second}/versions") == [{"subject": "v", "version": 2}]
    assert registry.get(f"/schemas/guids/{latest['guid']}")["schema"] == latest["schema"]
    assert registry.get(f"/schemas/guids/{latest['guid']}/ids") == [{"context": ".", "id": second}]
    assert registry.ask("POST", "/subjects/v", {"schema": TWO})["version"] == 2
    assert registry.get("/subjects/v/versions/1/schema") == json.loads(ONE)
    assert registry.get("/schemas/types") == ["JSON", "PROTOBUF", "AVRO"]
    assert [row["version"] for row in registry.get("/schemas?subjectPrefix=v")] == [1, 2]
    assert [row["version"] for row in registry.get("/schemas?subjectPrefix=v&latestOnly=true")] == [2]


def test_every_error_has_its_code(registry: Registry) -> None:
    registry.register("e", ONE)
    assert code(registry.get("/subjects/none/versions")) == (404, 40401)
    assert code(registry.ask("DELETE", "/subjects/none")) == (404, 40401)
    assert code(registry.get("/subjects/e/versions/9")) == (404, 40402)
    assert code(registry.get("/schemas/ids/99999")) == (404, 40403)
    assert code(registry.ask("POST", "/subjects/e", {"schema": STRING})) == (404, 40403)
    assert code(registry.get("/config/e")) == (404, 40408)
    assert code(registry.get("/mode/e")) == (404, 40409)
    refused = registry.register("e", BROKEN)
    assert code(refused) == (409, 409)
    assert "incompatible with an earlier schema" in refused[2]
    assert "field 'c'" in refused[2]
    for text in ('{"type":"bogus"}', "{", ""):
        assert code(registry.register("e", text)) == (422, 42201)
    assert code(registry.register("e", STRING, schemaType="XML")) == (422, 42201)
    assert code(
        registry.register("e", STRING, references=[{"name": "x", "subject": "none", "version": 1}])
    ) == (422, 42201)
    for version in ("0", "a", "-5", "99999999999"):
        assert code(registry.get(f"/subjects/e/versions/{version}")) == (422, 42202)
    assert code(registry.ask("PUT", "/config/e", {"compatibility": "SOME"})) == (422, 42203)
    assert code(registry.ask("PUT", "/mode/e", {"mode": "SOME"})) == (422, 42204)
    assert code(registry.register("e", STRING, id=7)) == (422, 42205)
    assert code(registry.register("__GLOBAL", STRING)) == (422, 42208)
    assert code(registry.register("e", json.dumps("x" * 1_000_001))) == (422, 42209)
    assert code(registry.ask("POST", "/subjects/e", "no object")) == (400, 400)
    assert code(registry.ask("PUT", "/subjects/e")) == (405, 405)
    answer = registry.client.post("/subjects/e", content="{}", headers={"content-type": "text/plain"})
    assert (answer.status_code, answer.json()["error_code"]) == (415, 415)


def test_deletes_are_soft_first(registry: Registry) -> None:
    id = registry.register("d", ONE)
    registry.register("d", TWO)
    assert code(registry.ask("DELETE", "/subjects/d/versions/1?permanent=true")) == (404, 40407)
    assert registry.ask("DELETE", "/subjects/d/versions/1") == 1
    assert code(registry.ask("DELETE", "/subjects/d/versions/1")) == (404, 40406)
    assert code(registry.get("/subjects/d/versions/1")) == (404, 40402)
    assert registry.get("/subjects/d/versions/1?deleted=true")["deleted"] is True
    assert registry.get("/subjects/d/versions?deleted=true") == [1, 2]
    assert registry.get("/subjects/d/versions?deletedOnly=true") == [1]
    assert registry.get(f"/schemas/ids/{id}")["schema"]  # readers still need it
    assert code(registry.ask("DELETE", "/subjects/d?permanent=true")) == (404, 40405)
    assert registry.ask("DELETE", "/subjects/d") == [2]
    assert code(registry.ask("DELETE", "/subjects/d")) == (404, 40404)
    assert "d" not in registry.get("/subjects")
    assert "d" in registry.get("/subjects?deleted=true")
    assert registry.ask("PUT", "/config/d", {"compatibility": "NONE"}) == {"compatibility": "NONE"}
    assert registry.ask("DELETE", "/subjects/d?permanent=true") == [1, 2]
    assert "d" not in registry.get("/subjects?deleted=true")
    assert code(registry.get("/config/d")) == (404, 40408)  # nor its settings
    registry.register("d", TWO)
    assert registry.get("/subjects/d/versions") == [1]


def test_references(registry: Registry) -> None:
    registry.register(
        "base", json.dumps({"type": "record", "name": "Base", "fields": [{"name": "x", "type": "int"}]})
    )
    uses = json.dumps({"type": "record", "name": "Uses", "fields": [{"name": "base", "type": "Base"}]})
    reference = [{"name": "Base", "subject": "base", "version": 1}]
    assert code(registry.register("uses", uses)) == (422, 42201)
    id = registry.register("uses", uses, references=reference)
    assert registry.get("/subjects/uses/versions/1")["references"] == reference
    assert registry.get("/subjects/base/versions/1/referencedby") == [id]
    assert code(registry.ask("DELETE", "/subjects/base")) == (422, 42206)
    assert code(registry.ask("DELETE", "/subjects/base/versions/1")) == (422, 42206)
    proto = 'syntax = "proto3"; import "money.proto"; message Order { Money price = 1; }'
    registry.register("money", 'syntax = "proto3"; message Money { int64 cents = 1; }', schemaType="PROTOBUF")
    imported = [{"name": "money.proto", "subject": "money", "version": -1}]
    id = registry.register("order", proto, schemaType="PROTOBUF", references=imported)
    found = registry.get(f"/schemas/ids/{id}?format=serialized")
    assert found["references"][0]["version"] == 1
    again = registry.register("order", found["schema"], schemaType="PROTOBUF", references=found["references"])
    assert again == id  # the descriptor is the same schema as the text


def test_normal_forms(registry: Registry) -> None:
    turned = json.dumps(
        {"fields": [{"type": {"type": "int"}, "name": "a"}], "name": "R", "type": "record", "doc": "d"}
    )
    plain = json.dumps({"type": "record", "doc": "d", "name": "R", "fields": [{"name": "a", "type": "int"}]})
    id = registry.register("n", plain, "?normalize=true")
    assert registry.register("n", turned, "?normalize=true") == id
    shown = json.dumps({"title": "T", "type": "object"})
    other = json.dumps({"type": "object", "title": "T"})
    first = registry.register("j", shown, schemaType="JSON")
    assert registry.register("j", other, schemaType="JSON") != first
    assert (
        registry.ask("POST", "/subjects/j?normalize=true", {"schema": other, "schemaType": "JSON"})["subject"]
        == "j"
    )


def test_compatibility_levels(registry: Registry) -> None:
    registry.register("c", TWO)
    check = "/compatibility/subjects/c/versions/latest?verbose=true"
    assert registry.ask("POST", check, {"schema": ONE}) == {"is_compatible": True, "messages": []}
    assert registry.ask("PUT", "/config/c", {"compatibility": "full"}) == {"compatibility": "full"}
    assert registry.get("/config/c") == {"compatibilityLevel": "FULL"}
    found = registry.ask("POST", check, {"schema": BROKEN})
    assert found["is_compatible"] is False
    assert "field 'c'" in found["messages"][0]
    assert registry.ask("POST", "/compatibility/subjects/c/versions", {"schema": ONE}) == {
        "is_compatible": True
    }
    assert registry.ask("POST", "/compatibility/subjects/new/versions/latest", {"schema": ONE}) == {
        "is_compatible": True
    }
    assert code(registry.ask("POST", "/compatibility/subjects/c/versions/9", {"schema": ONE})) == (404, 40402)
    assert registry.ask("PUT", "/config/c", {"compatibility": "NONE"})
    assert registry.register("c", STRING)
    assert registry.ask("DELETE", "/config/c") == {"compatibilityLevel": "NONE"}
    assert code(registry.ask("DELETE", "/config/c")) == (404, 40401)
    assert registry.get("/config/c?defaultToGlobal=true") == {"compatibilityLevel": "BACKWARD"}
    # A transitive level looks at every version, the others at the latest alone.
    registry.ask("PUT", "/config/t", {"compatibility": "BACKWARD"})
    for fields in ([], [{"name": "a", "type": "int", "default": 0}]):
        registry.register("t", record(*fields))
    without_default = record({"name": "a", "type": "int"})
    assert registry.ask("POST", "/compatibility/subjects/t/versions", {"schema": without_default})[
        "is_compatible"
    ]
    registry.ask("PUT", "/config/t", {"compatibility": "BACKWARD_TRANSITIVE"})
    assert code(registry.register("t", without_default)) == (409, 409)


def test_modes(registry: Registry) -> None:
    registry.register("m", ONE)
    assert registry.ask("PUT", "/mode/m", {"mode": "READONLY"}) == {"mode": "READONLY"}
    assert code(registry.register("m", TWO)) == (422, 42205)
    assert code(registry.ask("DELETE", "/subjects/m")) == (422, 42205)
    assert registry.ask("DELETE", "/mode/m") == {"mode": "READONLY"}
    assert code(registry.ask("PUT", "/mode/m", {"mode": "IMPORT"})) == (422, 42205)  # it has schemas
    assert registry.ask("PUT", "/mode/imported", {"mode": "IMPORT"}) == {"mode": "IMPORT"}
    assert registry.register("imported", STRING, id=5000, version=3) == 5000
    assert registry.get("/subjects/imported/versions") == [3]
    assert code(registry.register("imported", INT, id=5000, version=4)) == (422, 42207)
    assert code(registry.register("imported", LONG)) == (422, 42205)  # needs an id
    assert registry.register("after", '{"type":"fixed","name":"F","size":3}') > 5000


def test_contexts_have_ids_of_their_own(registry: Registry) -> None:
    assert registry.register(":.eu:s", '"bytes"') == 1
    assert (
        registry.ask("POST", "/contexts/.us/subjects/s/versions", {"schema": '"double"'})["subject"]
        == ":.us:s"
    )
    assert {".", ".eu", ".us"} <= set(registry.get("/contexts"))
    assert registry.get("/contexts/.eu/subjects") == [":.eu:s"]
    assert registry.get("/subjects?subjectPrefix=:.us:") == [":.us:s"]
    assert registry.get("/schemas/ids/1?subject=:.eu:s")["schema"] == '"bytes"'
    assert registry.get("/contexts/:.us:/schemas/ids/1")["schema"] == '"double"'
    assert registry.get("/subjects/:.eu:s/versions/1/schema") == "bytes"
    registry.ask("PUT", "/config/:.eu:", {"compatibility": "NONE"})
    assert registry.get("/config/:.eu:s?defaultToGlobal=true") == {"compatibilityLevel": "NONE"}
    assert registry.register(":.:plain", STRING)
    assert registry.get("/subjects/plain/versions") == [1]


def _refusal(server: ServerProcess, topic: str, value: bytes | None, key: bytes | None = None) -> str | None:
    """Why the server refuses a record, if it does."""
    told: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": str(server.address("kafka")), "linger.ms": 0})
    producer.produce(topic, value, key, on_delivery=lambda error, _: told.append(error))
    assert producer.flush(30) == 0
    if told[0] is not None:
        assert told[0].code() == KafkaError.INVALID_RECORD, told[0]
        return told[0].str()
    return None


def test_topics_validate_by_id_or_by_payload(registry: Registry) -> None:
    server = registry.server
    admin = AdminClient({"bootstrap.servers": str(server.address("kafka"))})
    topics = {
        "plain": {},
        "by-id": {"mainstem.value.schema.validation": "id"},
        "full": {"mainstem.value.schema.validation": "full"},
        "keys": {"mainstem.key.schema.validation": "full"},
    }
    made = admin.create_topics([NewTopic(name, 1, config=config) for name, config in topics.items()])
    assert all(future.exception(30) is None for future in made.values())
    id = registry.register("full-value", TWO)
    head = struct.pack(">bI", 0, id)
    good, bad, unknown = head + b"\x02\x04", head + b"\x02", struct.pack(">bI", 0, 77777) + b"x"
    assert _refusal(server, "plain", b"anything") is None
    for topic in ("by-id", "full"):
        assert _refusal(server, topic, good) is None
        assert _refusal(server, topic, None, b"k") is None  # a tombstone
        assert _refusal(server, topic, b"anything") is not None
        assert _refusal(server, topic, unknown) is not None
    assert _refusal(server, "by-id", bad) is None
    assert _refusal(server, "full", bad) is not None
    assert _refusal(server, "full", good + b"more") is not None
    assert _refusal(server, "keys", b"v", bad) is not None
    assert _refusal(server, "keys", b"v", good) is None
    answer = registry.client.post(
        "/v0/topics/full", json={"records": [{"data": 1}]}, headers={"content-type": "application/json"}
    )
    assert answer.status_code == 400
    assert "schema id" in answer.json()["error"]["message"]
    octets = {"content-type": "application/octet-stream"}
    answer = registry.client.post("/v0/topics/full/raw", content=_batch(bad), headers=octets)
    assert "field 'b'" in answer.json()["error"]["message"]
    metrics = registry.client.get("/v0/metrics", headers={"accept": "text/plain"}).text
    assert "mainstem_schema_undecodable_batches_total" in metrics


ORDER = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {
                "name": "price",
                "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            },
        ],
    }
)


def test_the_clients_serialiser_and_confluents_read_each_other(registry: Registry) -> None:
    url = f"http://{registry.server.address('http')}"
    context = SerializationContext("orders", MessageField.VALUE)
    order = {"id": 7, "price": Decimal("12.50")}
    with SchemaRegistry(url) as ours, SchemaRegistryClient({"url": url}) as theirs:
        payload = ours.serializer("orders-value", ORDER)(order)
        assert AvroDeserializer(theirs)(payload, context) == order
        written = AvroSerializer(theirs, ORDER)(order, context)
        assert written == payload
        assert ours.deserialize(written) == order
        with pytest.raises(UndecodablePayload, match="id"):
            ours.serializer("orders-value")({"id": "seven", "price": Decimal(1)})
        with pytest.raises(SchemaRefused, match="not found"):
            ours.latest("no-such-subject")


TAGGED = 'syntax = "proto3"; message O { int32 id = 1; repeated string tags = 2; }'
LANGUAGES = [
    pytest.param("AVRO", ORDER, {"id": 7, "price": Decimal("12.50")}, id="avro"),
    pytest.param(
        "PROTOBUF",
        TAGGED,
        {"id": 7, "tags": ["a"]},
        id="protobuf",
    ),
    pytest.param(
        "JSON", '{"properties": {"id": {"type": "integer"}}}', {"id": 7, "more": [1.5, None]}, id="json"
    ),
]


@pytest.mark.parametrize(("kind", "schema", "value"), LANGUAGES)
def test_the_python_client_writes_and_reads_values_by_their_schema(
    registry: Registry, kind: str, schema: str, value: dict[str, Any]
) -> None:
    url, topic = f"http://{registry.server.address('http')}", f"client-{kind}"
    with SchemaRegistry(url) as schemas, Client(url) as client:
        serializer = schemas.serializer(f"{topic}-value", schema, kind)
        client.ensure_topic(topic)
        client.produce(topic, value, serializer=serializer)
        client.produce_many(topic, [value, None], serializer=serializer)
        with client.producer(topic, serializer=serializer) as producer:
            producer.send(value)
        records = list(client.read(topic, deserializer=schemas.deserialize))
        assert [record.value for record in records] == [value, value, None, value]  # type: ignore[union-attr]
        assert records[0].bytes == serializer(value)  # type: ignore[union-attr]
        client.produce(topic, b"no schema")
        client.produce(topic, value, serializer=serializer)
        with client.consumer(topic, group=topic, deserializer=schemas.deserialize) as consumer:
            *sound, broken, last = consumer.poll(20)
            assert [record.value for record in (*sound, last)] == [value, value, None, value, value]
            assert broken.bytes == b"no schema"
            with pytest.raises(UndecodablePayload, match="do not begin with a zero byte"):
                _ = broken.value


@pytest.mark.parametrize(
    ("kind", "schema", "value", "refused", "told"),
    [
        ("AVRO", TWO, {"a": 1, "b": 2}, {"a": "x"}, b"R.a"),
        ("PROTOBUF", 'syntax = "proto3"; message R { int32 a = 1; }', {"a": 1}, {"a": "x"}, b"'R'"),
        ("JSON", '{"properties": {"a": {"type": "integer"}}}', {"a": 1}, {"a": "x"}, b"field 'a'"),
    ],
)
def test_the_command_line_shows_and_writes_decoded_values(
    registry: Registry,
    capfdbinary: pytest.CaptureFixture[bytes],
    kind: str,
    schema: str,
    value: dict[str, Any],
    refused: dict[str, Any],
    told: bytes,
) -> None:
    url, topic = f"http://{registry.server.address('http')}", f"cli-{kind}"
    server = ("--url", url)
    with SchemaRegistry(url) as schemas:
        schemas.register(f"{topic}-value", schema, kind)
    written = ("--schema", f"{topic}-value", topic)
    assert run(["produce", *server, "--create", *written, json.dumps(value)]) == 0
    assert run(["consume", *server, "--decode", topic]) == 0
    assert json.loads(capfdbinary.readouterr().out) == value
    assert run(["produce", *server, *written, json.dumps(refused)]) != 0
    assert told in capfdbinary.readouterr().err
    assert run(["consume", *server, "--decode", topic, "--data-dir", "somewhere"]) != 0


def _batch(value: bytes) -> bytes:
    return bytes(build_batch([value], timestamps_ms=0))


def test_ids_survive_a_kill(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server, contextlib.closing(Registry(server)) as registry:
        ids = [
            registry.register(subject, schema) for subject, schema in (("a", ONE), ("a", TWO), ("b", STRING))
        ]
        registry.ask("DELETE", "/subjects/b")
        registry.ask("DELETE", "/subjects/b?permanent=true")
        registry.ask("PUT", "/config/a", {"compatibility": "FULL"})
        server.kill()
    with ServerProcess(tmp_path / "data") as server, contextlib.closing(Registry(server)) as registry:
        assert [registry.get(f"/subjects/a/versions/{number}")["id"] for number in (1, 2)] == ids[:2]
        assert registry.get("/config/a") == {"compatibilityLevel": "FULL"}
        assert registry.register("c", LONG) == max(ids) + 1  # no id is given out twice
        server.terminate()


def test_a_namespace_has_a_registry_of_its_own(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server, contextlib.closing(Registry(server)) as registry:
        plain = {"content-type": "application/json"}
        assert registry.client.put("/v0/namespaces/acme", json={}, headers=plain).status_code == 201
        registry.register("s", ONE)
        assert registry.register("s", STRING, "?namespace=acme") == 1
        assert registry.register("x", INT, "?namespace=acme") == 2
        assert registry.get("/subjects") == ["s"]
        assert registry.get("/subjects?namespace=acme") == ["s", "x"]
        assert registry.get("/schemas/ids/1?namespace=acme")["schema"] == STRING
        assert code(registry.get("/schemas/ids/2")) == (404, 40403)
        assert registry.get("/subjects/x/versions/1?namespace=acme")["subject"] == "x"
        assert code(registry.get("/subjects/acme%1Fx/versions"))[0] == 400
        server.terminate()
