"""`mainstem cluster start`: several brokers on this machine over one folder, to try a cluster."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from pathlib import Path

import click

_FIRST_PORTS = {"http": 4000, "kafka": 9092, "pulsar": 6650}
_START_S = 60.0
_STOP_S = 15.0
_LOOK_S = 0.1


@click.command()
@click.argument("brokers", type=click.IntRange(1, 16), default=3)
@click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("cluster"),
    show_default=True,
    help="Folder for the log and the logs of the brokers. Start again with the same folder to continue.",
)
@click.option(
    "--http-port",
    type=int,
    default=_FIRST_PORTS["http"],
    show_default=True,
    help="HTTP port of the first broker.",
)
@click.option(
    "--kafka-port",
    type=int,
    default=_FIRST_PORTS["kafka"],
    show_default=True,
    help="Kafka port of the first broker.",
)
@click.option(
    "--pulsar-port",
    type=int,
    default=_FIRST_PORTS["pulsar"],
    show_default=True,
    help="Pulsar port of the first broker.",
)
def start(brokers: int, folder: Path, http_port: int, kafka_port: int, pulsar_port: int) -> None:
    """Start a cluster of BROKERS on this machine, to try one out. Ctrl-C and SIGTERM stop all of them.

    The brokers share one log in a folder, so it survives the processes but not the disk. Each one listens on the next
    ports. The text and S3 doors are off.
    """
    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # before there is a broker to leave behind
    started: list[subprocess.Popen[bytes]] = []
    try:
        for number in range(brokers):
            ports = folder / f"broker-{number}.ports.json"
            ports.unlink(missing_ok=True)
            with (folder / f"broker-{number}.log").open("ab") as log:
                started.append(
                    subprocess.Popen(
                        [
                            *(sys.executable, "-m", "mainstem", "serve"),
                            *("--store", (folder / "store").as_uri()),
                            *("--data-dir", str(folder / f"broker-{number}")),
                            *("--http", f"127.0.0.1:{http_port + number}"),
                            *("--kafka", f"127.0.0.1:{kafka_port + number}"),
                            *("--pulsar", f"127.0.0.1:{pulsar_port + number}"),
                            *("--text", "off"),
                            *("--s3", "off"),  # its default port is that of the second broker
                            *("--ports-file", str(ports)),
                        ],
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                        start_new_session=True,  # Ctrl-C reaches this process only, which stops them in order
                    )
                )
            _wait(started[-1], ports, folder / f"broker-{number}.log")
            click.echo(
                f"broker {number}: http://127.0.0.1:{http_port + number}  kafka 127.0.0.1:{kafka_port + number}"
            )
        bootstrap = ",".join(f"127.0.0.1:{kafka_port + number}" for number in range(brokers))
        click.echo(f"bootstrap.servers={bootstrap}\nstop with Ctrl-C; data and logs are in {folder}")
        _until_one_ends(started)
    except KeyboardInterrupt:
        click.echo("stopping")
    finally:
        _stop(started)


def _wait(process: subprocess.Popen[bytes], ports: Path, log: Path) -> None:
    """Until the broker serves. Raises click.ClickException."""
    deadline = time.monotonic() + _START_S
    while not ports.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            raise click.ClickException(f"a broker did not start: see {log}")
        time.sleep(_LOOK_S)


def _until_one_ends(started: list[subprocess.Popen[bytes]]) -> None:
    while True:
        for number, process in enumerate(started):
            if process.poll() is not None:
                raise click.ClickException(f"broker {number} ended with code {process.returncode}")
        time.sleep(_LOOK_S)


def _stop(started: list[subprocess.Popen[bytes]]) -> None:
    for process in started:
        if process.poll() is None:
            process.terminate()
    for process in started:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_S)
        if process.poll() is None:
            process.kill()
