"""RabbitMQ: a quorum queue of one member, which syncs before it confirms."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

from tools.bench.peers.peer import LOOPBACK, Peer, Unavailable, free_port, listens, process, program, timed

_SERVER = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")  # without the wrapper, which runs as another user


class RabbitMQ(Peer):
    name = "RabbitMQ"
    durability = "fsync before the confirm (quorum queue of one); reading removes messages"

    def __init__(self, install: bool) -> None:
        self._install = install
        self.client = f"pika {version('pika')}: Python, 1000 publishes in flight"

    @contextlib.contextmanager
    def start(self, folder: Path) -> Iterator[psutil.Process]:
        program("rabbitmq-server", "rabbitmq-server", self._install)
        if not _SERVER.exists():
            raise Unavailable(f"{_SERVER}, as Debian has it, is not there")
        self._port, distribution = free_port(), free_port()
        (folder / "enabled_plugins").write_text("[].\n")
        env = {
            "RABBITMQ_NODENAME": f"bench{self._port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": LOOPBACK,
            "RABBITMQ_NODE_PORT": str(self._port),
            "RABBITMQ_DIST_PORT": str(distribution),
            "RABBITMQ_MNESIA_BASE": str(folder / "data"),
            "RABBITMQ_LOG_BASE": str(folder / "logs"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
            "HOME": str(folder),
            "ERL_EPMD_PORT": str(free_port()),
            "ERL_EPMD_ADDRESS": LOOPBACK,
        }
        try:
            with process([str(_SERVER)], folder, lambda: listens(self._port), env) as server:
                yield server
        finally:
            # Erlang's name server outlives who started it; the one on this port is ours.
            subprocess.run(["epmd", "-kill"], env={**os.environ, **env}, capture_output=True, timeout=20)

    @contextlib.contextmanager
    def _channel(self, topic: str) -> Iterator[Any]:
        import pika

        with pika.BlockingConnection(pika.ConnectionParameters(LOOPBACK, self._port)) as connection:
            channel = connection.channel()
            channel.queue_declare(topic, durable=True, arguments={"x-queue-type": "quorum"})
            channel.confirm_delivery()
            yield channel

    def version(self) -> str:
        done = subprocess.run(
            ["dpkg-query", "-W", "-f=${Version}", "rabbitmq-server"], capture_output=True, text=True
        )
        return done.stdout.strip() or "?"

    def write_many(self, topic: str, payload: bytes, seconds: float) -> int:
        import pika

        from tools.bench.peers.rabbitmq_publisher import Publisher

        with self._channel(topic):  # makes the queue
            return Publisher(pika.ConnectionParameters(LOOPBACK, self._port), topic, payload, seconds).run()

    def write_singles(self, topic: str, payload: bytes, seconds: float) -> list[float]:
        import pika

        kept = pika.BasicProperties(delivery_mode=2)
        with self._channel(topic) as channel:
            return timed(lambda: channel.basic_publish("", topic, payload, kept), seconds)

    def read(self, topic: str, count: int) -> int:
        seen = 0
        with self._channel(topic) as channel:
            until = time.perf_counter() + 10
            for method, _, _ in channel.consume(topic, auto_ack=True, inactivity_timeout=5):
                if method is None or time.perf_counter() > until:
                    break
                seen += 1
                if seen >= count:
                    break
            channel.cancel()
        return seen
