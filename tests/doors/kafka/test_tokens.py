"""Bearer tokens: which are accepted, which are refused, and what checking them costs others."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from hypothesis import given, settings
from hypothesis import strategies as st
from jwt.algorithms import get_default_algorithms
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode

from mainstem.broker.access.options import AccessOptions, access_options
from mainstem.broker.access.passwords import parse_users
from mainstem.broker.access.tokens import (
    KAFKA_TOKEN_BYTES_MAX,
    KAFKA_TOKEN_CHECK_THREADS,
    KAFKA_TOKEN_KEYS_MAX,
    KAFKA_TOKEN_TIME_S_MAX,
    Jwk,
    TokenVerifier,
    VerificationKey,
    read_keys,
)
from mainstem.broker.broker import Broker
from mainstem.config import Config
from mainstem.doors.kafka.security.options import KafkaSecurity
from mainstem.errors import InvalidConfig, Unauthorized
from tests.support.clock import ManualClock

from .conftest import KafkaStage, opened
from .wire import Wire

_HANDSHAKE = load_request_schema(17, 1)
_AUTHENTICATE = load_request_schema(36, 2)
_API_VERSIONS = load_request_schema(18, 0)
_ALGORITHMS = get_default_algorithms()
_CURVES = {"P-256": ec.SECP256R1(), "P-384": ec.SECP384R1(), "P-521": ec.SECP521R1()}
_GOOD = {"sub": "ann", "exp": 2_000}
_RSA = rsa.generate_private_key(65537, 2048)
_EC = {name: ec.generate_private_key(curve) for name, curve in _CURVES.items()}
_ED25519, _ED448 = ed25519.Ed25519PrivateKey.generate(), ed448.Ed448PrivateKey.generate()
_SECRET = bytes(range(64))
_SIGNERS: dict[str, Any] = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), _RSA),
    "ES256": _EC["P-256"],
    "ES384": _EC["P-384"],
    "ES512": _EC["P-521"],
    "EdDSA": _ED25519,
    **dict.fromkeys(("HS256", "HS384", "HS512"), _SECRET),
}


def _encoded(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).decode().rstrip("=")


def _unsigned(head: dict[str, Any], **claims: Any) -> str:
    return ".".join(
        _encoded(json.dumps(part).encode()) for part in (head, {"sub": "ann", "exp": 2_000, **claims})
    )


def _signed(algorithm: str, claims: object = None, *, key: Any = None, **head: Any) -> str:
    """`claims`: as an object, or as the bytes of a payload that need not be JSON."""
    payload = claims if isinstance(claims, bytes) else json.dumps(claims or _GOOD).encode()
    unsigned = f"{_encoded(json.dumps({'alg': algorithm, **head}).encode())}.{_encoded(payload)}"
    signature = _ALGORITHMS[algorithm].sign(unsigned.encode(), key or _SIGNERS[algorithm])
    return f"{unsigned}.{_encoded(signature)}"


def _public(private: Any, **members: Any) -> dict[str, Any]:
    """A row of a JWKS."""
    if isinstance(private, bytes):
        return {"kty": "oct", "k": _encoded(private), **members}
    public = private.public_key()
    family = {"RSA": "RS256", "EC": "ES256", "Ed": "EdDSA"}
    [name] = [
        name for start, name in family.items() if type(public).__name__.startswith((start, "E" + start))
    ]
    return {**_ALGORITHMS[name].to_jwk(public, as_dict=True), "key_ops": ["verify"], **members}


def _keys(directory: Path, *rows: dict[str, Any]) -> list[VerificationKey]:
    path = directory / "keys.json"
    path.write_text(json.dumps({"keys": rows}))
    return read_keys(path)


@pytest.fixture(scope="module")
def every_key(tmp_path_factory: pytest.TempPathFactory) -> list[VerificationKey]:
    private = (_RSA, *_EC.values(), _ED25519, _ED448, _SECRET)
    return _keys(tmp_path_factory.mktemp("keys"), *map(_public, private))


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


def _signed_by_openssl(private: Path, bits: str, unsigned: str) -> bytes:
    command = ["openssl", "dgst", f"-sha{bits}", "-sign", str(private)]
    return subprocess.run(command, input=unsigned.encode(), check=True, capture_output=True).stdout


async def test_a_token_is_accepted_if_a_known_key_signed_it_and_only_then(tmp_path: Path) -> None:
    private, keys = _rsa_files(tmp_path)
    tokens = TokenVerifier(read_keys(keys), issuer="us", audience="log")

    def signed(head: dict[str, Any], **claims: Any) -> str:
        unsigned = _unsigned(head, **claims)
        return f"{unsigned}.{_encoded(_signed_by_openssl(private, '256', unsigned))}"

    good: dict[str, Any] = {"iss": "us", "aud": ["log", "other"]}
    token = signed({"alg": "RS256", "kid": "one"}, **good)
    assert await tokens.check(token, 1_000_000) == ("ann", 2_000_000)
    wrong = {
        "expired": (token, 2_000_000),
        "not signed by": (token[:-6] + "AAAAAA", 0),
        "malformed": ("a.b", 0),
        "is not signed": (_unsigned({"alg": "none"}, **good) + ".", 0),
        "another issuer": (signed({"alg": "RS256"}, iss="them", aud="log"), 0),
        "another audience": (signed({"alg": "RS256"}, iss="us", aud="x"), 0),
        "not valid yet": (signed({"alg": "RS256"}, **good, nbf=1_900), 0),
        "no user": (signed({"alg": "RS256"}, **good, sub=""), 0),
    }
    for reason, (text, now) in wrong.items():
        with pytest.raises(Unauthorized, match=reason):
            await tokens.check(text, now)
    # The public key is not secret: it must not verify an HMAC.
    confused = _unsigned({"alg": "HS256"}, **good)
    forged = hmac.digest(keys.read_bytes(), confused.encode(), hashlib.sha256)
    with pytest.raises(Unauthorized):
        await tokens.check(f"{confused}.{_encoded(forged)}", 0)
    for other in ({"alg": "RS512"}, {"alg": "RS256", "kid": "two"}, {"alg": "ES256"}, {"alg": ""}):
        with pytest.raises(Unauthorized):
            await tokens.check(signed(other, **good), 0)


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
async def test_a_token_signed_by_a_curve_is_accepted_and_no_other(
    tmp_path: Path, algorithm: str, curve: str, name: str, size: int
) -> None:
    private, row = _curve_files(tmp_path, curve, name, size)
    tokens = TokenVerifier(_keys(tmp_path, row))
    unsigned = _unsigned({"alg": algorithm})
    for _ in range(3):
        made = _signed_by_openssl(private, algorithm[2:], unsigned)
        signature = _halves(made, size)
        assert await tokens.check(f"{unsigned}.{_encoded(signature)}", 0) == ("ann", 2_000_000)
    order = _CURVES[name].group_order.to_bytes(size, "big")
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
            await tokens.check(f"{unsigned}.{_encoded(forged)}", 0)
    with pytest.raises(Unauthorized):
        await tokens.check(f"{_unsigned({'alg': algorithm}, sub='bob')}.{_encoded(signature)}", 0)
    other = "ES384" if algorithm != "ES384" else "ES256"
    with pytest.raises(Unauthorized):
        await tokens.check(f"{_unsigned({'alg': other})}.{_encoded(signature)}", 0)


def test_the_token_of_the_standard_is_understood() -> None:
    """RFC 7515, A.3: a signature that others made."""
    jwk = Jwk(
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
    assert jwk.algorithms == {"ES256"}
    key = VerificationKey.parse(jwk)
    assert key.verifies("ES256", signed, signature)
    assert not key.verifies("ES256", signed + b".", signature)


def test_key_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    off_curve = _public(_EC["P-256"])
    off_curve["y"] = off_curve["y"][:-2] + ("AA" if off_curve["y"][-2:] != "AA" else "BA")
    for text in (
        "",
        "{}",
        '{"keys": []}',
        '{"keys": [{"kty": "RSA", "n": "AQAB", "e": "AQAB"}]}',
        '{"keys": [{"kty": "RSA"}]}',
        '{"keys": [{"kty": "oct", "k": "AAAA"}]}',
        '{"keys": [{"kty": "oct"}]}',
        '{"keys": [{"kty": "EC", "crv": "P-256", "x": "AAAA", "y": "AAAA"}]}',
        '{"keys": [{"kty": "EC", "crv": "secp256k1", "x": "AAAA", "y": "AAAA"}]}',
        '{"keys": [{"kty": "OKP", "crv": "Ed25519", "x": "AAAA"}]}',
        '{"keys": [{"kty": "OKP", "crv": "X25519", "x": "AAAA"}]}',
        '{"keys": ' + "[" * 100_000,
        json.dumps({"keys": [off_curve]}),
        json.dumps({"keys": [_public(_RSA, use="enc")]}),
        json.dumps({"keys": [_public(_RSA, key_ops=["encrypt"])]}),
        json.dumps({"keys": [_public(_RSA, alg="RSA-OAEP")]}),
        json.dumps({"keys": [_public(_EC["P-256"], alg="ES384")]}),
        json.dumps({"keys": [_public(_SECRET)] * (KAFKA_TOKEN_KEYS_MAX + 1)}),
    ):
        path.write_text(text)
        with pytest.raises(InvalidConfig, match="--kafka-oauth-jwks"):
            read_keys(path)
    with pytest.raises(InvalidConfig, match="cannot be read"):
        read_keys(tmp_path / "missing")


@pytest.mark.parametrize("algorithm", _SIGNERS)
async def test_every_algorithm_is_verified(every_key: list[VerificationKey], algorithm: str) -> None:
    tokens = TokenVerifier(every_key)
    token = _signed(algorithm)
    assert await tokens.check(token, 0) == ("ann", 2_000_000)
    start, _, signature = token.rpartition(".")
    _, _, other = _signed(algorithm, {**_GOOD, "sub": "bob"}).rpartition(".")
    for forged in (f"{start}.{other}", f"{start}.", f"{start}.{signature[:-8]}"):
        with pytest.raises(Unauthorized, match="not signed by"):
            await tokens.check(forged, 0)


async def test_ed448_is_verified(every_key: list[VerificationKey]) -> None:
    assert await TokenVerifier(every_key).check(_signed("EdDSA", key=_ED448), 0) == ("ann", 2_000_000)


@pytest.mark.parametrize("algorithm", ["ES256K", "ES521", "HS1", "none ", "None", "RS256 ", "", "dir"])
async def test_an_algorithm_that_is_not_listed_is_refused(
    every_key: list[VerificationKey], algorithm: str
) -> None:
    with pytest.raises(Unauthorized, match="not signed by"):
        await TokenVerifier(every_key, unsecured=True).check(f"{_unsigned({'alg': algorithm})}.AAAA", 0)


async def test_a_key_serves_no_algorithm_of_another_type(tmp_path: Path) -> None:
    """Of all keys and algorithms, only those verify that belong together."""
    for private, algorithms in (
        (_RSA, {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}),
        (_EC["P-256"], {"ES256"}),
        (_EC["P-384"], {"ES384"}),
        (_EC["P-521"], {"ES512"}),
        (_ED25519, {"EdDSA"}),
        (_SECRET, {"HS256", "HS384", "HS512"}),
    ):
        tokens = TokenVerifier(_keys(tmp_path, _public(private)))
        for algorithm in _SIGNERS:
            if algorithm in algorithms:
                assert await tokens.check(_signed(algorithm), 0) == ("ann", 2_000_000)
            else:
                with pytest.raises(Unauthorized, match="not signed by"):
                    await tokens.check(_signed(algorithm), 0)


async def test_a_key_that_names_its_algorithm_serves_no_other(tmp_path: Path) -> None:
    tokens = TokenVerifier(_keys(tmp_path, _public(_RSA, alg="PS256")))
    assert await tokens.check(_signed("PS256"), 0) == ("ann", 2_000_000)
    with pytest.raises(Unauthorized, match="not signed by"):
        await tokens.check(_signed("RS256"), 0)


async def test_a_key_id_selects_the_key(tmp_path: Path) -> None:
    other = rsa.generate_private_key(65537, 2048)
    tokens = TokenVerifier(_keys(tmp_path, _public(_RSA, kid="a"), _public(other, kid="b"), _public(_SECRET)))
    assert await tokens.check(_signed("RS256", kid="a"), 0)
    assert await tokens.check(_signed("RS256", key=other, kid="b"), 0)
    assert await tokens.check(_signed("RS256", key=other), 0)  # every key is tried
    for kid in ("b", "c", ""):
        with pytest.raises(Unauthorized, match="not signed by"):
            await tokens.check(_signed("RS256", kid=kid), 0)
    with pytest.raises(Unauthorized, match="not signed by"):
        await tokens.check(_signed("HS256", kid="a"), 0)
    for kid in (1, ["a"], {"a": 1}, True):
        with pytest.raises(Unauthorized, match="malformed"):
            await tokens.check(_signed("RS256", kid=kid), 0)


def test_two_keys_of_one_id_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="two keys have the kid 'a'"):
        _keys(tmp_path, _public(_RSA, kid="a"), _public(_SECRET, kid="a"))
    # A key of the same name that verifies nothing is not in the way; keys without names do not collide.
    assert len(_keys(tmp_path, _public(_RSA, kid="a"), _public(_SECRET, kid="a", use="enc"))) == 1
    assert len(_keys(tmp_path, _public(_RSA), _public(_SECRET))) == 2


@pytest.mark.parametrize("crit", [["exp"], ["b64"], [], None, "exp", 1])
async def test_a_critical_header_is_refused(every_key: list[VerificationKey], crit: object) -> None:
    with pytest.raises(Unauthorized, match="critical header"):
        await TokenVerifier(every_key).check(_signed("ES256", crit=crit), 0)
    with pytest.raises(Unauthorized, match="critical header"):
        await TokenVerifier([], unsecured=True).check(_unsigned({"alg": "none", "crit": crit}) + ".", 0)


_ABSURD = (
    *("1e300", "1e400", "-1e400", "9" * 400, "-1", "-0.001", "9223372036854775807", "253402300800"),
    *("NaN", "Infinity", "-Infinity", '"2000"', "true", "false", "[2000]", '{"a": 1}', "0x10", ""),
)


@pytest.mark.parametrize("claim", ["exp", "nbf", "iat"])
@pytest.mark.parametrize("text", _ABSURD)
async def test_an_absurd_time_is_refused(every_key: list[VerificationKey], claim: str, text: str) -> None:
    rest = '"sub": "ann"' if claim == "exp" else '"sub": "ann", "exp": 2000'
    with pytest.raises(Unauthorized, match=r"malformed|out of range"):
        await TokenVerifier(every_key).check(_signed("HS256", f'{{{rest}, "{claim}": {text}}}'.encode()), 0)


async def test_times_within_bounds_are_accepted(every_key: list[VerificationKey]) -> None:
    tokens = TokenVerifier(every_key)
    end = KAFKA_TOKEN_TIME_S_MAX
    assert await tokens.check(_signed("HS256", {"sub": "ann", "exp": end}), 0) == ("ann", 1000 * end)
    fraction = {"sub": "ann", "exp": 2000.5, "nbf": 0.5, "iat": 1.25}
    assert await tokens.check(_signed("HS256", fraction), 0) == ("ann", 2_000_500)
    for claims in ({"sub": "ann"}, {"sub": "ann", "exp": None}):
        with pytest.raises(Unauthorized, match="malformed"):
            await tokens.check(_signed("HS256", claims), 0)
    with pytest.raises(Unauthorized, match="names no user"):
        await tokens.check(_signed("HS256", {"exp": 2_000}), 0)


@pytest.mark.parametrize("part", [b"[" * 11_000, b'{"x": ' + b"[" * 11_000, b'{"sub": ' + b'{"a":' * 2_200])
async def test_deep_nesting_is_refused(every_key: list[VerificationKey], part: bytes) -> None:
    tokens = TokenVerifier(every_key)
    for token in (_signed("HS256", part), f"{_encoded(part)}.e30.AAAA"):
        assert len(token) <= KAFKA_TOKEN_BYTES_MAX
        with pytest.raises(Unauthorized, match="malformed"):
            await tokens.check(token, 0)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
_TIMES = st.integers() | st.floats() | st.booleans() | st.sampled_from([2_000, 1e300, -1e300, "1"]) | _JSON
_HEADS = st.fixed_dictionaries(
    {"alg": st.sampled_from([*_SIGNERS, "none"]) | _JSON},
    optional={"kid": _JSON, "crit": _JSON, "b64": _JSON, "typ": _JSON, "jwk": _JSON},
)
_CLAIMS = st.fixed_dictionaries(
    {"sub": st.text(max_size=5) | _JSON, "exp": _TIMES},
    optional={"nbf": _TIMES, "iat": _TIMES, "iss": _JSON, "aud": _JSON, "x": _JSON},
)


@settings(deadline=None, max_examples=300)
@given(
    head=_HEADS | _JSON, claims=_CLAIMS | _JSON, noise=st.none() | st.binary(max_size=140), now=st.integers(0)
)
def test_random_tokens_raise_nothing_but_the_refusal(
    every_key: list[VerificationKey], head: Any, claims: Any, noise: bytes | None, now: int
) -> None:
    unsigned = f"{_encoded(json.dumps(head).encode())}.{_encoded(json.dumps(claims).encode())}"
    if noise is None:  # properly signed, if there is such an algorithm
        name = head.get("alg") if isinstance(head, dict) else None
        known = isinstance(name, str) and name in _SIGNERS
        noise = _ALGORITHMS[name].sign(unsigned.encode(), _SIGNERS[name]) if known else b""
    tokens = TokenVerifier(every_key, unsecured=True)
    try:
        user, expires_ms = asyncio.run(tokens.check(f"{unsigned}.{_encoded(noise)}", now))
    except Unauthorized:
        return
    assert user == claims["sub"]
    assert now < expires_ms <= 1000 * KAFKA_TOKEN_TIME_S_MAX
    assert "crit" not in head


@settings(deadline=None)
@given(st.text() | st.lists(st.text("abcAB01-_=+/é ", max_size=8), min_size=3, max_size=3).map(".".join))
def test_random_text_is_refused(token: str) -> None:
    with pytest.raises(Unauthorized):
        asyncio.run(TokenVerifier([], unsecured=True).check(token, 0))


async def test_unsigned_tokens_need_the_flag_and_no_signature(every_key: list[VerificationKey]) -> None:
    unsigned = _unsigned({"alg": "none"})
    assert await TokenVerifier(every_key, unsecured=True).check(f"{unsigned}.", 0) == ("ann", 2_000_000)
    for tokens, token in (
        (TokenVerifier(every_key), f"{unsigned}."),
        (TokenVerifier([], unsecured=True), f"{unsigned}.AAAA"),
    ):
        with pytest.raises(Unauthorized, match="is not signed"):
            await tokens.check(token, 0)


class _CountedKey:
    """Counts checks."""

    def __init__(self, key: VerificationKey) -> None:
        self.kid, self.algorithms, self._key = key.kid, key.algorithms, key
        self.checked = 0

    def verifies(self, algorithm: str, signed: bytes, signature: bytes) -> bool:
        self.checked += 1
        return self._key.verifies(algorithm, signed, signature)


async def test_a_signature_is_verified_once_and_the_claims_every_time(tmp_path: Path) -> None:
    key: Any = _CountedKey(_keys(tmp_path, _public(_EC["P-521"]))[0])
    tokens = TokenVerifier([key])
    token = _signed("ES512", {**_GOOD, "nbf": 1_000})
    for _ in range(3):
        assert await tokens.check(token, 1_000_000) == ("ann", 2_000_000)
    assert key.checked == 1
    with pytest.raises(Unauthorized, match="expired"):
        await tokens.check(token, 2_000_000)
    with pytest.raises(Unauthorized, match="not valid yet"):
        await tokens.check(token, 0)
    assert key.checked == 1
    # A refusal is not remembered, nor is one token taken for another of the same claims.
    forged = token[:-8] + "AAAAAAAA"
    for _ in range(2):
        with pytest.raises(Unauthorized, match="not signed by"):
            await tokens.check(forged, 1_000_000)
    assert key.checked == 3


async def test_other_keys_do_not_inherit_what_was_verified(tmp_path: Path) -> None:
    token = _signed("ES256")
    await TokenVerifier(_keys(tmp_path, _public(_EC["P-256"]))).check(token, 0)
    replaced = TokenVerifier(_keys(tmp_path, _public(ec.generate_private_key(ec.SECP256R1()))))
    with pytest.raises(Unauthorized, match="not signed by"):
        await replaced.check(token, 0)


async def test_the_memory_of_tokens_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mainstem.broker.access.tokens.KAFKA_TOKENS_REMEMBERED", 2)
    key: Any = _CountedKey(_keys(tmp_path, _public(_SECRET))[0])
    tokens = TokenVerifier([key])
    one, two, three = (_signed("HS256", {**_GOOD, "sub": name}) for name in ("one", "two", "three"))
    for token in (one, two, one, three, one):  # two was used least recently
        await tokens.check(token, 0)
    assert key.checked == 3
    await tokens.check(two, 0)
    assert key.checked == 4


class _StuckKey:
    """Every check waits until the test opens it."""

    kid = None
    algorithms = frozenset({"ES512"})

    def __init__(self) -> None:
        self.open = threading.Event()
        self._lock = threading.Lock()
        self.running = self.most = 0
        self.started = threading.Semaphore(0)
        self.threads: set[int] = set()

    def verifies(self, algorithm: str, signed: bytes, signature: bytes) -> bool:
        with self._lock:
            self.running += 1
            self.most = max(self.most, self.running)
            self.threads.add(threading.get_ident())
        self.started.release()
        opened_in_time = self.open.wait(60)
        with self._lock:
            self.running -= 1
        return opened_in_time


@asynccontextmanager
async def _oauth_stage(
    broker: Broker, tokens: TokenVerifier, clock: ManualClock
) -> AsyncIterator[KafkaStage]:
    security = KafkaSecurity(mechanisms=("PLAIN", "OAUTHBEARER"))
    access = AccessOptions(users=tuple(parse_users("ann:an")), tokens=tokens, logins=True, rules="off")
    async with opened(broker, security=security, access=access, clock=clock) as stage:
        yield stage


def _bearer(token: str) -> bytes:
    return f"n,,\1auth=Bearer {token}\1\1".encode()


async def _begin(stage: KafkaStage, mechanism: str = "OAUTHBEARER") -> Wire:
    wire = await stage.connect()
    assert (await wire.ask(_HANDSHAKE(mechanism=mechanism))).error_code == ErrorCode.none
    return wire


async def test_token_checks_never_hold_up_the_loop_or_other_logins(broker: Broker) -> None:
    """While all checks are stuck, the loop serves others, and logins by password find a thread."""
    key: Any = _StuckKey()
    clock = ManualClock(0)
    async with _oauth_stage(broker, TokenVerifier([key]), clock) as stage:
        flood = [await _begin(stage) for _ in range(40)]
        for number, wire in enumerate(flood):
            wire.send(_AUTHENTICATE(auth_bytes=_bearer(_signed("ES512", {**_GOOD, "n": number}))))
        for _ in range(KAFKA_TOKEN_CHECK_THREADS):
            assert await asyncio.to_thread(key.started.acquire, timeout=60)
        other = await _begin(stage, "PLAIN")
        assert (await other.ask(_API_VERSIONS())).error_code == ErrorCode.none
        assert (await other.ask(_AUTHENTICATE(auth_bytes=b"\0ann\0an"))).error_code == ErrorCode.none
        assert not key.open.is_set()
        assert key.running == KAFKA_TOKEN_CHECK_THREADS
        key.open.set()
        for wire in flood:
            [answer] = await wire.answers()
            assert answer.error_code == ErrorCode.none
        assert key.most == KAFKA_TOKEN_CHECK_THREADS
        assert threading.get_ident() not in key.threads


async def test_tokens_beyond_what_may_wait_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mainstem.broker.access.tokens.KAFKA_TOKEN_CHECKS_WAITING_MAX", 3)
    key: Any = _StuckKey()
    tokens = TokenVerifier([key])
    waiting = [
        asyncio.create_task(tokens.check(_signed("ES512", {**_GOOD, "n": number}), 0)) for number in range(3)
    ]
    assert await asyncio.to_thread(key.started.acquire, timeout=60)
    await asyncio.sleep(0)  # every task has begun
    late = _signed("ES512", {**_GOOD, "n": "late"})
    with pytest.raises(Unauthorized, match="try again"):
        await tokens.check(late, 0)
    key.open.set()
    assert await asyncio.gather(*waiting) == [("ann", 2_000_000)] * 3
    assert await tokens.check(late, 0) == ("ann", 2_000_000)


async def test_a_refused_token_gets_an_answer(broker: Broker, every_key: list[VerificationKey]) -> None:
    """A client reads why its login failed; the connection does not just end."""
    clock = ManualClock(0)
    async with _oauth_stage(broker, TokenVerifier(every_key), clock) as stage:
        for token in (
            _signed("ES256", b'{"sub": "ann", "exp": 1e300}'),
            _signed("ES256", b'{"sub": "ann", "exp": 1e400}'),
            _signed("ES256", b'{"sub": "ann", "exp": 2000, "nbf": true}'),
            _signed("ES256", b'{"sub": "ann", "exp": 2000, "x": ' + b"[" * 11_000),
            _signed("ES256", crit=["x"]),
            _unsigned({"alg": "none"}) + ".",
            "",
        ):
            wire = await _begin(stage)
            answer = await wire.ask(_AUTHENTICATE(auth_bytes=_bearer(token)))
            assert answer.error_code == ErrorCode.sasl_authentication_failed
            assert answer.error_message.startswith("authentication failed: ")
            assert await wire.ended()
        end = KAFKA_TOKEN_TIME_S_MAX
        wire = await _begin(stage)
        answer = await wire.ask(
            _AUTHENTICATE(auth_bytes=_bearer(_signed("ES256", {"sub": "ann", "exp": end})))
        )
        assert answer.error_code == ErrorCode.none
        assert answer.session_lifetime.total_seconds() == end


def test_a_server_with_keys_needs_an_issuer_and_an_audience(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_text(json.dumps({"keys": [_public(_RSA)]}))

    def security(**given: Any) -> AccessOptions:
        return access_options(Config(kafka_sasl="oauthbearer", **given))

    with pytest.raises(InvalidConfig, match="needs --kafka-oauth-jwks"):
        security(kafka_oauth_issuer="us", kafka_oauth_audience="log")
    with pytest.raises(InvalidConfig, match="needs --kafka-oauth-issuer"):
        security(kafka_oauth_jwks=path, kafka_oauth_audience="log")
    with pytest.raises(InvalidConfig, match="needs --kafka-oauth-audience"):
        security(kafka_oauth_jwks=path, kafka_oauth_issuer="us", kafka_oauth_unsecured=True)
    assert security(kafka_oauth_unsecured=True).tokens is not None


async def test_any_waives_the_issuer_or_the_audience(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_text(json.dumps({"keys": [_public(_RSA)]}))

    async def refusal(issuer: str, audience: str, **claims: str) -> str | None:
        tokens = access_options(
            Config(
                kafka_sasl="oauthbearer",
                kafka_oauth_jwks=path,
                kafka_oauth_issuer=issuer,
                kafka_oauth_audience=audience,
            )
        ).tokens
        assert tokens is not None
        try:
            await tokens.check(jwt.encode({**_GOOD, **claims}, _RSA, "RS256"), 0)
        except Unauthorized as error:
            return str(error)
        return None

    assert await refusal("us", "log", iss="us", aud="log") is None
    assert await refusal("any", "log", aud="log") is None
    assert await refusal("us", "any", iss="us") is None
    assert await refusal("any", "any") is None
    assert await refusal("us", "log", aud="log") == "the token comes from another issuer"
    assert await refusal("us", "log", iss="us") == "the token is for another audience"
    assert await refusal("us", "log", iss="any", aud="log") == "the token comes from another issuer"
    assert await refusal("any", "log", aud="any") == "the token is for another audience"


def test_only_servers_that_check_tokens_import_the_libraries() -> None:
    script = (
        "import sys, mainstem.server, mainstem.cli.main\n"
        "from mainstem.config import Config\n"
        "from mainstem.broker.access.options import access_options\n"
        "access_options(Config(kafka_sasl='plain,scram-sha-256', kafka_users='ann:an'))\n"
        "assert not {'jwt', 'cryptography'} & set(sys.modules), 'imported'\n"
        "access_options(Config(kafka_sasl='oauthbearer', kafka_oauth_unsecured=True))\n"
        "assert {'jwt', 'cryptography'} <= set(sys.modules), 'not imported'\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
