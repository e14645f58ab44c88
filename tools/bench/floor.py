"""The cost of receiving bytes and making them durable, with nothing in between: the minimum for any broker."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from mainstem.limits import MIB
from tools.bench.machine import touch_pages
from tools.bench.report import Span, measured

_SENT_BYTES = 400 * MIB


def received_and_synced(path: Path) -> tuple[Span, int]:
    """Take bytes off a loopback socket, write and sync them a MiB at a time. Returns what that took, and how many."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        sender = os.fork()
        if not sender:
            _send(listening.getsockname())
        connection, _ = listening.accept()
    touch_pages(path.parent, _SENT_BYTES)
    buffer = bytearray(MIB)
    view = memoryview(buffer)
    fd = os.open(path, os.O_CREAT | os.O_WRONLY)
    try:
        os.posix_fallocate(fd, 0, _SENT_BYTES)
        written = filled = 0
        with connection, measured() as span:
            while count := connection.recv_into(view[filled:]):
                filled += count
                if filled == MIB:
                    written += os.pwrite(fd, buffer, written)
                    os.fdatasync(fd)
                    filled = 0
    finally:
        os.close(fd)
        path.unlink()
        os.waitpid(sender, 0)
    return span, written


def _send(address: tuple[str, int]) -> None:
    """In a process of its own, so that its CPU is not counted."""
    try:
        payload = os.urandom(MIB)
        with socket.create_connection(address) as connection:
            for _ in range(_SENT_BYTES // MIB):
                connection.sendall(payload)
    finally:
        os._exit(0)
