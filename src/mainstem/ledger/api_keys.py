"""API keys: who may authenticate with a secret, and the rights that come with it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from mainstem import limits
from mainstem.errors import ApiKeyNotFound, InvalidInput, LimitReached
from mainstem.ledger.access_rules import ACCESS_RULE_CHARS_MAX, AccessRule, fault
from mainstem.ledger.keyed import Keyed, fields_hash
from mainstem.ledger.section import Command, Moment, Section, applies

API_KEYS_MAX = 100_000  # stored; those of the settings do not count
API_KEY_ID_CHARS_MAX = 64
API_KEY_RULES_MAX = 100  # prefixes and rules of one key

HASH_BYTES = 32


class StoredApiKey(msgspec.Struct, frozen=True, array_like=True):
    """One key; also the form in a checkpoint. Of the secret only a salted hash is kept."""

    id: str  # part of the secret, so that a key is found without a search
    principal: str  # "User:name"
    salt: bytes
    hash: bytes  # SHA-256 of salt and secret
    scopes: int  # the sum of `Scope` flags
    prefixes: tuple[str, ...] = ()  # of the names that the scopes cover; none: every name
    rules: tuple[AccessRule, ...] = ()  # in addition to those of the scopes; their principal is the key's
    namespace: str = ""
    created_ms: int = 0
    expires_ms: int = 0  # 0: never
    rotated_ms: int = 0  # when the secret was last replaced; 0: never


class PutApiKey(Command, frozen=True, tag=160):
    """Store a new key."""

    key: StoredApiKey


class RotateApiKey(Command, frozen=True, tag=161):
    """Replace the secret of a key: the old one is invalid from then on."""

    id: str
    salt: bytes
    hash: bytes
    rotated_ms: int


class DeleteApiKey(Command, frozen=True, tag=162):
    """Revoke a key."""

    id: str


class ApiKeys(Section[list[StoredApiKey]]):
    """By id. The digest changes with every key."""

    def __init__(self) -> None:
        self._keys: Keyed[str, StoredApiKey] = Keyed(fields_hash("api key"))
        self.changes = 0  # in this process
        self.on_change: Callable[[], None] | None = None

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, id: object) -> bool:
        return id in self._keys

    def get(self, id: str) -> StoredApiKey | None:
        return self._keys.get(id)

    def all(self) -> list[StoredApiKey]:
        """By id."""
        return list(self._keys)

    @applies(PutApiKey)
    def put(self, command: PutApiKey, now: Moment) -> StoredApiKey | InvalidInput | LimitReached:
        key = command.key
        wrong = _fault(key)
        if wrong is not None:
            return InvalidInput(wrong)
        if key.id in self._keys:
            return InvalidInput(f"API key {key.id!r} already exists")
        full = self._keys.refusal(key.id, API_KEYS_MAX, "API keys")
        if full is not None:
            return full
        self._keys.put(key.id, key)
        self._note_change()
        return key

    @applies(RotateApiKey)
    def rotate(self, command: RotateApiKey, now: Moment) -> StoredApiKey | InvalidInput | ApiKeyNotFound:
        key = self._keys.get(command.id)
        if key is None:
            return ApiKeyNotFound(command.id)
        rotated = msgspec.structs.replace(
            key, salt=command.salt, hash=command.hash, rotated_ms=command.rotated_ms
        )
        wrong = _fault(rotated)
        if wrong is not None:
            return InvalidInput(wrong)
        self._keys.put(key.id, rotated)
        self._note_change()
        return rotated

    @applies(DeleteApiKey)
    def delete(self, command: DeleteApiKey, now: Moment) -> StoredApiKey | ApiKeyNotFound:
        removed = self._keys.pop(command.id)
        self._note_change()
        return removed if removed is not None else ApiKeyNotFound(command.id)

    def _note_change(self) -> None:
        self.changes += 1
        if self.on_change is not None:
            self.on_change()

    @property
    def digest(self) -> int:
        return self._keys.digest

    def encode(self) -> list[StoredApiKey]:
        return self.all()

    def load(self, state: list[StoredApiKey]) -> None:
        for key in state:
            self._keys.put(key.id, key)


def _fault(key: StoredApiKey) -> str | None:
    if not 0 < len(key.id) <= API_KEY_ID_CHARS_MAX:
        return f"the id of an API key has 1 to {API_KEY_ID_CHARS_MAX} characters"
    if not key.principal.startswith("User:") or key.principal in ("User:", "User:*"):
        return "the principal of an API key is User:name"
    if len(key.principal) > ACCESS_RULE_CHARS_MAX:
        return f"a principal has at most {ACCESS_RULE_CHARS_MAX} characters"
    if len(key.hash) != HASH_BYTES or not 0 < len(key.salt) <= limits.SCRAM_SALT_BYTES_MAX:
        return f"an API key is stored as a salt and a hash of {HASH_BYTES} bytes"
    if len(key.prefixes) + len(key.rules) > API_KEY_RULES_MAX:
        return f"an API key has at most {API_KEY_RULES_MAX} prefixes and rules"
    if any(not 0 < len(prefix) <= ACCESS_RULE_CHARS_MAX for prefix in key.prefixes):
        return f"a prefix has 1 to {ACCESS_RULE_CHARS_MAX} characters"
    if len(key.namespace) > limits.NAME_CHARS_MAX:
        return f"a namespace has at most {limits.NAME_CHARS_MAX} characters"
    for rule in key.rules:
        if rule.principal != key.principal:
            return "the rules of an API key are about its own principal"
        wrong = fault(rule)
        if wrong is not None:
            return wrong
    return None
