"""`mainstem bench`."""

from __future__ import annotations

import functools
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import click

from mainstem.address import Address
from mainstem.cli.output import print_json

if TYPE_CHECKING:
    from mainstem.cli.bench_load import Load

_SECONDS = 10.0  # of a run without --records and --duration
_PROGRESS_S = 0.5


def _address(ctx: click.Context, param: click.Parameter, text: str) -> Address:
    try:
        return Address.parse(text)
    except ValueError as wrong:
        raise click.BadParameter(f"it {wrong}") from None


_COMMON = (
    click.option(
        "-b",
        "--bootstrap-server",
        "bootstrap",
        metavar="HOST:PORT",
        default="127.0.0.1:9092",
        callback=_address,
        help="Kafka address of any broker.  [default: 127.0.0.1:9092]",
    ),
    click.option("-t", "--topic", default="bench", help="Topic.  [default: bench]"),
    click.option("-n", "--records", type=click.IntRange(min=1), help="Stop after this many records."),
    click.option(
        "-d", "--duration", "seconds", type=click.FloatRange(min=0.1), help="Stop after this many seconds."
    ),
    click.option(
        "-c",
        "--clients",
        type=click.IntRange(1, 1000),
        default=1,
        help="Number of connections.  [default: 1]",
    ),
    click.option(
        "--timeout",
        "timeout_s",
        type=click.FloatRange(min=0.1),
        default=10.0,
        help="Seconds to wait for a response.  [default: 10]",
    ),
    click.option("--json", "as_json", is_flag=True, help="Print one JSON object."),
)
_record_size = click.option(
    "-s",
    "--record-size",
    "record_bytes",
    type=click.IntRange(min=0),
    default=100,
    help="Bytes per value.  [default: 100]",
)


def _common(function: Callable[..., None]) -> Callable[..., None]:
    return functools.reduce(lambda decorated, option: option(decorated), reversed(_COMMON), function)


@click.group()
def bench() -> None:
    """Load a broker through its Kafka address and measure throughput and latency.

    Works with every Kafka broker that requires neither TLS nor authentication. The records stay in the topic.
    """


@bench.command()
@_common
@_record_size
@click.option(
    "--batch-size",
    "batch_records",
    type=click.IntRange(1, 100_000),
    default=1000,
    help="Records per request.  [default: 1000]",
)
@click.option(
    "--in-flight",
    type=click.IntRange(1, 1000),
    default=5,
    help="Unanswered requests per connection.  [default: 5]",
)
def produce(as_json: bool, **options: Any) -> None:
    """Write batches of records, for 10 seconds by default, with acks=all.

    Each client writes to one partition. The broker creates a missing topic if its settings allow it.
    """
    _run("produce", _endless(options), as_json)


@bench.command()
@_common
def consume(as_json: bool, **options: Any) -> None:
    """Read a topic from its first record to its last.

    Each client reads one partition at a time.
    """
    _run("consume", options, as_json)


@bench.command()
@_common
@_record_size
def latency(as_json: bool, **options: Any) -> None:
    """Write one record at a time, for 10 seconds by default, and wait until it is acknowledged and read.

    Each client writes and reads one partition, over two connections.
    """
    _run("latency", _endless(options), as_json)


def _endless(options: dict[str, Any]) -> dict[str, Any]:
    """Limit a run without --records and --duration to the default time."""
    if options["records"] is None and options["seconds"] is None:
        options["seconds"] = _SECONDS
    return options


def _run(command: str, options: dict[str, Any], as_json: bool) -> None:
    import asyncio

    import uvloop

    from mainstem.cli import bench_load

    load = bench_load.Load(bench_load.LoadOptions(**options))
    work: Callable[[Load], Awaitable[None]] = getattr(bench_load, command)

    async def run() -> float:
        progress = asyncio.ensure_future(_show_progress(load)) if sys.stderr.isatty() else None
        try:
            await work(load)
            return load.elapsed_s
        finally:
            if progress is not None:
                progress.cancel()
                click.echo("\r\x1b[K", err=True, nl=False)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        seconds = runner.run(run())
    _print(_result(command, load, seconds), as_json)


async def _show_progress(load: Load) -> None:
    import asyncio

    while True:
        seconds = load.elapsed_s
        if seconds:
            click.echo(
                f"\r\x1b[K{seconds:.0f} s  {load.records:,} records  {load.records / seconds:,.0f} records/s  "
                f"{load.bytes / seconds / 1e6:,.1f} MB/s",
                err=True,
                nl=False,
            )
        await asyncio.sleep(_PROGRESS_S)


def _result(command: str, load: Load, seconds: float) -> dict[str, Any]:
    return {
        "command": command,
        "bootstrap_server": str(load.options.bootstrap),
        "topic": load.options.topic,
        "clients": load.options.clients,
        "seconds": round(seconds, 3),
        "records": load.records,
        "bytes": load.bytes,
        "records_per_s": round(load.records / seconds, 1),
        "mb_per_s": round(load.bytes / seconds / 1e6, 3),
        "latency_ms": {
            what: {
                "p50": round(found.quantile_ms(0.50), 3),
                "p99": round(found.quantile_ms(0.99), 3),
                "max": round(found.max_ms, 3),
            }
            for what, found in load.latencies.items()
        },
    }


def _print(result: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(result)
        return
    click.echo(
        f"{result['records']:,} records in {result['seconds']:.2f} s: {result['records_per_s']:,.0f} records/s, "
        f"{result['mb_per_s']:,.2f} MB/s"
    )
    for what, found in result["latency_ms"].items():
        click.echo(
            f"{what + ' latency':<20}  p50 {found['p50']:,.2f} ms  p99 {found['p99']:,.2f} ms  "
            f"max {found['max']:,.2f} ms"
        )
