"""What one request at a time costs any server in Python: receive, write, sync, answer, and nothing else.

The server is a process of its own. It runs the event loop that Mainstem runs (uvloop), with one protocol class that
makes the same system calls as a lone commit.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import psutil
import uvloop

from tools.bench.lone_requests import Asked, ask_over, best

COMMIT_BYTES = 480  # one record of 100 bytes, with both copies of its entry
FLOOR_FILE_BYTES = 64 << 20
_REQUEST, _ANSWER = b"r" * 200, b"a" * 55
_WRITES_MAX = FLOOR_FILE_BYTES // COMMIT_BYTES


class _Floor(asyncio.Protocol):
    def __init__(self, fd: int, *, synced: bool) -> None:
        self._fd, self._synced, self._written = fd, synced, 0
        self._commit = os.urandom(COMMIT_BYTES)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        os.pwrite(self._fd, self._commit, self._written % _WRITES_MAX * COMMIT_BYTES)
        self._written += 1
        if self._synced:
            os.fdatasync(self._fd)
        self._transport.write(_ANSWER)


def preallocated(path: Path) -> int:
    """The descriptor of a file whose blocks are written, so that a sync has no metadata to write."""
    fd = os.open(path, os.O_CREAT | os.O_RDWR | os.O_TRUNC)
    os.pwrite(fd, bytes(FLOOR_FILE_BYTES), 0)
    os.fsync(fd)
    return fd


def asked(path: Path, *, synced: bool) -> Asked:
    """Ask such a server, as the others are asked."""
    with _serving(path, synced=synced) as (process, connection):
        return best(process, ask_over(connection, _REQUEST, lambda answer: answer == _ANSWER))


@contextmanager
def _serving(path: Path, *, synced: bool) -> Iterator[tuple[psutil.Process, socket.socket]]:
    listening = socket.create_server(("127.0.0.1", 0))
    child = os.fork()
    if not child:
        try:
            uvloop.run(_serve(listening, path, synced=synced))
        finally:
            os._exit(0)
    try:
        with listening:
            connection = socket.create_connection(listening.getsockname())
        with connection:
            yield psutil.Process(child), connection
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


async def _serve(listening: socket.socket, path: Path, *, synced: bool) -> None:
    fd = preallocated(path)
    server = await asyncio.get_running_loop().create_server(lambda: _Floor(fd, synced=synced), sock=listening)
    await server.serve_forever()
