"""Tokens that the server issues for other credentials, as the OAuth2 flow of Iceberg clients needs them.

`mainstem-token.<base64url of JSON {"name", "expires_ms"}>.<base64url of HMAC-SHA256>`
"""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Callable

import msgspec

_MARK = b"mainstem-token"


class _Content(msgspec.Struct, frozen=True):
    name: str
    expires_ms: int


def is_token(secret: bytes) -> bool:
    return secret.startswith(_MARK + b".")


def new_token(name: str, key: bytes, expires_ms: int) -> str:
    content = _encoded(msgspec.json.encode(_Content(name, expires_ms)))
    return b".".join((_MARK, content, _encoded(_signature(key, content)))).decode()


def read_token(token: bytes, key_of: Callable[[str], bytes]) -> tuple[str, int] | None:
    """The name in a token and when it expires; None unless the key of that name signed it."""
    try:
        _, content, signature = token.split(b".")
        found = msgspec.json.decode(_decoded(content), type=_Content)
        given = _decoded(signature)
    except (ValueError, binascii.Error, RecursionError):
        return None
    if not hmac.compare_digest(_signature(key_of(found.name), content), given):
        return None
    return found.name, found.expires_ms


def _signature(key: bytes, content: bytes) -> bytes:
    return hmac.digest(key, _MARK + b"." + content, "sha256")


def _encoded(content: bytes) -> bytes:
    return base64.urlsafe_b64encode(content).rstrip(b"=")


def _decoded(text: bytes) -> bytes:
    return base64.b64decode(text + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
