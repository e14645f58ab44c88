"""A blocking client of the text door."""

from __future__ import annotations

import socket
import struct
from types import TracebackType

from mainstem.address import Address

_TIMEOUT_S = 60.0


class TextClient:
    def __init__(self, address: Address) -> None:
        self.socket = socket.create_connection((address.host, address.port), timeout=_TIMEOUT_S)
        self._file = self.socket.makefile("rb")

    def __enter__(self) -> TextClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        self.socket.close()

    def send(self, *requests: str | bytes) -> None:
        bodies = [request.encode() if isinstance(request, str) else request for request in requests]
        self.socket.sendall(b"".join(struct.pack("<I", len(body)) + body for body in bodies))

    def receive(self) -> str | None:
        """The next answer, None if the connection is closed before one."""
        head = self._file.read(4)
        if not head:
            return None
        body = self._file.read(struct.unpack("<I", head)[0])
        return body.decode()

    def ask(self, request: str | bytes) -> str | None:
        self.send(request)
        return self.receive()
