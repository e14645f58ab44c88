"""The HTTP address while the server replays its log: health, 503 with the progress, then the door itself."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import httpx
import pytest

from mainstem import server
from mainstem.address import Address
from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.config import Config
from mainstem.doors.http.startup import HEAD_BYTES_MAX, StartupListener
from mainstem.ports.commitlog.local.reader import LogReader
from mainstem.ports.commitlog.port import Committed

ANY = Address("127.0.0.1", 0)


async def test_probes_get_responses_while_the_log_is_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asyncio.timeout(30):
        broker = await Broker.open(BrokerOptions(data_dir=tmp_path / "data"))
        await broker.create_topic("kept")
        await broker.close()
        follow, reached, go_on = LogReader.follow, asyncio.Event(), asyncio.Event()

        async def held(self: LogReader, position: int) -> AsyncIterator[list[Committed]]:
            reached.set()
            await go_on.wait()
            async for chunk in follow(self, position):
                yield chunk

        monkeypatch.setattr(LogReader, "follow", held)
        bound: list[Address] = []
        listen = StartupListener.listen

        async def noted(
            self: StartupListener, address: Address, tls: ssl.SSLContext | None = None
        ) -> Address:
            bound.append(await listen(self, address, tls))
            return bound[0]

        monkeypatch.setattr(StartupListener, "listen", noted)
        stop = asyncio.Event()
        config = Config(data_dir=tmp_path / "data", http=ANY, kafka=(), text=None, s3=None, pulsar=None)
        serving = asyncio.create_task(server.serve(config, stop))
        await reached.wait()
        async with httpx.AsyncClient(base_url=f"http://{bound[0]}") as client:
            for path in ("/v0/health", "/healthz"):
                healthy = await client.get(path)
                assert (healthy.status_code, healthy.json()["status"]) == (200, "ok")
            for refused in (
                await client.get("/v0/ready"),
                await client.get("/readyz?verbose=1"),
                await client.post("/v0/topics/kept/records", content=b"x" * 300_000),
            ):
                assert refused.status_code == 503
                assert refused.headers["retry-after"] == "1"
                error = refused.json()["error"]
                assert error["code"] == "not_ready"
                assert error["detail"] == {"replay_progress": 0.0}
                assert "replays its log" in error["message"]
            head = await client.head("/v0/ready")
            assert (head.status_code, head.content) == (503, b"")
            go_on.set()
            while (ready := await client.get("/v0/ready")).status_code == 503:
                pass
            assert (ready.status_code, ready.json()["topics"]) == (200, 1)
        stop.set()
        await serving


async def test_a_connection_that_waits_is_served_by_the_door_that_takes_over() -> None:
    async with asyncio.timeout(10):
        startup = StartupListener(lambda: 0.5)
        address = await startup.listen(ANY)
        reader, writer = await asyncio.open_connection(address.host, address.port)
        writer.write(b"GET /v0/ready HTTP/1.1\r\nhost: x\r\n\r\n")
        response = await reader.read()
        assert b'"replay_progress":0.5' in response
        assert b"50%" in response
        writer.close()

        class Door(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                cast("asyncio.Transport", transport).write(b"the door")
                transport.close()

        taken = startup.hand_over(Door)
        startup.close()  # no effect any more
        reader, writer = await asyncio.open_connection(address.host, address.port)
        assert await reader.read() == b"the door"
        writer.close()
        taken.close()


async def test_no_more_connections_than_the_limit_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mainstem.doors.http.startup.CONNECTIONS_MAX", 2)
    async with asyncio.timeout(10):
        startup = StartupListener(lambda: 0.0)
        address = await startup.listen(ANY)
        opened = [await asyncio.open_connection(address.host, address.port) for _ in range(3)]
        with contextlib.suppress(ConnectionError):
            assert await opened[2][0].read() == b""
        opened[0][1].write(b"GET /v0/health HTTP/1.1\r\nhost: x\r\n\r\n")
        assert (await opened[0][0].read()).startswith(b"HTTP/1.1 200 OK")
        for _, writer in opened:
            writer.close()
        startup.close()


@pytest.mark.parametrize(
    "sent", [b"\x16\x03\x01 not http\r\n\r\n", b"GET / HTTP/1.1\r\nx: " + b"y" * HEAD_BYTES_MAX]
)
async def test_what_is_not_a_request_is_closed(sent: bytes) -> None:
    async with asyncio.timeout(10):
        startup = StartupListener(lambda: 0.0)
        address = await startup.listen(ANY)
        reader, writer = await asyncio.open_connection(address.host, address.port)
        writer.write(sent)
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()
        startup.close()
