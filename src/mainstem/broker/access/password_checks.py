"""Password checks, which take milliseconds each: on one thread, so that a flood of logins takes one core at most."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor

from mainstem.broker.access.passwords import matches
from mainstem.errors import Unauthorized
from mainstem.ledger.credentials import Credential

PASSWORD_CHECKS_WAITING_MAX = 256  # a check takes about 10 ms
PASSWORDS_REMEMBERED = 10_000  # passwords that matched


class PasswordChecks:
    """Remembers passwords that matched, as digests under a secret of the process, so that clients reconnect at once."""

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
        """Of the stored key too: a changed password is checked again."""
        given = hashlib.sha256(password.encode()).digest()
        return hmac.digest(self._secret, credential.stored_key + given, "sha256")
