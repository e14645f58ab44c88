"""Namespaces through HTTP and the text door: equal names in two of them, policies, and nothing that leaks."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from mainstem import Client
from mainstem.api.namespaces import NamespaceDescriptionBody
from mainstem.testing.server import ServerProcess


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("namespaces") / "data") as process:
        yield process


@pytest.fixture
def http(server: ServerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://{server.address('http')}") as client:
        for name in ("acme%2Fshop", "other", "small"):
            client.put(f"/v0/namespaces/{name}", json={}).raise_for_status()
        yield client


def write(http: httpx.Client, path: str, *values: object) -> httpx.Response:
    return http.post(path, json={"records": [{"data": value} for value in values]})


def test_the_full_name_and_the_parameter_name_the_same_topic(http: httpx.Client) -> None:
    assert write(http, "/v0/topics/acme%2Fshop%2Forders", 1).json()["topic"] == "acme/shop/orders"
    assert write(http, "/v0/topics/orders?namespace=acme/shop", 2).json()["topic"] == "orders"
    assert write(http, "/v0/topics/orders?namespace=other", "theirs").json()["head_seq"] == 1
    assert http.get("/v0/topics/orders?namespace=acme/shop").json()["count"] == 2
    assert http.get("/v0/topics/orders").status_code == 404
    listed = http.get("/v0/topics?namespace=acme/shop").json()["topics"]
    assert "orders" in {row["topic"] for row in listed}
    assert not [row for row in listed if "/" in row["topic"]]
    assert {"acme/shop/orders", "other/orders"} <= {
        row["topic"] for row in http.get("/v0/topics").json()["topics"]
    }


def test_errors_do_not_show_full_names_to_a_bound_request(http: httpx.Client) -> None:
    missing = http.get("/v0/topics/nothing?namespace=acme/shop")
    assert missing.status_code == 404
    assert "acme" not in missing.text
    crossing = http.get("/v0/topics/other%2Forders?namespace=acme/shop")
    assert crossing.status_code == 404
    assert http.get("/v0/topics/orders?namespace=a/b/c").status_code == 400
    nowhere = write(http, "/v0/topics/orders?namespace=nowhere", 1)
    assert (nowhere.status_code, "no namespace" in nowhere.text) == (400, True)


def test_routers_and_groups_of_equal_names(http: httpx.Client) -> None:
    for namespace in ("acme/shop", "other"):
        body = {"source": "from", "dest": "to"}
        assert http.put(f"/v0/routers/copy?namespace={namespace}", json=body).status_code == 201
        write(http, f"/v0/topics/from?namespace={namespace}", namespace)
        positions = {"offsets": [{"topic": "from", "offset": 1}]}
        http.post(f"/v0/groups/billing/offsets?namespace={namespace}", json=positions).raise_for_status()
    for namespace in ("acme/shop", "other"):
        (router,) = http.get(f"/v0/routers?namespace={namespace}").json()["routers"]
        assert (router["router"], router["source"], router["dest"]) == ("copy", "from", "to")
        assert http.get(f"/v0/topics/to?namespace={namespace}").json()["count"] == 1
        groups = http.get(f"/v0/groups?namespace={namespace}").json()["groups"]
        assert [group["group"] for group in groups] == ["billing"]
        offsets = http.get(f"/v0/groups/billing?namespace={namespace}").json()["offsets"]
        assert [row["topic"] for row in offsets] == ["from"]
    assert http.get("/v0/routers").json()["routers"] == []
    assert http.get("/v0/groups").json()["groups"] == []
    assert http.get("/v0/groups/acme%2Fshop%1Fbilling").status_code == 400


def test_a_watch_and_its_events_use_plain_names(http: httpx.Client) -> None:
    write(http, "/v0/topics/watched?namespace=acme/shop", "one")
    started = http.post("/v0/watch?namespace=acme/shop", json={"topics": {"watched": {"from_seq": 0}}}).json()
    assert list(started["topics"]) == ["watched"]
    with http.stream("GET", f"{started['stream_url']}?namespace=acme/shop") as events:
        data = next(line for line in events.iter_lines() if line.startswith("data: ") and "records" in line)
    assert json.loads(data.removeprefix("data: "))["topic"] == "watched"


def test_policies_limit_every_door(http: httpx.Client, server: ServerProcess) -> None:
    policies = {"topics_max": 1, "bytes_max": 10, "durability": "memory", "ttl_ms": 60000, "partitions": 3}
    shown = http.put("/v0/namespaces/small", json=policies).json()["namespace"]
    assert shown["topics_max"] == 1
    assert write(http, "/v0/topics/a?namespace=small", 1).status_code == 201
    config = http.get("/v0/topics/a?namespace=small").json()["config"]
    assert (config["durability"], config["ttl_ms"]) == ("memory", 60000)
    assert len(http.get("/v0/topics/a/settings?namespace=small").json()["partitions"]) == 3
    assert write(http, "/v0/topics/b?namespace=small", 1).status_code == 429
    assert write(http, "/v0/topics/a?namespace=small", "x" * 50).status_code == 429
    with Text(server) as text:
        assert text.ask("REGISTER small/b").startswith("ERR namespace 'small' has 1 topics")
        assert text.ask(f"PUT small/a {'x' * 50}").startswith("ERR namespace 'small' holds up to 10 bytes")
    assert http.delete("/v0/namespaces/small").status_code == 409
    assert http.delete("/v0/namespaces/small?force=true").json()["topics_deleted"] == 1
    assert http.get("/v0/namespaces/small").status_code == 404
    assert http.delete("/v0/namespaces/default").status_code == 400


def test_the_python_client_is_bound_by_its_namespace(http: httpx.Client, server: ServerProcess) -> None:
    url = f"http://{server.address('http')}"
    with Client(url) as admin:
        admin.put_namespace("python", NamespaceDescriptionBody(topics_max=5))
        assert admin.namespace("python").topics_max == 5
        assert "python" in {namespace.namespace for namespace in admin.namespaces()}
    with Client(url, namespace="python") as client:
        client.create_topic("orders")
        assert "orders" in str(client.topics())
        assert "/orders" not in str(client.topics())


class Text:
    """A client of the text door."""

    def __init__(self, server: ServerProcess, door: str = "text") -> None:
        address = server.address(door)
        self._socket = socket.create_connection((address.host, address.port), timeout=10)

    def __enter__(self) -> Text:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def ask(self, request: str) -> str:
        body = request.encode()
        self._socket.sendall(struct.pack("<I", len(body)) + body)
        (length,) = struct.unpack("<I", self._receive(4))
        return self._receive(length).decode()

    def _receive(self, count: int) -> bytes:
        received = b""
        while len(received) < count:
            received += self._socket.recv(count - len(received))
        return received


def test_the_text_door_takes_full_names_and_a_bound_one_plain_names(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "free") as server, Text(server) as text:
        assert text.ask("REGISTER acme/shop/orders") == "ERR no namespace named 'acme/shop'"
    flags = ("--text", "127.0.0.1:0,namespace=acme/shop", "--http", "127.0.0.1:0,namespace=acme/shop")
    with ServerProcess(tmp_path / "bound", *flags) as server, Text(server) as text:
        assert text.ask("REGISTER orders") == "OK"
        assert text.ask("PUT orders one") == "OK"
        assert text.ask("GET orders") == "OK one"
        assert text.ask("PUT other/orders one") == "ERR unknown topic other/orders"
        assert text.ask("GET nothing") == "ERR unknown topic nothing"
        with httpx.Client(base_url=f"http://{server.address('http')}") as http:
            assert [row["topic"] for row in http.get("/v0/topics").json()["topics"]] == ["orders"]
            assert http.get("/v0/topics?namespace=other").status_code == 403
            assert http.get("/v0/metrics").status_code == 200
            assert "acme" not in http.get("/v0/metrics").text
            assert http.put("/v0/namespaces/other", json={}).status_code == 403


def test_principals_that_a_namespace_does_not_list_cannot_use_it(
    http: httpx.Client, server: ServerProcess
) -> None:
    http.put("/v0/namespaces/closed", json={}).raise_for_status()
    assert write(http, "/v0/topics/closed%2Fa", 1).status_code == 201
    http.put("/v0/namespaces/closed", json={"principals": ["User:alice"]}).raise_for_status()
    assert write(http, "/v0/topics/closed%2Fa", 1).status_code == 403
    assert http.get("/v0/topics/a?namespace=closed").status_code == 403
    assert "closed/a" not in http.get("/v0/topics").text
    assert write(http, "/v0/topics/open", 1).status_code == 201
    with Text(server) as text:
        assert text.ask("PUT closed/a x") == "ERR forbidden"
    http.put("/v0/namespaces/closed", json={"principals": []}).raise_for_status()
    assert write(http, "/v0/topics/closed%2Fa", 1).status_code == 200
