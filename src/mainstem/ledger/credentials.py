"""Credentials: the salted password hashes by which users log in (SCRAM, RFC 5802)."""

from __future__ import annotations

import msgspec

from mainstem import limits
from mainstem.errors import CredentialNotFound, InvalidInput, LimitReached
from mainstem.ledger.digest import MASK, hash_fields
from mainstem.ledger.security_commands import DeleteScramCredential, PutScramCredential

KEY_BYTES = {1: 32, 2: 64}  # by mechanism: SCRAM-SHA-256, SCRAM-SHA-512


class Credential(msgspec.Struct, frozen=True, array_like=True):
    """Of one user for one mechanism; also as a checkpoint holds it."""

    user: str
    mechanism: int
    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes

    @property
    def digest(self) -> int:
        return hash_fields(
            "scram", self.user, self.mechanism, self.salt, self.iterations, self.stored_key, self.server_key
        )


class Credentials:
    """By user and mechanism."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, int], Credential] = {}
        self.digest = 0

    def get(self, user: str, mechanism: int) -> Credential | None:
        return self._held.get((user, mechanism))

    def all(self) -> list[Credential]:
        """By user, then mechanism."""
        return [credential for _, credential in sorted(self._held.items())]

    def put(self, command: PutScramCredential) -> Credential | InvalidInput | LimitReached:
        wrong = _fault(command)
        if wrong is not None:
            return InvalidInput(wrong)
        key = command.user, command.mechanism
        if key not in self._held and len(self._held) >= limits.SCRAM_CREDENTIALS_MAX:
            return LimitReached(
                f"{limits.SCRAM_CREDENTIALS_MAX} credentials are stored, the most there may be"
            )
        credential = Credential(
            command.user,
            command.mechanism,
            command.salt,
            command.iterations,
            command.stored_key,
            command.server_key,
        )
        self._remove(key)
        self._put(credential)
        return credential

    def delete(self, command: DeleteScramCredential) -> Credential | CredentialNotFound:
        removed = self._remove((command.user, command.mechanism))
        return removed if removed is not None else CredentialNotFound(command.user)

    def _put(self, credential: Credential) -> None:
        self._held[credential.user, credential.mechanism] = credential
        self.digest = (self.digest + credential.digest) & MASK

    def _remove(self, key: tuple[str, int]) -> Credential | None:
        removed = self._held.pop(key, None)
        if removed is not None:
            self.digest = (self.digest - removed.digest) & MASK
        return removed

    def encode(self) -> list[Credential]:
        return self.all()

    @classmethod
    def decode(cls, states: list[Credential]) -> Credentials:
        credentials = cls()
        for state in states:
            credentials._put(state)
        return credentials


def _fault(command: PutScramCredential) -> str | None:
    length = KEY_BYTES.get(command.mechanism)
    if length is None:
        return f"no SCRAM mechanism has the number {command.mechanism}"
    if not 0 < len(command.user) <= limits.NAME_CHARS_MAX:
        return f"a user's name has 1 to {limits.NAME_CHARS_MAX} characters"
    if not limits.SCRAM_ITERATIONS_MIN <= command.iterations <= limits.SCRAM_ITERATIONS_MAX:
        return f"SCRAM takes {limits.SCRAM_ITERATIONS_MIN} to {limits.SCRAM_ITERATIONS_MAX} iterations"
    if not 0 < len(command.salt) <= limits.SCRAM_SALT_BYTES_MAX:
        return f"a salt has 1 to {limits.SCRAM_SALT_BYTES_MAX} bytes"
    if len(command.stored_key) != length or len(command.server_key) != length:
        return f"the keys of this mechanism have {length} bytes"
    return None
