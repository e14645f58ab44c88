"""Authentication of requests by their headers, and the load of each client."""

from __future__ import annotations

import asyncio
import base64
import binascii
from typing import Any

from mainstem.broker.access.certificates import by_certificate
from mainstem.broker.access.principal import ANONYMOUS, UNRESTRICTED, Principal
from mainstem.broker.broker import Broker
from mainstem.errors import Unauthorized


class HttpClient:
    """A principal, and its requests and streams in progress at this door."""

    __slots__ = ("id", "in_flight", "principal", "streams")

    def __init__(self, principal: Principal) -> None:
        self.principal = principal
        self.id = f"{principal.name}\0{principal.key_id}".encode()
        self.in_flight = 0
        self.streams = 0  # event streams open


class HttpClients:
    """The clients of a door. Without authentication, all requests belong to one client."""

    def __init__(self, broker: Broker, *, insecure: bool = False) -> None:
        self._access = broker.access
        self._authentication = broker.authentication
        self._now_ms = broker.clock.now_ms
        self._insecure = insecure
        self._certified: dict[
            tuple[Any, ...], tuple[Principal, asyncio.Transport]
        ] = {}  # by the client's address
        self._clients: dict[bytes, HttpClient] = {}  # those with requests in progress, and some recent ones
        self._everyone = HttpClient(ANONYMOUS)
        self._unrestricted = HttpClient(UNRESTRICTED)

    @property
    def required(self) -> bool:
        """Whether a request needs credentials."""
        return self._access.restricted and not self._insecure

    def everyone(self) -> HttpClient:
        """The client of requests without credentials, where none are needed."""
        return self._unrestricted if self._insecure and self._access.restricted else self._everyone

    def connected(self, transport: asyncio.Transport) -> None:
        """Note the certificate of a new connection, if it has one."""
        principal = by_certificate(transport.get_extra_info("peercert"))
        if principal is None:
            return
        if len(self._certified) >= _CLIENTS_KEPT:
            open_still = {key: one for key, one in self._certified.items() if not one[1].is_closing()}
            self._certified = open_still
        self._certified[tuple(transport.get_extra_info("peername")[:2])] = principal, transport

    async def find(
        self, authorization: bytes | None, address: tuple[Any, ...] | None = None
    ) -> HttpClient | None:
        """The client of this Authorization header, or of the certificate on the connection from this address, which
        suffices unless API keys exist. None: unknown credentials."""
        if authorization is None:
            certified = self._certified.get(tuple(address[:2])) if address else None
            if certified is not None and not self._authentication.has_keys:
                return self._of(certified[0])
            return None if self.required else self.everyone()
        principal = await self._principal(authorization)
        if principal is None:
            return None if self.required else self.everyone()
        return self._of(principal)

    async def _principal(self, authorization: bytes) -> Principal | None:
        secret = bearer(authorization)
        if secret is None:
            user, password = basic(authorization) or ("", "")
            return await self._authentication.by_password(user, password) if user and password else None
        principal = self._authentication.by_key(secret)
        if principal is None and self._authentication.tokens is not None:
            try:
                principal, _ = await self._authentication.by_token(secret.decode("latin-1"), self._now_ms())
            except Unauthorized:
                return None
        return principal

    def _of(self, principal: Principal) -> HttpClient:
        id = f"{principal.name}\0{principal.key_id}".encode()
        client = self._clients.get(id)
        if client is None or client.principal != principal:
            if len(self._clients) >= _CLIENTS_KEPT:
                self._clients = {id: one for id, one in self._clients.items() if one.in_flight or one.streams}
            client = self._clients[id] = HttpClient(principal)
        return client


_CLIENTS_KEPT = 10_000


def bearer(authorization: bytes | None) -> bytes | None:
    """The secret of an Authorization header."""
    if authorization is None:
        return None
    scheme, _, secret = authorization.partition(b" ")
    secret = secret.strip()
    return secret if scheme.lower() == b"bearer" and secret else None


def basic(authorization: bytes) -> tuple[str, str] | None:
    """User and password of an Authorization header."""
    scheme, _, encoded = authorization.partition(b" ")
    if scheme.lower() != b"basic":
        return None
    try:
        user, _, password = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        return None
    return user, password
