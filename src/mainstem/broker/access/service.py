"""Security: the stored access rules and SCRAM credentials, which every broker of a log shares."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mainstem.ledger.access_rules import (
    AccessRule,
    AccessRules,
    AccessRulesChanged,
    DeleteAccessRules,
    PutAccessRules,
    fault,
)
from mainstem.ledger.api_keys import ApiKeys, DeleteApiKey, PutApiKey, RotateApiKey, StoredApiKey
from mainstem.ledger.credentials import KEY_BYTES, Credential, DeleteScramCredential, PutScramCredential
from mainstem.log.log import Log

__all__ = [
    "KEY_BYTES",
    "AccessRule",
    "AccessRules",
    "ApiKeys",
    "Credential",
    "DeleteScramCredential",
    "PutScramCredential",
    "Security",
    "StoredApiKey",
    "fault",
]


class Security:
    def __init__(self, log: Log) -> None:
        self._log = log

    @property
    def access_rules(self) -> AccessRules:
        """The rules as they are now."""
        return self._log.ledger.access_rules

    async def put_rules(self, rules: Iterable[AccessRule]) -> None:
        """Add rules, all or none. Raises LimitReached."""
        await self._log.propose(PutAccessRules(tuple(rules)))

    async def delete_rules(self, rules: Iterable[AccessRule]) -> tuple[AccessRule, ...]:
        """Delete rules. Returns those that existed."""
        removed: AccessRulesChanged = await self._log.propose(DeleteAccessRules(tuple(rules)))
        return removed.rules

    @property
    def api_keys(self) -> ApiKeys:
        """The stored keys as they are now."""
        return self._log.ledger.api_keys

    async def put_key(self, key: StoredApiKey) -> None:
        """Store a new API key. Raises InvalidInput, LimitReached."""
        await self._log.propose(PutApiKey(key))

    async def rotate_key(self, id: str, salt: bytes, hash: bytes, now_ms: int) -> StoredApiKey:
        """Replace the secret of an API key. Raises ApiKeyNotFound."""
        rotated: StoredApiKey = await self._log.propose(RotateApiKey(id, salt, hash, now_ms))
        return rotated

    async def revoke_key(self, id: str) -> None:
        """Delete an API key. Raises ApiKeyNotFound."""
        await self._log.propose(DeleteApiKey(id))

    def credentials(self) -> Iterator[Credential]:
        """Every stored SCRAM credential."""
        return iter(self._log.ledger.credentials.all())

    def credential(self, user: str, mechanism: int) -> Credential | None:
        """A user's stored SCRAM credential."""
        return self._log.ledger.credentials.get(user, mechanism)

    async def change_credential(self, command: PutScramCredential | DeleteScramCredential) -> None:
        """Store or delete a SCRAM credential. Raises InvalidInput, LimitReached."""
        await self._log.propose(command)
