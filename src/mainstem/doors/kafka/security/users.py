"""Credentials: users of the settings first, then those that administrators created."""

from __future__ import annotations

import secrets
from collections.abc import Iterable

from mainstem.broker.access.service import Credential, Security
from mainstem.doors.kafka.security.passwords import MECHANISMS, dummy_credential


class Users:
    def __init__(self, configured: Iterable[Credential], stored: Security) -> None:
        self._configured = {(credential.user, credential.mechanism): credential for credential in configured}
        self._stored = stored
        self._secret = secrets.token_bytes(32)

    def credential(self, user: str, mechanism: int) -> Credential:
        """An unknown user gets a credential that no password matches, so that clients cannot find out user names."""
        return self._known(user, mechanism) or dummy_credential(self._secret, user, mechanism)

    def any_credential(self, user: str) -> Credential:
        """A credential to check a password with, for whichever mechanism."""
        for mechanism in MECHANISMS.values():
            known = self._known(user, mechanism)
            if known is not None:
                return known
        return dummy_credential(self._secret, user, MECHANISMS["SCRAM-SHA-256"])

    def _known(self, user: str, mechanism: int) -> Credential | None:
        return self._configured.get((user, mechanism)) or self._stored.credential(user, mechanism)
