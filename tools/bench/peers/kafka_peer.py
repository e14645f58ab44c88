"""Apache Kafka, one broker that is its own controller, from the folder in KAFKA_HOME."""

from __future__ import annotations

import contextlib
import os
import subprocess
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from pathlib import Path

import psutil

from tools.bench.peers import kafka_client
from tools.bench.peers.kafka_client import KafkaClient
from tools.bench.peers.peer import LOOPBACK, Peer, Unavailable, free_port, listens, process


class Kafka(Peer):
    name = "Apache Kafka"
    client = kafka_client.NAME
    durability = "fsync before the ack (flush.messages=1)"

    @contextlib.contextmanager
    def start(self, folder: Path) -> Iterator[psutil.Process]:
        home = Path(os.environ.get("KAFKA_HOME", ""))
        if not os.environ.get("KAFKA_HOME") or not (home / "bin" / "kafka-server-start.sh").exists():
            raise Unavailable("KAFKA_HOME does not point to a Kafka installation")
        self._home = home
        port, controller = free_port(), free_port()
        settings = folder / "server.properties"
        settings.write_text(
            "process.roles=broker,controller\nnode.id=1\n"
            f"controller.quorum.voters=1@{LOOPBACK}:{controller}\n"
            f"listeners=PLAINTEXT://{LOOPBACK}:{port},CONTROLLER://{LOOPBACK}:{controller}\n"
            "controller.listener.names=CONTROLLER\n"
            f"log.dirs={folder / 'data'}\noffsets.topic.replication.factor=1\n"
        )
        identity = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        format_command = [str(home / "bin/kafka-storage.sh"), "format", "-t", identity, "-c", str(settings)]
        subprocess.run(format_command, check=True, capture_output=True, timeout=60)
        command = [str(home / "bin/kafka-server-start.sh"), str(settings)]
        with process(command, folder, lambda: listens(port), {"LOG_DIR": str(folder / "logs")}) as server:
            self._client = KafkaClient(f"{LOOPBACK}:{port}", {"flush.messages": "1"})
            yield server

    def version(self) -> str:
        jars = sorted(self._home.glob("libs/kafka_*-*.jar"))
        return jars[0].stem.rpartition("-")[2] if jars else "?"

    def write_many(self, topic: str, payload: bytes, seconds: float) -> int:
        return self._client.write_many(topic, payload, seconds)

    def write_singles(self, topic: str, payload: bytes, seconds: float) -> list[float]:
        return self._client.write_singles(topic, payload, seconds)

    def read(self, topic: str, count: int) -> int:
        return self._client.read(topic, count)
