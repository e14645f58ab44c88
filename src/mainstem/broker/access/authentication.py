"""Authentication: from a credential to the principal that it proves, the same for every door."""

from __future__ import annotations

import hmac
import secrets
from collections import OrderedDict
from hashlib import sha256
from typing import TYPE_CHECKING

from mainstem import limits
from mainstem.broker.access.keys import id_of, principal_of_key, verifies
from mainstem.broker.access.options import AccessOptions
from mainstem.broker.access.passwords import MECHANISMS, PasswordChecks, dummy_credential
from mainstem.broker.access.principal import Principal
from mainstem.broker.access.s3_credentials import (
    S3Credentials,
    SessionScope,
    lasting,
    read_session,
    secret_of,
    session,
)
from mainstem.broker.access.service import Security
from mainstem.broker.access.session_tokens import is_token, new_token, read_token
from mainstem.errors import Unauthorized
from mainstem.ledger.credentials import Credential
from mainstem.ports.clock import Clock

if TYPE_CHECKING:
    from mainstem.broker.access.tokens import TokenVerifier

AUTHENTICATED_SECRETS_KEPT = 10_000  # whose principal is known without another hash

_KEY_USER = "key"  # the user name that stands for whichever key the password is


class Authentication:
    def __init__(self, security: Security, options: AccessOptions, clock: Clock) -> None:
        self._security = security
        self._clock = clock
        self._checks = PasswordChecks()
        self._dummy = secrets.token_bytes(32)
        # SHA-256 of a secret → its principal and when it expires, of this state of the keys. Least recently used first.
        self._known: OrderedDict[bytes, tuple[Principal, int]] = OrderedDict()
        self._known_state = -1
        self.configure(options)

    def configure(self, options: AccessOptions) -> None:
        """Use other options from now on."""
        self._keys = (*options.keys, *options.internal)
        self._has_keys = bool(options.keys)
        self._users = {(one.user, one.mechanism): one for one in options.users}
        self.tokens: TokenVerifier | None = options.tokens
        self._known.clear()

    @property
    def has_keys(self) -> bool:
        return self._has_keys or len(self._security.api_keys) > 0

    def by_key(self, secret: bytes) -> Principal | None:
        """Whose API key this is. Keys of the settings are compared to it in the same time, whichever it is."""
        keys = self._security.api_keys
        if self._known_state != keys.changes:
            self._known.clear()
            self._known_state = keys.changes
        digest = sha256(secret).digest()
        known = self._known.get(digest)
        if known is None:
            known = self._find_key(secret, digest)
            if known is None:
                return None
            self._known[digest] = known
            if len(self._known) > AUTHENTICATED_SECRETS_KEPT:
                self._known.popitem(last=False)
        principal, expires_ms = known
        return None if expires_ms and expires_ms <= self._clock.now_ms() else principal

    async def issue_token(self, client_id: str, secret: str) -> str | None:
        """A token that stands for an API key, or for a user and its password, for a while. None: they are unknown.

        It is signed with what the log, or the settings, keep of the secret: every broker accepts it, and it becomes
        invalid with the secret."""
        principal = self.by_key(secret.encode())
        if principal is not None:
            name = f"key:{principal.key_id or principal.name}"
        elif await self.by_password(client_id, secret) is not None:
            name = f"user:{client_id}"
        else:
            return None
        return new_token(name, self._signing_key(name), self._clock.now_ms() + limits.ACCESS_TOKEN_S * 1000)

    def _signing_key(self, name: str) -> bytes:
        kind, _, id = name.partition(":")
        if kind == "user":
            return self._any_credential(id).stored_key
        stored = self._security.api_keys.get(id)
        if stored is not None:
            return stored.hash
        return next((key.digest for key in self._keys if key.principal.name == id), self._dummy)

    def _of_token(self, token: bytes) -> tuple[Principal, int] | None:
        return self._principal_of_token(*(read_token(token, self._signing_key) or ("", 0)))

    def _principal_of_token(self, name: str, expires_ms: int) -> tuple[Principal, int] | None:
        """The principal that a signed name stands for, and when it expires; 0: never."""
        kind, _, id = name.partition(":")
        if kind == "user":
            return self.user(id), expires_ms
        stored = self._security.api_keys.get(id)
        if stored is not None:
            ends = (
                min(expires_ms or stored.expires_ms, stored.expires_ms) if stored.expires_ms else expires_ms
            )
            return principal_of_key(stored), ends
        return next(((key.principal, expires_ms) for key in self._keys if key.principal.name == id), None)

    def _find_key(self, secret: bytes, digest: bytes) -> tuple[Principal, int] | None:
        if is_token(secret):
            return self._of_token(secret)
        found = None
        for key in self._keys:
            if hmac.compare_digest(key.digest, digest):
                found = key.principal, 0
        if found is not None:
            return found
        id = id_of(secret)
        stored = None if id is None else self._security.api_keys.get(id)
        if stored is None or not verifies(stored, secret):
            return None
        return principal_of_key(stored), stored.expires_ms

    # S3

    def s3_credentials(self, principal: Principal) -> S3Credentials | None:
        """The lasting S3 credentials of an API key; None: the principal did not authenticate with one."""
        name = self._signer(principal)
        kind, _, id = name.partition(":")
        return lasting(id.removeprefix("User:"), self._signing_key(name)) if kind == "key" else None

    def s3_session(
        self, principal: Principal, duration_s: int, prefixes: tuple[str, ...] = (), *, writes: bool = True
    ) -> S3Credentials:
        """Short-lived S3 credentials of a principal, for objects below some prefixes of "bucket/key"."""
        name = self._signer(principal)
        expires_ms = self._clock.now_ms() + duration_s * 1000
        return session(name, self._signing_key(name), expires_ms, prefixes, writes=writes)

    def _signer(self, principal: Principal) -> str:
        """Whose hash signs for a principal. One that no hash is stored of gets a key of this process."""
        if principal.key_id:
            return f"key:{principal.key_id}"
        if any(key.principal == principal for key in self._keys):
            return f"key:{principal.name}"
        return f"user:{principal.name.removeprefix('User:')}"

    def by_s3(self, access_key_id: str, token: str) -> tuple[Principal, str, SessionScope | None] | None:
        """The principal, secret and scope of S3 credentials. None: they are unknown or have expired."""
        scope = None
        if token:
            scope = read_session(token, self._signing_key)
            if scope is None or scope.access_key_id != access_key_id:
                return None
            name, expires_ms = scope.name, scope.expires_ms
        else:
            stored = self._security.api_keys.get(access_key_id)
            name = f"key:{access_key_id if stored is not None else f'User:{access_key_id}'}"
            expires_ms = 0
        found = self._principal_of_token(name, expires_ms)
        if found is None or (found[1] and found[1] <= self._clock.now_ms()):
            return None
        return found[0], secret_of(access_key_id, token, self._signing_key(name)), scope

    def key_expires_ms(self, principal: Principal) -> int | None:
        """When the API key of this principal expires, if it does."""
        stored = self._security.api_keys.get(principal.key_id) if principal.key_id else None
        return stored.expires_ms or None if stored is not None else None

    async def by_password(self, user: str, password: str) -> Principal | None:
        """A user and its password, or the id of an API key (or `key`) and its secret.

        Raises Unauthorized if too many checks wait."""
        by_key = self.by_key(password.encode())
        if by_key is not None and user in (_KEY_USER, by_key.key_id, by_key.name.removeprefix("User:")):
            return by_key
        credential = self._any_credential(user)
        if not await self._checks.matches(credential, password):
            return None
        return self.user(user)

    async def by_token(self, token: str, now_ms: int) -> tuple[Principal, int]:
        """The principal that an OAuth token names, and when the token expires. Raises Unauthorized."""
        if self.tokens is None:
            raise Unauthorized("this server accepts no tokens")
        user, expires_ms = await self.tokens.check(token, now_ms)
        return self.user(user), expires_ms

    def user(self, name: str) -> Principal:
        """A user whose credential a door has checked."""
        return Principal(f"User:{name}")

    # SCRAM

    def credential(self, user: str, mechanism: int) -> Credential:
        """An unknown user gets a credential that no password matches, so that clients cannot find out user names."""
        return self._stored(user, mechanism) or dummy_credential(self._dummy, user, mechanism)

    def _any_credential(self, user: str) -> Credential:
        """A credential to check a password with, for whichever mechanism."""
        for mechanism in MECHANISMS.values():
            known = self._stored(user, mechanism)
            if known is not None:
                return known
        return dummy_credential(self._dummy, user, MECHANISMS["SCRAM-SHA-256"])

    def _stored(self, user: str, mechanism: int) -> Credential | None:
        return self._users.get((user, mechanism)) or self._security.credential(user, mechanism)
