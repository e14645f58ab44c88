"""Writes and diffs over HTTP/1.1: the server's cost per request and per record.

This process generates the load over plain sockets. The figures are per CPU second of the server's process.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import psutil
import uvloop

from mainstem.address import Address
from mainstem.testing.server import ServerProcess
from tools.bench.machine import settle
from tools.bench.report import Figure, Report

RECORD = {"data": {"n": 1, "s": "x" * 80}}
SINGLES = 25_000
SINGLE_CONNECTIONS = 64
BATCHES = ((100, 0.4e6, 5_000, 16), (1000, 0.7e6, 1_000, 8))  # records, bar, requests, connections
DIFFS = 1_000
DIFF_CONNECTIONS = 8


def run(scratch: Path, report: Report) -> None:
    flags = ("--text", "off", "--kafka", "off")
    with ServerProcess((scratch / "http").resolve(), *flags) as server:
        uvloop.run(_measure(Load(server), report))
        server.terminate()


class Load:
    """Requests of one kind, over some connections, each waiting for its answer."""

    def __init__(self, server: ServerProcess) -> None:
        self._address: Address = server.address("http")
        self._process = psutil.Process(server.pid)

    async def cpu_s(self, request: bytes, requests: int, connections: int) -> float:
        """CPU seconds of the server for so many requests."""
        before = self._server_cpu_s()
        each = requests // connections
        await asyncio.gather(*(self._send(request, each) for _ in range(connections)))
        return self._server_cpu_s() - before

    def _server_cpu_s(self) -> float:
        times = self._process.cpu_times()
        return float(times.user + times.system)

    def settle(self) -> None:
        settle(self._server_cpu_s)

    async def ask(self, method: str, path: str, body: object) -> dict[str, int]:
        answer: dict[str, int] = json.loads(await self._send(request(method, path, body), 1))
        return answer

    async def _send(self, request: bytes, times: int) -> bytes:
        reader, writer = await asyncio.open_connection(self._address.host, self._address.port)
        body = b""
        for _ in range(times):
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            if not head.startswith((b"HTTP/1.1 200 ", b"HTTP/1.1 201 ")):
                raise RuntimeError(f"the server answered {head!r}")
            body = await reader.readexactly(int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0]))
        writer.close()
        await writer.wait_closed()
        return body


def request(method: str, path: str, body: object) -> bytes:
    encoded = json.dumps(body, separators=(",", ":")).encode()
    head = f"{method} {path} HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(encoded)}\r\n\r\n".encode() + encoded


async def _measure(load: Load, report: Report) -> None:
    for durability, bar in (("disk", 12e3), ("fsync", 8e3)):
        await load.ask("PUT", f"/v0/topics/{durability}", {"durability": durability})
        single = request("POST", f"/v0/topics/{durability}", {"records": [RECORD]})
        await load.cpu_s(single, SINGLES // 8, SINGLE_CONNECTIONS)
        load.settle()
        cpu_s = await load.cpu_s(single, SINGLES, SINGLE_CONNECTIONS)
        what = f"HTTP: POST 1 record, {SINGLE_CONNECTIONS} connections, {durability}"
        report.add(Figure(what, SINGLES / cpu_s, "req/CPU-s", bar, cpu_s=cpu_s))
    await _measure_diff(load, report, "disk", "written one by one", 0.35e6)
    for records, bar, requests, connections in BATCHES:
        topic = f"batch{records}"
        await load.ask("POST", f"/v0/topics/{topic}", {"records": [RECORD] * records})
        load.settle()
        batch = request("POST", f"/v0/topics/{topic}", {"records": [RECORD] * records})
        cpu_s = await load.cpu_s(batch, requests, connections)
        what = f"HTTP: POST {records} records"
        report.add(Figure(what, requests * records / cpu_s, "rec/CPU-s", bar, cpu_s=cpu_s))
        await _measure_diff(load, report, topic, f"batches of {records}", 0.8e6)


async def _measure_diff(load: Load, report: Report, topic: str, held: str, bar: float) -> None:
    head_seq = (await load.ask("GET", f"/v0/topics/{topic}", {}))["head_seq"]
    page = {"from_seq": head_seq - 1000, "limit": 1000}
    await load.ask("POST", f"/v0/topics/{topic}/diff", page)
    load.settle()
    diff = request("POST", f"/v0/topics/{topic}/diff", page)
    cpu_s = await load.cpu_s(diff, DIFFS, DIFF_CONNECTIONS)
    what = f"HTTP: diff of 1000 from the tail, {held}"
    report.add(Figure(what, DIFFS * 1000 / cpu_s, "rec/CPU-s", bar, cpu_s=cpu_s))
