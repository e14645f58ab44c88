"""The same load for every peer, measured from outside."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tools.bench.machine import settle
from tools.bench.peers.peer import Peer, cpu_s

_PATIENCE_S = 20.0  # for a server to end what it does by itself: preparing files, compiling, compacting
PAYLOADS = {"100 B": 100, "1 KiB": 1024}


@dataclass(frozen=True)
class Run:
    what: str  # write many, write singles, read
    payload: str
    messages: int
    seconds: float
    server_cpu_s: float
    client_cpu_s: float
    latencies_s: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return self.messages / self.seconds

    @property
    def server_cpu_us(self) -> float:
        """Microseconds of the server's CPU a message."""
        return self.server_cpu_s / self.messages * 1e6 if self.messages else 0.0

    def latency_ms(self, share: float) -> float:
        ordered = sorted(self.latencies_s)
        return ordered[min(int(len(ordered) * share), len(ordered) - 1)] * 1000 if ordered else 0.0


@dataclass(frozen=True)
class Outcome:
    peer: Peer
    version: str
    runs: list[Run]


def run_peer(peer: Peer, seconds: float) -> Outcome:
    """Raises Unavailable."""
    with tempfile.TemporaryDirectory(prefix="mainstem-peer-") as folder, peer.start(Path(folder)) as server:
        peer.write_many("warm-up", b"x" * 100, min(0.5, seconds))
        runs = [run for label, size in PAYLOADS.items() for run in _runs(peer, server, label, size, seconds)]
        return Outcome(peer, peer.version(), runs)


def _runs(peer: Peer, server: psutil.Process, label: str, size: int, seconds: float) -> Iterator[Run]:
    payload = bytes(range(256)) * (size // 256) + bytes(size % 256)
    many, single = f"many-{size}", f"single-{size}"
    written = _measured(server, "write many", label, lambda: peer.write_many(many, payload, seconds))
    yield written
    yield _measured(server, "read", label, lambda: peer.read(many, written.messages))
    yield _measured(server, "write singles", label, lambda: peer.write_singles(single, payload, seconds))


def _measured(server: psutil.Process, what: str, label: str, work: Callable[[], int | list[float]]) -> Run:
    settle(lambda: cpu_s(server), _PATIENCE_S)
    cpu, own, begun = cpu_s(server), time.process_time(), time.perf_counter()
    done = work()
    seconds = time.perf_counter() - begun
    used, own_used = cpu_s(server) - cpu, time.process_time() - own
    if isinstance(done, list):
        return Run(what, label, len(done), seconds, used, own_used, done)
    return Run(what, label, done, seconds, used, own_used)
