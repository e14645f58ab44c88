"""Jobs that fifty workers claim and acknowledge over HTTP, in hundreds and one by one.

The workers run in this process, over plain sockets. A job counts once its ack is confirmed.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import msgspec
import psutil
import uvloop

from mainstem.address import Address
from mainstem.testing.server import ServerProcess
from tools.bench.http import RECORD, request
from tools.bench.report import Figure, Report

WORKERS = 50
RUNS = ((100, 400_000, 100e3), (1, 20_000, 4e3))  # jobs a claim, jobs in all, bar
_POSTED = 1000


class _Job(msgspec.Struct):
    seq: int = msgspec.field(name="$seq")


class _Claimed(msgspec.Struct):
    claimed: list[_Job]


_claimed = msgspec.json.Decoder(_Claimed).decode


def run(scratch: Path, report: Report) -> None:
    flags = ("--text", "off", "--kafka", "off")
    with ServerProcess((scratch / "queues").resolve(), *flags) as server:
        uvloop.run(_measure(server, report))
        server.terminate()


class _Connection:
    def __init__(self, address: Address) -> None:
        self._address = address

    async def open(self) -> _Connection:
        self._reader, self._writer = await asyncio.open_connection(self._address.host, self._address.port)
        return self

    async def ask(self, raw: bytes) -> bytes:
        self._writer.write(raw)
        head = await self._reader.readuntil(b"\r\n\r\n")
        if not head.startswith((b"HTTP/1.1 200 ", b"HTTP/1.1 201 ")):
            raise RuntimeError(f"the server answered {head!r}")
        size = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
        return await self._reader.readexactly(size)


async def _measure(server: ServerProcess, report: Report) -> None:
    address, process = server.address("http"), psutil.Process(server.pid)
    first = await _Connection(address).open()
    for size, jobs, bar in RUNS:
        queue = f"/v0/topics/jobs{size}"
        await first.ask(request("PUT", queue, {"type": "queue"}))
        post = request("POST", queue, {"records": [RECORD] * _POSTED})
        for _ in range(jobs // _POSTED):
            await first.ask(post)
        workers = [await _Connection(address).open() for _ in range(WORKERS)]
        cpu, wall = process.cpu_times(), time.perf_counter()
        done = sum(await asyncio.gather(*(_work(at, n, queue, size) for n, at in enumerate(workers))))
        wall_s = time.perf_counter() - wall
        used = process.cpu_times()
        cpu_s = used.user + used.system - cpu.user - cpu.system
        if done != jobs:
            raise RuntimeError(f"{done} jobs were done of {jobs}")
        what = f"HTTP: claim and ack, {size} at a time, {WORKERS} workers"
        note = f"{cpu_s / jobs * 1e6:.1f} µs CPU of the server each"
        report.add(Figure(what, jobs / wall_s, "jobs/s", bar, cpu_s=cpu_s, note=note))


async def _work(connection: _Connection, number: int, queue: str, size: int) -> int:
    node, done = f"worker-{number}", 0
    claim = request("POST", f"{queue}/claim", {"node": node, "max": size})
    while jobs := _claimed(await connection.ask(claim)).claimed:
        seqs = [job.seq for job in jobs]
        await connection.ask(request("POST", f"{queue}/ack", {"node": node, "seqs": seqs}))
        done += len(jobs)
    return done
