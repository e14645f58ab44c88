"""Sequential reads: of undecoded batches in this process, and served to a Kafka client that only checks checksums.

The floor in the same run is a process that sends the same bytes from a file in the page cache with `sendfile`, to the
same client. CPU is that of the sending process.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import psutil
import uvloop

from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.ledger.config import TopicConfig
from mainstem.limits import MIB
from mainstem.records.building import build_plain
from mainstem.testing.server import ServerProcess
from tools.bench.appends import batch
from tools.bench.lone_requests import cpu_s
from tools.bench.machine import settle, touch_pages
from tools.bench.rawfetch import RawConsumer, produce
from tools.bench.report import Figure, Report, Span, measured

BATCHES = 12_000
SERVED_BYTES = 96 * MIB  # less than the tail cache
FETCH_BYTES = 4 * MIB
BATCH_BYTES = 64 * 1024
PASSES = 4
RATE_BAR = 4e9
FLOOR_SHARE = 0.7
CPU_BARS_US = {100: 0.02, 1024: 0.5}  # a record


def run(scratch: Path, report: Report) -> None:
    uvloop.run(_read(scratch / "log", report))
    floor = _floor(scratch / "floor")
    note = f"{floor.cpu_s / SERVED_BYTES * 1e9:.2f} ns CPU a byte"
    report.add(Figure("raw: sendfile to the same client", SERVED_BYTES / floor.wall_s, "B/s", note=note))
    bar = min(RATE_BAR, FLOOR_SHARE * SERVED_BYTES / floor.wall_s)
    for where, flags in (("memory", ()), ("files", ("--tail-cache-bytes", "0"))):
        with ServerProcess((scratch / where).resolve(), "--http", "off", "--text", "off", *flags) as server:
            for size in (1024, 100):
                _served(report, server, where, size, bar)
            server.terminate()


def _served(report: Report, server: ServerProcess, where: str, size: int, bar: float) -> None:
    process = psutil.Process(server.pid)
    address, topic = server.address("kafka"), f"bench{size}"
    each = BATCH_BYTES // size
    ready = bytes(build_plain([b"x" * size] * each, 1))
    batches = SERVED_BYTES // len(ready)
    touch_pages(server.ports_file.parent, 2 * SERVED_BYTES)
    produce(address, topic, ready, batches)

    def fetch() -> None:
        with RawConsumer(address, topic, FETCH_BYTES) as consumer:
            consumer.consume(batches * each)

    best = _best(fetch, lambda: cpu_s(process))
    served = batches * len(ready)
    what = f"Kafka: consume {size} B from {where}"
    report.add(Figure(what, served / best.wall_s, "B/s", bar if size == 1024 else None))
    cpu_us = best.cpu_s / (batches * each) * 1e6
    report.add(Figure("… server CPU a record", cpu_us, "µs", CPU_BARS_US[size], True))


def _best(work: Callable[[], None], cpu: Callable[[], float]) -> Span:
    """The least time and the least CPU of some passes."""
    spans = []
    settle(cpu)
    for _ in range(PASSES):
        before = cpu()
        with measured() as span:
            work()
        spans.append(Span(span.wall_s, cpu() - before))
    return Span(min(span.wall_s for span in spans), min(span.cpu_s for span in spans))


def _floor(path: Path) -> Span:
    path.write_bytes(os.urandom(MIB) * (SERVED_BYTES // MIB))
    with serving_file(path) as (address, process):
        return _best(lambda: receive_file(address), lambda: cpu_s(process))


@contextmanager
def serving_file(path: Path) -> Iterator[tuple[tuple[str, int], psutil.Process]]:
    """A process that sends the file with `sendfile` to everybody who connects: its address, and itself."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        sender = multiprocessing.get_context("fork").Process(target=_send_file, args=(listening, path))
        sender.start()
        try:
            assert sender.pid is not None
            yield listening.getsockname(), psutil.Process(sender.pid)
        finally:
            sender.kill()
            sender.join()
            path.unlink()


def receive_file(address: tuple[str, int]) -> None:
    buffer = memoryview(bytearray(FETCH_BYTES))
    with socket.create_connection(address) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, FETCH_BYTES)
        while connection.recv_into(buffer):
            continue


def _send_file(listening: socket.socket, path: Path) -> None:
    with path.open("rb") as file:
        while True:
            connection, _ = listening.accept()
            Thread(target=_send_whole, args=(connection, file.fileno()), daemon=True).start()


def _send_whole(connection: socket.socket, file: int) -> None:
    length = os.fstat(file).st_size
    with connection:
        sent = 0
        while sent < length:
            sent += os.sendfile(connection.fileno(), file, sent, FETCH_BYTES)


async def _read(scratch: Path, report: Report) -> None:
    broker = await Broker.open(BrokerOptions(scratch))
    await broker.create_topic("bench", config=TopicConfig(durability="disk"))
    ready = bytes(batch())
    for _ in range(BATCHES):
        await broker.append("bench", bytearray(ready))
    end = broker.partition("bench").end
    for attempt in ("first", "second"):
        offset = total = 0
        with measured() as span:
            while offset < end:
                fetched = await broker.fetch("bench", offset)
                total += sum(map(len, fetched.batches))
                offset = fetched.next_offset
        if total != BATCHES * len(ready):
            raise SystemExit(f"{total} bytes came back, not {BATCHES * len(ready)}")
        report.add(
            Figure(f"sequential read, {attempt} pass", total / span.wall_s, "B/s", 1e9, cpu_s=span.cpu_s)
        )
    await broker.close()
