"""Malicious clients: slow bodies, too many bodies, broken frames, thousands of idle connections."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import random
import resource
import socket
import struct
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import h2.connection
import httpx
import psutil
import pytest

from mainstem import limits
from mainstem.address import Address
from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.doors.http.door import HttpDoor

from .conftest import Api

_HEAD = b"POST /v0/topics/t HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
_UPGRADE = (
    b"GET /v0/ws HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\nconnection: Upgrade\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: " + base64.b64encode(bytes(16)) + b"\r\n\r\n"
)
_PATIENCE_S = 60


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[HttpDoor]:
    broker = await Broker.open(BrokerOptions(tmp_path / "data", segment_bytes=1 << 20))
    door = HttpDoor(broker)
    yield door
    await door.stop(1.0)
    await broker.close()


async def _connect(door: HttpDoor) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    address = await door.start(Address("127.0.0.1", 0))
    return await asyncio.open_connection(address.host, address.port)


async def _drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, drop: bytes) -> None:
    """Send a little, again and again, until the server closes the connection."""
    while True:
        writer.write(drop)
        await writer.drain()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.03):
                await reader.readexactly(1 << 20)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HTTP_STALL_S", 0.3)
    monkeypatch.setattr("mainstem.doors.http.transport.http_connections._SWEEP_S", 0.05)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    ("head", "drop"),
    [(b"content-length: 1000000\r\n\r\n", b" "), (b"transfer-encoding: chunked\r\n\r\n", b"1\r\n \r\n")],
)
async def test_a_slow_body_does_not_extend_the_timeout(door: HttpDoor, head: bytes, drop: bytes) -> None:
    reader, writer = await _connect(door)
    writer.write(_HEAD + head)
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await asyncio.wait_for(_drip(reader, writer, drop), _PATIENCE_S)
    writer.close()
    assert door.context.body_bytes == 0


@pytest.mark.usefixtures("impatient")
async def test_a_slow_body_over_http_2_does_not_extend_the_timeout(door: HttpDoor) -> None:
    reader, writer = await _connect(door)
    client = h2.connection.H2Connection()
    client.initiate_connection()
    names = ((":method", "POST"), (":path", "/v0/topics/t"), (":scheme", "http"), (":authority", "x"))
    client.send_headers(1, [*names, ("content-type", "application/json")])
    writer.write(client.data_to_send())

    def drop() -> bytes:
        if client.local_flow_control_window(1):
            client.send_data(1, b" ")
        client.ping(bytes(8))  # frames that are not part of the body do not count
        return bytes(client.data_to_send())

    async def drip() -> None:
        while True:
            writer.write(drop())
            await writer.drain()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.03):
                    while True:
                        if not await reader.read(1 << 16):
                            raise ConnectionError("closed")

    try:
        with pytest.raises(ConnectionError):
            await asyncio.wait_for(drip(), _PATIENCE_S)
    finally:
        writer.close()


async def test_a_slow_body_above_the_minimum_rate_is_accepted(
    door: HttpDoor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "HTTP_STALL_BYTES_MIN", 5)
    monkeypatch.setattr("mainstem.doors.http.transport.http_connections._SWEEP_S", 0.02)
    address = await door.start(Address("127.0.0.1", 0))
    for stall_s in (0.2, 2.0, 10.0):  # a busy machine may not keep the rate itself
        monkeypatch.setattr(limits, "HTTP_STALL_S", stall_s)
        answer = await _answer_to_slow_body(address, stall_s / 7)
        if answer.startswith(b"HTTP/1.1 201"):
            return
    raise AssertionError(answer)


async def _answer_to_slow_body(address: Address, pause_s: float) -> bytes:
    """Receive until the header of a response is complete, or the connection is closed."""
    reader, writer = await asyncio.open_connection(address.host, address.port)
    body = b'{"records":[{"data":1}]}' + b" " * 40
    writer.write(_HEAD + b"content-length: %d\r\n\r\n" % len(body))
    answer = asyncio.ensure_future(reader.readuntil(b"\r\n\r\n"))
    for at in range(0, len(body), 4):
        writer.write(body[at : at + 4])
        await asyncio.wait((answer,), timeout=pause_s)
    try:
        return await asyncio.wait_for(answer, _PATIENCE_S)
    except (ConnectionError, asyncio.IncompleteReadError) as dropped:
        return repr(dropped).encode()
    finally:
        writer.close()


async def test_the_total_size_of_bodies_in_flight_is_bounded(
    door: HttpDoor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "HTTP_INGEST_BYTES_MAX", 100_000)
    address = await door.start(Address("127.0.0.1", 0))
    connections = [await asyncio.open_connection(address.host, address.port) for _ in range(4)]
    for _, writer in connections:
        writer.write(_HEAD + b"content-length: 1000000\r\n\r\n" + b" " * 40_000)
    refused = [asyncio.ensure_future(reader.readuntil(b"\r\n\r\n")) for reader, _ in connections]
    done, waiting = await asyncio.wait(refused, timeout=_PATIENCE_S, return_when=asyncio.FIRST_COMPLETED)
    heads = [head.result() for head in done]
    assert heads
    assert all(head.startswith(b"HTTP/1.1 429") and b"retry-after: 1" in head for head in heads)
    assert door.context.body_bytes <= 140_000
    for task in waiting:
        task.cancel()
    for _, writer in connections:
        writer.close()
    async with asyncio.timeout(_PATIENCE_S):
        while door.context.body_bytes:  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0)


def _frame(dice: random.Random) -> bytes:
    """A frame that may be valid, or break any rule."""
    payload = dice.choice((dice.randbytes(dice.randrange(200)), b'{"op":"ping"}', b"\xff" * 10))
    first = dice.choice((0x81, 0x82, 0x88, 0x89, 0x01, 0x80, dice.randrange(256)))
    masked = 0x80 if dice.random() < 0.9 else 0
    kind = dice.randrange(5)
    if kind == 0:
        head = struct.pack("!BBQ", first, masked | 127, dice.choice((1 << 63, 1 << 40, len(payload))))
    elif kind == 1:
        head = struct.pack("!BBH", first, masked | 126, dice.choice((len(payload), 65535)))
    else:
        head = struct.pack("!BB", first, masked | min(len(payload), 125))
    return head + (bytes(4) if masked else b"") + payload[:125]


async def test_broken_web_socket_frames_end_their_own_socket_at_most(door: HttpDoor) -> None:
    address = await door.start(Address("127.0.0.1", 0))
    dice = random.Random(11)
    for _ in range(60):
        reader, writer = await asyncio.open_connection(address.host, address.port)
        writer.write(_UPGRADE)
        assert b" 101 " in await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), _PATIENCE_S)
        with contextlib.suppress(ConnectionError):
            for _ in range(dice.randrange(1, 12)):
                writer.write(_frame(dice))
            await writer.drain()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
    async with httpx.AsyncClient(base_url=f"http://{address}", timeout=_PATIENCE_S) as client:
        assert (await client.get("/v0/ready")).status_code == 200
        async with asyncio.timeout(_PATIENCE_S):
            while door.context.streams:  # noqa: ASYNC110 - what is waited for has no event
                await asyncio.sleep(0)


@pytest.mark.slow
@pytest.mark.alone("every broker counts for itself")
def test_ten_thousand_idle_event_streams_do_not_block_others(serve: Callable[..., Any]) -> None:
    """10,000 where this process may open as many files, else as many as it may."""
    count = min(10_000, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 500)
    held: list[socket.socket] = []
    with serve() as server:
        server.ask("PUT", "/v0/topics/t")
        memory = psutil.Process(server.process.pid).memory_info
        before = memory().rss
        address = server.process.address("http")
        _, session = server.ask(
            "POST", "/v0/watch", {"topics": {"t": {"tail": True}}, "heartbeat_ms": 60_000}
        )
        request = f"GET {session['stream_url']} HTTP/1.1\r\nhost: x\r\n\r\n".encode()
        try:
            for _ in range(count):
                held.append(socket.create_connection((address.host, address.port), _PATIENCE_S))
                held[-1].sendall(request)
            assert held[-1].recv(15) == b"HTTP/1.1 200 OK"
            each = (memory().rss - before) / count
            assert each < 64 * limits.KIB, f"an idle stream costs {each:.0f} bytes"
            status, refused = server.ask("GET", session["stream_url"]) if count == 10_000 else (429, None)
            assert status == 429, refused
            for number in range(50):
                status, written = server.ask("POST", "/v0/topics/u", {"records": [{"data": number}]})
                assert status in (200, 201)
                assert written["performance"]["server_total_ms"] < 2000
        finally:
            for connection in held:
                connection.close()


# Long lists: whatever a body says, it is decoded and served in a bounded time


@pytest.mark.parametrize(
    ("method", "path", "head", "item", "tail"),
    [
        ("POST", "/v0/acls", '{"rules":[', '{"principal":"User:a","resource":"topic","name":"x"}', "]}"),
        ("POST", "/v0/groups/g/offsets", '{"offsets":[', '{"topic":"t","offset":0}', "]}"),
        ("POST", "/v0/groups/g/join", '{"topics":[', '"t"', "]}"),
        ("POST", "/subjects/s/versions", '{"schema":"1","references":[', '{"name":"x","subject":"s"}', "]}"),
        (
            "POST",
            "/iceberg/v1/transactions/commit",
            '{"table-changes":[',
            '{"requirements":[],"updates":[]}',
            "]}",
        ),
        ("POST", "/v0/watch", '{"topics":{"t":{}},"x":[', "1", "]}"),
        ("PUT", "/v0/topics/t", '{"x":[', "1", "]}"),
        ("POST", "/v0/sql", '{"query":"SELECT 1","x":[', "1", "]}"),
    ],
)
async def test_long_lists_are_refused(
    api: Api, method: str, path: str, head: str, item: str, tail: str
) -> None:
    for items in (limits.HTTP_LISTED_MAX + 1, limits.HTTP_CONTROL_BODY_BYTES_MAX // (len(item) + 1) + 1):
        body = head + ",".join([item] * items) + tail
        answer = await httpx.AsyncClient.send(
            api.client,
            api.client.build_request(
                method, path, content=body, headers={"content-type": "application/json"}
            ),
        )
        if len(body) > limits.HTTP_CONTROL_BODY_BYTES_MAX:
            assert answer.status_code == 413
        elif '"x":' not in head:
            assert answer.status_code in (400, 422), answer.text
