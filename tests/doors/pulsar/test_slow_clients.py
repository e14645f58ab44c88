"""A client that does not read what its consumers get."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

from mainstem.address import Address
from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.doors.pulsar.connection import PULSAR_WRITE_BUFFER_BYTES
from mainstem.doors.pulsar.door import PulsarDoor
from mainstem.doors.pulsar.wire import FrameBuffer, simple_frame

_CONSUMERS = 60


async def test_many_consumers_of_a_client_that_does_not_read_share_its_buffer(tmp_path: Path) -> None:
    broker = await Broker.open(BrokerOptions(tmp_path / "data"))
    await broker.create_topic("t")
    for _ in range(10):
        await broker.append_values("t", [b"x" * (PULSAR_WRITE_BUFFER_BYTES // 8)])
    door = PulsarDoor(broker)
    address = await door.start(Address("127.0.0.1", 0))
    client = socket.create_connection((address.host, address.port))
    try:
        client.sendall(simple_frame("connect", client_version="test", protocol_version=21))
        for number in range(_CONSUMERS):
            consumer = {
                "consumer_id": number,
                "subscription": f"s{number}",
                "subType": 0,
                "initialPosition": 1,
            }
            client.sendall(simple_frame("subscribe", request_id=number, topic="t", **consumer))
        client.setblocking(False)
        loop, frames, answers = asyncio.get_running_loop(), FrameBuffer(), 0
        while answers < 1 + _CONSUMERS:
            frames.feed(await loop.sock_recv(client, 1 << 16))
            while frames.next() is not None:
                answers += 1
        client.sendall(
            b"".join(
                simple_frame("flow", consumer_id=number, messagePermits=1_000) for number in range(_CONSUMERS)
            )
        )
        for _ in range(2_000):
            await asyncio.sleep(0)
        # With what the kernel holds; the first turn of each consumer would be more than twice as much.
        assert 0 < door.metrics.bytes_out < _CONSUMERS * PULSAR_WRITE_BUFFER_BYTES // 2
        # All of them get their messages once the client reads.
        while door.metrics.entries_out < _CONSUMERS * 10:
            await asyncio.wait_for(loop.sock_recv(client, 1 << 20), 5)
    finally:
        client.close()
        await door.stop()
        await broker.close()
