"""Mainstem and Apache Pulsar standalone side by side: the same frames from the same client, in turn.

    python -m tools.bench.peers.pulsar_pair [ROUNDS]

Pulsar's jars come from Maven; its journal is synced, as Mainstem's topics are `fsync`. CPU is that of the server.
Without Maven or Java, it says so and measures nothing.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import psutil

from mainstem.address import Address
from mainstem.testing.server import ServerProcess
from tools.bench.machine import description
from tools.bench.pulsar import BATCH_MESSAGES, WINDOW_BATCHES, consume, produce, wait_for_kernels
from tools.outside.pulsar_standalone import VERSION, PulsarStandalone
from tools.outside.suite import Missing

BATCHES = 1_000
WARM_BATCHES = 400  # the JVM compiles what it runs often
_FOLDER = Path("build/outside/pulsar-differential")  # where the differential test keeps the jars


class _Pulsar:
    def __init__(self, running: PulsarStandalone) -> None:
        self.running = running

    def address(self, door: str) -> Address:
        return Address.parse(self.running.pulsar)

    def create(self, topic: str) -> None:
        """Its broker owns a topic once it was created or looked up."""
        path = f"http://{self.running.http}/admin/v2/persistent/public/default/{topic}"
        urllib.request.urlopen(urllib.request.Request(path, method="PUT"), timeout=60).close()
        path = f"http://{self.running.http}/lookup/v2/topic/persistent/public/default/{topic}"
        urllib.request.urlopen(path, timeout=60).close()


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    folder = _FOLDER.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    print(description())
    found: dict[tuple[str, str], list[float]] = {}
    with (
        tempfile.TemporaryDirectory(dir=folder) as data,
        ServerProcess(Path(data) / "data", "--text", "off", "--kafka", "off") as mainstem,
        PulsarStandalone(folder, synced=True) as standalone,
    ):
        pulsar = _Pulsar(standalone)
        processes = {"Pulsar": psutil.Process(standalone.pid), "Mainstem": psutil.Process(mainstem.pid)}
        wait_for_kernels(mainstem, processes["Mainstem"])
        for number in range(-1, rounds):
            batches = BATCHES if number >= 0 else WARM_BATCHES
            topic = f"round-{number + 1}"
            pulsar.create(topic)
            for name, server in (("Pulsar", pulsar), ("Mainstem", mainstem)):
                process = processes[name]
                made = produce(server, process, topic, BATCH_MESSAGES, batches, WINDOW_BATCHES)
                time.sleep(0.5)
                read = consume(server, process, topic, batches)
                for what, (wall_s, cpu_s) in (("produce", made), ("consume", read)):
                    messages = batches * BATCH_MESSAGES
                    cost = cpu_s / messages * 1e6
                    print(
                        f"{name:9} {what} {messages / wall_s:12,.0f}/s {cost:6.3f} CPU-s a million",
                        flush=True,
                    )
                    if number >= 0:
                        found.setdefault((name, what), []).append(cost)
    for what in ("produce", "consume"):
        ours, theirs = (statistics.median(found[name, what]) for name in ("Mainstem", "Pulsar"))
        print(
            f"{what}: Pulsar {VERSION} {theirs:.3f}, Mainstem {ours:.3f} CPU-s a million: {theirs / ours:.1f}×"
        )


if __name__ == "__main__":
    try:
        main()
    except Missing as reason:
        print(f"Pulsar: left out: {reason}")
