"""One page sent to many event streams by a native call: short writes, clients that leave, and no mixed-up bytes."""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mainstem.address import Address
from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.broker.watch import WatchOptions
from mainstem.doors.http.door import HttpDoor
from mainstem.doors.http.live import native_send
from mainstem.doors.http.live.broadcast import Broadcast
from mainstem.doors.http.transport.send_buffer import SendBuffer
from mainstem.doors.tls import tls_context
from mainstem.ledger.config import TopicConfig
from tests.support.certificates import make_self_signed

from .watching import Event, event_id, parse

PATIENCE_S = 60.0
WATCHERS = 12  # more than the minimum for the native call
LONG = b'"' + b"x" * 200_000 + b'"'  # the kernel accepts only a part of it where its buffer is small


class Spy:
    """The native call, and the results of its sends."""

    def __init__(self, send_all: Callable[..., None]) -> None:
        self._send_all = send_all
        self.sockets = 0
        self.refused = 0
        self.cut = 0
        self.before: Callable[[], None] = lambda: None

    def __call__(self, descriptors: Any, address: int, size: int, sent: Any) -> None:
        self.before()
        self._send_all(descriptors, address, size, sent)
        self.sockets += len(descriptors)
        self.refused += int(np.count_nonzero(sent < 0))
        self.cut += int(np.count_nonzero((sent > 0) & (sent < size)))


class Client:
    """An event stream on a plain socket. It reads only while a test waits for something."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.events: list[Event] = []

    async def seen(self, count: int) -> Client:
        """Read until it has `count` records."""
        return await self.until(lambda: len(self.seqs) >= count)

    async def until(self, reached: Callable[[], bool]) -> Client:
        async with asyncio.timeout(PATIENCE_S):
            while not reached():
                size = await self._reader.readuntil(
                    b"\r\n"
                )  # no byte too few or too many, or this is not a number
                assert re.fullmatch(rb"[0-9a-f]+\r\n", size), size[:100]
                chunk = await self._reader.readexactly(int(size, 16) + 2)
                assert chunk.endswith(b"\n\n\r\n"), chunk[-100:]
                self.events += map(parse, chunk[:-4].decode().split("\n\n"))
        return self

    @property
    def records(self) -> list[Event]:
        return [event for event in self.events if event.name == "record"]

    @property
    def seqs(self) -> list[int]:
        return [record["$seq"] for event in self.records for record in event.data["records"]]

    def check(self, topic: str, count: int) -> None:
        """Everything once and in order, each frame with the id to resume from."""
        assert self.seqs == list(range(1, count + 1))
        assert {event.data["topic"] for event in self.records} <= {topic}
        assert all(event.cursors == {topic: event.data["to_seq"]} for event in self.records)

    @property
    def socket(self) -> socket.socket:
        found: socket.socket = self._writer.get_extra_info("socket")
        return found

    def reset(self) -> None:
        """Reset the connection: every send is an error now."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()


class Stage:
    """A door, and clients that watch through it."""

    def __init__(self, broker: Broker, door: HttpDoor, spy: Spy) -> None:
        self.broker = broker
        self.door = door
        self.spy = spy
        self.clients: list[Client] = []

    async def open(self, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self._address = await self.door.start(Address("127.0.0.1", 0))
        for topic in "ab":
            await self.broker.create_topic(topic, config=TopicConfig(durability="disk"))

    def session(self, topic: str) -> str:
        context = self.door.context
        return context.live.sessions.create(
            context.clients.everyone().id, {(topic, 0): 0}, WatchOptions()
        ).wid

    async def watch(self, topic: str, wid: str = "", **headers: str) -> Client:
        reader, writer = await asyncio.open_connection(self._address.host, self._address.port, ssl=self._tls)
        lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        writer.write(
            f"GET /v0/watch/{wid or self.session(topic)} HTTP/1.1\r\nhost: x\r\n{lines}\r\n".encode()
        )
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        client = Client(reader, writer)
        self.clients.append(client)
        return await client.until(lambda: client.events[-1:] != [] and client.events[-1].name == "caught-up")

    async def append(self, topic: str, *values: bytes) -> None:
        for value in values:
            await self.broker.append_values(topic, [value])

    def _connection(self, client: Client) -> Any:
        port = client.socket.getsockname()[1]
        connections: list[Any] = [*self.door.connections]
        return next(one for one in connections if one.client[1] == port)

    def send_buffer(self) -> SendBuffer:
        """The server's end, if it is the only one."""
        (stream,) = self.door.context.live.open
        send_buffer: SendBuffer = stream.send_buffer  # type: ignore[attr-defined]
        return send_buffer

    def shrink(self, client: Client) -> None:
        """Shrink the server's send buffer for this client."""
        made = self._connection(client).transport.get_extra_info("socket")
        made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)

    async def close(self) -> None:
        for client in self.clients:
            client._writer.transport.abort()
        await self.door.stop(1.0)
        await self.broker.close()


@pytest.fixture
def spy(monkeypatch: pytest.MonkeyPatch) -> Spy:
    spy = Spy(native_send.send_all)
    monkeypatch.setattr(native_send, "send_all", spy)
    return spy


@pytest.fixture
async def stage(tmp_path: Path, spy: Spy) -> AsyncIterator[Stage]:
    broker = await Broker.open(BrokerOptions(tmp_path / "data", segment_bytes=1 << 22))
    stage = Stage(broker, HttpDoor(broker), spy)
    await stage.open()
    stage.door.context.live.broadcast.warm_up()
    yield stage
    await stage.close()


async def test_a_slow_client_among_many_gets_every_byte_once(stage: Stage) -> None:
    slow, *fast = [await stage.watch("a") for _ in range(WATCHERS)]
    stage.shrink(slow)
    rounds = 20
    for number in range(1, rounds + 1):
        await stage.append("a", LONG, b"1")
        for client in fast:
            await client.seen(2 * number)
        await slow.seen(number // 2)  # it falls behind, and keeps reading
    assert stage.spy.cut
    assert stage.spy.sockets > rounds * len(fast)
    for client in (*fast, await slow.seen(2 * rounds)):
        client.check("a", 2 * rounds)
    told = stage.spy.sockets
    await stage.append("a", b"2")
    for client in stage.clients:
        (await client.seen(2 * rounds + 1)).check("a", 2 * rounds + 1)
    assert stage.spy.sockets == told + WATCHERS  # it is one of them again


async def test_nothing_overtakes_what_a_transport_buffers(stage: Stage) -> None:
    client = await stage.watch("a")
    send_buffer = stage.send_buffer()
    assert send_buffer.descriptor() >= 0
    stage.shrink(client)
    while send_buffer.descriptor() >= 0:
        send_buffer.push(
            {"type": "http.response.body", "body": b": a comment of some length\n\n" * 9, "more_body": True}
        )
    assert send_buffer.ready  # it may be sent more, but not past what waits
    await client.until(lambda: send_buffer.descriptor() >= 0)


async def test_a_descriptor_is_removed_with_its_connection(stage: Stage) -> None:
    await stage.watch("a")
    send_buffer = stage.send_buffer()
    assert send_buffer.descriptor() >= 0
    loop = asyncio.get_running_loop()
    found: asyncio.Future[tuple[int, bool]] = loop.create_future()
    (connection,) = stage.door.connections
    connection.transport.abort()
    # After the transport, which closes the socket, and before the stream learns of it.
    loop.call_soon(lambda: found.set_result((send_buffer.descriptor(), send_buffer.gone)))
    assert await found == (-1, False)


async def test_the_native_call_is_used_only_for_many_watchers_and_once_loaded(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Broadcast, "warm_up", lambda _: None)
    few = [await stage.watch("b") for _ in range(2)]
    await stage.append("b", b"1", b"2")
    for client in few:
        (await client.seen(2)).check("b", 2)
    stage.door.context.live.broadcast = Broadcast()
    monkeypatch.setattr(stage.door.context.live, "_watcher_groups", {})
    many = [await stage.watch("a") for _ in range(WATCHERS)]
    await stage.append("a", b"1", b"2")
    for client in many:
        (await client.seen(2)).check("a", 2)
    assert stage.spy.sockets == 0


async def test_clients_that_leave_during_a_round_affect_no_other(stage: Stage) -> None:
    clients = [await stage.watch("a") for _ in range(2 * WATCHERS)]
    staying = clients[WATCHERS:]
    leaving = clients[:WATCHERS]

    def leave() -> None:
        if leaving:
            leaving.pop().reset()

    stage.spy.before = leave
    for number in range(1, 2 * WATCHERS):
        await stage.append("a", b"1")
        for client in staying:
            await client.seen(number)
    for client in staying:
        client.check("a", 2 * WATCHERS - 1)
    assert not leaving
    assert stage.broker.watching.places == len(staying)


async def test_a_reused_descriptor_gets_nothing_of_its_previous_owner(stage: Stage) -> None:
    staying = [await stage.watch("a") for _ in range(WATCHERS)]
    for _ in range(5):
        for client in [await stage.watch("a") for _ in range(4)]:
            client.reset()
            await stage.append("a", b"1")
        others = [await stage.watch("b") for _ in range(4)]
        await stage.append("a", b"1")
        await stage.append("b", b"1")
        for client in others:
            await client.until(lambda client=client: client.events[-1].name == "record")  # type: ignore[misc]
            assert {event.data["topic"] for event in client.events if event.name != "retry"} == {"b"}
            client.reset()
    for client in staying:
        (await client.seen(25)).check("a", 25)


async def test_heartbeats_come_between_frames_and_not_within(stage: Stage) -> None:
    clients = [await stage.watch("a") for _ in range(WATCHERS)]
    for number in range(1, 20):
        for held in list(stage.door.context.live.open):
            held.beat()  # type: ignore[attr-defined]
        await stage.append("a", LONG[1:5000].join((b'"', b'"')))
        for client in clients:
            await client.seen(number)
    for client in clients:
        client.check("a", 19)
        assert (
            sum(event.data is not None and str(event.data).startswith(": hb") for event in client.events)
            == 19
        )


async def test_resuming_while_the_old_connection_is_open_continues_exactly(stage: Stage) -> None:
    wid = stage.session("a")
    old = await stage.watch("a", wid)
    for _ in range(WATCHERS):
        await stage.watch("a")
    await stage.append("a", *([b"1"] * 5))
    await old.seen(5)
    new = await stage.watch("a", wid)
    assert new.seqs == []
    again = await stage.watch("a", wid, last_event_id=event_id({"a": 3}))
    assert (await again.seen(2)).seqs == [4, 5]
    await stage.append("a", b"1")
    assert [client.seqs[-1] for client in (await old.seen(6), await new.seen(1), await again.seen(3))] == [
        6,
        6,
        6,
    ]


async def test_tls_connections_never_use_the_native_call(tmp_path: Path, spy: Spy) -> None:
    certificate = make_self_signed(tmp_path)
    broker = await Broker.open(BrokerOptions(tmp_path / "data", segment_bytes=1 << 20))
    stage = Stage(
        broker,
        HttpDoor(broker, tls=tls_context(certificate / "cert.pem", certificate / "key.pem", None)),
        spy,
    )
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    await stage.open(trusting)
    stage.door.context.live.broadcast.warm_up()
    clients = [await stage.watch("a") for _ in range(WATCHERS)]
    await stage.append("a", b"1", b"2")
    for client in clients:
        (await client.seen(2)).check("a", 2)
    assert spy.sockets == 0
    await stage.close()
