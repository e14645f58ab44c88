"""Logging in, frame by frame: what comes before it, what goes wrong in it, how long it lasts."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import random
import struct
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode

from mainstem.broker.broker import Broker
from mainstem.doors.kafka.registry import apis
from mainstem.doors.kafka.security.curves import CURVES
from mainstem.doors.kafka.security.options import KafkaSecurity
from mainstem.doors.kafka.security.passwords import hashed, matches, parse_users
from mainstem.doors.kafka.security.tokens import Key, Tokens, read_keys
from mainstem.errors import InvalidConfig, Unauthorized
from mainstem.ports.clock import ManualClock
from tests.support.batches import batch

from .conftest import KafkaStage, opened
from .requests import metadata, produce
from .wire import Wire, request_frame

_HANDSHAKE = load_request_schema(17, 1)
_AUTHENTICATE = load_request_schema(36, 2)
_GOOD = b"\0ann\0an"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def closed(broker: Broker, clock: ManualClock) -> AsyncIterator[KafkaStage]:
    """A door at which clients have to log in, every ten seconds."""
    security = KafkaSecurity(
        mechanisms=("PLAIN", "SCRAM-SHA-256"),
        users=tuple(parse_users("ann:an,bob:bo")),
        reauthenticate_ms=10_000,
    )
    async with opened(broker, security=security, clock=clock) as stage:
        yield stage


async def _said(wire: Wire, message: bytes, mechanism: str = "PLAIN") -> Any:
    assert (await wire.ask(_HANDSHAKE(mechanism=mechanism))).error_code == ErrorCode.none
    return await wire.ask(_AUTHENTICATE(auth_bytes=message))


async def test_before_login_nothing_is_served_but_what_login_needs(closed: KafkaStage) -> None:
    slice, _ = batch(b"1")
    for request in (
        metadata(9, "made", create=True),
        produce(9, "made", slice),
        produce(9, "made", slice, acks=0),
    ):
        wire = await closed.connect()
        assert (await wire.ask(load_request_schema(18, 0)())).error_code == ErrorCode.none
        wire.send(request)
        assert await wire.ended()
    assert closed.broker.streams.get("made") is None


async def test_a_request_sent_along_with_a_login_that_fails_is_not_served(closed: KafkaStage) -> None:
    wire = await closed.connect()
    wire.send(_HANDSHAKE(mechanism="PLAIN"))
    wire.send(_AUTHENTICATE(auth_bytes=b"\0ann\0wrong"))
    wire.send_raw(request_frame(metadata(9, "made", create=True), 3))
    handshake, refused = await wire.answers()
    assert handshake.error_code == ErrorCode.none
    assert refused.error_code == ErrorCode.sasl_authentication_failed
    assert await wire.ended()
    assert closed.broker.streams.get("made") is None


async def test_a_request_sent_along_with_a_good_login_is_served_after_it(closed: KafkaStage) -> None:
    wire = await closed.connect()
    wire.send(_HANDSHAKE(mechanism="PLAIN"))
    wire.send(_AUTHENTICATE(auth_bytes=_GOOD))
    wire.send(metadata(9, "made", create=True))
    _, done, answer = await wire.answers()
    assert done.error_code == ErrorCode.none
    assert done.session_lifetime.total_seconds() == 10
    assert answer.topics[0].error_code == ErrorCode.none


async def test_before_login_large_requests_are_not_even_received(closed: KafkaStage) -> None:
    wire = await closed.connect()
    wire.send_raw(struct.pack(">ihhi", 1 << 20, 0, 9, 1))
    assert await wire.ended()


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\0",
        b"\0ann\0",
        b"\0\0an",
        b"ann\0an",
        b"bob\0ann\0an",
        b"\0ann\0an\0",
        b"\xff\0ann\0an",
        b"\0ann\0bo",
    ],
)
async def test_a_login_that_makes_no_sense_is_refused_and_ends_the_connection(
    closed: KafkaStage, message: bytes
) -> None:
    wire = await closed.connect()
    answer = await _said(wire, message)
    assert answer.error_code == ErrorCode.sasl_authentication_failed
    assert await wire.ended()


@pytest.mark.parametrize(
    "message",
    [
        b"n,,n=ann",
        b"p=tls,,n=ann,r=x",
        b"n,,r=x,n=ann",
        b"n,,n=a=nn,r=x",
        b"n,,n=ann,r=",
        b"n,a=bob,n=ann,r=x",
        b",",
    ],
)
async def test_a_first_scram_message_that_makes_no_sense_is_refused(
    closed: KafkaStage, message: bytes
) -> None:
    wire = await closed.connect()
    answer = await _said(wire, message, "SCRAM-SHA-256")
    assert answer.error_code == ErrorCode.sasl_authentication_failed
    assert await wire.ended()


@pytest.mark.parametrize(
    "final",
    ["", "c=biws,r=x,p=AA==", "c=biws,r={nonce},p=AA==", "c=biws,r={nonce},p=!", "c=bad,r={nonce},p=AA=="],
)
async def test_a_scram_proof_that_is_none_is_refused(closed: KafkaStage, final: str) -> None:
    wire = await closed.connect()
    first = await _said(wire, b"n,,n=ann,r=x", "SCRAM-SHA-256")
    nonce = first.auth_bytes.decode().split(",")[0][2:]
    answer = await wire.ask(_AUTHENTICATE(auth_bytes=final.format(nonce=nonce).encode()))
    assert answer.error_code == ErrorCode.sasl_authentication_failed
    assert await wire.ended()


async def test_an_unknown_user_is_given_the_same_salt_every_time_as_a_known_one_is(
    closed: KafkaStage,
) -> None:
    async def salt(user: bytes) -> str:
        answer = await _said(await closed.connect(), b"n,,n=" + user + b",r=x", "SCRAM-SHA-256")
        return str(answer.auth_bytes.decode().split(",", 1)[1])

    assert await salt(b"nobody") == await salt(b"nobody")
    assert await salt(b"ann") == await salt(b"ann")
    assert await salt(b"nobody") != await salt(b"noone")


async def test_a_login_out_of_turn_is_refused(closed: KafkaStage) -> None:
    wire = await closed.connect()
    assert (await wire.ask(_AUTHENTICATE(auth_bytes=_GOOD))).error_code == ErrorCode.illegal_sasl_state
    assert await wire.ended()
    wire = await closed.connect()
    answer = await wire.ask(_HANDSHAKE(mechanism="GSSAPI"))
    assert answer.error_code == ErrorCode.unsupported_sasl_mechanism
    assert answer.mechanisms == ("PLAIN", "SCRAM-SHA-256")
    assert await wire.ended()


async def test_a_login_where_none_is_needed_is_refused_and_harmless(kafka: KafkaStage) -> None:
    wire = await kafka.connect()
    assert (await wire.ask(_HANDSHAKE(mechanism="PLAIN"))).error_code == ErrorCode.illegal_sasl_state
    assert (await wire.ask(_AUTHENTICATE(auth_bytes=_GOOD))).error_code == ErrorCode.illegal_sasl_state
    assert (await wire.ask(metadata(9, "t"))).topics[0].error_code == ErrorCode.none


async def test_a_login_lasts_as_long_as_it_says_and_can_be_renewed(
    closed: KafkaStage, clock: ManualClock
) -> None:
    wire = await closed.connect()
    await _said(wire, _GOOD)
    clock.advance(9_000)
    assert (await _said(wire, _GOOD)).error_code == ErrorCode.none
    clock.advance(9_000)  # past the first one's end
    await wire.ask(metadata(9, "t"))
    clock.advance(1_000)
    wire.send(metadata(9, "t"))
    assert await wire.ended()


async def test_a_connection_stays_with_its_user(closed: KafkaStage) -> None:
    wire = await closed.connect()
    await _said(wire, _GOOD)
    assert (await _said(wire, b"\0bob\0bo")).error_code == ErrorCode.sasl_authentication_failed
    assert await wire.ended()


async def test_noise_before_login_harms_nobody(closed: KafkaStage) -> None:
    chance = random.Random(7)
    for _ in range(200):
        wire = await closed.connect()
        key = chance.choice([17, 36, *apis()])
        body = struct.pack(">hhih", key, chance.randrange(4), 1, -1) + chance.randbytes(chance.randrange(60))
        wire.send_raw(struct.pack(">i", len(body)) + body)
        wire.writer.write_eof()
        await wire.reader.read()
    wire = await closed.connect()
    assert (await _said(wire, _GOOD)).error_code == ErrorCode.none


def test_users_are_listed_with_a_password_or_its_hash() -> None:
    credential = hashed("ann", 2, "an:$,"[:3])
    parts = [
        base64.b64encode(part).decode()
        for part in (credential.salt, credential.stored_key, credential.server_key)
    ]
    text = "$".join(["SCRAM-SHA-512", str(credential.iterations), *parts])
    [parsed] = parse_users(f"ann:{text}")
    assert parsed == credential
    assert matches(parsed, "an:")
    assert not matches(parsed, "an")
    assert [one.mechanism for one in parse_users("ann:a:b")] == [1, 2]
    for wrong in ("ann", ":x", "ann:", "ann:SCRAM-SHA-512$1$x", "ann:SCRAM-SHA-256$4096$AA==$AA==$AA=="):
        with pytest.raises(InvalidConfig, match="--kafka-users"):
            parse_users(wrong)


def _encoded(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).decode().rstrip("=")


def _unsigned(head: dict[str, Any], **claims: Any) -> str:
    return ".".join(
        _encoded(json.dumps(part).encode()) for part in (head, {"sub": "ann", "exp": 2_000, **claims})
    )


def _rsa_files(directory: Path) -> tuple[Path, Path]:
    """A private key, and its public half as JWKS."""
    key, keys = directory / "key.pem", directory / "keys.json"
    subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)
    shown = subprocess.run(
        ["openssl", "rsa", "-in", str(key), "-noout", "-modulus"], check=True, capture_output=True, text=True
    )
    modulus = bytes.fromhex(shown.stdout.strip().partition("=")[2])
    row = {"kty": "RSA", "kid": "one", "n": _encoded(modulus), "e": _encoded(b"\1\0\1"), "use": "sig"}
    keys.write_text(json.dumps({"keys": [row, {"kty": "EC", "crv": "secp256k1"}]}))
    return key, keys


def test_a_token_is_taken_if_a_known_key_signed_it_and_only_then(tmp_path: Path) -> None:
    private, keys = _rsa_files(tmp_path)
    tokens = Tokens(read_keys(keys), issuer="us", audience="log")

    def signed(head: dict[str, Any], **claims: Any) -> str:
        unsigned = _unsigned(head, **claims)
        command = ["openssl", "dgst", "-sha256", "-sign", str(private)]
        made = subprocess.run(command, input=unsigned.encode(), check=True, capture_output=True).stdout
        return f"{unsigned}.{_encoded(made)}"

    good: dict[str, Any] = {"iss": "us", "aud": ["log", "other"]}
    token = signed({"alg": "RS256", "kid": "one"}, **good)
    assert tokens.check(token, 1_000_000) == ("ann", 2_000_000)
    wrong = {
        "expired": (token, 2_000_000),
        "not signed by": (token[:-6] + "AAAAAA", 0),
        "this is no token": ("a.b", 0),
        "is not signed": (_unsigned({"alg": "none"}, **good) + ".", 0),
        "another issuer": (signed({"alg": "RS256"}, iss="them", aud="log"), 0),
        "another audience": (signed({"alg": "RS256"}, iss="us", aud="x"), 0),
        "not valid yet": (signed({"alg": "RS256"}, **good, nbf=1_900), 0),
        "no user": (signed({"alg": "RS256"}, **good, sub=""), 0),
    }
    for reason, (text, now) in wrong.items():
        with pytest.raises(Unauthorized, match=reason):
            tokens.check(text, now)
    # The public key is no secret: it must not serve as one.
    confused = _unsigned({"alg": "HS256"}, **good)
    forged = hmac.digest(keys.read_bytes(), confused.encode(), hashlib.sha256)
    with pytest.raises(Unauthorized):
        tokens.check(f"{confused}.{_encoded(forged)}", 0)
    for other in ({"alg": "RS512"}, {"alg": "RS256", "kid": "two"}, {"alg": "ES256"}, {"alg": ""}):
        with pytest.raises(Unauthorized):
            tokens.check(signed(other, **good), 0)


def _curve_files(directory: Path, curve: str, name: str, size: int) -> tuple[Path, dict[str, str]]:
    """A private key, and its public half as a row of a JWKS."""
    private = directory / f"{name}.pem"
    command = ["openssl", "ecparam", "-name", curve, "-genkey", "-noout", "-out", str(private)]
    subprocess.run(command, check=True, capture_output=True)
    command = ["openssl", "ec", "-in", str(private), "-pubout", "-outform", "DER"]
    point = subprocess.run(command, check=True, capture_output=True).stdout[-2 * size :]
    return private, {"kty": "EC", "crv": name, "x": _encoded(point[:size]), "y": _encoded(point[size:])}


def _halves(der: bytes, size: int) -> bytes:
    """A signature as tokens have it, of one as OpenSSL writes it: a sequence of two integers."""
    at = 3 if der[1] & 0x80 else 2
    numbers = []
    for _ in range(2):
        length = der[at + 1]
        numbers.append(int.from_bytes(der[at + 2 : at + 2 + length], "big").to_bytes(size, "big"))
        at += 2 + length
    return b"".join(numbers)


@pytest.mark.parametrize(
    ("algorithm", "curve", "name", "size"),
    [
        ("ES256", "prime256v1", "P-256", 32),
        ("ES384", "secp384r1", "P-384", 48),
        ("ES512", "secp521r1", "P-521", 66),
    ],
)
def test_a_token_signed_by_a_curve_is_taken_and_no_other(
    tmp_path: Path, algorithm: str, curve: str, name: str, size: int
) -> None:
    private, row = _curve_files(tmp_path, curve, name, size)
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps({"keys": [row]}))
    tokens = Tokens(read_keys(keys))
    unsigned = _unsigned({"alg": algorithm})
    command = ["openssl", "dgst", f"-sha{algorithm[2:]}", "-sign", str(private)]
    for _ in range(3):
        made = subprocess.run(command, input=unsigned.encode(), check=True, capture_output=True).stdout
        signature = _halves(made, size)
        assert tokens.check(f"{unsigned}.{_encoded(signature)}", 0) == ("ann", 2_000_000)
    order = CURVES[name].order.to_bytes(size, "big")
    r, s = signature[:size], signature[size:]
    for forged in (
        made,
        b"",
        bytes(2 * size),
        bytes(size) + s,
        r + bytes(size),
        order + s,
        r + order,
        s + r,
        signature + b"\0",
        r + (int.from_bytes(s, "big") ^ 1).to_bytes(size, "big"),
    ):
        with pytest.raises(Unauthorized):
            tokens.check(f"{unsigned}.{_encoded(forged)}", 0)
    with pytest.raises(Unauthorized):
        tokens.check(f"{_unsigned({'alg': algorithm}, sub='bob')}.{_encoded(signature)}", 0)
    other = "ES384" if algorithm != "ES384" else "ES256"
    with pytest.raises(Unauthorized):
        tokens.check(f"{_unsigned({'alg': other})}.{_encoded(signature)}", 0)


def test_the_token_of_the_standard_is_understood() -> None:
    """RFC 7515, A.3: what others sign we take, and not only what we think is right."""
    key = Key(
        kty="EC",
        crv="P-256",
        x="f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
        y="x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0",
    )
    signed = (
        b"eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFt"
        b"cGxlLmNvbS9pc19yb290Ijp0cnVlfQ"
    )
    signature = base64.urlsafe_b64decode(
        "DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q=="
    )
    assert key.usable
    x, y = (int.from_bytes(base64.urlsafe_b64decode(part + "="), "big") for part in (key.x, key.y))
    digest = hashlib.sha256(signed).digest()
    assert CURVES["P-256"].signed((x, y), digest, signature)
    assert not CURVES["P-256"].signed((x, y), hashlib.sha256(signed + b".").digest(), signature)


def test_curves_are_groups() -> None:
    """Every number of them was typed by hand: a base of another order would show."""
    for curve in CURVES.values():
        assert curve.holds(*curve.base)
        assert not curve.holds(curve.base[0], curve.base[1] ^ 1)
        assert curve._sum(curve.order, 0, curve.base)[2] == 0
        assert curve._sum(curve.order - 1, 1, curve.base)[2] == 0
        assert curve._sum(2, 3, curve.base)[2] != 0


def test_key_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    for text in (
        "",
        "{}",
        '{"keys": []}',
        '{"keys": [{"kty": "RSA", "n": "AQAB", "e": "AQAB"}]}',
        '{"keys": [{"kty": "oct", "k": "AAAA"}]}',
        '{"keys": [{"kty": "EC", "crv": "P-256", "x": "AAAA", "y": "AAAA"}]}',
        '{"keys": [{"kty": "EC", "crv": "secp256k1", "x": "AAAA", "y": "AAAA"}]}',
    ):
        path.write_text(text)
        with pytest.raises(InvalidConfig, match="--kafka-oauth-jwks"):
            read_keys(path)
    with pytest.raises(InvalidConfig, match="cannot be read"):
        read_keys(tmp_path / "missing")


async def test_what_is_sent_along_with_a_renewal_that_fails_is_not_served(closed: KafkaStage) -> None:
    wire = await closed.connect()
    await _said(wire, _GOOD)
    await wire.ask(_HANDSHAKE(mechanism="PLAIN"))
    wire.send(_AUTHENTICATE(auth_bytes=b"\0ann\0wrong"))
    wire.send_raw(request_frame(metadata(9, "made", create=True), 9))
    [refused] = await wire.answers()
    assert refused.error_code == ErrorCode.sasl_authentication_failed
    assert await wire.ended()
    assert closed.broker.streams.get("made") is None
