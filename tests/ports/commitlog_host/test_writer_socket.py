"""What does not speak the protocol of the writer's socket is cut off, and the writer goes on."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from pathlib import Path

import pytest

from mainstem.ports.commitlog.shared.host import messages
from mainstem.ports.commitlog.shared.host.log import FOLDER, SOCKET
from mainstem.ports.commitlog.shared.host.messages import APPEND, FRAME, HELLO, IN_MEMORY, Kind
from mainstem.ports.commitlog.shared.host.shared_memory import PAYLOAD_MEMORY_BYTES

from ..logs import append_samples
from .logs import open_writer

_FRAMES = {
    "an unknown kind": FRAME.pack(0, 99, 1),
    "an append that is too short": FRAME.pack(2, Kind.APPEND, 1) + b"xx",
    "more than the memory holds": FRAME.pack(APPEND.size + 1, Kind.APPEND, 1)
    + APPEND.pack(1, PAYLOAD_MEMORY_BYTES + 1, 0, IN_MEMORY)
    + b"e",
    "an entry that is not there": FRAME.pack(APPEND.size, Kind.APPEND, 1) + APPEND.pack(1 << 31, 0, 0, 0),
    "a frame of four gigabytes": FRAME.pack(0xFFFFFFFF, Kind.APPEND, 1),
    "no number": FRAME.pack(1, Kind.DROP, 1) + b"x",
}


@pytest.mark.parametrize("sent", [*_FRAMES, "memory that is too small", "no greeting"])
async def test_a_follower_that_sends_anything_else_is_cut_off(tmp_path: Path, sent: str) -> None:
    writer = await open_writer(tmp_path)
    path = tmp_path / FOLDER / SOCKET
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    await asyncio.wait_for(asyncio.to_thread(_send, path, sent), 60)
    await append_samples(writer, 3)
    await writer.close()


def _send(path: Path, sent: str) -> None:
    """Returns once the writer closes the connection."""
    hello = HELLO.pack(messages.HELLO_MAGIC, messages.VERSION, b"f" * 16)
    memory = os.memfd_create("test")
    os.ftruncate(memory, 10 if sent == "memory that is too small" else PAYLOAD_MEMORY_BYTES)
    folder = os.open(path.parent, os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(60)
        connection.connect(f"/proc/self/fd/{folder}/{path.name}")
        socket.send_fds(connection, [b"?" * len(hello) if sent == "no greeting" else hello], [memory])
        if sent in _FRAMES:
            connection.recv(FRAME.size)  # its welcome
            connection.sendall(_FRAMES[sent])
        try:
            while connection.recv(65_536):
                pass
        except ConnectionResetError:
            pass
    os.close(folder)
    os.close(memory)
