"""Requests that repeat the head of the one before: compared instead of parsed, and served without a task."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from mainstem.address import Address
from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.doors.http.door import HttpDoor
from mainstem.doors.http.transport.repeated import RepeatedHead
from mainstem.doors.http.transport.responses import Asgi
from mainstem.ledger.config import TopicConfig


class Client:
    """One connection, on which requests are written as bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, raw: bytes) -> None:
        self.writer.write(raw)

    async def receive(self) -> tuple[int, Any]:
        async with asyncio.timeout(60):
            head = await self.reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
            return int(head.split(b" ")[1]), json.loads(await self.reader.readexactly(length))

    async def ask(self, raw: bytes) -> tuple[int, Any]:
        self.send(raw)
        return await self.receive()


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    broker = await Broker.open(BrokerOptions(tmp_path / "data", segment_bytes=1 << 20))
    await broker.create_topic("t", config=TopicConfig(durability="disk"))
    await broker.create_topic("f", config=TopicConfig(durability="fsync"))
    yield broker
    await broker.close()


@pytest.fixture
async def door(broker: Broker) -> AsyncIterator[HttpDoor]:
    door = HttpDoor(broker)
    await door.start(Address("127.0.0.1", 0))
    yield door
    await door.stop(1.0)


async def connected(door: HttpDoor) -> Client:
    address = await door.listen_inside()
    return Client(*await asyncio.open_connection(address.host, address.port))


@pytest.fixture
async def client(door: HttpDoor) -> AsyncIterator[Client]:
    client = await connected(door)
    yield client
    client.writer.close()


@pytest.fixture
def repeated(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The bodies of the requests that were not parsed."""
    found: list[bytes] = []
    body_of = RepeatedHead.body_of

    def recorded(self: RepeatedHead, data: bytes) -> bytes | None:
        body = body_of(self, data)
        if body is not None:
            found.append(body)
        return body

    monkeypatch.setattr(RepeatedHead, "body_of", recorded)
    return found


def post(path: str, body: object, *headers: bytes) -> bytes:
    content = json.dumps(body).encode()
    lines = [b"POST %b HTTP/1.1" % path.encode(), b"Host: localhost", b"Content-Type: application/json"]
    lines += [*headers, b"Content-Length: %d" % len(content), b"Accept: */*", b"", content]
    return b"\r\n".join(lines)


def write(value: object, topic: str = "t", *headers: bytes) -> bytes:
    return post(f"/v0/topics/{topic}", {"records": [{"data": value}]}, *headers)


async def read(client: Client, topic: str = "t", **query: object) -> list[Any]:
    status, page = await client.ask(post(f"/v0/topics/{topic}/diff", {"from_seq": 0, "limit": 1000, **query}))
    assert status == 200
    return [record["data"] for record in page["records"]]


@pytest.mark.parametrize("topic", ["t", "f"])
async def test_every_repeated_write_is_its_own(client: Client, repeated: list[bytes], topic: str) -> None:
    values: list[object] = ["x" * size for size in (1, 5, 5, 900, 2, 30_000, 7)]
    for number, value in enumerate(values):
        status, answer = await client.ask(write(value, topic))
        assert (status, answer["first_seq"]) == (200, number + 1)
    # The first request of a connection is parsed.
    assert repeated == [write(value, topic).partition(b"\r\n\r\n")[2] for value in values[2:]]
    assert await read(client, topic) == values


async def test_large_requests_are_repeated_too(client: Client, repeated: list[bytes]) -> None:
    values = [letter * 20_000 for letter in "abcd"]
    for value in values:
        assert (await client.ask(write(value)))[0] == 200
    # Those that arrived in one piece.
    assert all(body in (write(value).partition(b"\r\n\r\n")[2] for value in values) for body in repeated)
    assert await read(client) == values


async def test_a_refused_request_is_followed_by_others(client: Client, repeated: list[bytes]) -> None:
    for value in (1, 2):
        assert (await client.ask(write(value)))[0] == 200
    head = b"\r\n".join(
        [b"POST /v0/topics/t HTTP/1.1", b"Host: localhost", b"Content-Type: application/json"]
    )
    for body in (b"{", b'{"records":[]}', b""):
        raw = head + b"\r\nContent-Length: %d\r\nAccept: */*\r\n\r\n" % len(body) + body
        assert (await client.ask(raw))[0] == 400
    assert (await client.ask(write(3)))[0] == 200
    assert len(repeated) == 4
    assert await read(client) == [1, 2, 3]


async def test_other_heads_are_parsed(client: Client, repeated: list[bytes]) -> None:
    for value in (1, 2):
        await client.ask(write(value))
    for others in (b"X-A: b", b"Content-Encoding: gzip", b"Expect: 100-continue"):
        raw = write(0, "t", others)
        client.send(raw)
        if others.startswith(b"Expect"):
            assert b" 100 " in await client.reader.readuntil(b"\r\n\r\n")
        status, _ = await client.receive()
        assert status == (400 if b"gzip" in others else 200)
    assert not repeated


async def test_pieces_and_pipelines_are_parsed(client: Client, repeated: list[bytes]) -> None:
    for value in (1, 2, 3):
        await client.ask(write(value))
    assert len(repeated) == 1
    whole = write(4)
    for size in (1, 20, len(whole) - 30, len(whole) - 1):
        client.send(whole[:size])
        await client.writer.drain()
        await asyncio.sleep(0)
        client.send(whole[size:])
        assert (await client.receive())[0] == 200
    client.send(write(5) + write(6) + write(7)[:40])
    assert [(await client.receive())[0] for _ in range(2)] == [200, 200]
    client.send(write(7)[40:])
    assert (await client.receive())[0] == 200
    assert await read(client) == [1, 2, 3, 4, 4, 4, 4, 5, 6, 7]


async def test_bytes_between_requests_reach_the_parser(client: Client, repeated: list[bytes]) -> None:
    """What follows a request may be the beginning of another one, so the next bytes are not a whole request."""
    for value in (1, 2):
        await client.ask(write(value))
    client.send(write(3) + b"POS")
    assert (await client.receive())[0] == 200
    client.send(write(4))
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionResetError):
        assert (await client.receive())[0] == 400
    assert not repeated


async def test_a_head_that_begins_behind_another_request_is_no_pattern(
    client: Client, repeated: list[bytes]
) -> None:
    """A later request would get the headers that were sent before the bytes that it repeats."""
    for value in (1, 2):
        await client.ask(write(value))
    hidden = b"POST /v0/topics/t HTTP/1.1\r\nIdempotency-Key: once\r\nX-Note: "
    client.send(write(3) + hidden)
    assert (await client.receive())[0] == 200
    for value in (4, 5):
        status, answer = await client.ask(write(value))  # the first line of the first is the value of X-Note
        assert (status, answer["deduped"]) == (200, False)
    assert not repeated
    assert await read(client) == [1, 2, 3, 4, 5]


async def test_a_repeated_read_that_waits_is_woken(client: Client, broker: Broker) -> None:
    wait = {"from_seq": 0, "limit": 10, "wait_ms": 60_000}
    assert (await client.ask(write(0)))[0] == 200
    assert (await client.ask(post("/v0/topics/t/diff", wait)))[0] == 200
    assert (await client.ask(post("/v0/topics/t/diff", wait)))[0] == 200
    client.send(post("/v0/topics/t/diff", {**wait, "from_seq": 1}))
    while not broker.diffs.waiting:  # noqa: ASYNC110 - what is waited for has no event
        await asyncio.sleep(0)
    await broker.append_values("t", [b"1"])
    status, page = await client.receive()
    assert (status, [record["data"] for record in page["records"]]) == (200, [1])
    status, page = await client.ask(post("/v0/topics/t/diff", {**wait, "from_seq": 2, "wait_ms": 1}))
    assert (status, page["records"]) == (200, [])


async def test_a_repeated_read_that_waits_is_answered_when_the_broker_stops(
    client: Client, broker: Broker
) -> None:
    wait = post("/v0/topics/t/diff", {"from_seq": 0, "limit": 10, "wait_ms": 60_000})
    for _ in range(2):
        await client.ask(post("/v0/topics/t/diff", {"from_seq": 0, "limit": 10}))
    client.send(wait)
    while not broker.diffs.waiting:  # noqa: ASYNC110 - what is waited for has no event
        await asyncio.sleep(0)
    broker.diffs.stop_waiting()
    assert (await client.receive())[0] == 200


@pytest.mark.parametrize(
    "raw",
    [
        b"POST /t HTTP/1.1\r\ncontent-length: 1\r\n\r\nab",  # more than the request
        b"POST /t HTTP/1.1\r\ncontent-length: 3\r\n\r\nab",  # less
        b"T /t HTTP/1.1\r\ncontent-length: 2\r\n\r\nab",  # not from its beginning
        b"POST /t HTTP/1.1\r\ncontent-length: 2\n\r\n\r\nab",
    ],
)
def test_what_is_not_exactly_one_request_is_no_pattern(raw: bytes) -> None:
    scope: Asgi = {"method": "POST", "headers": [(b"content-length", b"2")]}
    assert RepeatedHead.of(b"POST /t HTTP/1.1\r\ncontent-length: 2\r\n\r\nab", scope, b"/t") is not None
    assert RepeatedHead.of(raw, scope, b"/t") is None


@pytest.mark.parametrize(
    "name", [b"transfer-encoding", b"expect", b"upgrade", b"connection", b"content-length"]
)
def test_a_request_with_a_header_for_the_parser_is_no_pattern(name: bytes) -> None:
    scope: Asgi = {"method": "POST", "headers": [(b"content-length", b"2"), (name, b"2")]}
    raw = b"POST /t HTTP/1.1\r\ncontent-length: 2\r\n%b: 2\r\n\r\nab" % name
    assert RepeatedHead.of(raw, scope, b"/t") is None


@pytest.mark.parametrize("length", [b"+2", b"2 ", b" 2", b"0x2", b"", b"3", b"1", b"0000002", "٢".encode()])
def test_another_length_must_be_digits_and_right(length: bytes) -> None:
    scope: Asgi = {"method": "POST", "headers": [(b"content-length", b"3")]}
    found = RepeatedHead.of(b"POST /t HTTP/1.1\r\ncontent-length: 3\r\n\r\nabc", scope, b"/t")
    assert found is not None
    assert found.body_of(b"POST /t HTTP/1.1\r\ncontent-length: %b\r\n\r\nab" % length) is None
    assert found.body_of(b"POST /t HTTP/1.1\r\ncontent-length: 2\r\n\r\nab") == b"ab"
    assert found.scope["headers"] == [(b"content-length", b"2")]


async def test_clients_that_wait_for_records_do_not_delay_the_write_of_another(
    client: Client, broker: Broker, door: HttpDoor
) -> None:
    """What one client appends is written at once, although others have a stream or a read open."""
    assert broker.streams.client_activity.tasks == 0
    watch = {"topics": {"t": {"tail": True}}}
    status, session = await client.ask(post("/v0/watch", watch))
    assert status == 200
    stream = await connected(door)
    stream.send(b"GET %b HTTP/1.1\r\nHost: localhost\r\n\r\n" % session["stream_url"].encode())
    await stream.reader.readuntil(b"\r\n\r\n")
    reader = await connected(door)
    reader.send(post("/v0/topics/f/diff", {"from_seq": 0, "limit": 1, "wait_ms": 60_000}))
    while not broker.diffs.waiting:  # noqa: ASYNC110 - what is waited for has no event
        await asyncio.sleep(0)
    assert broker.streams.client_activity.tasks == 0
    assert (await client.ask(write(1, "f")))[0] == 200
    assert (await reader.receive())[0] == 200
    assert broker.streams.client_activity.tasks == 0
    for one in (stream, reader):
        one.writer.close()
