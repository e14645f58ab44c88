"""JSON web tokens (RFC 7519): verify the signature and the claims of a bearer token.

The keys come from a JWKS file (RFC 7517). PyJWT and `cryptography` parse them and verify signatures. Both are slow to
import, so import this module only where OAUTHBEARER is configured.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from jwt import PyJWTError
from jwt.algorithms import get_default_algorithms

from mainstem import limits
from mainstem.errors import InvalidConfig, Unauthorized

if TYPE_CHECKING:
    from mainstem.broker.access.oidc import IssuerKeys

KAFKA_TOKEN_BYTES_MAX = 16 * limits.KIB  # of an OAuth bearer
KAFKA_TOKEN_KEYS_MAX = 100  # in a JWKS: a token without a key id is checked against each key of its algorithm
KAFKA_TOKEN_TIME_S_MAX = 253_402_300_799  # the end of the year 9999; clients that send milliseconds exceed it
KAFKA_TOKEN_CHECK_THREADS = 1  # so that a flood of tokens uses at most one core
KAFKA_TOKEN_CHECKS_WAITING_MAX = 1_024  # tokens whose signature is being checked or waits for the check
KAFKA_TOKENS_REMEMBERED = 10_000  # tokens whose signature was checked

_CLOCK_SKEW_MS = 30_000
_RSA_BITS_MIN, _RSA_BITS_MAX = 2048, 16384
_SECRET_BYTES_MIN = 32
_MALFORMED = "the token is malformed"
_UNKNOWN_KEY = "the token is not signed by a known key"

# The accepted algorithms, by type and curve of the key. No key serves an algorithm of another type.
_ALGORITHMS_OF = {
    ("RSA", ""): frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}),
    ("EC", "P-256"): frozenset({"ES256"}),
    ("EC", "P-384"): frozenset({"ES384"}),
    ("EC", "P-521"): frozenset({"ES512"}),
    ("OKP", "Ed25519"): frozenset({"EdDSA"}),
    ("OKP", "Ed448"): frozenset({"EdDSA"}),
    ("oct", ""): frozenset({"HS256", "HS384", "HS512"}),
}
_IMPLEMENTATIONS = get_default_algorithms()

_Content = TypeVar("_Content")


class Jwk(msgspec.Struct, frozen=True):
    """One key of a JWKS file: its public members, or the secret `k`. Decoding ignores all other members."""

    kty: str
    kid: str | None = None
    alg: str | None = None
    use: str | None = None
    key_ops: list[str] | None = None
    n: str = ""
    e: str = ""
    k: str = ""
    crv: str = ""
    x: str = ""
    y: str = ""

    @property
    def algorithms(self) -> frozenset[str]:
        """The algorithms whose signatures the key verifies; empty for a key that serves another purpose."""
        if self.use not in (None, "sig") or (self.key_ops is not None and "verify" not in self.key_ops):
            return frozenset()
        curve = self.crv if self.kty in ("EC", "OKP") else ""
        accepted = _ALGORITHMS_OF.get((self.kty, curve), frozenset())
        return accepted if self.alg is None else accepted & {self.alg}


class _KeySet(msgspec.Struct, frozen=True):
    keys: list[Jwk]


@dataclass(frozen=True, slots=True)
class VerificationKey:
    kid: str | None
    algorithms: frozenset[str]
    material: Any  # a public key of `cryptography`, or the bytes of a secret

    @classmethod
    def parse(cls, jwk: Jwk) -> VerificationKey:
        """Raises ValueError."""
        members = {"kty": jwk.kty, "n": jwk.n, "e": jwk.e, "k": jwk.k, "crv": jwk.crv, "x": jwk.x, "y": jwk.y}
        algorithms = jwk.algorithms
        try:
            material = _IMPLEMENTATIONS[min(algorithms)].from_jwk(members)
        except (PyJWTError, UnsupportedAlgorithm) as error:
            raise ValueError(str(error)) from None
        if isinstance(material, RSAPublicKey) and not _RSA_BITS_MIN <= material.key_size <= _RSA_BITS_MAX:
            raise ValueError(f"an RSA key needs {_RSA_BITS_MIN} to {_RSA_BITS_MAX} bits")
        if isinstance(material, bytes) and len(material) < _SECRET_BYTES_MIN:
            raise ValueError(f"an oct key needs at least {_SECRET_BYTES_MIN} bytes")
        return cls(jwk.kid, algorithms, material)

    def verifies(self, algorithm: str, signed: bytes, signature: bytes) -> bool:
        """`algorithm`: one of `algorithms`."""
        return _IMPLEMENTATIONS[algorithm].verify(signed, self.material, signature)


class _Head(msgspec.Struct, frozen=True):
    alg: str
    kid: str | None = None
    crit: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _Claims(msgspec.Struct, frozen=True):
    exp: float
    nbf: float = 0
    iat: float = 0
    iss: str | None = None
    aud: str | list[str] | None = None


class TokenVerifier:
    """Checks tokens against one key set, and remembers the signatures that it has verified.

    An empty `issuer` or `audience` accepts any. `unsecured` accepts unsigned tokens as well. `principal_claim` is the
    claim that names the user.
    """

    def __init__(
        self,
        keys: Sequence[VerificationKey],
        *,
        unsecured: bool = False,
        issuer: str = "",
        audience: str = "",
        principal_claim: str = "sub",
        issuer_keys: IssuerKeys | None = None,
    ) -> None:
        self._keys = keys
        self._issuer_keys = issuer_keys
        self._unsecured = unsecured
        self._issuer = issuer
        self._audience = audience
        self._principal_claim = principal_claim
        # Not the loop's default executor: any client that can connect can keep these threads busy.
        self._threads = ThreadPoolExecutor(KAFKA_TOKEN_CHECK_THREADS, "mainstem-tokens")
        self._waiting = 0
        # SHA-256 of tokens, least recently used first.
        self._verified: OrderedDict[bytes, None] = OrderedDict()

    async def check(self, token: str, now_ms: int) -> tuple[str, int]:
        """Return the user and when the token expires, in milliseconds since the epoch. Raises Unauthorized."""
        parts = token.split(".")
        if len(parts) != 3 or len(token) > KAFKA_TOKEN_BYTES_MAX:
            raise Unauthorized(_MALFORMED)
        head = _decoded(parts[0], _Head)
        claims = _decoded(parts[1], _Claims)
        user = self._user(parts[1])
        signature = _bytes(parts[2])
        if head.crit is not msgspec.UNSET:
            raise Unauthorized("the token has critical header parameters, and the server knows none")
        if head.alg == "none":
            if not self._unsecured or signature:
                raise Unauthorized("the token is not signed")
            return user, self._check_claims(claims, now_ms)
        digest = hashlib.sha256(token.encode()).digest()
        if digest not in self._verified:
            await self._check_signature(head, f"{parts[0]}.{parts[1]}".encode(), signature)
        expires_ms = self._check_claims(claims, now_ms)  # each time: a signature outlives its token
        self._remember(digest)
        return user, expires_ms

    async def _check_signature(self, head: _Head, signed: bytes, signature: bytes) -> None:
        keys = [key for key in self._keys if head.kid in (None, key.kid) and head.alg in key.algorithms]
        if not keys and self._issuer_keys is not None:
            keys = await self._issuer_keys.find(head.kid, head.alg)
        if not keys:
            raise Unauthorized(_UNKNOWN_KEY)
        if self._waiting >= KAFKA_TOKEN_CHECKS_WAITING_MAX:
            raise Unauthorized("too many tokens wait for their check; try again")
        self._waiting += 1
        try:
            verified = await asyncio.get_running_loop().run_in_executor(
                self._threads, _any_verifies, keys, head.alg, signed, signature
            )
        finally:
            self._waiting -= 1
        if not verified:
            raise Unauthorized(_UNKNOWN_KEY)

    def _remember(self, digest: bytes) -> None:
        self._verified[digest] = None
        self._verified.move_to_end(digest)
        if len(self._verified) > KAFKA_TOKENS_REMEMBERED:
            self._verified.popitem(last=False)

    def _user(self, part: str) -> str:
        named = _decoded(part, dict[str, msgspec.Raw]).get(self._principal_claim)
        try:
            user = msgspec.json.decode(named or b"", type=str)
        except (msgspec.DecodeError, UnicodeDecodeError):
            user = ""
        if not user or len(user) > limits.NAME_CHARS_MAX:
            raise Unauthorized(
                f"the token names no user: its claim {self._principal_claim!r} is absent or invalid"
            )
        return user

    def _check_claims(self, claims: _Claims, now_ms: int) -> int:
        """Return when the token expires, in milliseconds since the epoch."""
        for name, seconds in (("exp", claims.exp), ("nbf", claims.nbf), ("iat", claims.iat)):
            if not 0 <= seconds <= KAFKA_TOKEN_TIME_S_MAX:
                raise Unauthorized(f"the token's {name} is out of range")
        expires_ms = int(claims.exp * 1000)
        if expires_ms <= now_ms:
            raise Unauthorized("the token has expired")
        if claims.nbf * 1000 > now_ms + _CLOCK_SKEW_MS:
            raise Unauthorized("the token is not valid yet")
        if self._issuer and claims.iss != self._issuer:
            raise Unauthorized("the token comes from another issuer")
        audiences = [claims.aud] if isinstance(claims.aud, str) else claims.aud or []
        if self._audience and self._audience not in audiences:
            raise Unauthorized("the token is for another audience")
        return expires_ms


def read_keys(path: Path) -> list[VerificationKey]:
    """Read the keys that verify signatures. Raises InvalidConfig."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InvalidConfig(f"--kafka-oauth-jwks {path} cannot be read: {error}") from None
    return parse_key_set(content, f"--kafka-oauth-jwks {path}")


def parse_key_set(content: bytes, source: str) -> list[VerificationKey]:
    """The keys of a JWKS that verify signatures. Raises InvalidConfig."""
    try:
        listed = msgspec.json.decode(content, type=_KeySet).keys
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidConfig(f"{source} cannot be read: {error}") from None
    usable = [jwk for jwk in listed if jwk.algorithms]
    if not usable:
        raise InvalidConfig(f"{source} has no key that verifies signatures: RSA, EC, OKP or oct")
    if len(usable) > KAFKA_TOKEN_KEYS_MAX:
        raise InvalidConfig(f"{source} has more than {KAFKA_TOKEN_KEYS_MAX} keys")
    keys: list[VerificationKey] = []
    for number, jwk in enumerate(usable, 1):
        if jwk.kid is not None and any(key.kid == jwk.kid for key in keys):
            raise InvalidConfig(f"{source}: two keys have the kid {jwk.kid!r}")
        try:
            keys.append(VerificationKey.parse(jwk))
        except ValueError as error:
            name = f"key {number}" if jwk.kid is None else f"key {jwk.kid!r}"
            raise InvalidConfig(f"{source}: {name} is invalid: {error}") from None
    return keys


def _any_verifies(keys: Sequence[VerificationKey], algorithm: str, signed: bytes, signature: bytes) -> bool:
    return any(key.verifies(algorithm, signed, signature) for key in keys)


def _decoded(part: str, kind: type[_Content]) -> _Content:
    try:
        return msgspec.json.decode(_bytes(part), type=kind)
    except (
        msgspec.DecodeError,
        UnicodeDecodeError,
        RecursionError,
    ):  # RecursionError: deeply nested brackets
        raise Unauthorized(_MALFORMED) from None


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars="-_", validate=True)
    except (binascii.Error, ValueError):
        raise Unauthorized(_MALFORMED) from None
