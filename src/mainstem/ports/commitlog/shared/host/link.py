"""A follower's end of the Unix socket."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, cast

from crc32c import crc32c

from mainstem.errors import StorageError
from mainstem.ports.commitlog.local.segments import Segment
from mainstem.ports.commitlog.port import Buffer, Committed, Placement
from mainstem.ports.commitlog.shared.host import messages
from mainstem.ports.commitlog.shared.host.messages import Frames, Kind, WriterMessage
from mainstem.ports.commitlog.shared.host.server import short_path
from mainstem.ports.commitlog.shared.host.shared_memory import (
    PAYLOAD_INLINE_BYTES_MAX,
    PAYLOAD_MEMORY_BYTES,
    PayloadMemory,
    new_payload_memory,
)

CONNECT_S = 5.0


class WriterGone(Exception):
    """The connection to the writer ended before it answered."""


class LinkOwner(Protocol):
    def on_commits(self, commits: list[Committed]) -> None:
        """The next durable commits, in order."""
        ...

    def on_lost(self, link: Link) -> None:
        """The connection ended."""
        ...


class Link(asyncio.Protocol):
    """One connection to the writer."""

    def __init__(self, memory: PayloadMemory) -> None:
        self._memory = memory
        self._owner: LinkOwner | None = None
        self._early: list[Committed] = []  # commits that came before there was an owner
        self._frames = Frames()
        self._transport: asyncio.Transport | None = None
        self._answers: dict[int, asyncio.Future[WriterMessage]] = {}
        self._last_id = 0
        self._welcome: asyncio.Future[WriterMessage] = asyncio.get_running_loop().create_future()
        self.identity = b""
        self.end = 0
        self.segments: list[Segment] = []

    @classmethod
    async def connect(cls, path: Path, follower: bytes) -> Link:
        """Connect to the writer, and wait for its welcome. Raises OSError, WriterGone."""
        connected, memory = await asyncio.to_thread(_connected, path, follower)
        loop = asyncio.get_running_loop()
        link = cls(memory)
        try:
            await loop.create_connection(lambda: link, sock=connected)
        except BaseException:
            connected.close()
            raise
        welcome = (await link._welcome).body
        link.identity, link.end = messages.WELCOME.unpack_from(welcome)
        link.segments = messages.read_segments(welcome[messages.WELCOME.size :])
        return link

    @property
    def lost(self) -> bool:
        return self._transport is None

    def deliver_to(self, owner: LinkOwner) -> None:
        """The owner gets every commit from `end` on, and learns when the connection ends."""
        self._owner = owner
        early, self._early = self._early, []
        owner.on_commits(early)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        for waiting in (self._welcome, *self._answers.values()):
            if not waiting.done():
                waiting.set_exception(WriterGone("the writer closed the connection"))
                waiting.exception()
        self._answers.clear()
        if self._owner is not None:
            self._owner.on_lost(self)

    def data_received(self, data: bytes) -> None:
        for message in self._frames.feed(data):
            if message.kind == Kind.COMMITS:
                commits = messages.read_commits(message.body)
                if self._owner is None:
                    self._early += commits
                else:
                    self._owner.on_commits(commits)
            elif message.kind == Kind.WELCOME:
                self._welcome.set_result(message)
            else:
                waiting = self._answers.pop(message.id, None)
                if waiting is not None and not waiting.done():
                    waiting.set_result(message)

    async def append(self, entry: bytes, slices: Sequence[Buffer], crc: int | None) -> Placement:
        """Have a commit written. Calls do not overlap. Raises WriterGone, and what `HostWriter.submit` does."""
        length = sum(map(len, slices))
        shared = PAYLOAD_INLINE_BYTES_MAX < length <= PAYLOAD_MEMORY_BYTES
        if shared:
            self._memory.put(slices)
        if crc is None:
            crc = checksum(slices)
        head = messages.APPEND.pack(len(entry), length, crc, messages.IN_MEMORY if shared else 0)
        answer = await self._ask(
            Kind.APPEND, head, entry, *(() if shared else (memoryview(one) for one in slices))
        )
        position, number, start = messages.WRITTEN.unpack(answer.body)
        return Placement(position, number, start)

    async def objects(self) -> list[Segment]:
        return messages.read_segments((await self._ask(Kind.OBJECTS)).body)

    async def roll(self) -> None:
        await self._ask(Kind.ROLL)

    async def seal(self, object: int, index: bytes) -> None:
        await self._ask(Kind.SEAL, messages.NUMBER.pack(object), index)

    async def drop(self, object: int) -> None:
        await self._ask(Kind.DROP, messages.NUMBER.pack(object))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    async def _ask(self, kind: Kind, *body: bytes | memoryview) -> WriterMessage:
        if self._transport is None:
            raise WriterGone("the writer closed the connection")
        self._last_id += 1
        answer: asyncio.Future[WriterMessage] = asyncio.get_running_loop().create_future()
        self._answers[self._last_id] = answer
        self._transport.write(messages.frame(kind, self._last_id, *body))
        message = await answer
        if message.kind == Kind.FAILED:
            raise messages.read_error(message.body)
        return message


def checksum(slices: Sequence[Buffer]) -> int:
    crc = 0
    for part in slices:
        crc = crc32c(part, crc)
    return crc


def _connected(path: Path, follower: bytes) -> tuple[socket.socket, PayloadMemory]:
    descriptor = new_payload_memory()
    connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        connected.settimeout(CONNECT_S)
        with short_path(path) as short:
            connected.connect(short)
        greeting = messages.HELLO.pack(messages.HELLO_MAGIC, messages.VERSION, follower)
        if socket.send_fds(connected, [greeting], [descriptor]) != len(greeting):
            raise StorageError("the writer's socket took only a part of the greeting")
        connected.setblocking(False)
    except BaseException:
        os.close(descriptor)
        connected.close()
        raise
    return connected, PayloadMemory(descriptor)
