"""Browsers: which pages may call this server, and which host names it accepts.

A page of another site can make a browser send requests here. `Origin` says where the page comes from, and `Host` which
name the browser looked up: a name of the attacker's that resolves to a loopback address (DNS rebinding) is not ours.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from mainstem.config import Config
from mainstem.doors.http.transport.errors import Refusal

_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_ANY = "*"


@dataclass(frozen=True, slots=True)
class OriginPolicy:
    origins: frozenset[str] = frozenset()  # beside the server's own
    hosts: frozenset[str] = frozenset()  # names of this server, beside addresses and localhost

    @classmethod
    def of(cls, config: Config) -> OriginPolicy:
        names = _words(config.allowed_hosts)
        if config.insecure or config.allow_insecure_no_auth:
            names.add(_ANY)  # the operator allows every client that can reach the server
        for address in (config.http, config.http_advertise, config.kafka_advertise):
            if address is not None:
                names.add(address.host.lower())
        return cls(frozenset(_words(config.allowed_origins)), frozenset(names))

    def check(
        self, method: str, headers: Mapping[bytes, bytes], *, anonymous: bool, socket: bool = False
    ) -> None:
        """Raises Refusal 403 for a request that a page of another site makes, or that names another server.

        A read with credentials needs no check of its host: another site does not have them."""
        if anonymous and not self._is_ours(_host(headers)):
            raise Refusal(
                421,
                "misdirected_request",
                "this server does not answer to that Host: add the name with --allowed-hosts",
            )
        origin = headers.get(b"origin")
        if origin is None:
            site = headers.get(b"sec-fetch-site")
            if method not in _SAFE_METHODS and site is not None and site not in (b"same-origin", b"none"):
                raise _foreign()
            return
        if (socket or method not in _SAFE_METHODS) and not self._admits(origin, headers):
            raise _foreign()

    def _admits(self, origin: bytes, headers: Mapping[bytes, bytes]) -> bool:
        text = origin.decode("latin-1").lower()
        if text in self.origins or _ANY in self.origins:
            return True
        _, found, authority = text.partition("://")
        return bool(found) and authority == (headers.get(b"host") or b"").decode("latin-1").lower()

    def _is_ours(self, host: str) -> bool:
        if _ANY in self.hosts or host in self.hosts:
            return True
        if "." not in host or host.endswith(".localhost"):
            return True  # a name without a dot cannot be resolved through public DNS
        return _is_address(host)  # a page of another site cannot have this server's address as its host


@lru_cache(maxsize=1024)
def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _foreign() -> Refusal:
    return Refusal(
        403,
        "forbidden",
        "a web page of another origin may not do this: allow its origin with --allowed-origins",
    )


def _host(headers: Mapping[bytes, bytes]) -> str:
    """The host name that the client looked up, without the port."""
    text = (headers.get(b"host") or b"").decode("latin-1").strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.rpartition(":")[0] if ":" in text else text


def _words(text: str) -> set[str]:
    return {word.strip().lower() for word in text.split(",") if word.strip()}
