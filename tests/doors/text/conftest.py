"""The door in this process, over real sockets and a real broker."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from mainstem.address import Address
from mainstem.broker.broker import Broker
from mainstem.doors.text.door import TextDoor


class Wire:
    """One client connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, *requests: str | bytes) -> None:
        for request in requests:
            body = request.encode() if isinstance(request, str) else request
            self.writer.write(struct.pack("<I", len(body)) + body)

    async def receive(self) -> bytes:
        """Raises IncompleteReadError at the end of the connection."""
        (length,) = struct.unpack("<I", await self.reader.readexactly(4))
        return await self.reader.readexactly(length)

    async def ask(self, request: str | bytes) -> str:
        self.send(request)
        return (await self.receive()).decode()

    async def answers(self, count: int) -> list[str]:
        return [(await self.receive()).decode() for _ in range(count)]

    async def ended(self) -> bool:
        return await self.reader.read() == b""

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):  # the server may close first
            await self.writer.wait_closed()


class Stage:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    @asynccontextmanager
    async def open(self, **options: object) -> AsyncIterator[TextStage]:
        door = TextDoor(self.broker, **options)
        stage = TextStage(self.broker, door, await door.start(Address("127.0.0.1", 0)))
        try:
            yield stage
        finally:
            for wire in stage.wires:
                await wire.close()
            await door.stop(1.0)


class TextStage:
    def __init__(self, broker: Broker, door: TextDoor, address: Address) -> None:
        self.broker = broker
        self.door = door
        self.address = address
        self.wires: list[Wire] = []

    async def connect(self) -> Wire:
        wire = Wire(*await asyncio.open_connection(self.address.host, self.address.port))
        self.wires.append(wire)
        return wire


@pytest.fixture
def stage(broker: Broker) -> Stage:
    return Stage(broker)


@pytest.fixture
async def text(stage: Stage) -> AsyncIterator[TextStage]:
    async with stage.open() as text:
        yield text


@pytest.fixture
async def wire(text: TextStage) -> Wire:
    return await text.connect()
