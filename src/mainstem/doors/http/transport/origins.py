"""Browsers: which pages may call this server, and which host names it accepts.

A page of another site can make a browser send requests here. `Origin` says where the page comes from, and `Host` which
name the browser looked up: a name of the attacker's that resolves to a loopback address (DNS rebinding) is not ours.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from mainstem import limits
from mainstem.config import Config
from mainstem.doors.http.transport.errors import Refusal
from mainstem.doors.http.transport.responses import Header, Response

_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_ANY = "*"
_EXPOSED_HEADERS = b"location, mainstem-position, retry-after"
_REQUEST_HEADERS = (
    b"accept, authorization, content-type, idempotency-key, last-event-id, mainstem-forward, "
    b"mainstem-position, traceparent"
)
_PREFLIGHT_S = b"600"  # a browser asks again after this


@dataclass(frozen=True, slots=True)
class OriginPolicy:
    origins: frozenset[str] = frozenset()  # in addition to the server's own
    hosts: frozenset[str] = frozenset()  # names of this server, in addition to addresses and localhost

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
        self.check_host(headers, anonymous=anonymous)
        if socket or method not in _SAFE_METHODS:
            self.check_page(headers)

    def check_host(self, headers: Mapping[bytes, bytes], *, anonymous: bool) -> None:
        """Raises Refusal 421."""
        if anonymous and not self._is_ours(_host(headers)):
            raise Refusal(
                421,
                "misdirected_request",
                "this server does not answer to that Host: add the name with --allowed-hosts",
            )

    def check_page(self, headers: Mapping[bytes, bytes]) -> None:
        """Raises Refusal 403 for a request that changes something, from a page of another site."""
        origin = headers.get(b"origin")
        if origin is None:
            site = headers.get(b"sec-fetch-site")
            if site is not None and site not in (b"same-origin", b"none"):
                raise _foreign()
        elif not self._admits(origin, headers):
            raise _foreign()

    def response_headers(self, origin: bytes | None) -> tuple[Header, ...]:
        """What lets a page of another origin read a response; nothing unless its origin is allowed."""
        if origin is None or not self.origins or not self._listed(origin):
            return ()
        return (
            (b"access-control-allow-origin", origin),
            (b"access-control-expose-headers", _EXPOSED_HEADERS),
            (b"vary", b"origin"),
        )

    def _listed(self, origin: bytes) -> bool:
        return origin.decode("latin-1").lower() in self.origins or _ANY in self.origins

    def _admits(self, origin: bytes, headers: Mapping[bytes, bytes]) -> bool:
        if self._listed(origin):
            return True
        _, found, authority = origin.decode("latin-1").lower().partition("://")
        return bool(found) and authority == (headers.get(b"host") or b"").decode("latin-1").lower()

    def _is_ours(self, host: str) -> bool:
        if _ANY in self.hosts or host in self.hosts:
            return True
        if "." not in host or host.endswith(".localhost"):
            return True  # a name without a dot cannot be resolved through public DNS
        return _is_address(host)  # a page of another site cannot have this server's address as its host


def preflight(allowed_methods: bytes) -> Response:
    """The response to a browser that asks whether a page of an allowed origin may send a request."""
    return Response(
        204,
        b"",
        (
            (b"access-control-allow-methods", allowed_methods),
            (b"access-control-allow-headers", _REQUEST_HEADERS),
            (b"access-control-max-age", _PREFLIGHT_S),
        ),
    )


def _is_address(host: str) -> bool:
    return len(host) <= limits.KEPT_NAME_CHARS_MAX and _parses_as_address(host)


@lru_cache(maxsize=1024)
def _parses_as_address(host: str) -> bool:
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
