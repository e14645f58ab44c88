"""Fan-out 1 → 1,000: the cost of routers for writers to their source.

Two topics of one server get the same writes alternately; one of them has a thousand routers. The figures are ratios,
with fan-out to without: acknowledgement latency, and the server's CPU time including forwarding.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import psutil
import uvloop

from mainstem.testing.server import ServerProcess
from tools.bench.http import RECORD, Load, request
from tools.bench.report import Figure, Report

FAN_OUT = 1_000
TURNS = 8
REQUESTS = 2_000  # a turn
CONNECTIONS = 8
MAKING = 16  # routers made side by side
BAR = 1.2


def run(scratch: Path, report: Report) -> None:
    flags = ("--text", "off", "--kafka", "off")
    with ServerProcess((scratch / "routers").resolve(), *flags) as server:
        uvloop.run(_measure(server, report))
        server.terminate()


async def _measure(server: ServerProcess, report: Report) -> None:
    load = Load(server)
    await load.ask("PUT", "/v0/topics/alone", {})
    await _make_routers(load, report)
    writers = {topic: Writers(server, topic) for topic in ("alone", "source")}
    for writer in writers.values():
        await writer.turn(REQUESTS // 4)
        writer.forget()
    for _ in range(TURNS):
        for writer in writers.values():
            await writer.turn(REQUESTS)
    alone, source = writers["alone"], writers["source"]
    for name, part in (("p50", 0.5), ("p99", 0.99)):
        before, after = alone.quantile(part), source.quantile(part)
        note = f"{before * 1e3:.2f} ms alone, {after * 1e3:.2f} ms with fan-out"
        report.add(
            Figure(
                f"Routers: ack of a POST, {name}, 1 → {FAN_OUT}", after / before, "×", BAR, True, note=note
            )
        )
    note = f"{alone.cpu_s / alone.answers * 1e6:.0f} µs a POST alone, {source.cpu_s / source.answers * 1e6:.0f} µs"
    report.add(
        Figure(f"Routers: server CPU, 1 → {FAN_OUT}", source.cpu_s / alone.cpu_s, "×", BAR, True, note=note)
    )
    await _check_last(load)


async def _make_routers(load: Load, report: Report) -> None:
    started = time.perf_counter()

    async def some(first: int) -> None:
        for n in range(first, FAN_OUT, MAKING):
            await load.ask("PUT", f"/v0/routers/r{n}", {"source": "source", "dest": f"dest{n}"})

    await asyncio.gather(*(some(first) for first in range(MAKING)))
    report.add(
        Figure("Routers: made, with their topics", FAN_OUT / (time.perf_counter() - started), "routers/s")
    )


async def _check_last(load: Load) -> None:
    head = (await load.ask("GET", "/v0/topics/source", {}))["head_seq"]
    for n in (0, FAN_OUT - 1):
        copied = (await load.ask("GET", f"/v0/topics/dest{n}", {}))["head_seq"]
        if copied != head:
            raise RuntimeError(f"{copied} of {head} records were copied to dest{n}")


class Writers:
    """Write single records to one topic, over some connections, each waiting for its answer."""

    def __init__(self, server: ServerProcess, topic: str) -> None:
        self._address = server.address("http")
        self._process = psutil.Process(server.pid)
        self._request = request("POST", f"/v0/topics/{topic}", {"records": [RECORD]})
        self.forget()

    def forget(self) -> None:
        self._waits: list[float] = []
        self.cpu_s = 0.0

    @property
    def answers(self) -> int:
        return len(self._waits)

    def quantile(self, part: float) -> float:
        return sorted(self._waits)[int(part * len(self._waits))]

    async def turn(self, requests: int) -> None:
        before = self._process.cpu_times()
        await asyncio.gather(*(self._write(requests // CONNECTIONS) for _ in range(CONNECTIONS)))
        await asyncio.sleep(0.05)  # what is still to be forwarded counts here, not in the next turn
        after = self._process.cpu_times()
        self.cpu_s += after.user + after.system - before.user - before.system

    async def _write(self, times: int) -> None:
        reader, writer = await asyncio.open_connection(self._address.host, self._address.port)
        for _ in range(times):
            sent = time.perf_counter()
            writer.write(self._request)
            head = await reader.readuntil(b"\r\n\r\n")
            if not head.startswith((b"HTTP/1.1 200 ", b"HTTP/1.1 201 ")):
                raise RuntimeError(f"the server answered {head!r}")
            await reader.readexactly(int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0]))
            self._waits.append(time.perf_counter() - sent)
        writer.close()
        await writer.wait_closed()
