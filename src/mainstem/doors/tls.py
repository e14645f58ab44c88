"""TLS of the doors: the context of their flags, and handshakes that count as connections."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

from mainstem.doors.budget import Budget, Seats, peer_of
from mainstem.errors import InvalidConfig

TLS_HANDSHAKE_S = 15.0
TLS_SHUTDOWN_S = 2.0  # for a client's close_notify

Connect = Callable[[], asyncio.BaseProtocol]


def tls_context(
    cert: Path | None,
    key: Path | None,
    ca: Path | None,
    *,
    flags: str = "--tls",
    protocols: Sequence[str] = (),
    verify: ssl.VerifyMode = ssl.CERT_REQUIRED,
) -> ssl.SSLContext | None:
    """TLS as configured by the flags. With a CA, `verify` says whether clients must present a certificate.
    Raises InvalidConfig."""
    if cert is None:
        if key is not None or ca is not None:
            raise InvalidConfig(f"{flags}-key and {flags}-ca need {flags}-cert")
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if protocols:
        context.set_alpn_protocols(list(protocols))
    try:
        context.load_cert_chain(cert, key)
        if ca is not None:
            context.load_verify_locations(ca)
            context.verify_mode = verify
    except (OSError, ssl.SSLError) as wrong:
        raise InvalidConfig(
            f"the files of {flags}-cert, {flags}-key and {flags}-ca cannot be used: {wrong}"
        ) from None
    return context


def accepting(connect: Connect, context: ssl.SSLContext | None, budget: Budget) -> Connect:
    """For `create_server`: what makes a connection, after its handshake if there is a context."""
    return connect if context is None else lambda: _Handshake(connect, context, budget.seats)


class _Handshake(asyncio.Protocol):
    """A client that has not finished its handshake. It counts as a connection, and new connections displace it when no
    more are allowed.

    asyncio does not count its own handshakes, which could use up the descriptors of the process. So the loop accepts a
    plain connection, and gets its socket back for the handshake."""

    def __init__(self, connect: Connect, context: ssl.SSLContext, seats: Seats) -> None:
        self._connect = connect
        self._context = context
        self._seats = seats

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        loop = asyncio.get_running_loop()
        self._began = loop.time()
        self._peer = peer_of(transport)
        admitted = self._seats.admit(self._peer, self)
        if admitted:
            try:
                self._socket = socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno()))
            except OSError:  # no descriptor is left
                self._seats.leave(self._peer, self)
                admitted = False
        cast("asyncio.Transport", transport).abort()  # nothing was read from it
        if admitted:
            self._socket.setblocking(False)
            self._task = loop.create_task(self._shake_hands(), name="mainstem-tls-handshake")

    def unused_since(self) -> float | None:
        return self._began

    def abort(self) -> None:
        with contextlib.suppress(OSError):  # already closed
            self._socket.shutdown(socket.SHUT_RDWR)

    async def _shake_hands(self) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                self._connect,
                self._socket,
                ssl=self._context,
                ssl_handshake_timeout=TLS_HANDSHAKE_S,
                ssl_shutdown_timeout=TLS_SHUTDOWN_S,
            )
        except (OSError, ssl.SSLError, TimeoutError):
            pass  # the client failed: the loop has closed the connection
        finally:
            self._seats.leave(self._peer, self)
