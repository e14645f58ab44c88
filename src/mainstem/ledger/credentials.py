"""Credentials: the salted password hashes of users (SCRAM, RFC 5802)."""

from __future__ import annotations

import msgspec

from mainstem import limits
from mainstem.errors import CredentialNotFound, InvalidInput, LimitReached
from mainstem.ledger.keyed import Keyed, fields_hash
from mainstem.ledger.section import Command, Moment, Section, applies

SCRAM_CREDENTIALS_MAX = 100_000

KEY_BYTES = {1: 32, 2: 64}  # by mechanism: SCRAM-SHA-256, SCRAM-SHA-512


class PutScramCredential(Command, frozen=True, tag=130):
    """Let a user log in with a password. Only its salted hashes are stored."""

    user: str
    mechanism: int  # 1 SCRAM-SHA-256, 2 SCRAM-SHA-512
    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes


class DeleteScramCredential(Command, frozen=True, tag=131):
    """Refuse logins of a user with this mechanism."""

    user: str
    mechanism: int


class Credential(msgspec.Struct, frozen=True, array_like=True):
    """One user's credential for one mechanism; also the form in a checkpoint."""

    user: str
    mechanism: int
    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes


class Credentials(Section[list[Credential]]):
    """By user and mechanism."""

    def __init__(self) -> None:
        self._credentials: Keyed[tuple[str, int], Credential] = Keyed(fields_hash("scram"))

    def get(self, user: str, mechanism: int) -> Credential | None:
        return self._credentials.get((user, mechanism))

    def all(self) -> list[Credential]:
        """By user, then mechanism."""
        return list(self._credentials)

    @applies(PutScramCredential)
    def put(self, command: PutScramCredential, now: Moment) -> Credential | InvalidInput | LimitReached:
        wrong = _fault(command)
        if wrong is not None:
            return InvalidInput(wrong)
        key = command.user, command.mechanism
        full = self._credentials.refusal(key, SCRAM_CREDENTIALS_MAX, "credentials")
        if full is not None:
            return full
        credential = Credential(
            command.user,
            command.mechanism,
            command.salt,
            command.iterations,
            command.stored_key,
            command.server_key,
        )
        self._credentials.put(key, credential)
        return credential

    @applies(DeleteScramCredential)
    def delete(self, command: DeleteScramCredential, now: Moment) -> Credential | CredentialNotFound:
        removed = self._credentials.pop((command.user, command.mechanism))
        return removed if removed is not None else CredentialNotFound(command.user)

    @property
    def digest(self) -> int:
        return self._credentials.digest

    def encode(self) -> list[Credential]:
        return self.all()

    def load(self, state: list[Credential]) -> None:
        for credential in state:
            self._credentials.put((credential.user, credential.mechanism), credential)


def _fault(command: PutScramCredential) -> str | None:
    length = KEY_BYTES.get(command.mechanism)
    if length is None:
        return f"unknown SCRAM mechanism {command.mechanism}"
    if not 0 < len(command.user) <= limits.NAME_CHARS_MAX:
        return f"a user name has 1 to {limits.NAME_CHARS_MAX} characters"
    if not limits.SCRAM_ITERATIONS_MIN <= command.iterations <= limits.SCRAM_ITERATIONS_MAX:
        return f"SCRAM needs {limits.SCRAM_ITERATIONS_MIN} to {limits.SCRAM_ITERATIONS_MAX} iterations"
    if not 0 < len(command.salt) <= limits.SCRAM_SALT_BYTES_MAX:
        return f"a salt has 1 to {limits.SCRAM_SALT_BYTES_MAX} bytes"
    if len(command.stored_key) != length or len(command.server_key) != length:
        return f"a key of this mechanism has {length} bytes"
    return None
