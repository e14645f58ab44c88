"""Real clients that authenticate: over TLS, by password, by certificate and by token."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from mainstem.testing.server import ServerProcess
from tests.support.certificates import make_certificates
from tests.support.cluster_server import server_process

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it reads its schemas in a deprecated way
    from kafka import KafkaConsumer

pytestmark = pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning")

_USERS = {"MAINSTEM_KAFKA_USERS": "root:top secret,ann:an,bob:bo"}
_ALL = "plain,scram-sha-256,scram-sha-512"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, certificates: Path) -> Iterator[ServerProcess]:
    """TLS and passwords; ann may do everything, because no rules exist."""
    flags = ("--kafka-sasl", _ALL, "--kafka-acl", "off", "--kafka-tls-cert", str(certificates / "server.pem"))
    flags += ("--kafka-tls-key", str(certificates / "server.key"))
    data = tmp_path_factory.mktemp("login") / "data"
    with server_process(data, *flags, env=_USERS) as process:
        yield process


def _login(
    server: ServerProcess, certificates: Path, mechanism: str, user: str, password: str
) -> dict[str, Any]:
    return {
        "bootstrap.servers": str(server.address("kafka")),
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(certificates / "ca.pem"),
        "sasl.mechanisms": mechanism,
        "sasl.username": user,
        "sasl.password": password,
    }


def _produced(config: dict[str, Any], topic: str, *values: bytes, size: int = 0) -> None:
    producer = Producer(config)
    failed: list[Any] = []
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: error and failed.append(error))
    assert producer.flush(20) == 0
    assert not failed


def _consumed(config: dict[str, Any], topic: str, count: int) -> list[bytes]:
    consumer = Consumer({**config, "group.id": f"of-{topic}", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    try:
        until = time.monotonic() + 60
        found: list[bytes] = []
        while len(found) < count and time.monotonic() < until:
            message = consumer.poll(1)
            if message is not None:
                assert message.error() is None
                found.append(message.value())
        return found
    finally:
        consumer.close()


def _refusal(config: dict[str, Any]) -> str:
    """The error of a client that is refused."""
    seen: list[str] = []
    admin = AdminClient({**config, "error_cb": lambda error: seen.append(str(error))}, logger=_Silent())
    until = time.monotonic() + 60
    while not seen and time.monotonic() < until:
        admin.poll(0.2)
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=1)
    return seen[0]


class _Silent:
    def log(self, *_: object) -> None:
        """Failures are what these tests expect."""


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_client_logs_in_by_password_over_tls(
    server: ServerProcess, certificates: Path, mechanism: str
) -> None:
    config = _login(server, certificates, mechanism, "ann", "an")
    topic = f"by-{mechanism.lower()}"
    large = bytes(700_000)  # more than a TLS record, and more than one write
    _produced(config, topic, b"small", large, b"last")
    assert _consumed(config, topic, 3) == [b"small", large, b"last"]


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
@pytest.mark.parametrize(("user", "password"), [("ann", "bo"), ("nobody", "an")])
def test_a_wrong_password_and_an_unknown_user_get_the_same_error(
    server: ServerProcess, certificates: Path, mechanism: str, user: str, password: str
) -> None:
    told = _refusal(_login(server, certificates, mechanism, user, password))
    assert "unknown user or wrong password" in told


def test_a_mechanism_that_is_not_offered_is_refused_by_name(
    server: ServerProcess, certificates: Path
) -> None:
    config = _login(server, certificates, "OAUTHBEARER", "ann", "an")
    config["oauth_cb"] = lambda _: (_token({"alg": "none"}, {"sub": "ann"}), time.time() + 60)
    assert "OAUTHBEARER" in _refusal(config)


def test_a_client_without_tls_is_refused(server: ServerProcess, certificates: Path) -> None:
    config = _login(server, certificates, "PLAIN", "ann", "an") | {"security.protocol": "SASL_PLAINTEXT"}
    _refusal(config)
    assert server.running


async def test_aiokafka_and_kafka_python_log_in_over_tls(server: ServerProcess, certificates: Path) -> None:
    trust = ssl.create_default_context(cafile=str(certificates / "ca.pem"))
    options: dict[str, Any] = {
        "bootstrap_servers": str(server.address("kafka")),
        "security_protocol": "SASL_SSL",
        "sasl_plain_username": "bob",
        "sasl_plain_password": "bo",
        "ssl_context": trust,
    }
    async with AIOKafkaProducer(**options, sasl_mechanism="SCRAM-SHA-512") as producer:
        await producer.send_and_wait("others", b"of aiokafka")

    def read() -> bytes:
        consumer = KafkaConsumer(
            "others",
            **options,
            sasl_mechanism="SCRAM-SHA-256",
            auto_offset_reset="earliest",
            consumer_timeout_ms=60_000,
        )
        try:
            return bytes(next(consumer).value)
        finally:
            consumer.close()

    assert await asyncio.to_thread(read) == b"of aiokafka"


def test_passwords_that_administrators_set_survive_a_kill(tmp_path: Path) -> None:
    flags = ("--kafka-sasl", _ALL, "--kafka-acl", "off")

    def plain(server: ServerProcess, mechanism: str, user: str, password: str) -> dict[str, Any]:
        return {
            "bootstrap.servers": str(server.address("kafka")),
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanisms": mechanism,
            "sasl.username": user,
            "sasl.password": password,
        }

    with server_process(tmp_path / "data", *flags, env=_USERS) as server:
        admin = AdminClient(plain(server, "PLAIN", "root", "top secret"))
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 8192)
        upserts = [UserScramCredentialUpsertion(name, info, b"first") for name in ("eve", "ole")]
        for done in admin.alter_user_scram_credentials(upserts).values():
            done.result(20)
        _produced(plain(server, "SCRAM-SHA-256", "eve", "first"), "kept", b"1")
        server.kill()
    with server_process(tmp_path / "data", *flags, env=_USERS) as server:
        admin = AdminClient(plain(server, "PLAIN", "root", "top secret"))
        described = admin.describe_user_scram_credentials(["eve"])["eve"].result(20)
        assert [(one.mechanism, one.iterations) for one in described.scram_credential_infos] == [
            (ScramMechanism.SCRAM_SHA_256, 8192)
        ]
        # PLAIN can check any hash of the password; a SCRAM mechanism needs its own.
        for mechanism in ("SCRAM-SHA-256", "PLAIN"):
            _produced(plain(server, mechanism, "eve", "first"), "kept", b"2")
        assert "unknown user or wrong password" in _refusal(plain(server, "SCRAM-SHA-512", "eve", "first"))
        gone = UserScramCredentialDeletion("eve", ScramMechanism.SCRAM_SHA_256)
        admin.alter_user_scram_credentials([gone])["eve"].result(20)
        with pytest.raises(KafkaException, match="RESOURCE_NOT_FOUND"):
            admin.alter_user_scram_credentials([gone])["eve"].result(20)
        assert "unknown user or wrong password" in _refusal(plain(server, "SCRAM-SHA-256", "eve", "first"))
        assert sorted(admin.describe_user_scram_credentials().result(20)) == ["ole"]


def test_a_certificate_is_required_and_names_the_client(tmp_path: Path, certificates: Path) -> None:
    flags = (
        "--kafka-tls-cert",
        str(certificates / "server.pem"),
        "--kafka-tls-key",
        str(certificates / "server.key"),
    )
    flags += ("--kafka-tls-ca", str(certificates / "ca.pem"))
    flags += ("--kafka-super-users", "CN=pump-7,O=Plant\\, North")
    with server_process(tmp_path / "data", *flags) as server:
        config = {
            "bootstrap.servers": str(server.address("kafka")),
            "security.protocol": "SSL",
            "ssl.ca.location": str(certificates / "ca.pem"),
        }
        _refusal(config)
        shown = {
            "ssl.certificate.location": str(certificates / "client.pem"),
            "ssl.key.location": str(certificates / "client.key"),
        }
        _produced(config | shown, "by-certificate", b"1")
        assert _consumed(config | shown, "by-certificate", 1) == [b"1"]
        # The same authority, but a name without any access rule.
        other = {
            "ssl.certificate.location": str(certificates / "server.pem"),
            "ssl.key.location": str(certificates / "server.key"),
        }
        assert not AdminClient(config | other).list_topics(timeout=60).topics


def _token(head: dict[str, Any], claims: dict[str, Any]) -> str:
    def part(value: dict[str, Any]) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    return f"{part(head)}.{part({'exp': time.time() + 3600, **claims})}."


def _with_token(server: ServerProcess, make: Callable[[], str]) -> dict[str, Any]:
    return {
        "bootstrap.servers": str(server.address("kafka")),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanisms": "OAUTHBEARER",
        "oauth_cb": lambda _: (make(), time.time() + 600),
    }


def test_an_unsigned_token_is_for_development_only(tmp_path: Path) -> None:
    flags = ("--kafka-sasl", "oauthbearer", "--kafka-acl", "off", "--kafka-oauth-unsecured", "true")
    with server_process(tmp_path / "data", *flags) as server:
        _produced(_with_token(server, lambda: _token({"alg": "none"}, {"sub": "ann"})), "by-token", b"1")
        late = _with_token(server, lambda: _token({"alg": "none"}, {"sub": "ann", "exp": time.time() - 60}))
        assert "expired" in _refusal(late)


def test_a_token_that_a_known_key_signed_lets_a_client_in(tmp_path: Path) -> None:
    private = ec.generate_private_key(ec.SECP256R1())
    row = {**ECAlgorithm.to_jwk(private.public_key(), as_dict=True), "kid": "one"}
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps({"keys": [row]}))

    def token(**claims: Any) -> str:
        shown = {"sub": "ann", "exp": time.time() + 3600, "iss": "us", "aud": "log", **claims}
        return jwt.encode(shown, private, "ES256", headers={"kid": "one"})

    flags = ("--kafka-sasl", "oauthbearer", "--kafka-acl", "off", "--kafka-oauth-jwks", str(keys))
    flags += ("--kafka-oauth-issuer", "us", "--kafka-oauth-audience", "log")
    with server_process(tmp_path / "data", *flags) as server:
        config = _with_token(server, token)
        _produced(config, "by-signed-token", b"1")
        assert _consumed(config, "by-signed-token", 1) == [b"1"]
        assert "another issuer" in _refusal(_with_token(server, lambda: token(iss="them")))
        assert "another audience" in _refusal(_with_token(server, lambda: token(aud="others")))
        assert "exp is out of range" in _refusal(_with_token(server, lambda: token(exp=10**17)))
        assert "not signed" in _refusal(_with_token(server, lambda: _token({"alg": "none"}, {"sub": "ann"})))
        assert not [line for line in server.lines if line["event"] == "connection dropped"]


def test_an_expiring_login_is_renewed_on_the_same_connection(tmp_path: Path) -> None:
    """The client renews when a tenth of the lifetime is left: a busy machine needs a longer lifetime."""
    for lifetime_s in (1.5, 6.0, 30.0):
        dropped = _dropped_in_two_lifetimes(tmp_path / str(lifetime_s), lifetime_s)
        if not dropped:
            return
    raise AssertionError(dropped)


def _dropped_in_two_lifetimes(directory: Path, lifetime_s: float) -> list[object]:
    """The errors of the client and the server, if the connection was not kept."""
    directory.mkdir()
    flags = ("--kafka-sasl", "scram-sha-256", "--kafka-acl", "off")
    flags += ("--kafka-reauthenticate-ms", str(int(1000 * lifetime_s)))
    with server_process(directory / "data", *flags, env=_USERS) as server:
        errors: list[str] = []
        producer = Producer(
            {
                "bootstrap.servers": str(server.address("kafka")),
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanisms": "SCRAM-SHA-256",
                "sasl.username": "ann",
                "sasl.password": "an",
                "error_cb": lambda error: errors.append(str(error)),
            }
        )
        until = time.monotonic() + 2.5 * lifetime_s
        sent = 0
        while time.monotonic() < until:  # past two lifetimes
            producer.produce("renewed", b"x")
            sent += 1
            assert producer.flush(10) == 0
            producer.poll(0.05)
        return [*errors, *(line for line in server.lines if line["event"] == "connection dropped")]
