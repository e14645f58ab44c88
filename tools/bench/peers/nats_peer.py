"""NATS JetStream: a file-backed stream whose server syncs every write."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import psutil

from tools.bench.peers.peer import LOOPBACK, Peer, free_port, listens, process, program

_IN_FLIGHT = 1000  # acknowledgements waited for together
_FETCH = 1000


class Nats(Peer):
    name = "NATS JetStream"
    durability = "fsync before the ack, for each message (sync_interval: always)"

    def __init__(self) -> None:
        self.client = f"nats-py {version('nats-py')}: Python, {_IN_FLIGHT} publishes in flight"

    @contextlib.contextmanager
    def start(self, folder: Path) -> Iterator[psutil.Process]:
        self._program = program("nats-server", "nats-server", install=False)
        port = free_port()
        settings = folder / "nats.conf"
        settings.write_text(
            f'host: "{LOOPBACK}"\nport: {port}\njetstream {{ store_dir: "{folder / "data"}", sync_interval: always }}\n'
        )
        self._url = f"nats://{LOOPBACK}:{port}"
        with process([self._program, "-c", str(settings)], folder, lambda: listens(port)) as server:
            yield server

    def version(self) -> str:
        done = subprocess.run([self._program, "--version"], capture_output=True, text=True, timeout=10)
        return done.stdout.strip().rpartition("v")[2]

    def write_many(self, topic: str, payload: bytes, seconds: float) -> int:
        return asyncio.run(self._write_many(topic, payload, seconds))

    async def _write_many(self, topic: str, payload: bytes, seconds: float) -> int:
        import nats

        connection = await nats.connect(self._url)
        stream = connection.jetstream(timeout=60)
        await stream.add_stream(name=topic, subjects=[topic])
        acked = 0
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            acked += len(await asyncio.gather(*(stream.publish(topic, payload) for _ in range(_IN_FLIGHT))))
        await connection.close()
        return acked

    def write_singles(self, topic: str, payload: bytes, seconds: float) -> list[float]:
        return asyncio.run(self._write_singles(topic, payload, seconds))

    async def _write_singles(self, topic: str, payload: bytes, seconds: float) -> list[float]:
        import nats

        connection = await nats.connect(self._url)
        stream = connection.jetstream(timeout=60)
        await stream.add_stream(name=topic, subjects=[topic])
        taken: list[float] = []
        until = time.perf_counter() + seconds
        while (begun := time.perf_counter()) < until:
            await stream.publish(topic, payload)
            taken.append(time.perf_counter() - begun)
        await connection.close()
        return taken

    def read(self, topic: str, count: int) -> int:
        return asyncio.run(self._read(topic, count))

    async def _read(self, topic: str, count: int) -> int:
        import nats
        from nats.js.api import AckPolicy, ConsumerConfig

        connection = await nats.connect(self._url)
        stream = connection.jetstream(timeout=60)
        wanted = ConsumerConfig(ack_policy=AckPolicy.NONE)
        reader = await stream.pull_subscribe(topic, durable="bench", config=wanted)
        seen = 0
        while seen < count:
            seen += len(await reader.fetch(min(_FETCH, count - seen), timeout=10))
        await connection.close()
        return seen
