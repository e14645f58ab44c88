"""Materialising with Spark, end to end, against two processes that only write the same rows with pyarrow.

20 M records of 100 bytes; MAINSTEM_BENCH_LAKE_RECORDS sets another number. The server runs as a process, its records
are in the log before the clock starts, and its start-up work (repacking) is done. The session is the lake driver's
own, and warm. One pass is measured: plan, read and check the log, decode, write Parquet with fsync, publish. Its CPU
seconds are those of the JVM, Spark's workers and the server.

The baseline has the rows in memory as Arrow, with the columns of the lake's files. As many processes as Spark has
workers write them with pyarrow's writer: zstd at the same level, the same row groups, no dictionaries, fsync at the
end. It runs right before the pass, so that both use the same disk. If the disk throttles writes, both wait in fsync,
and the share by CPU seconds is more meaningful.

Then the lake in service is measured (lake_freshness.py).
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import uvloop

from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.client.broker import BrokerClient
from mainstem.ledger.config import TopicConfig
from mainstem.records.building import build_batch
from mainstem.spark.driver.driver import Driver, DriverOptions
from mainstem.spark.driver.jobs import SparkRunner
from mainstem.spark.driver.process import JVM_SETTINGS
from mainstem.spark.session import open_session
from mainstem.testing.server import ServerProcess
from tools.bench import lake_freshness
from tools.bench.machine import settle
from tools.bench.report import Figure, Report, Span, measured

if TYPE_CHECKING:
    import pyarrow as pa

RECORDS_ENV = "MAINSTEM_BENCH_LAKE_RECORDS"
RECORDS = 20_000_000
PARTITIONS = 4
WRITERS = 2  # as many as Spark has workers on two cores
_BATCH = 1000
_BATCHES_MADE = 64  # different ones, written over and over
_ROWS_AT_ONCE = 500_000


class _Silent:
    def event(self, name: str, **fields: object) -> None:
        if "error" in fields:
            raise RuntimeError(f"{name}: {fields['error']}")

    def status(self, status: object) -> None: ...

    def close(self) -> None: ...


def run(scratch: Path, report: Report) -> None:
    least = WRITERS * _ROWS_AT_ONCE  # and whole batches for every partition
    records = max(1, int(os.environ.get(RECORDS_ENV) or RECORDS) // least) * least
    batches = [_batch(number) for number in range(_BATCHES_MADE)]
    uvloop.run(_fill(scratch / "data", batches, records))
    wal_bytes = sum(path.stat().st_size for path in (scratch / "data").rglob("*") if path.is_file())
    spark = open_session("mainstem bench", settings=JVM_SETTINGS)
    flags = ("--text", "off", "--kafka", "off", "--lake-topics", "all")
    try:
        with (
            ServerProcess(scratch / "data", *flags) as server,
            BrokerClient(f"http://{server.address('http')}", timeout_s=60.0) as broker,
        ):
            _pass(broker, spark, "warm")
            settle(_spent_below)
            os.sync()  # what was written before is not to be waited for by those who sync now
            bare = _bare(scratch, batches, records)
            cpu_s = _spent_below()
            seconds, done = _pass(broker, spark, "records")
            cpu_s = _spent_below() - cpu_s
        _report(report, records, bare, seconds, cpu_s, done, wal_bytes)
        lake_freshness.run(scratch, report, spark)
    finally:
        spark.stop()


def _report(
    report: Report, records: int, bare: Span, seconds: float, cpu_s: float, done: Any, wal_bytes: int
) -> None:
    if done.records != records:
        raise RuntimeError(f"{done.records} records came out of {records}")
    what = f"bare pyarrow, {WRITERS} writers of rows in memory"
    report.add(Figure(what, records / bare.wall_s, "rec/s", cpu_s=bare.cpu_s))
    report.add(Figure("materialise 100 B records on Spark", records / seconds, "rec/s", 1e6, cpu_s=cpu_s))
    report.add(Figure("… as a share of bare pyarrow", bare.wall_s / seconds * 100, "%", 50))
    report.add(Figure("… the same by CPU seconds", bare.cpu_s / cpu_s * 100, "%"))
    size = done.bytes / wal_bytes * 100
    report.add(Figure("… Parquet as a share of the log's bytes", size, "%", note=f"{wal_bytes / 1e9:.2f} GB"))


def _batch(number: int) -> bytearray:
    """Values as people write them: JSON with names that repeat and numbers that do not."""
    values = []
    for i in range(_BATCH):
        order = int.from_bytes(os.urandom(5), "big")
        text = b'{"order":%d,"customer":"c-%05d","amount":%d.%02d,"state":"%s","note":"' % (
            order,
            order % 99_991,
            order % 900,
            i % 100,
            (b"open", b"paid", b"sent")[order % 3],
        )
        values.append(text.ljust(97, b"x") + b'"}')
    return build_batch(values, timestamps_ms=[1_700_000_000_000 + number * _BATCH + i for i in range(_BATCH)])


async def _fill(directory: Path, batches: list[bytearray], records: int) -> None:
    options = BrokerOptions(data_dir=directory, default_config=TopicConfig(durability="disk"))
    broker = await Broker.open(options)
    try:
        for topic, count in (("warm", _BATCHES_MADE * PARTITIONS), ("records", records // _BATCH)):
            await broker.create_topic(topic, partitions=PARTITIONS, config=options.default_config)
            for number in range(count // PARTITIONS):
                batch = batches[number % len(batches)]
                await asyncio.gather(
                    *(broker.append(topic, bytearray(batch), partition) for partition in range(PARTITIONS))
                )
    finally:
        await broker.close()


def _pass(broker: BrokerClient, spark: Any, topic: str) -> tuple[float, Any]:
    options = DriverOptions(holder="bench", topics=(topic,), tasks_max=16)
    started = time.perf_counter()
    done = Driver(broker, SparkRunner(spark), options, _Silent()).run_once()
    return time.perf_counter() - started, done


def _spent_below() -> float:
    """CPU seconds of the JVM, Spark's workers and the server so far."""
    total = 0.0
    for process in psutil.Process().children(recursive=True):
        times = process.cpu_times()
        total += times.user + times.system
    return total


# The baseline


def _bare(scratch: Path, batches: list[bytearray], records: int) -> Span:
    context = multiprocessing.get_context("spawn")
    ready, go = context.Barrier(WRITERS + 1), context.Barrier(WRITERS + 1)
    spent = context.SimpleQueue()
    rounds = records // WRITERS // _ROWS_AT_ONCE
    writers = [
        context.Process(
            target=_write, args=(scratch / f"bare-{n}.parquet", batches, rounds, ready, go, spent)
        )
        for n in range(WRITERS)
    ]
    for writer in writers:
        writer.start()
    ready.wait()
    span = Span()
    started = time.perf_counter()
    go.wait()
    span.cpu_s = sum(spent.get() for _ in writers)
    span.wall_s = time.perf_counter() - started
    for writer in writers:
        writer.join()
    return span


def _write(path: Path, batches: list[bytearray], rounds: int, ready: Any, go: Any, spent: Any) -> None:
    import pyarrow.parquet as pq

    rows = _rows(batches)
    ready.wait()
    go.wait()
    with measured() as span, path.open("wb") as sink:
        with pq.ParquetWriter(sink, rows.schema, compression="zstd", use_dictionary=False) as writer:
            for _ in range(rounds):
                writer.write_table(rows, row_group_size=_ROWS_AT_ONCE)
        sink.flush()
        os.fsync(sink.fileno())
    spent.put(span.cpu_s)


def _rows(batches: list[bytearray]) -> pa.Table:
    import pyarrow as pa

    from mainstem.records.rows import decode_rows, table_schema

    copies = [bytes(batches[n % len(batches)]) for n in range(_ROWS_AT_ONCE // _BATCH)]
    rows = pa.Table.from_batches(decode_rows(copies, 0))
    return rows.select(table_schema().names).combine_chunks()
