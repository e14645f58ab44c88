"""The first answer of SQL over 1 M records: from the shell, and as the console asks.

900,000 records are in Parquet files, with typed columns, and 100,000 in the log only. The server has just started. The
shell's time includes the start of Python and of the server's query process. The console was opened a moment before.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import httpx
import psutil

from mainstem.api.lake import PlanRequest
from mainstem.client.broker import BrokerClient
from mainstem.records.building import build_batch
from mainstem.tables.parts.materialise import materialise
from mainstem.testing.server import ServerProcess
from tools.bench.machine import settle
from tools.bench.report import Figure, Report

RECORDS = 1_000_000
IN_FILES = 900_000
_BATCH = 1_000
_COUNT = "SELECT count(*) FROM orders"
_GROUPS = "SELECT state, count(*), sum(amount) FROM orders GROUP BY state ORDER BY state"
_TIMES = 5
_BINARY = {"content-type": "application/octet-stream"}


def run(scratch: Path, report: Report) -> None:
    data = scratch / "data"
    flags = ("--text", "off", "--kafka", "off", "--pulsar", "off", "--s3", "off")
    with ServerProcess(data, *flags) as server:
        _fill(f"http://{server.address('http')}")
        server.terminate()
    for query, what in ((_COUNT, "a count"), (_GROUPS, "sums by a typed column")):
        with ServerProcess(data, *flags) as server:
            url = f"http://{server.address('http')}"
            settle(partial(_spent, server.pid), patience_s=20)
            report.add(
                Figure(f"SQL: {what}, first answer in the shell", _in_shell(url, query), "s", 1.0, True)
            )
        with ServerProcess(data, *flags) as server:
            url = f"http://{server.address('http')}"
            settle(partial(_spent, server.pid), patience_s=20)
            httpx.get(url, headers={"sec-fetch-mode": "navigate"}).raise_for_status()
            settle(partial(_spent, server.pid), patience_s=10)
            first = _in_console(url, query)
            report.add(Figure(f"SQL: {what}, first answer in the console", first * 1e3, "ms", 200, True))
            later = statistics.median(_in_console(url, query) for _ in range(_TIMES))
            report.add(Figure("… the next ones, median", later * 1e3, "ms", 200, True))


def _fill(url: str) -> None:
    with httpx.Client(base_url=url, timeout=60) as http, BrokerClient(url) as broker:
        http.put("/v0/topics/orders", json={"durability": "disk"}).raise_for_status()
        columns = [{"name": "state", "type": "string"}, {"name": "amount", "type": "long"}]
        http.put("/v0/topics/orders/table", json={"enabled": True, "schema": columns}).raise_for_status()
        for first in range(0, RECORDS, _BATCH):
            if first == IN_FILES:
                while tasks := broker.plan(PlanRequest("bench", tasks_max=64)).tasks:
                    for task in tasks:
                        broker.publish(materialise(task))
            values = [
                b'{"order":%d,"state":"%s","amount":%d,"note":"%s"}'
                % (n, (b"open", b"paid", b"sent")[n % 3], n % 900, b"x" * 40)
                for n in range(first, first + _BATCH)
            ]
            batch = bytes(build_batch(values, timestamps_ms=1_700_000_000_000 + first))
            http.post(
                "/v0/topics/orders/batches?partition=0", content=batch, headers=_BINARY
            ).raise_for_status()


def _spent(pid: int) -> float:
    server = psutil.Process(pid)
    times = [process.cpu_times() for process in (server, *server.children())]
    return float(sum(each.user + each.system for each in times))


def _in_shell(url: str, query: str) -> float:
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "mainstem", "sql", query, "--url", url],
        env=dict(os.environ),
        capture_output=True,
        check=False,
        text=True,
    )
    seconds = time.perf_counter() - started
    _check(done.stdout)
    return seconds


def _in_console(url: str, query: str) -> float:
    started = time.perf_counter()
    answer = httpx.post(f"{url}/v0/sql", json={"query": query, "limit": 1000}, timeout=60)
    seconds = time.perf_counter() - started
    _check(answer.text)
    return seconds


def _check(answer: str) -> None:
    shown = answer.replace(",", "").replace("_", "")
    if "1000000" not in shown and "333333" not in shown:
        raise RuntimeError(f"a wrong answer: {answer[:500]}")
