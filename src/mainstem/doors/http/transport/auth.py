"""Keys: who may do what to which names.

`MAINSTEM_API_KEYS` is a comma list of `key`, `key:scopes`, `key:scopes:prefixes` or `key::prefixes`.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from mainstem.api.routes import Scope
from mainstem.broker.access.principal import ANONYMOUS, Principal
from mainstem.errors import InvalidConfig

_SCOPES = {
    "read": Scope.READ,
    "r": Scope.READ,
    "write": Scope.WRITE,
    "w": Scope.WRITE,
    "delete": Scope.DELETE,
    "del": Scope.DELETE,
    "d": Scope.DELETE,
    "admin": Scope.ADMIN,
    "a": Scope.ADMIN,
    "rw": Scope.READ | Scope.WRITE,
}


@dataclass(slots=True)
class ApiKey:
    """One key's rights, and how much it has under way. The key itself is kept as its SHA-256 only."""

    digest: bytes
    scopes: Scope = Scope.ALL
    prefixes: tuple[bytes, ...] = ()  # none = any name
    in_flight: int = field(default=0, compare=False)
    streams: int = field(default=0, compare=False)  # event streams open

    @property
    def principal(self) -> Principal:
        return Principal(f"User:key-{self.digest.hex()[:8]}") if self.digest else ANONYMOUS

    def allows(self, name: str) -> bool:
        if not self.prefixes:
            return True
        return name.encode().startswith(self.prefixes)


class ApiKeys:
    """Every key there is. None: authentication is off, and everyone shares one key that may do all."""

    def __init__(self, keys: Sequence[ApiKey] = ()) -> None:
        self._keys = tuple(keys)
        self._everyone = ApiKey(b"")

    @property
    def required(self) -> bool:
        return bool(self._keys)

    def find(self, secret: bytes | None) -> ApiKey | None:
        """Whose secret this is, compared to every key in the same time; None if nobody's."""
        if not self._keys:
            return self._everyone
        if secret is None:
            return None
        digest = sha256(secret).digest()
        found = None
        for key in self._keys:
            if hmac.compare_digest(key.digest, digest):
                found = key
        return found

    def everyone(self) -> ApiKey:
        """Who asks without a key, where none is needed."""
        return self._everyone


def bearer(authorization: bytes | None) -> bytes | None:
    """The secret of an Authorization header."""
    if authorization is None:
        return None
    scheme, _, secret = authorization.partition(b" ")
    secret = secret.strip()
    return secret if scheme.lower() == b"bearer" and secret else None


def parse_keys(text: str) -> ApiKeys:
    """Raises InvalidConfig, which names the place in the list and never the key."""
    keys = [
        _parse_key(number, entry.strip()) for number, entry in enumerate(text.split(","), 1) if entry.strip()
    ]
    if len({key.digest for key in keys}) != len(keys):
        raise InvalidConfig("MAINSTEM_API_KEYS lists a key twice: give it one entry with all its rights")
    return ApiKeys(keys)


def _parse_key(number: int, entry: str) -> ApiKey:
    # Prefixes are names and may hold a colon themselves; keys and scopes may not.
    secret, _, rest = entry.partition(":")
    scopes, _, prefixes = rest.partition(":")
    if not secret:
        raise InvalidConfig(f"entry {number} of MAINSTEM_API_KEYS has no key before its colon")
    return ApiKey(
        sha256(secret.encode()).digest(),
        _parse_scopes(number, scopes),
        tuple(prefix.encode() for prefix in prefixes.split("|") if prefix),
    )


def _parse_scopes(number: int, text: str) -> Scope:
    if not text:
        return Scope.ALL
    scopes = Scope.NONE
    for token in text.split("+"):
        if token.strip() not in _SCOPES:
            raise InvalidConfig(
                f"entry {number} of MAINSTEM_API_KEYS has a scope that is none of "
                f"{', '.join(_SCOPES)}; join several with +"
            )
        scopes |= _SCOPES[token.strip()]
    return scopes
