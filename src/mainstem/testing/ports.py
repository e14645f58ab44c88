"""Ports for servers that are told where to listen, and that come back there after a kill.

A port that the system picked is anybody's again as soon as its server ends, or the socket that found it is closed:
the next one to ask, in whichever process, may be given it. These lie below those that the system picks from, and
belong to this process as long as it lives, in blocks that other runs on this machine see the lock of.
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
    """Ports of the loopback interface that nobody listens on, and that nobody else is given."""
    with _one_at_a_time:
        return [next(_ports) for _ in range(count)]


def _kept() -> Iterator[int]:
    for first in range(_FIRST, _END, _BLOCK):
        if _lock(first):
            yield from filter(_free, range(first, first + _BLOCK))
    raise RuntimeError(f"the ports from {_FIRST} to {_END} are all taken")


def _lock(first: int) -> bool:
    """Whether the block is this process's from now on: the file stays open until it ends."""
    path = Path(tempfile.gettempdir()) / f"mainstem-ports-{os.getuid()}-{first}.lock"
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return False
    return True


def _free(port: int) -> bool:
    with socket.socket() as probe, contextlib.suppress(OSError):
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", port))
        return True
    return False


_one_at_a_time = threading.Lock()
_ports = _kept()
