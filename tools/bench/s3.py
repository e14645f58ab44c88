"""GET of an object through the S3 door, from the page cache, beside `sendfile` of the same bytes by a bare process.

Both by turns, to the same client, which throws the bytes away: with one connection, and with two at once. CPU is that
of the sending process. The objects are large, and small enough to be many a second.
"""

from __future__ import annotations

import os
import socket
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import fmean

import psutil

from mainstem.address import Address
from mainstem.limits import MIB
from mainstem.testing.server import ServerProcess
from tools.bench.lone_requests import cpu_s
from tools.bench.machine import settle, touch_pages
from tools.bench.reads import FETCH_BYTES, FLOOR_SHARE, receive_file, serving_file
from tools.bench.report import Figure, Report, Span, measured

OBJECT_BYTES = 128 * MIB
SMALL_BYTES = 64 * 1024
SMALL_GETS = 1_000
PASSES = 5
RATE_BAR = 1e9

Fetch = Callable[[], None]


def run(scratch: Path, report: Report) -> None:
    content = os.urandom(MIB) * (OBJECT_BYTES // MIB)
    floor_file = scratch / "floor"
    touch_pages(scratch, 2 * OBJECT_BYTES)
    floor_file.write_bytes(content)
    flags = ("--http", "off", "--text", "off", "--kafka", "off", "--pulsar", "off")
    with ServerProcess((scratch / "data").resolve(), *flags) as server, serving_file(floor_file) as floor:
        address = server.address("s3")
        for path, body in (("", b""), ("/large", content), ("/small", content[:SMALL_BYTES])):
            url = f"http://{address}/bench{path}"
            with urllib.request.urlopen(
                urllib.request.Request(url, body, method="PUT"), timeout=60
            ) as answer:
                answer.read()
        process = psutil.Process(server.pid)
        settle(lambda: cpu_s(process))
        for connections in (1, 2):
            spans = _by_turns(
                {
                    "raw": (lambda: receive_file(floor[0]), floor[1]),
                    "S3": (lambda: _get(address, "/bench/large", 1), process),
                },
                connections,
            )
            total = OBJECT_BYTES * connections
            raw, got = spans["raw"], spans["S3"]
            what = f"{connections} connection{'s' if connections > 1 else ''}"
            note = f"{raw.cpu_s / total * 1e9:.2f} ns CPU a byte"
            report.add(Figure(f"raw: sendfile to {what}", total / raw.wall_s, "B/s", note=note))
            bar = min(RATE_BAR, FLOOR_SHARE * total / raw.wall_s)
            note = f"{got.cpu_s / total * 1e9:.2f} ns CPU a byte"
            report.add(Figure(f"S3: GET of 128 MiB, {what}", total / got.wall_s, "B/s", bar, note=note))
        small = _by_turns({"S3": (lambda: _get(address, "/bench/small", SMALL_GETS), process)}, 1)["S3"]
        report.add(Figure("S3: GET of 64 KiB, one connection", SMALL_GETS / small.wall_s, "/s"))
        report.add(Figure("… server CPU a GET", small.cpu_s / SMALL_GETS * 1e6, "µs", lower_is_better=True))
        server.terminate()


def _by_turns(senders: dict[str, tuple[Fetch, psutil.Process]], connections: int) -> dict[str, Span]:
    """The least time and the mean CPU of each sender, over passes by turns: the system counts CPU in steps of 10 ms."""
    found: dict[str, list[Span]] = {name: [] for name in senders}
    with ThreadPoolExecutor(connections) as threads:
        for _ in range(PASSES):
            for name, (fetch, process) in senders.items():
                before = cpu_s(process)
                with measured() as span:
                    for done in [threads.submit(fetch) for _ in range(connections)]:
                        done.result()
                found[name].append(Span(span.wall_s, cpu_s(process) - before))
    return {
        name: Span(min(span.wall_s for span in spans), fmean(span.cpu_s for span in spans))
        for name, spans in found.items()
    }


def _get(address: Address, path: str, times: int) -> None:
    buffer = memoryview(bytearray(FETCH_BYTES))
    request = f"GET {path} HTTP/1.1\r\nhost: {address}\r\n\r\n".encode()
    with socket.create_connection((address.host, address.port)) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, FETCH_BYTES)
        for _ in range(times):
            connection.sendall(request)
            answer = b""
            while b"\r\n\r\n" not in answer:
                answer += connection.recv(4096)
            head, _, body = answer.partition(b"\r\n\r\n")
            if not head.startswith(b"HTTP/1.1 200"):
                raise OSError(head.decode())
            (length,) = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
            left = int(length.partition(b":")[2]) - len(body)
            while left:
                left -= connection.recv_into(buffer[: min(left, FETCH_BYTES)])
