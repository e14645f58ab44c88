"""A topic is copied into Apache Iceberg's own REST catalog server while the delivery is killed.

The server is the one that Apache tests clients with: its REST catalog over SQLite, with files in a local folder.
Records are written all the time, and `mainstem table deliver` is killed with SIGKILL at random moments of its work and
started again. Then the lake's driver runs. The copy, read through the other catalog, must have every record once; so
must the topic's own table.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from pyiceberg.catalog import load_catalog

from mainstem.records.building import build_batch
from mainstem.testing.ports import kept_ports
from mainstem.testing.server import ServerProcess
from tools.outside.engines import ask
from tools.outside.iceberg_kit import ICEBERG, fetched_jars
from tools.outside.suite import Missing, Suite, Tally, program

PARTITIONS = 2
BATCH = 100
KILLS = 25
WAIT_S = 240.0
COPY = "copies.orders"


def _run(folder: Path) -> Tally:
    kit = folder.parent / "iceberg-kit"  # whose jars have the server
    kit.mkdir(exist_ok=True)
    java, jars = program("java"), fetched_jars(kit)
    tally = Tally()
    with (
        tempfile.TemporaryDirectory(prefix="iceberg-copy-") as scratch,
        _catalog(java, jars, Path(scratch)) as uri,
        ServerProcess(Path(scratch) / "data", "--text", "off", "--pulsar", "off") as server,
    ):
        url = f"http://{server.address('http')}"
        admin = AdminClient({"bootstrap.servers": str(server.address("kafka"))})
        admin.create_topics([NewTopic("orders", PARTITIONS, 1)])["orders"].result(30)
        body = b'{"enabled": true, "iceberg": "apache.' + COPY.encode() + b'"}'
        ask(f"{url}/v0/topics/orders/table", "PUT", body, "application/json")
        written = _write_and_kill(url, uri)
        for name, catalog, table in (
            ("copy", uri, COPY),
            ("own table", f"{url}/iceberg", "default.orders"),
        ):
            found = _wait_for(url, uri, catalog, table, written)
            said = f"{len(found)} rows, {len(set(found))} different ones, of {PARTITIONS * written}"
            print(f"  {name}: {said}; {KILLS} kills")
            if sorted(found) == [(at, n) for at in range(PARTITIONS) for n in range(written)]:
                tally.passed.append(name)
            else:
                tally.failed[name] = said
        server.terminate()
    return tally


def _write_and_kill(url: str, uri: str) -> int:
    """Write to each partition while drivers are killed. Returns how many records each has."""
    ending = threading.Event()
    written = [0]

    def write() -> None:
        while not ending.is_set():
            for partition in range(PARTITIONS):
                values: list[bytes | None] = [b"%d" % n for n in range(written[0], written[0] + BATCH)]
                batch = bytes(build_batch(values, timestamps_ms=1_700_000_000_000))
                path = f"{url}/v0/topics/orders/batches?partition={partition}"
                ask(path, "POST", batch, "application/octet-stream")
            written[0] += BATCH
            ending.wait(0.1)

    writer = threading.Thread(target=write)
    writer.start()
    moments = random.Random(29)
    try:
        began = time.monotonic()
        if _started(uri, "table", "deliver", "--url", url).wait(WAIT_S):
            raise RuntimeError("mainstem table deliver failed")
        whole_s = time.monotonic() - began
        for _ in range(KILLS):
            delivery = _started(uri, "table", "deliver", "--url", url)
            time.sleep(moments.uniform(whole_s / 2, whole_s))
            _kill(delivery)
    finally:
        ending.set()
        writer.join()
    return written[0]


def _wait_for(url: str, uri: str, catalog: str, table: str, written: int) -> list[tuple[int, int]]:
    """The rows once there are enough, or after a while."""
    driver = _started(uri, "lake", "run", "--url", url, "--lease-ms", "1000")
    try:
        deadline = time.monotonic() + WAIT_S
        while len(found := _rows(catalog, table)) < PARTITIONS * written and time.monotonic() < deadline:
            time.sleep(0.2)
        return found
    finally:
        _kill(driver)


def _rows(uri: str, name: str) -> list[tuple[int, int]]:
    """The partition and the offset of each row."""
    local = {"header.X-Iceberg-Access-Delegation": "none"}
    catalog = load_catalog("other", type="rest", uri=uri, **local)
    if not catalog.table_exists(name):
        return []
    rows = catalog.load_table(name).scan(selected_fields=("_partition_id", "_offset")).to_arrow()
    return list(
        zip(rows.column("_partition_id").to_pylist(), rows.column("_offset").to_pylist(), strict=True)
    )


def _started(uri: str, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "mainstem", *arguments],
        env={**os.environ, "PYICEBERG_CATALOG__APACHE__TYPE": "rest", "PYICEBERG_CATALOG__APACHE__URI": uri},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _kill(driver: subprocess.Popen[bytes]) -> None:
    os.killpg(driver.pid, signal.SIGKILL)
    driver.wait()


@contextmanager
def _catalog(java: str, jars: Path, scratch: Path) -> Iterator[str]:
    """Apache's server. Gives its URI."""
    (port,) = kept_ports(1)
    uri = f"http://127.0.0.1:{port}"
    log = scratch / "catalog.log"
    settings = {
        "CATALOG_REST_PORT": str(port),
        "CATALOG_WAREHOUSE": f"file://{scratch}/warehouse",
        "CATALOG_URI": f"jdbc:sqlite:{scratch}/catalog.db",
    }
    with log.open("w") as output:
        server = subprocess.Popen(
            [java, "-Xmx512m", "-cp", f"{jars}/*", "org.apache.iceberg.rest.RESTCatalogServer"],
            env={**os.environ, **settings},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            deadline = time.monotonic() + WAIT_S
            while True:
                try:
                    ask(f"{uri}/v1/config", "GET")
                    break
                except OSError:
                    if server.poll() is not None or time.monotonic() > deadline:
                        raise Missing(f"the catalog does not start: {log.read_text()[-1500:]}") from None
                    time.sleep(0.2)
            yield uri
        finally:
            server.kill()
            server.wait()


SUITES = (Suite("iceberg-copy", ICEBERG, _run, {}),)
