"""The commit log in etcd: commits per second and latency, alone and of three brokers.

Uses a real etcd of one member next to the benchmark, with its data on the same disk.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import uvloop

from mainstem.ports.commitlog.port import Overtaken
from mainstem.ports.commitlog.shared.etcd.log import EtcdCommitLog, EtcdOptions
from tests.support.etcd import EtcdCluster
from tests.support.memory_store import MemoryObjectStore
from tools.bench.report import Figure, Report, Span, measured

COMMITS = 3_000
ENTRY = b"e" * 200  # about what a few commands without records encode to
P99_BAR_MS = 30.0


def run(scratch: Path, report: Report) -> None:
    for members in (1, 3):
        with EtcdCluster(scratch / f"etcd-{members}", members) as cluster:
            for brokers in (1, 3):
                span, taken = uvloop.run(_measure(cluster, brokers))
                _tell(report, f"etcd of {members}, {brokers} writing", span, taken)


def _tell(report: Report, where: str, span: Span, taken: list[float]) -> None:
    taken.sort()
    p50, p99 = (taken[int(len(taken) * part)] * 1000 for part in (0.5, 0.99))
    report.add(Figure(f"commits, {where}", len(taken) / span.wall_s, "commits/s", cpu_s=span.cpu_s))
    report.add(Figure(f"commit p50, {where}", p50, "ms", lower_is_better=True))
    report.add(Figure(f"commit p99, {where}", p99, "ms", P99_BAR_MS, lower_is_better=True))


async def _measure(cluster: EtcdCluster, brokers: int) -> tuple[Span, list[float]]:
    """The time from the call to the answer, races that were lost on the way included."""
    options, store = EtcdOptions(cluster.endpoints), MemoryObjectStore()
    prefix = f"bench-{brokers}/"
    logs = [
        await EtcdCommitLog.open(options, store, broker=f"b{number}", prefix=prefix)
        for number in range(brokers)
    ]
    taken: list[float] = []

    async def write(log: EtcdCommitLog) -> None:
        for _ in range(COMMITS // brokers):
            started = time.perf_counter()
            await _append(log)
            taken.append(time.perf_counter() - started)

    await asyncio.gather(*(_append(log) for log in logs))
    with measured() as span:
        await asyncio.gather(*map(write, logs))
    for log in logs:
        await log.close()
    return span, taken


async def _append(log: EtcdCommitLog) -> None:
    while True:
        try:
            await log.append(ENTRY, [])
            return
        except Overtaken:
            continue
