"""Redis Streams, with an append-only file that is synced before every response."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

from tools.bench.peers.peer import LOOPBACK, Peer, free_port, listens, process, program, timed

_PIPELINE = 1000
_PAGE = 1000


class Redis(Peer):
    name = "Redis Streams"
    durability = "fsync before the response (appendfsync always); all data also in memory"

    def __init__(self, install: bool) -> None:
        self._install = install
        self.client = f"redis-py {version('redis')}: Python, pipelines of {_PIPELINE}"

    @contextlib.contextmanager
    def start(self, folder: Path) -> Iterator[psutil.Process]:
        server_program = program("redis-server", "redis-server", self._install)
        self._port = free_port()
        command = [server_program, "--port", str(self._port), "--bind", LOOPBACK, "--dir", str(folder)]
        command += ["--appendonly", "yes", "--appendfsync", "always", "--save", "", "--daemonize", "no"]
        with process(command, folder, lambda: listens(self._port)) as server:
            yield server

    def _connect(self) -> Any:
        import redis

        return redis.Redis(LOOPBACK, self._port)

    def version(self) -> str:
        with self._connect() as client:
            return str(client.info("server")["redis_version"])

    def write_many(self, topic: str, payload: bytes, seconds: float) -> int:
        acked = 0
        with self._connect() as client:
            until = time.perf_counter() + seconds
            while time.perf_counter() < until:
                pipeline = client.pipeline(transaction=False)
                for _ in range(_PIPELINE):
                    pipeline.xadd(topic, {"v": payload})
                acked += len(pipeline.execute())
        return acked

    def write_singles(self, topic: str, payload: bytes, seconds: float) -> list[float]:
        with self._connect() as client:
            return timed(lambda: client.xadd(topic, {"v": payload}), seconds)

    def read(self, topic: str, count: int) -> int:
        seen, last = 0, "0"
        with self._connect() as client:
            while seen < count:
                found = client.xread({topic: last}, count=_PAGE)
                rows = (
                    (next(iter(found.values()))[0] if isinstance(found, dict) else found[0][1])
                    if found
                    else []
                )
                if not rows:
                    break
                seen, last = seen + len(rows), rows[-1][0]
        return seen
