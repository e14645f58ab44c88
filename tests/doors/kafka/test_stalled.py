"""Clients that announce a request and stall in the middle of it: the memory they occupy is bounded."""

from __future__ import annotations

import asyncio
import socket
import struct
import weakref
from contextlib import ExitStack
from typing import Any

import numpy as np
import psutil
import pytest

from mainstem import limits
from mainstem.doors.kafka.transport.connection import KAFKA_BULK_BYTES, KafkaConnection
from mainstem.doors.kafka.transport.receive_buffer import (
    KAFKA_LANDING_BLOCKS_MAX,
    KAFKA_LANDING_FRAME_BYTES_MAX,
)
from mainstem.testing.server import ServerProcess
from tests.support.batches import batch

from .conftest import KafkaStage
from .requests import metadata, produce
from .wire import request_frame

_CLIENTS = 50
_ANNOUNCED = KAFKA_LANDING_FRAME_BYTES_MAX - 4  # the largest frame for which there is always room in a block


class Silence(asyncio.Transport):
    """A client that reads everything, and sends only what the test gives it."""

    def write(self, data: object) -> None: ...
    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...


def _receive(connection: KafkaConnection, data: bytes) -> object:
    """Receive all at once, as from a socket. Returns the owner of the memory that it went to."""
    room = connection.get_buffer(-1)
    room[: len(data)] = data
    connection.buffer_updated(len(data))
    return room.obj


class Stalled:
    """Clients that have sent much, and then the beginning of a large request."""

    def __init__(self, stage: KafkaStage) -> None:
        self._door = stage.door
        self._clients: list[KafkaConnection] = []
        self._blocks: list[weakref.ref[Any]] = []

    def add(self) -> None:
        client = self._door._connection()
        client.connection_made(Silence())
        _receive(client, request_frame(produce(9, "t", batch(bytes(KAFKA_BULK_BYTES))[0]), 1))
        block = _receive(client, struct.pack(">i", _ANNOUNCED) + bytes(10))
        assert isinstance(block, np.ndarray)  # not the buffer that all connections share
        self._blocks.append(weakref.ref(block))
        self._clients.append(client)

    def others_send_much(self) -> None:
        landing = self._door._connections.landing
        landing.take(len(landing.room(0)))

    def held(self) -> int:
        """How many of the blocks that they began a request in still exist."""
        return len({id(block()) for block in self._blocks if block() is not None})

    def end(self) -> None:
        for client in self._clients:
            client.connection_lost(None)
        self._clients.clear()


async def test_clients_that_stall_share_blocks(kafka: KafkaStage) -> None:
    await kafka.broker.create_topic("t")
    stalled = Stalled(kafka)
    for _ in range(_CLIENTS):
        stalled.add()
    assert _CLIENTS // 4 <= stalled.held() <= _CLIENTS // 3 + 1
    stalled.end()


async def test_a_stalled_client_holds_one_block_whatever_others_send(kafka: KafkaStage) -> None:
    await kafka.broker.create_topic("t")
    stalled = Stalled(kafka)
    for _ in range(_CLIENTS):
        stalled.add()
        stalled.others_send_much()
    for _ in range(2 * KAFKA_LANDING_BLOCKS_MAX):
        stalled.others_send_much()
    assert stalled.held() == _CLIENTS
    stalled.end()
    for _ in range(2 * KAFKA_LANDING_BLOCKS_MAX):
        stalled.others_send_much()
    assert stalled.held() <= KAFKA_LANDING_BLOCKS_MAX


async def test_the_number_of_stalled_clients_that_hold_a_block_is_bounded(
    kafka: KafkaStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainstem.doors.kafka.transport.receive_buffer.KAFKA_LANDING_FRAMES_MAX", 10)
    monkeypatch.setattr("mainstem.doors.kafka.transport.receive_buffer.KAFKA_LANDING_BLOCKS_MAX", 4)
    await kafka.broker.create_topic("t")
    stalled = Stalled(kafka)
    for _ in range(2):  # closed connections hold nothing, and others may
        for _ in range(_CLIENTS):
            stalled.add()
            stalled.others_send_much()
        for _ in range(10):
            stalled.others_send_much()
        assert 10 <= stalled.held() <= 10 + 4
        stalled.end()


def test_announced_bytes_that_are_not_sent_take_no_memory(server: ServerProcess) -> None:
    memory = psutil.Process(server.pid).memory_info
    address = server.address("kafka")
    with ExitStack() as stack:
        clients = [
            stack.enter_context(socket.create_connection((address.host, address.port), 30))
            for _ in range(_CLIENTS)
        ]
        before = memory().rss
        for client in clients:
            client.sendall(struct.pack(">i", limits.KAFKA_REQUEST_BYTES_MAX) + bytes(100_000))
        with socket.create_connection((address.host, address.port), 30) as other:
            other.sendall(request_frame(metadata(12), 1))
            assert other.recv(4)  # so that the earlier bytes have been received
        # Nearly 5 GB were announced. The kernel gives out large memory in pages of 2 MiB.
        assert memory().rss - before < _CLIENTS * 4 * limits.MIB
