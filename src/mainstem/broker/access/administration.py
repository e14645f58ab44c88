"""API keys, users and rules at run time: created, rotated and revoked through any broker of the log."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable, Sequence

from mainstem.api.route import Scope
from mainstem.broker.access.keys import new_secret
from mainstem.broker.access.options import AccessOptions
from mainstem.broker.access.passwords import MECHANISMS, hashed
from mainstem.broker.access.service import Security
from mainstem.errors import CredentialNotFound, InvalidInput
from mainstem.ledger.access_rules import AccessRule
from mainstem.ledger.api_keys import StoredApiKey
from mainstem.ledger.credentials import DeleteScramCredential, PutScramCredential
from mainstem.ports.clock import Clock

_PASSWORD_BYTES = 24


class AccessAdministration:
    def __init__(self, security: Security, options: AccessOptions, clock: Clock) -> None:
        self._security = security
        self._options = options
        self._clock = clock

    # API keys

    def listed_keys(self) -> list[StoredApiKey]:
        return self._security.api_keys.all()

    async def create_key(
        self,
        name: str,
        scopes: Scope,
        prefixes: Sequence[str] = (),
        *,
        rules: Iterable[AccessRule] = (),
        namespace: str = "",
        ttl_ms: int = 0,
    ) -> tuple[StoredApiKey, str]:
        """Store a new key for the principal `User:name`. Returns it and its secret, which cannot be read again.

        Raises InvalidInput, LimitReached."""
        id, secret, salt, hash = new_secret()
        now_ms = self._clock.now_ms()
        key = StoredApiKey(
            id,
            f"User:{(name or id).removeprefix('User:')}",
            salt,
            hash,
            int(scopes),
            tuple(prefixes),
            tuple(rules),
            namespace,
            now_ms,
            now_ms + ttl_ms if ttl_ms else 0,
        )
        if not _is_lasting_administrator(key) and not self._has_administrator():
            raise InvalidInput(
                "the first API key restricts access to the server: give it all scopes, no prefixes and no expiry"
            )
        await self._security.put_key(key)
        return key, secret

    async def rotate_key(self, id: str) -> tuple[StoredApiKey, str]:
        """Give a key a new secret; the old one is invalid at once. Raises ApiKeyNotFound."""
        _, secret, salt, hash = new_secret(id)
        return await self._security.rotate_key(id, salt, hash, self._clock.now_ms()), secret

    async def revoke_key(self, id: str) -> None:
        """Raises ApiKeyNotFound; InvalidInput for the last key that administers the server."""
        if id in self._security.api_keys and not self._has_administrator(without=id):
            raise InvalidInput(
                "this is the last key with all rights, and without it nobody could administer the server: create "
                "another one first"
            )
        await self._security.revoke_key(id)

    def _has_administrator(self, without: str = "") -> bool:
        return self._options.authenticates or any(
            key.id != without and _is_lasting_administrator(key) for key in self.listed_keys()
        )

    # Users

    def users(self) -> dict[str, list[str]]:
        """The mechanisms of each stored user."""
        names = {number: name for name, number in MECHANISMS.items()}
        found: dict[str, list[str]] = {}
        for credential in self._security.credentials():
            found.setdefault(credential.user, []).append(names[credential.mechanism])
        return found

    async def put_user(self, user: str, password: str | None) -> str:
        """Create a user or replace its password. Returns the password. Raises InvalidInput, LimitReached."""
        password = password or secrets.token_urlsafe(_PASSWORD_BYTES)
        for mechanism in MECHANISMS.values():
            made = await asyncio.to_thread(hashed, user, mechanism, password)  # milliseconds of hashing
            await self._security.change_credential(
                PutScramCredential(
                    made.user, made.mechanism, made.salt, made.iterations, made.stored_key, made.server_key
                )
            )
        return password

    async def delete_user(self, user: str) -> None:
        """Raises CredentialNotFound."""
        held = [one.mechanism for one in self._security.credentials() if one.user == user]
        if not held:
            raise CredentialNotFound(user)
        for mechanism in held:
            await self._security.change_credential(DeleteScramCredential(user, mechanism))


def _is_lasting_administrator(key: StoredApiKey) -> bool:
    return key.scopes == int(Scope.ALL) and not key.prefixes and not key.expires_ms and not key.namespace
