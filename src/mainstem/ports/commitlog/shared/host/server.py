"""The writer's end of the Unix socket: followers append through it, and receive every durable commit."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import cast

from mainstem import events
from mainstem.errors import InvariantBroken, MainstemError, StorageError
from mainstem.ports.commitlog.local.segments import Segment
from mainstem.ports.commitlog.port import Buffer, Committed, Placement
from mainstem.ports.commitlog.shared.host import messages
from mainstem.ports.commitlog.shared.host.messages import Frames, Kind, WriterMessage
from mainstem.ports.commitlog.shared.host.shared_memory import PAYLOAD_MEMORY_BYTES, PayloadMemory
from mainstem.ports.commitlog.shared.host.tail import Tail
from mainstem.ports.commitlog.shared.host.writer import HostWriter, PendingCommit

HANDSHAKE_S = 5.0  # a connection that says nothing for this long is closed
SEND_BUFFERED_BYTES_MAX = 64 << 20  # a follower this far behind is cut off, and reads the files instead

_BACKLOG = 128
_MAINTENANCE = (Kind.ROLL, Kind.SEAL, Kind.DROP)
_log = events.named("writer")


class WriterServer:
    """Accepts followers while this process is the writer."""

    def __init__(self, writer: HostWriter, listening: socket.socket, tail: Tail) -> None:
        """`tail` has the commits that are published."""
        self._writer = writer
        self._listening = listening
        self._tail = tail
        self._followers: dict[bytes, _Connection] = {}
        self._handshakes: set[asyncio.Task[None]] = set()
        self._accepting = asyncio.get_running_loop().create_task(self._accept(), name="mainstem-host-accept")

    def publish(self, commits: list[Committed]) -> None:
        """Send durable commits to every follower."""
        if self._followers:
            message = messages.frame(Kind.COMMITS, 0, messages.commits_body(commits))
            for one in list(self._followers.values()):
                one.send(message)

    def segments(self) -> bytes:
        """The files, as far as their commits are published."""
        end = self._tail.end
        found = []
        for one in self._writer.log.segments():
            if one.end > end:
                one = Segment(one.number, one.first, end, one.data_end)
            if one.first < one.end:
                found.append(one)
        return messages.segments_body(found)

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connected, _ = await loop.sock_accept(self._listening)
            except OSError as error:  # no descriptor: the follower tries again
                _log.warning("follower not accepted", error=str(error))
                await asyncio.sleep(0.1)
                continue
            task = loop.create_task(self._welcome(connected))
            self._handshakes.add(task)
            task.add_done_callback(self._handshakes.discard)

    async def _welcome(self, connected: socket.socket) -> None:
        try:
            follower, memory = await asyncio.to_thread(_greeted, connected)
            before = self._followers.pop(follower, None)
            if before is not None:
                before.cut_off()
            # The follower looks for its last commit in what it receives from here on, so that commit must be settled.
            await self._writer.settled()
            connected.setblocking(False)
            connection = _Connection(self, self._writer, follower, memory)
            await asyncio.get_running_loop().connect_accepted_socket(lambda: connection, connected)
        except (OSError, StorageError) as error:
            _log.warning("follower rejected", error=str(error))
            connected.close()

    def joined(self, connection: _Connection) -> None:
        # No await in between: the follower must get every later commit, once.
        welcome = messages.WELCOME.pack(self._writer.log.identity, self._tail.end)
        connection.send(messages.frame(Kind.WELCOME, 0, welcome, self.segments()))
        self._followers[connection.follower] = connection

    def left(self, connection: _Connection) -> None:
        if self._followers.get(connection.follower) is connection:
            del self._followers[connection.follower]

    async def close(self) -> None:
        """Stop accepting, and close the connections once everything sent has been written."""
        for task in (self._accepting, *self._handshakes):
            task.cancel()
        await asyncio.gather(self._accepting, *self._handshakes, return_exceptions=True)
        self._listening.close()
        for one in list(self._followers.values()):
            one.close()


class _Connection(asyncio.Protocol):
    """One follower."""

    def __init__(
        self, server: WriterServer, writer: HostWriter, follower: bytes, memory: PayloadMemory
    ) -> None:
        self.follower = follower
        self._server = server
        self._writer = writer
        self._memory = memory
        self._frames = Frames()
        self._transport: asyncio.Transport | None = None
        self._appending: PendingCommit | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._server.joined(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._forget_append()
        self._server.left(self)

    def data_received(self, data: bytes) -> None:
        try:
            for message in self._frames.feed(data):
                self._serve(message)
        except (struct.error, StorageError) as error:
            _log.warning("follower cut off", error=str(error))
            self.cut_off()

    def send(self, message: bytes) -> None:
        if self._transport is None:
            return
        self._transport.write(message)
        if self._transport.get_write_buffer_size() > SEND_BUFFERED_BYTES_MAX:
            self.cut_off()

    def close(self) -> None:
        """Close once everything sent has been written to the socket."""
        if self._transport is not None:
            self._transport.close()

    def cut_off(self) -> None:
        """Close at once, and ignore what was received but not processed."""
        self._forget_append()
        if self._transport is not None:
            self._transport.abort()
            self._transport = None

    def _forget_append(self) -> None:
        """Do not write it, unless that has begun: its follower looks for it, and sends it again if it is not there."""
        if self._appending is not None:
            self._appending.abandoned = True
            self._appending = None

    def _serve(self, message: WriterMessage) -> None:
        if self._transport is None:
            return
        if message.kind == Kind.APPEND:
            self._append(message)
        elif message.kind == Kind.OBJECTS:
            self.send(messages.frame(Kind.SEGMENTS, message.id, self._server.segments()))
        elif message.kind not in _MAINTENANCE:
            raise StorageError(f"a follower sent a message of kind {message.kind}")
        else:
            number = messages.NUMBER.unpack_from(message.body)[0] if message.body else 0
            task = asyncio.get_running_loop().create_task(self._maintain(message, number))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _append(self, message: WriterMessage) -> None:
        entry_length, payload_length, crc, where = messages.APPEND.unpack_from(message.body)
        at = messages.APPEND.size + entry_length
        in_memory = where == messages.IN_MEMORY
        inline = 0 if in_memory else payload_length
        if at + inline != len(message.body) or (in_memory and payload_length > PAYLOAD_MEMORY_BYTES):
            raise StorageError("the lengths in a follower's append do not match its body")
        entry = bytes(message.body[messages.APPEND.size : at])
        payload: Buffer = (
            self._memory.view[:payload_length] if where == messages.IN_MEMORY else message.body[at:]
        )
        slices = [payload] if payload_length else []
        pending = self._appending = self._writer.submit(entry, slices, crc)

        def answer(done: asyncio.Future[Placement]) -> None:
            if self._appending is pending:
                self._appending = None
            error = done.exception()
            if error is None:
                self.send(messages.frame(Kind.WRITTEN, message.id, messages.WRITTEN.pack(*done.result())))
            else:
                self.send(
                    messages.frame(Kind.FAILED, message.id, messages.error_body(cast(Exception, error)))
                )

        pending.done.add_done_callback(answer)

    async def _maintain(self, message: WriterMessage, number: int) -> None:
        log = self._writer.log
        work: dict[int, Callable[[], Awaitable[None]]] = {
            Kind.ROLL: log.roll,
            Kind.SEAL: lambda: log.seal(number, bytes(message.body[messages.NUMBER.size :])),
            Kind.DROP: lambda: log.drop(number),
        }
        try:
            await work[message.kind]()
        except (MainstemError, InvariantBroken, OSError) as error:
            self.send(messages.frame(Kind.FAILED, message.id, messages.error_body(error)))
        else:
            self.send(messages.frame(Kind.DONE, message.id))


def _greeted(connected: socket.socket) -> tuple[bytes, PayloadMemory]:
    """Read the greeting of a follower: its id and its payload memory. Raises OSError, StorageError."""
    connected.settimeout(HANDSHAKE_S)
    greeting, descriptors, _, _ = socket.recv_fds(connected, messages.HELLO.size, 1)
    if len(greeting) != messages.HELLO.size or len(descriptors) != 1:
        for one in descriptors:
            os.close(one)
        raise StorageError("a connection to the writer's socket did not start with a greeting")
    memory = PayloadMemory(descriptors[0])
    magic, version, follower = messages.HELLO.unpack(greeting)
    if (magic, version) != (messages.HELLO_MAGIC, messages.VERSION):
        raise StorageError(f"a follower speaks version {version}, this writer {messages.VERSION}")
    return follower, memory


def listen(path: Path) -> socket.socket:
    """Listen on a path that only this user can connect to. Raises OSError."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()  # of a writer that died; the caller holds the lock of the log
        with short_path(path) as short:
            listening.bind(short)
        path.chmod(0o600)
        listening.listen(_BACKLOG)
        listening.setblocking(False)
    except BaseException:
        listening.close()
        raise
    return listening


@contextlib.contextmanager
def short_path(path: Path) -> Iterator[str]:
    """The same path by way of /proc: the kernel takes 107 bytes of a socket's path."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
