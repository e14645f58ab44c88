"""Duration of an unclean start: a child process writes a million records and is killed, then the log is opened."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import uvloop

from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.ledger.config import TopicConfig
from tools.bench.report import Figure, Report, measured

RECORDS = 1_000_000


def run(scratch: Path, report: Report) -> None:
    for shape, bar in (("batches", 1.0), ("singles", 3.0), ("sequential", None)):
        directory = scratch / shape
        child = subprocess.Popen(
            [sys.executable, "-m", "tools.bench.recovery", str(directory), shape], stdout=subprocess.PIPE
        )
        assert child.stdout is not None
        written = int(child.stdout.readline())
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        seconds, cpu_s = uvloop.run(_reopen(directory, written))
        what = {
            "batches": "recover 1 M records in 1000-record batches",
            "singles": "recover 1 M records in single appends, 64 in flight",
            "sequential": "recover 100 k records in single appends, one at a time",
        }[shape]
        report.add(Figure(what, seconds, "s", bar, lower_is_better=True, cpu_s=cpu_s))


async def _reopen(directory: Path, written: int) -> tuple[float, float]:
    with measured() as span:
        broker = await Broker.open(BrokerOptions(directory))
    end = broker.partition("bench").end
    if end != written:
        raise SystemExit(f"{written} records were acked, {end} came back")
    await broker.close()
    return span.wall_s, span.cpu_s


async def _write(directory: Path, shape: str) -> None:
    broker = await Broker.open(BrokerOptions(directory))
    await broker.create_topic("bench", config=TopicConfig(durability="disk"))
    values, writers, calls = {
        "batches": ([b"v" * 100] * 1000, 16, RECORDS // 1000),
        "singles": ([b"v" * 100], 64, RECORDS),
        "sequential": ([b"v" * 100], 1, RECORDS // 10),
    }[shape]

    async def writer() -> None:
        for _ in range(calls // writers):
            await broker.append_values("bench", values)

    await asyncio.gather(*(writer() for _ in range(writers)))
    print(broker.partition("bench").end, flush=True)
    await asyncio.sleep(60)  # until killed


if __name__ == "__main__":
    uvloop.run(_write(Path(sys.argv[1]), sys.argv[2]))
