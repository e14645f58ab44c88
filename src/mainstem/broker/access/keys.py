"""API keys: secrets, and the rights that scopes and prefixes stand for.

The settings list `key`, `key:scopes`, `key:scopes:prefixes` or `key::prefixes`, comma-separated. A stored key has the
secret `mainstem_<id>_<random>`: the id finds the key, and the ledger keeps a salted hash of the whole.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256

from mainstem.api.access import (
    ALLOW,
    CLUSTER_NAME,
    EVERYTHING,
    LITERAL,
    PREFIXED,
    Operation,
    ResourceType,
)
from mainstem.api.route import Scope
from mainstem.broker.access.principal import Principal
from mainstem.errors import InvalidConfig
from mainstem.ledger.access_rules import AccessRule
from mainstem.ledger.api_keys import StoredApiKey

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
_SECRET_PREFIX = "mainstem"
_ID_BYTES, _SECRET_BYTES, _SALT_BYTES = 6, 32, 16

_O, _R = Operation, ResourceType
_READS = (_O.READ, _O.DESCRIBE, _O.DESCRIBE_CONFIGS)
_ADMINISTERS = (_O.CREATE, _O.ALTER, _O.ALTER_CONFIGS)

# What each scope allows on the names that the prefixes cover.
_ON_NAMES: dict[Scope, dict[ResourceType, tuple[Operation, ...]]] = {
    Scope.READ: dict.fromkeys(
        (_R.TOPIC, _R.GROUP, _R.ROUTER, _R.TABLE, _R.TRANSACTIONAL_ID, _R.NAMESPACE, _R.SUBJECT, _R.BUCKET),
        _READS,
    ),
    Scope.WRITE: {
        _R.TOPIC: (_O.WRITE, _O.CREATE),  # a write creates its topic
        _R.TRANSACTIONAL_ID: (_O.WRITE, _O.DESCRIBE),
        _R.SUBJECT: (_O.WRITE,),
        _R.BUCKET: (_O.WRITE,),
    },
    Scope.DELETE: dict.fromkeys((_R.TOPIC, _R.ROUTER, _R.SUBJECT, _R.BUCKET), (_O.DELETE,)),
    Scope.ADMIN: {
        **dict.fromkeys((_R.TOPIC, _R.ROUTER, _R.SUBJECT, _R.BUCKET), _ADMINISTERS),
        **dict.fromkeys((_R.TABLE, _R.NAMESPACE), (*_ADMINISTERS, _O.DELETE)),
        _R.GROUP: (_O.DELETE, _O.ALTER_CONFIGS),
        _R.TRANSACTIONAL_ID: (_O.ALTER, _O.TWO_PHASE_COMMIT),
    },
}


@dataclass(frozen=True, slots=True)
class SettingsKey:
    """A key of the settings. The secret is kept as its SHA-256 only."""

    digest: bytes
    principal: Principal
    scopes: Scope
    prefixes: tuple[str, ...]


def grants(principal: str, scopes: Scope, prefixes: Iterable[str]) -> tuple[AccessRule, ...]:
    """The rules that scopes and prefixes stand for. Without prefixes they cover every name."""
    return tuple(_grants(principal, scopes, tuple(prefixes)))


def _grants(principal: str, scopes: Scope, prefixes: tuple[str, ...]) -> Iterator[AccessRule]:
    patterns = [(prefix, PREFIXED) for prefix in prefixes] or [(EVERYTHING, LITERAL)]
    for scope in scopes:
        for kind, operations in _ON_NAMES[scope].items():
            for operation in operations:
                for name, pattern in patterns:
                    yield AccessRule(kind, name, pattern, principal, EVERYTHING, operation, ALLOW)
    cluster = []
    if Scope.WRITE in scopes:
        cluster.append(_O.IDEMPOTENT_WRITE)
    if Scope.ADMIN in scopes and not prefixes:
        cluster.append(_O.ALL)  # the server itself has no name that a prefix could cover
    for operation in cluster:
        yield AccessRule(_R.CLUSTER, CLUSTER_NAME, LITERAL, principal, EVERYTHING, operation, ALLOW)


def new_secret(id: str = "") -> tuple[str, str, bytes, bytes]:
    """The id, secret, salt and hash of a key; with `id`, a new secret for that key."""
    id = id or secrets.token_hex(_ID_BYTES)
    secret = f"{_SECRET_PREFIX}_{id}_{secrets.token_urlsafe(_SECRET_BYTES)}"
    salt = secrets.token_bytes(_SALT_BYTES)
    return id, secret, salt, _hash(salt, secret.encode())


def id_of(secret: bytes) -> str | None:
    """The id in the secret of a stored key."""
    start, _, rest = secret.partition(b"_")
    id, found, _ = rest.partition(b"_")
    return id.decode("latin-1") if found and start == _SECRET_PREFIX.encode() else None


def verifies(key: StoredApiKey, secret: bytes) -> bool:
    return hmac.compare_digest(_hash(key.salt, secret), key.hash)


def _hash(salt: bytes, secret: bytes) -> bytes:
    """One round suffices: the secret has 256 random bits."""
    return sha256(salt + secret).digest()


def principal_of_key(key: StoredApiKey) -> Principal:
    rules = (*grants(key.principal, Scope(key.scopes), key.prefixes), *key.rules)
    return Principal(key.principal, key.namespace, rules, key.id)


def parse_keys(text: str) -> tuple[SettingsKey, ...]:
    """Raises InvalidConfig, which names the place in the list and never the key."""
    keys = [
        _parse_key(number, entry.strip()) for number, entry in enumerate(text.split(","), 1) if entry.strip()
    ]
    if len({key.digest for key in keys}) != len(keys):
        raise InvalidConfig("MAINSTEM_API_KEYS lists a key twice: give it one entry with all its rights")
    return tuple(keys)


def _parse_key(number: int, entry: str) -> SettingsKey:
    # Prefixes are names and may hold a colon themselves; keys and scopes may not.
    secret, _, rest = entry.partition(":")
    scopes, _, listed = rest.partition(":")
    if not secret:
        raise InvalidConfig(f"entry {number} of MAINSTEM_API_KEYS has no key before its colon")
    try:
        rights = parse_scopes(scopes)
    except ValueError as wrong:
        raise InvalidConfig(f"entry {number} of MAINSTEM_API_KEYS has a scope that {wrong}") from None
    return settings_key(secret, rights, tuple(prefix for prefix in listed.split("|") if prefix))


def settings_key(
    secret: str, scopes: Scope = Scope.ALL, prefixes: tuple[str, ...] = (), *, name: str = ""
) -> SettingsKey:
    """By default its principal is named after the secret's hash, so that rules about it outlive a restart."""
    digest = sha256(secret.encode()).digest()
    name = f"User:{name or f'key-{digest.hex()[:8]}'}"
    return SettingsKey(digest, Principal(name, grants=grants(name, scopes, prefixes)), scopes, prefixes)


def parse_scopes(text: str) -> Scope:
    """Scopes joined with +; none means all. Raises ValueError."""
    if not text:
        return Scope.ALL
    scopes = Scope.NONE
    for token in text.split("+"):
        if token.strip() not in _SCOPES:
            raise ValueError(f"is none of {', '.join(_SCOPES)}; join several with +")
        scopes |= _SCOPES[token.strip()]
    return scopes
