"""Ports for servers that need fixed addresses, and that listen there again after a kill.

The system may give a port that it picked to another process as soon as the server ends, or the socket that found the
port is closed. These ports are below the system's ephemeral range, and belong to this process until it exits, in blocks
that other processes on this machine see as locked.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

_FIRST, _END = 20_000, 32_000
_BLOCK = 100


def kept_ports(count: int) -> list[int]:
    """Loopback ports that nobody listens on, reserved for this process."""
    with _ports_lock:
        return [next(_ports) for _ in range(count)]


def consecutive_ports(length: int) -> int:
    """The first of `length` consecutive ports, for doors that each worker opens on a port of its own."""
    with _ports_lock:
        run = [next(_ports)]
        while len(run) < length:
            port = next(_ports)
            run = [*run, port] if port == run[-1] + 1 else [port]
        return run[0]


def _reserved() -> Iterator[int]:
    for first in range(_FIRST, _END, _BLOCK):
        if _lock_block(first):
            yield from filter(_is_free, range(first, first + _BLOCK))
    raise RuntimeError(f"all ports from {_FIRST} to {_END} are in use")


def _lock_block(first: int) -> bool:
    """Lock a block of ports for this process: the lock file stays open until it exits."""
    path = Path(tempfile.gettempdir()) / f"mainstem-ports-{os.getuid()}-{first}.lock"
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return False
    return True


def _is_free(port: int) -> bool:
    with socket.socket() as probe, contextlib.suppress(OSError):
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", port))
        return True
    return False


_ports_lock = threading.Lock()
_ports = _reserved()
