"""Tokens of an OpenID Connect issuer, and tokens that the server issues itself, at every door."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import jwt
import pytest
from confluent_kafka import Producer
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm
from kio.schema.errors import ErrorCode

from mainstem import limits
from mainstem.broker.access.oidc import IssuerKeys
from mainstem.broker.access.options import AccessOptions, access_options
from mainstem.broker.access.tokens import TokenVerifier
from mainstem.config import Config
from mainstem.errors import InvalidConfig, Unauthorized
from mainstem.testing.server import ServerProcess

from .test_all_doors import AUTHENTICATE, HANDSHAKE, house, keys


class Issuer:
    """A server with a discovery document and keys that it can rotate."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.down = False
        self._keys: dict[str, rsa.RSAPrivateKey] = {}
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.requests.append(self.path)
                if issuer.down:
                    self.send_error(503)
                    return
                body = json.dumps(issuer.document(self.path)).encode()
                self.send_response(200)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_POST(self) -> None:
                form = parse_qs(self.rfile.read(int(self.headers["content-length"])).decode())
                token = issuer.token(
                    base64.b64decode(self.headers["authorization"][6:]).decode().split(":")[0]
                )
                issuer.requests.append(form["grant_type"][0])
                body = json.dumps({"access_token": token, "token_type": "Bearer", "expires_in": 60}).encode()
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *told: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.rotate("first")

    def document(self, path: str) -> dict[str, Any]:
        if path == "/.well-known/openid-configuration":
            return {"issuer": self.url, "jwks_uri": f"{self.url}/keys"}
        shown = []
        for kid, key in self._keys.items():
            shown.append({**RSAAlgorithm.to_jwk(key.public_key(), as_dict=True), "kid": kid, "use": "sig"})
        return {"keys": shown}

    def rotate(self, kid: str) -> None:
        self._keys = {kid: rsa.generate_private_key(65537, 2048)}

    def token(self, user: str, **claims: Any) -> str:
        [(kid, key)] = self._keys.items()
        content = {"sub": user, "iss": self.url, "aud": "log", "exp": time.time() + 60, **claims}
        return jwt.encode(content, key, "RS256", headers={"kid": kid})

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    made = Issuer()
    yield made
    made.close()


def options(issuer: Issuer, now_s: Any) -> AccessOptions:
    tokens = TokenVerifier([], issuer=issuer.url, audience="log", issuer_keys=IssuerKeys(issuer.url, now_s))
    return AccessOptions(tokens=tokens, logins=True, super_users=frozenset({"User:ann"}))


async def test_tokens_of_the_issuer_open_every_door_and_its_keys_may_rotate(
    issuer: Issuer, tmp_path: Path
) -> None:
    now = [0.0]
    async with house(tmp_path, options(issuer, lambda: now[0])) as all_doors:
        all_doors.api.clock.advance(int(time.time() * 1000) - all_doors.api.clock.now_ms())
        ask = all_doors.api.ask
        assert (await ask("PUT", "/v0/topics/t", {}, key=issuer.token("ann")))[0] == 201
        assert (await ask("GET", "/v0/topics/t", key=issuer.token("bob")))[0] == 403
        assert (await ask("GET", "/iceberg/v1/config", key=issuer.token("ann")))[0] == 200
        for wrong in ({"iss": "http://other"}, {"aud": "x"}, {"exp": 1}, {"exp": 1e300}):
            assert (await ask("GET", "/v0/topics", key=issuer.token("ann", **wrong)))[0] == 401
        text = await all_doors.text(issuer.token("ann"))
        assert await text.ask("PUT t x") == "OK"
        wire = await all_doors.kafka()
        assert (await wire.ask(HANDSHAKE(mechanism="OAUTHBEARER"))).error_code == ErrorCode.none
        message = f"n,,\1auth=Bearer {issuer.token('ann')}\1\1".encode()
        assert (await wire.ask(AUTHENTICATE(auth_bytes=message))).error_code == ErrorCode.none
        fetched = len(issuer.requests)
        assert fetched == 2
        old = issuer.token("ann", n=1)
        issuer.rotate("second")
        assert (await ask("GET", "/v0/topics", key=issuer.token("ann")))[0] == 401  # asked a moment ago
        assert len(issuer.requests) == fetched
        now[0] += limits.OIDC_REFRESH_MIN_S + 1
        assert (await ask("GET", "/v0/topics", key=issuer.token("ann")))[0] == 200
        assert (await ask("GET", "/v0/topics", key=old))[0] == 401


@pytest.mark.parametrize("value", [None, "", 7, ["ann"], {"name": "ann"}, "a" * 300, "ann"])
async def test_a_claim_of_the_operators_choice_names_the_user(issuer: Issuer, value: object) -> None:
    keys_of_issuer = IssuerKeys(issuer.url, lambda: 0.0)
    verifier = TokenVerifier([], principal_claim="preferred_username", issuer_keys=keys_of_issuer)
    token = issuer.token("c0de9812", **({} if value is None else {"preferred_username": value}))
    if value == "ann":
        assert (await verifier.check(token, 0))[0] == "ann"
    else:
        with pytest.raises(Unauthorized, match="'preferred_username' is absent or invalid"):
            await verifier.check(token, 0)


def test_librdkafka_fetches_its_token_from_the_issuer(issuer: Issuer, tmp_path: Path) -> None:
    flags = ("--kafka-sasl", "oauthbearer", "--oidc-issuer", issuer.url, "--oidc-audience", "log")
    with ServerProcess(tmp_path / "data", *flags, "--kafka-super-users", "ann", "--text", "off") as server:

        def topics(client: str) -> set[str]:
            settings: dict[str, Any] = {
                "bootstrap.servers": str(server.address("kafka")),
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanisms": "OAUTHBEARER",
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.client.id": client,
                "sasl.oauthbearer.client.secret": "secret",
                "sasl.oauthbearer.token.endpoint.url": f"{issuer.url}/token",
            }
            producer = Producer(settings)
            if client == "ann":
                producer.produce("by-oidc", b"1")
                assert producer.flush(60) == 0
            return set(producer.list_topics(timeout=60).topics)

        assert "by-oidc" in topics("ann")
        assert topics("bob") == set()
        assert issuer.requests.count("client_credentials") == 2


async def test_an_issuer_that_does_not_answer_is_asked_less_and_less(issuer: Issuer, tmp_path: Path) -> None:
    now = [0.0]
    issuer.down = True
    async with house(tmp_path, options(issuer, lambda: now[0])) as all_doors:
        for _ in range(100):
            assert (await all_doors.api.ask("GET", "/v0/topics", key=issuer.token("ann")))[0] == 401
            now[0] += 5
        assert len(issuer.requests) <= 7


def test_an_issuer_needs_an_audience() -> None:
    with pytest.raises(InvalidConfig, match="needs --oidc-audience"):
        access_options(Config(oidc_issuer="https://issuer.example"))
    with pytest.raises(InvalidConfig, match="an https or http URL"):
        access_options(Config(oidc_issuer="issuer.example", oidc_audience="any"))


async def test_client_credentials_become_a_token_that_ends_with_its_key(tmp_path: Path) -> None:
    async with house(tmp_path, keys("boss,reader:r:a.")) as all_doors:
        api = all_doors.api
        _, made = await api.ask("POST", "/v0/keys", {"name": "x", "scopes": "r"}, key="boss")

        async def token(client: str, secret: str) -> tuple[int, dict[str, Any]]:
            form = {"grant_type": "client_credentials", "client_id": client, "client_secret": secret}
            answer = await api.client.post("/iceberg/v1/oauth/tokens", data=form)
            return answer.status_code, answer.json()

        assert (await token("reader", "wrong"))[0] == 401
        for client, secret in (("any", "reader"), (made["id"], made["secret"])):
            status, given = await token(client, secret)
            assert status == 200
            access = given["access_token"]
            assert (await api.ask("GET", "/iceberg/v1/config", key=access))[0] == 200
            assert (await api.ask("PUT", "/v0/topics/a.t", {}, key=access))[0] == 403
            signed, _, signature = access.rpartition(".")
            forged = f"{signed}.{'B' if signature[0] == 'A' else 'A'}{signature[1:]}"
            assert (await api.ask("GET", "/v0/topics", key=forged))[0] == 401
        await api.ask("POST", f"/v0/keys/{made['id']}/rotate", key="boss")
        assert (await api.ask("GET", "/iceberg/v1/config", key=access))[0] == 401
        _, given = await token("any", "boss")
        api.clock.advance(limits.ACCESS_TOKEN_S * 1000 + 1)
        assert (await api.ask("GET", "/v0/topics", key=given["access_token"]))[0] == 401


def test_pyiceberg_logs_in_with_client_credentials(tmp_path: Path) -> None:
    rest = pytest.importorskip("pyiceberg.catalog.rest")
    flags = ("--http", "127.0.0.1:0", "--kafka", "off", "--text", "off")
    with ServerProcess(tmp_path / "data", *flags, env={"MAINSTEM_API_KEYS": "boss,reader:r"}) as server:
        uri = f"http://{server.address('http')}/iceberg"
        login = {"uri": uri, "oauth2-server-uri": f"{uri}/v1/oauth/tokens"}
        catalog = rest.RestCatalog("mainstem", **login, credential="boss:boss")
        catalog.create_namespace("sales")
        assert ("sales",) in catalog.list_namespaces()
        with pytest.raises(Exception, match=r"(?i)forbidden|allow"):
            rest.RestCatalog("mainstem", **login, credential="reader:reader").create_namespace("other")
