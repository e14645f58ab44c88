"""Connections: HTTP/1.1 and HTTP/2 on one port, slow clients, stopping."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from h2.connection import H2Connection
from h2.events import ResponseReceived

from mainstem import limits
from mainstem.address import Address
from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.doors.http.door import HttpDoor
from mainstem.doors.http.transport.origins import OriginPolicy
from mainstem.doors.tls import tls_context
from mainstem.errors import CannotListen, InvalidConfig
from tests.support.certificates import make_self_signed

WRITE = {"records": [{"data": 1}]}


class Stage:
    def __init__(self, door: HttpDoor, address: Address) -> None:
        self.door = door
        self.address = address
        self.url = f"http://{address}"

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(self.address.host, self.address.port)


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    broker = await Broker.open(BrokerOptions(tmp_path / "data", segment_bytes=1 << 20))
    yield broker
    await broker.close()


@pytest.fixture
async def stage(broker: Broker) -> AsyncIterator[Stage]:
    door = HttpDoor(broker)
    yield Stage(door, await door.start(Address("127.0.0.1", 0)))
    await door.stop(1.0)


async def _until(reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not reached():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0)


@pytest.mark.parametrize("http2", [False, True])
async def test_both_protocols_serve_the_same(stage: Stage, http2: bool) -> None:
    async with httpx.AsyncClient(base_url=stage.url, http1=not http2, http2=http2, timeout=60) as client:
        written = await client.post("/v0/topics/t?return_seqs=false", json=WRITE)
        assert (written.status_code, written.http_version) == (201, "HTTP/2" if http2 else "HTTP/1.1")
        assert "seqs" not in written.json()
        big = [{"data": "x" * 1000}] * 5000
        assert (await client.post("/v0/topics/t", json={"records": big})).json()["last_seq"] == 5001
        read = await client.post("/v0/topics/t/diff", json={"limit": 1000, "max_batch_bytes": 8 << 20})
        assert len(read.json()["records"]) == 1000
        assert len(read.content) > 1_000_000
        assert (await client.put("/v0/topics/u")).status_code == 201
        assert (await client.get("/nothing")).status_code == 404
        head = await client.head("/v0/health")
        assert (head.status_code, head.content) == (200, b"")
        assert (await client.patch("/v0/health")).status_code == 405
        answers = await asyncio.gather(*(client.post("/v0/topics/t", json=WRITE) for _ in range(100)))
        assert {answer.status_code for answer in answers} == {200}


async def test_curl_speaks_http_2_with_prior_knowledge(stage: Stage) -> None:
    command = ["curl", "-sS", "--http2-prior-knowledge", "-w", "\n%{http_version}", f"{stage.url}/v0/health"]
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    out, _ = await process.communicate()
    body, version = out.decode().rsplit("\n", 1)
    assert (json.loads(body)["status"], version) == ("ok", "2")


async def test_an_http_2_request_may_have_a_host_beside_its_authority(stage: Stage) -> None:
    reader, writer = await stage.connect()
    client = H2Connection()
    client.initiate_connection()
    names = ((":method", "GET"), (":path", "/v0/health"), (":scheme", "http"), (":authority", "localhost"))
    client.send_headers(1, [*names, ("host", "localhost")], end_stream=True)
    writer.write(client.data_to_send())
    answered: list[bytes] = []
    async with asyncio.timeout(60):
        while not answered:
            for event in client.receive_data(await reader.read(1 << 16)):
                if isinstance(event, ResponseReceived):
                    answered += [value for name, value in event.headers if name == b":status"]
    assert answered == [b"200"]
    writer.close()


async def test_an_http_2_body_over_the_limit_is_refused(broker: Broker) -> None:
    from mainstem.doors.http.transport.context import HttpLimits

    door = HttpDoor(broker, bounds=HttpLimits(body_bytes=1000))
    address = await door.start(Address("127.0.0.1", 0))
    async with httpx.AsyncClient(base_url=f"http://{address}", http1=False, http2=True, timeout=60) as client:
        answer = await client.post(
            "/v0/topics/t", content=b"x" * 200_000, headers={"content-type": "application/json"}
        )
        assert answer.status_code == 413
        assert (await client.get("/v0/health")).status_code == 200
    await door.stop(1.0)


async def test_the_preface_may_come_in_pieces(stage: Stage) -> None:
    reader, writer = await stage.connect()
    for byte in b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n":
        writer.write(bytes([byte]))
        await writer.drain()
        await asyncio.sleep(0)
    head = await reader.readexactly(9)
    assert head[3] == 4  # a SETTINGS frame
    writer.write(b"\x00\x00\x05\x01\x05\x00\x00\x00\x01" + b"\xff" * 5)  # HEADERS that cannot be decoded
    assert b"\x07" in await reader.read()  # a GOAWAY, then the end
    writer.close()


@pytest.mark.parametrize(
    "rubbish", [b"\x00\x01\x02\r\n\r\n", b"GET\r\n\r\n", b"PRI * HTTP/1.1 no\r\n\r\n", b"G" * 100_000]
)
async def test_invalid_http_gets_a_400_and_a_close(stage: Stage, rubbish: bytes) -> None:
    reader, writer = await stage.connect()
    writer.write(rubbish)
    answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == "invalid_request"
    writer.close()


async def test_pipelined_requests_are_answered_in_order(stage: Stage) -> None:
    reader, writer = await stage.connect()
    for number in range(5):
        body = json.dumps({"records": [{"data": number}]}).encode()
        writer.write(
            b"POST /v0/topics/t HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
            b"content-length: %d\r\n\r\n%s" % (len(body), body)
        )
    for number in range(5):
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        assert json.loads(await reader.readexactly(length))["first_seq"] == number + 1
    writer.close()


async def test_a_chunked_body_and_one_that_waits_for_100_continue(stage: Stage) -> None:
    reader, writer = await stage.connect()
    body = json.dumps(WRITE).encode()
    writer.write(
        b"POST /v0/topics/t HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        b"transfer-encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    )
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 201")
    await reader.readuntil(b"}}")
    writer.write(
        b"POST /v0/topics/t HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nexpect: 100-continue\r\n"
        b"content-length: %d\r\n\r\n" % len(body)
    )
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100")
    writer.write(body)
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
    writer.close()


async def test_a_413_can_be_read_while_the_body_is_still_sent(broker: Broker) -> None:
    from mainstem.doors.http.transport.context import HttpLimits

    door = HttpDoor(broker, bounds=HttpLimits(body_bytes=1000))
    address = await door.start(Address("127.0.0.1", 0))
    reader, writer = await asyncio.open_connection(address.host, address.port)
    writer.write(
        b"POST /v0/topics/t HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 3000000\r\n\r\n"
    )
    for _ in range(30):
        writer.write(b"x" * 100_000)
        await writer.drain()
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 413")
    await reader.readuntil(b"}}}")
    writer.write(b"GET /v0/health HTTP/1.1\r\nhost: x\r\n\r\n")
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
    writer.close()
    await door.stop(1.0)


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"PRI * HT",
        b"GET /v0/health HTTP/1.1\r\nhost:",
        b"POST /v0/topics/t HTTP/1.1\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{",
        b"POST /v0/topics/t HTTP/1.1\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n1\r\n{\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
)
async def test_a_slow_client_is_disconnected(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr("mainstem.doors.http.transport.connection.HTTP_HEAD_S", 0.2)
    for name in ("HTTP_STALL_S", "HTTP_IDLE_S"):
        monkeypatch.setattr(limits, name, 0.2)
    monkeypatch.setattr("mainstem.doors.http.transport.http_connections._SWEEP_S", 0.05)
    door = HttpDoor(broker)
    address = await door.start(Address("127.0.0.1", 0))
    reader, writer = await asyncio.open_connection(address.host, address.port)
    writer.write(sent)
    async with asyncio.timeout(60):
        with contextlib.suppress(ConnectionResetError):
            await reader.read()
    writer.close()
    assert door.context.body_bytes == 0
    assert await door.stop(1.0) == 0


async def test_a_slow_request_header_does_not_extend_the_timeout(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainstem.doors.http.transport.connection.HTTP_HEAD_S", 0.3)
    monkeypatch.setattr("mainstem.doors.http.transport.http_connections._SWEEP_S", 0.05)
    door = HttpDoor(broker)
    address = await door.start(Address("127.0.0.1", 0))
    reader, writer = await asyncio.open_connection(address.host, address.port)
    writer.write(b"GET / HTTP/1.1\r\n")

    async def drip() -> None:
        while True:
            writer.write(b"x-a: b\r\n")
            await writer.drain()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.05):
                    await reader.readexactly(1)

    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await asyncio.wait_for(drip(), 60)
    writer.close()
    await door.stop(1.0)


async def test_a_stop_answers_open_requests_and_then_closes(stage: Stage) -> None:
    async with httpx.AsyncClient(base_url=stage.url, timeout=30) as client:
        await client.put("/v0/topics/t")
        waiting = asyncio.ensure_future(client.post("/v0/topics/t/diff", json={"wait_ms": 30_000}))
        await _until(lambda: stage.door.context.broker.diffs.waiting > 0)
        assert await stage.door.stop(5.0) == 0
        assert (await waiting).json()["caught_up"] is True
        with pytest.raises(httpx.ConnectError):
            await client.get("/v0/health")


async def test_a_stop_ends_http_2_politely(stage: Stage) -> None:
    async with httpx.AsyncClient(base_url=stage.url, http1=False, http2=True, timeout=30) as client:
        await client.put("/v0/topics/t")
        waiting = asyncio.ensure_future(client.post("/v0/topics/t/diff", json={"wait_ms": 30_000}))
        await _until(lambda: stage.door.context.broker.diffs.waiting > 0)
        assert await stage.door.stop(5.0) == 0
        assert (await waiting).json()["caught_up"] is True


async def test_a_client_that_leaves_frees_its_slot(stage: Stage) -> None:
    async with httpx.AsyncClient(base_url=stage.url, timeout=60) as client:
        await client.put("/v0/topics/t")
    key = stage.door.context.clients.everyone()
    _, writer = await stage.connect()
    writer.write(
        b"POST /v0/topics/t HTTP/1.1\r\ncontent-type: application/json\r\ncontent-length: 50\r\n\r\n{"
    )
    await _until(lambda: bool(key.in_flight))
    writer.close()
    await _until(lambda: not (key.in_flight or stage.door.context.body_bytes))


async def test_a_non_loopback_address_needs_keys(broker: Broker) -> None:
    with pytest.raises(CannotListen, match="MAINSTEM_API_KEYS"):
        await HttpDoor(broker).start(Address("0.0.0.0", 0))
    with pytest.raises(CannotListen):
        await HttpDoor(broker).start(Address("::", 0))


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_self_signed(tmp_path_factory.mktemp("tls"))


def test_tls_over_both_protocols(serve: Callable[..., Any], certificate: Path) -> None:
    files = ("--tls-cert", str(certificate / "cert.pem"), "--tls-key", str(certificate / "key.pem"))
    with serve(*files) as server:
        url = f"https://{server.process.address('http')}/v0/health"
        trust = ssl.create_default_context(cafile=str(certificate / "cert.pem"))
        for http2 in (False, True):
            with httpx.Client(verify=trust, http2=http2, http1=not http2, timeout=60) as client:
                assert client.get(url).json()["status"] == "ok"
    with serve(*files, "--tls-ca", str(certificate / "cert.pem")) as server:
        url = f"https://{server.process.address('http')}/v0/health"
        with (
            httpx.Client(verify=trust, timeout=60) as client,
            pytest.raises((httpx.ReadError, httpx.RemoteProtocolError)),
        ):
            client.get(url)
        trust.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
        with httpx.Client(verify=trust, timeout=60) as client:
            assert client.get(url).json()["status"] == "ok"


def test_unusable_tls_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="--tls-cert"):
        tls_context(None, tmp_path / "key", None)
    with pytest.raises(InvalidConfig, match="cannot be used"):
        tls_context(tmp_path / "missing", None, None)


def test_the_socket_module_is_what_listens(serve: Callable[..., Any]) -> None:
    with serve() as server:
        address = server.process.address("http")
        with socket.create_connection((address.host, address.port)) as one:
            one.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
            answer = b""
            while part := one.recv(65536):
                answer += part
        assert answer.startswith(b"HTTP/1.1 200")
        assert b"connection: close" in answer


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"OPTIONS * HTTP/1.1\r\nhost: localhost\r\n\r\n", 404),
        (b"GET /v0/health HTTP/1.1\r\nhost: localhost\r\nhost: elsewhere.test\r\n\r\n", 400),
        (
            b"GET /v0/health HTTP/1.1\r\nhost: localhost\r\nauthorization: a\r\nauthorization: b\r\n\r\n",
            400,
        ),
        (b"POST /v0/topics/t HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n{}", 400),
        (
            b"POST /v0/topics/t HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\ntransfer-encoding: chunked\r\n\r\n"
            b"0\r\n\r\nGET /v0/health HTTP/1.1\r\nhost: x\r\n\r\n",
            400,
        ),
        (b"GET /v0/health HTTP/1.1\r\nhost: localhost\r\nx: a\r\n b\r\n\r\n", 400),
    ],
)
async def test_requests_that_a_proxy_may_read_otherwise_are_refused(
    stage: Stage, request_bytes: bytes, status: int
) -> None:
    reader, writer = await stage.connect()
    writer.write(request_bytes)
    writer.write_eof()
    answer = await asyncio.wait_for(reader.read(), 60)
    assert answer.startswith(b"HTTP/1.1 %d " % status), answer
    assert answer.count(b"content-length: ") == 1, "a part of it was served as a request of its own"
    writer.close()


async def test_pages_of_an_allowed_origin_may_send_requests_and_read_responses(stage: Stage) -> None:
    stage.door.context.origins = OriginPolicy(origins=frozenset({"https://app.example"}))
    ours = {"origin": "https://app.example"}
    asked = {
        **ours,
        "access-control-request-method": "POST",
        "access-control-request-headers": "content-type",
    }
    async with httpx.AsyncClient(base_url=stage.url) as client:
        allowed = await client.options("/v0/topics/t", headers=asked)
        assert (allowed.status_code, allowed.content) == (204, b"")
        assert allowed.headers["access-control-allow-origin"] == "https://app.example"
        assert "POST" in allowed.headers["access-control-allow-methods"]
        for name in ("authorization", "content-type", "idempotency-key", "last-event-id"):
            assert name in allowed.headers["access-control-allow-headers"]
        answers = [
            await client.post("/v0/topics/t", json=WRITE, headers=ours),
            await client.get("/v0/topics/none", headers=ours),
        ]
        watch = (await client.post("/v0/watch", json={"topics": {"t": {}}}, headers=ours)).json()
        async with client.stream("GET", watch["stream_url"], headers=ours) as stream:
            answers.append(stream)
            assert await anext(stream.aiter_lines()) == "retry: 2000"
        for answer in answers:
            assert answer.headers["access-control-allow-origin"] == "https://app.example"
            assert "origin" in answer.headers["vary"]
        # Any other origin gets none of it.
        for headers in ({"origin": "https://evil.example"}, {}):
            told = await client.options("/v0/topics/t", headers={**asked, "origin": "", **headers})
            assert told.status_code == 405
            assert "access-control-allow-origin" not in told.headers
            read = await client.get("/v0/topics/t", headers=headers)
            assert (read.status_code, "access-control-allow-origin" in read.headers) == (200, False)
        assert (await client.options("/nothing", headers=asked)).status_code == 404
