"""JSON web tokens (RFC 7519): whose they are, if they are signed by a key we were given.

Keys come from a JWKS file. RS256, RS384, RS512, ES256, ES384, ES512 and HS256, HS384, HS512 are understood.
Checking an RSA signature (RFC 8017, 8.2.2) needs no secret, so plain arithmetic does: the padded hash is built anew
and compared as a whole, which leaves nothing of the padding to be parsed. For elliptic curves see curves.py.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from pathlib import Path

import msgspec

from mainstem import limits
from mainstem.doors.kafka.security.curves import CURVES
from mainstem.errors import InvalidConfig, Unauthorized

_CLOCK_SKEW_MS = 30_000
_RSA_BITS_MIN, _RSA_BITS_MAX = 2048, 16384
# What stands before the hash in a signature: DER of the hash's name (RFC 8017, 9.2, note 1).
_DER = {
    "256": bytes.fromhex("3031300d060960864801650304020105000420"),
    "384": bytes.fromhex("3041300d060960864801650304020205000430"),
    "512": bytes.fromhex("3051300d060960864801650304020305000440"),
}
_CURVE_OF = {"256": "P-256", "384": "P-384", "512": "P-521"}  # RFC 7518, 3.4: a hash goes with one curve


class Key(msgspec.Struct, frozen=True):
    """One key of a JWKS file; what it does not need is passed over."""

    kty: str
    kid: str | None = None
    alg: str | None = None
    n: str = ""
    e: str = ""
    k: str = ""
    crv: str = ""
    x: str = ""
    y: str = ""

    @property
    def usable(self) -> bool:
        return self.kty in ("RSA", "oct") or (self.kty == "EC" and self.crv in CURVES)


class _KeySet(msgspec.Struct, frozen=True):
    keys: list[Key]


class _Head(msgspec.Struct, frozen=True):
    alg: str
    kid: str | None = None


class _Claims(msgspec.Struct, frozen=True):
    sub: str
    exp: float
    nbf: float = 0
    iss: str | None = None
    aud: str | list[str] | None = None


class Tokens:
    """`unsecured`: tokens that nobody signed are taken too, for development."""

    def __init__(
        self, keys: list[Key], *, unsecured: bool = False, issuer: str = "", audience: str = ""
    ) -> None:
        self._keys = keys
        self._unsecured = unsecured
        self._issuer = issuer
        self._audience = audience

    def check(self, token: str, now_ms: int) -> tuple[str, int]:
        """Whose token it is, and until when. Raises Unauthorized."""
        parts = token.split(".")
        if len(parts) != 3 or len(token) > limits.KAFKA_TOKEN_BYTES_MAX:
            raise Unauthorized("this is no token")
        try:
            head = msgspec.json.decode(_bytes(parts[0]), type=_Head)
            claims = msgspec.json.decode(_bytes(parts[1]), type=_Claims)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise Unauthorized("this is no token") from None
        self._check_signature(head, f"{parts[0]}.{parts[1]}".encode(), _bytes(parts[2]))
        return claims.sub, self._check_claims(claims, now_ms)

    def _check_signature(self, head: _Head, signed: bytes, signature: bytes) -> None:
        if head.alg == "none":
            if not self._unsecured or signature:
                raise Unauthorized("the token is not signed")
            return
        keys = [key for key in self._keys if head.kid in (None, key.kid) and key.alg in (None, head.alg)]
        if not any(_signed_by(key, head.alg, signed, signature) for key in keys):
            raise Unauthorized("the token is not signed by a key that is known here")

    def _check_claims(self, claims: _Claims, now_ms: int) -> int:
        """When it expires. The numbers are a client's: they may be anything, infinity too."""
        if not claims.sub or len(claims.sub) > limits.NAME_CHARS_MAX:
            raise Unauthorized("the token names no user")
        expires_s = min(claims.exp, float(limits.OFFSET_MAX // 2000))
        if not expires_s * 1000 > now_ms:
            raise Unauthorized("the token has expired")
        if claims.nbf * 1000 > now_ms + _CLOCK_SKEW_MS:
            raise Unauthorized("the token is not valid yet")
        if self._issuer and claims.iss != self._issuer:
            raise Unauthorized("the token is of another issuer")
        audiences = [claims.aud] if isinstance(claims.aud, str) else claims.aud or []
        if self._audience and self._audience not in audiences:
            raise Unauthorized("the token is for another audience")
        return int(expires_s * 1000)


def read_keys(path: Path) -> list[Key]:
    """Raises InvalidConfig."""
    try:
        keys = msgspec.json.decode(path.read_bytes(), type=_KeySet).keys
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as wrong:
        raise InvalidConfig(f"--kafka-oauth-jwks {path} cannot be read: {wrong}") from None
    usable = [key for key in keys if key.usable]
    if not usable:
        raise InvalidConfig(f"--kafka-oauth-jwks {path} holds no RSA, EC or oct key")
    for key in usable:
        if key.kty == "RSA" and not _RSA_BITS_MIN <= _number(key.n).bit_length() <= _RSA_BITS_MAX:
            raise InvalidConfig(
                f"--kafka-oauth-jwks {path}: an RSA key has {_RSA_BITS_MIN} to {_RSA_BITS_MAX} bits"
            )
        if key.kty == "oct" and len(_bytes(key.k)) < 32:
            raise InvalidConfig(f"--kafka-oauth-jwks {path}: an oct key has at least 32 bytes")
        if key.kty == "EC" and not CURVES[key.crv].holds(_number(key.x), _number(key.y)):
            raise InvalidConfig(f"--kafka-oauth-jwks {path}: an EC key is no point of {key.crv}")
    return usable


def _signed_by(key: Key, algorithm: str, signed: bytes, signature: bytes) -> bool:
    kind, bits = algorithm[:2], algorithm[2:]
    if bits not in _DER:
        return False
    if kind == "HS" and key.kty == "oct":
        return hmac.compare_digest(hmac.digest(_bytes(key.k), signed, f"sha{bits}"), signature)
    if kind == "RS" and key.kty == "RSA":
        return _rsa_signed(_number(key.n), _number(key.e), bits, signed, signature)
    if kind == "ES" and key.kty == "EC" and key.crv == _CURVE_OF[bits]:
        digest = hashlib.new(f"sha{bits}", signed).digest()
        return CURVES[key.crv].signed((_number(key.x), _number(key.y)), digest, signature)
    return False


def _rsa_signed(modulus: int, exponent: int, bits: str, signed: bytes, signature: bytes) -> bool:
    length = (modulus.bit_length() + 7) // 8
    value = int.from_bytes(signature, "big")
    if len(signature) != length or value >= modulus:
        return False
    tail = _DER[bits] + hashlib.new(f"sha{bits}", signed).digest()
    expected = b"\0\1" + b"\xff" * (length - len(tail) - 3) + b"\0" + tail
    return hmac.compare_digest(pow(value, exponent, modulus).to_bytes(length, "big"), expected)


def _number(text: str) -> int:
    return int.from_bytes(_bytes(text), "big")


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars="-_", validate=True)
    except (binascii.Error, ValueError):
        raise Unauthorized("this is no token") from None
