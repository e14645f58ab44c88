"""The door in this process over real sockets, and a real server process for real clients."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from mainstem.address import Address
from mainstem.broker.access.options import AccessOptions
from mainstem.broker.broker import Broker
from mainstem.doors.kafka.door import KafkaDoor
from mainstem.testing.server import ServerProcess
from tests.support.cluster_server import server_process

from .wire import Wire


class KafkaStage:
    """A broker and its Kafka door on a free port."""

    def __init__(self, broker: Broker, door: KafkaDoor, address: Address) -> None:
        self.broker = broker
        self.door = door
        self.address = address
        self.bootstrap = str(address)
        self._wires: list[Wire] = []

    async def connect(self) -> Wire:
        wire = await Wire.connect(self.address)
        self._wires.append(wire)
        return wire

    async def disconnect(self) -> None:
        for wire in self._wires:
            await wire.close()


@asynccontextmanager
async def opened(
    broker: Broker, *, access: AccessOptions | None = None, **options: object
) -> AsyncIterator[KafkaStage]:
    """A door with other options."""
    if access is not None:
        broker.access.configure(access)
        broker.authentication.configure(access)
    door = KafkaDoor(broker, **options)
    stage = KafkaStage(broker, door, await door.start(Address("127.0.0.1", 0)))
    try:
        yield stage
    finally:
        await stage.disconnect()
        await door.stop(1.0)


@pytest.fixture
async def kafka(broker: Broker) -> AsyncIterator[KafkaStage]:
    async with opened(broker) as stage:
        yield stage


@pytest.fixture
async def wire(kafka: KafkaStage) -> Wire:
    return await kafka.connect()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One `mainstem serve` for all tests of a file."""
    with server_process(tmp_path_factory.mktemp("kafka") / "data") as process:
        yield process


@pytest.fixture
def bootstrap(server: ServerProcess) -> str:
    """The value of bootstrap.servers."""
    return str(server.address("kafka"))
