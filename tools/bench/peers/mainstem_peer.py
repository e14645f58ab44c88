"""Mainstem, through its Kafka door."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil

from mainstem.version import VERSION
from tools.bench.peers import kafka_client
from tools.bench.peers.kafka_client import KafkaClient
from tools.bench.peers.peer import LOOPBACK, Peer, free_port, listens, process


class Mainstem(Peer):
    name = "Mainstem"
    client = kafka_client.NAME
    durability = "fdatasync before the ack (class fsync)"

    @contextlib.contextmanager
    def start(self, folder: Path) -> Iterator[psutil.Process]:
        port = free_port()
        command = [sys.executable, "-m", "mainstem", "serve", "--data-dir", str(folder / "data")]
        command += ["--kafka", f"{LOOPBACK}:{port}", "--http", "off", "--text", "off"]
        with process(command, folder, lambda: listens(port)) as server:
            self._client = KafkaClient(f"{LOOPBACK}:{port}", {"mainstem.durability": "fsync"})
            yield server

    def version(self) -> str:
        return VERSION

    def write_many(self, topic: str, payload: bytes, seconds: float) -> int:
        return self._client.write_many(topic, payload, seconds)

    def write_singles(self, topic: str, payload: bytes, seconds: float) -> list[float]:
        return self._client.write_singles(topic, payload, seconds)

    def read(self, topic: str, count: int) -> int:
        return self._client.read(topic, count)
