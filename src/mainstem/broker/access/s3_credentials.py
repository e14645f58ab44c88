"""Credentials of the S3 door, which follow from other credentials: nothing is stored for them.

A signature of S3 (SigV4) is an HMAC, so the server needs the secret in clear; of an API key or a password it keeps a
hash. The secret access key is an HMAC of that hash: the server can compute it, and it becomes invalid with the key or
password. A short-lived credential also has a session token, which names the principal, what it may do and until when.

Session token: `mainstem-s3.<base64url of JSON SessionScope>.<base64url of HMAC-SHA256>`
"""

from __future__ import annotations

import base64
import binascii
import hmac
import secrets
from collections.abc import Callable

import msgspec

SESSION_S_MAX = 12 * 3600
SESSION_S_DEFAULT = 3600
ANONYMOUS_SECRET = "anonymous"  # without authentication, any credentials are accepted

_MARK = b"mainstem-s3"
_SESSION_PREFIX = "MST"


class SessionScope(msgspec.Struct, frozen=True):
    """What a session token says."""

    name: str  # whose it is: "key:<id>" or "user:<name>"
    access_key_id: str
    expires_ms: int
    prefixes: tuple[str, ...] = ()  # of "bucket/key"; none: every object that the principal may use
    writes: bool = True

    def allows(self, resource: str, *, write: bool) -> bool:
        if write and not self.writes:
            return False
        return not self.prefixes or any(resource.startswith(prefix) for prefix in self.prefixes)

    def shows(self, resource: str) -> bool:
        """Whether listings below this prefix may be asked for: it is in the scope, or leads there."""
        return not self.prefixes or any(
            resource.startswith(prefix) or prefix.startswith(resource) for prefix in self.prefixes
        )


class S3Credentials(msgspec.Struct, frozen=True):
    access_key_id: str
    secret_access_key: str
    session_token: str = ""
    expires_ms: int = 0  # 0: with the key or password that they follow from


def lasting(access_key_id: str, signing_key: bytes) -> S3Credentials:
    return S3Credentials(access_key_id, secret_of(access_key_id, "", signing_key))


def session(
    name: str, signing_key: bytes, expires_ms: int, prefixes: tuple[str, ...], *, writes: bool
) -> S3Credentials:
    id = _SESSION_PREFIX + secrets.token_hex(8).upper()
    content = _encoded(msgspec.json.encode(SessionScope(name, id, expires_ms, prefixes, writes)))
    token = b".".join((_MARK, content, _encoded(_signature(signing_key, content)))).decode()
    return S3Credentials(id, secret_of(id, token, signing_key), token, expires_ms)


def secret_of(access_key_id: str, token: str, signing_key: bytes) -> str:
    return _encoded(
        hmac.digest(signing_key, _MARK + b"\0" + access_key_id.encode() + b"\0" + token.encode(), "sha256")
    ).decode()


def read_session(token: str, key_of: Callable[[str], bytes]) -> SessionScope | None:
    """The scope of a session token; None unless the key of its principal signed it."""
    try:
        mark, content, signature = token.encode().split(b".")
        found = msgspec.json.decode(_decoded(content), type=SessionScope)
        given = _decoded(signature)
    except (ValueError, binascii.Error, RecursionError):
        return None
    if mark != _MARK or not hmac.compare_digest(_signature(key_of(found.name), content), given):
        return None
    return found


def _signature(key: bytes, content: bytes) -> bytes:
    return hmac.digest(key, _MARK + b"." + content, "sha256")


def _encoded(content: bytes) -> bytes:
    return base64.urlsafe_b64encode(content).rstrip(b"=")


def _decoded(text: bytes) -> bytes:
    return base64.b64decode(text + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
