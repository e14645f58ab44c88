"""Salted password hashes, as SCRAM (RFC 5802) stores them: enough to verify a password, not to recover it."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import secrets
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from mainstem import limits
from mainstem.errors import InvalidConfig, Unauthorized
from mainstem.ledger.credentials import KEY_BYTES, Credential

PASSWORD_CHECKS_WAITING_MAX = 256  # a check takes about 10 ms
PASSWORDS_REMEMBERED = 10_000  # passwords that matched

_SALT_BYTES = 16
_HASHES = {1: "sha256", 2: "sha512"}
MECHANISMS = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}  # in the protocol's numbers


@dataclass(frozen=True, slots=True)
class ScramKeys:
    stored: bytes  # hash of the key that a client proves to have
    server: bytes  # proves the server to the client


def hash_name(mechanism: int) -> str:
    return _HASHES[mechanism]


def keys_of(mechanism: int, salted: bytes) -> ScramKeys:
    """From the output of PBKDF2 for a password."""
    name = _HASHES[mechanism]
    client = hmac.digest(salted, b"Client Key", name)
    return ScramKeys(hashlib.new(name, client).digest(), hmac.digest(salted, b"Server Key", name))


def hashed(user: str, mechanism: int, password: str) -> Credential:
    """A credential for a password, with a new salt."""
    salt = secrets.token_bytes(_SALT_BYTES)
    iterations = limits.SCRAM_ITERATIONS_MIN
    keys = keys_of(mechanism, _salted(mechanism, password, salt, iterations))
    return Credential(user, mechanism, salt, iterations, keys.stored, keys.server)


def matches(credential: Credential, password: str) -> bool:
    """Takes some milliseconds, to slow down guessing."""
    salted = _salted(credential.mechanism, password, credential.salt, credential.iterations)
    return hmac.compare_digest(keys_of(credential.mechanism, salted).stored, credential.stored_key)


def _salted(mechanism: int, password: str, salt: bytes, iterations: int) -> bytes:
    return hashlib.pbkdf2_hmac(_HASHES[mechanism], password.encode(), salt, iterations)


def dummy_credential(secret: bytes, user: str, mechanism: int) -> Credential:
    """The credential of an unknown user: always the same salt, and no password matches it."""
    salt = hmac.digest(secret, user.encode(errors="replace"), "sha256")[:_SALT_BYTES]
    length = KEY_BYTES[mechanism]
    keys = secrets.token_bytes(length), secrets.token_bytes(length)
    return Credential(user, mechanism, salt, limits.SCRAM_ITERATIONS_MIN, *keys)


def parse_users(text: str) -> list[Credential]:
    """Users of a setting: `name:password` or `name:SCRAM-SHA-256$iterations$salt$stored$server` (base64),
    comma-separated. Hashes passwords and does not keep them. Raises InvalidConfig."""
    found: list[Credential] = []
    for number, entry in enumerate(filter(None, text.split(",")), 1):
        user, colon, password = entry.strip().partition(":")
        if not colon or not user or not password:
            raise InvalidConfig(f"--kafka-users: entry {number} is not name:password")
        if password.startswith(tuple(f"{name}$" for name in MECHANISMS)):
            found.append(_parse_hash(user, password, number))
        else:
            found += (hashed(user, mechanism, password) for mechanism in MECHANISMS.values())
    return found


def _parse_hash(user: str, text: str, number: int) -> Credential:
    try:
        name, iterations, *encoded = text.split("$")
        salt, stored, server = (base64.b64decode(part, validate=True) for part in encoded)
        credential = Credential(user, MECHANISMS[name], salt, int(iterations), stored, server)
    except (ValueError, KeyError, binascii.Error):
        raise InvalidConfig(
            f"--kafka-users: entry {number} is not {text.split('$')[0]}$iterations$salt$stored$server"
        ) from None
    length = KEY_BYTES[credential.mechanism]
    if len(stored) != length or len(server) != length or not salt:
        raise InvalidConfig(f"--kafka-users: the keys of entry {number} must have {length} bytes each")
    if not 1 <= credential.iterations <= limits.SCRAM_ITERATIONS_MAX:
        raise InvalidConfig(
            f"--kafka-users: entry {number} must have 1 to {limits.SCRAM_ITERATIONS_MAX} iterations"
        )
    return credential


class PasswordChecks:
    """Checks take milliseconds each: on one thread, so that a flood of logins takes one core at most.

    Remembers passwords that matched, as digests under a secret of the process, so that clients reconnect at once."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)
        self._matched: OrderedDict[bytes, None] = OrderedDict()
        self._thread: ThreadPoolExecutor | None = None
        self._waiting = 0

    async def matches(self, credential: Credential, password: str) -> bool:
        """Raises Unauthorized if too many checks wait."""
        digest = self._digest(credential, password)
        if digest in self._matched:
            return True
        if self._waiting >= PASSWORD_CHECKS_WAITING_MAX:
            raise Unauthorized("too many passwords wait for their check; try again")
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="mainstem-passwords")
        self._waiting += 1
        try:
            found = await asyncio.get_running_loop().run_in_executor(
                self._thread, matches, credential, password
            )
        finally:
            self._waiting -= 1
        if found:
            self._matched[digest] = None
            if len(self._matched) > PASSWORDS_REMEMBERED:
                self._matched.popitem(last=False)
        return found

    def _digest(self, credential: Credential, password: str) -> bytes:
        """A digest that covers the stored key too, so that a changed password is checked again."""
        given = hashlib.sha256(password.encode()).digest()
        return hmac.digest(self._secret, credential.stored_key + given, "sha256")
