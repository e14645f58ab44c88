"""OpenID Connect: the keys of an issuer, found by discovery and renewed as the issuer rotates them.

The keys are fetched on a thread. A token with an unknown key id makes the server look for new keys, at most once in
`OIDC_REFRESH_MIN_S`; after a failure the wait doubles.
"""

from __future__ import annotations

import asyncio
import urllib.request
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

import msgspec

from mainstem import events, limits
from mainstem.broker.access.tokens import VerificationKey, parse_key_set
from mainstem.errors import InvalidConfig

OIDC_REFRESH_S = 3600.0  # keys of an issuer are fetched again after this long
OIDC_BACKOFF_MAX_S = 300.0
OIDC_FETCH_S = 10.0
OIDC_DOCUMENT_BYTES_MAX = 1 * limits.MIB

_log = events.named("oidc")

Fetch = Callable[[str], bytes]


class _Discovery(msgspec.Struct, frozen=True):
    issuer: str
    jwks_uri: str


class IssuerKeys:
    """The current keys of one issuer."""

    def __init__(self, issuer: str, now_s: Callable[[], float], fetch: Fetch | None = None) -> None:
        self._issuer = issuer
        self._now_s = now_s
        self._fetch = fetch or fetch_document
        self._keys: Sequence[VerificationKey] = ()
        self._fetched_s = float("-inf")
        self._next_s = float("-inf")  # before then, no other attempt
        self._failures = 0
        self._refreshing: asyncio.Task[None] | None = None

    async def find(self, kid: str | None, algorithm: str) -> list[VerificationKey]:
        """The keys that may have signed a token."""
        if self._now_s() - self._fetched_s > OIDC_REFRESH_S:
            await self._refresh()
        found = self._matching(kid, algorithm)
        if not found:
            await self._refresh()
            found = self._matching(kid, algorithm)
        return found

    def _matching(self, kid: str | None, algorithm: str) -> list[VerificationKey]:
        return [key for key in self._keys if kid in (None, key.kid) and algorithm in key.algorithms]

    async def _refresh(self) -> None:
        """Fetch the keys, unless that was tried a moment ago. Logins that need them wait together."""
        if self._refreshing is None:
            if self._now_s() < self._next_s:
                return
            self._refreshing = asyncio.ensure_future(self._fetch_keys())
        await asyncio.shield(self._refreshing)

    async def _fetch_keys(self) -> None:
        wait_s: float = limits.OIDC_REFRESH_MIN_S
        try:
            self._keys = await asyncio.to_thread(self._read)
            self._fetched_s = self._now_s()
            self._failures = 0
            _log.info("keys fetched", issuer=self._issuer, keys=len(self._keys))
        except (OSError, ValueError, InvalidConfig) as error:
            self._failures += 1
            wait_s = min(wait_s * 2**self._failures, OIDC_BACKOFF_MAX_S)
            _log.warning("keys not fetched", issuer=self._issuer, retry_in_s=wait_s, error=str(error))
        finally:
            self._next_s = self._now_s() + wait_s
            self._refreshing = None

    def _read(self) -> list[VerificationKey]:
        location = self._issuer.rstrip("/") + "/.well-known/openid-configuration"
        found = msgspec.json.decode(self._fetch(location), type=_Discovery)
        if found.issuer != self._issuer:
            raise ValueError(f"the discovery document is of another issuer: {found.issuer[:128]}")
        if urlsplit(found.jwks_uri).scheme != urlsplit(self._issuer).scheme:
            raise ValueError("the keys are not served over the scheme of the issuer")
        return parse_key_set(self._fetch(found.jwks_uri), found.jwks_uri)


def fetch_document(url: str) -> bytes:
    """Raises OSError, ValueError."""
    if urlsplit(url).scheme not in ("http", "https"):
        raise ValueError("an issuer has an http or https URL")
    with urllib.request.urlopen(url, timeout=OIDC_FETCH_S) as response:
        content: bytes = response.read(OIDC_DOCUMENT_BYTES_MAX + 1)
    if len(content) > OIDC_DOCUMENT_BYTES_MAX:
        raise ValueError(f"{url} has more than {OIDC_DOCUMENT_BYTES_MAX} bytes")
    return content
