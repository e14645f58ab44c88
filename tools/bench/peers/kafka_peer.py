"""Apache Kafka, one broker that is its own controller, from the folder in KAFKA_HOME or from Maven."""

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
from tools.outside import suite as outside
from tools.outside.kafka_standalone import KafkaStandalone

_FOLDER = Path("build/outside/kafka-differential")  # where `make test-outside` has its jars, too
_JVM = (  # as Kafka's own script starts it
    *("-Xmx1G", "-Xms1G", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
    *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"),
)


def _jars() -> Path:
    """Raises Unavailable."""
    home = os.environ.get("KAFKA_HOME")
    if home:
        jars = Path(home) / "libs"
        if not jars.is_dir():
            raise Unavailable("KAFKA_HOME does not point to a Kafka installation")
        return jars
    _FOLDER.mkdir(parents=True, exist_ok=True)
    try:
        return KafkaStandalone.jars(_FOLDER.absolute())
    except outside.Missing as missing:
        raise Unavailable(f"KAFKA_HOME is not set, and {missing}") from None


class Kafka(Peer):
    name = "Apache Kafka"
    client = kafka_client.NAME
    durability = "fsync before the ack (flush.messages=1)"

    @contextlib.contextmanager
    def start(self, folder: Path) -> Iterator[psutil.Process]:
        self._jars = _jars()
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
        java = [outside.program("java"), *_JVM, "-cp", f"{self._jars}/*"]
        format_command = [*java, "kafka.tools.StorageTool", "format", "-t", identity, "-c", str(settings)]
        subprocess.run(format_command, check=True, capture_output=True, timeout=60)
        with process([*java, "kafka.Kafka", str(settings)], folder, lambda: listens(port)) as server:
            self._client = KafkaClient(f"{LOOPBACK}:{port}", {"flush.messages": "1"})
            yield server

    def version(self) -> str:
        jars = sorted(self._jars.glob("kafka_*-*.jar"))
        return jars[0].stem.rpartition("-")[2] if jars else "?"

    def write_many(self, topic: str, payload: bytes, seconds: float) -> int:
        return self._client.write_many(topic, payload, seconds)

    def write_singles(self, topic: str, payload: bytes, seconds: float) -> list[float]:
        return self._client.write_singles(topic, payload, seconds)

    def read(self, topic: str, count: int) -> int:
        return self._client.read(topic, count)
