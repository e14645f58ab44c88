"""The packages that a release uploads: they build, pass twine's checks, have what they need, and work."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import confluent_kafka
import httpx
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from mainstem import Client, MainstemError
from mainstem.testing.broker import throw_away_broker
from mainstem.version import VERSION

ROOT = Path(__file__).parents[2]
CLIENT_BYTES_MAX = 25_000_000

_CLIENT = """
import sys
import mainstem
from mainstem.client import Record

with mainstem.Client() as client:
    client.create_topic("orders", partitions=3)
    client.produce("orders", {"id": 1}, key="eu")
    client.produce("orders", b"\\xff", key=b"raw", headers={"trace": "t1"})
    client.produce("orders", None, key="eu")
    with client.producer("orders") as producer:
        for number in range(2, 100):
            producer.send(b"%d" % number)
    found = list(client.read("orders"))
    print(len(found), [record.headers for record in found if record.key == b"raw" or record.key == "raw"])
    client.create_topic("jobs", type="queue")
    client.produce("jobs", {"to": "ada"})
    with client.worker("jobs") as worker, next(iter(worker)) as job:
        print(job.value)
    with client.consumer("orders", group="g") as consumer:
        print(next(iter(consumer)).topic)
    print(client.sql_json("select count(*) as n from orders").rows)
    for needs_arrow in (lambda: client.read_arrow("orders"), lambda: client.sql("select 1 as n").rows()):
        try:
            needs_arrow()
        except mainstem.MainstemError as error:
            print(error)
try:
    mainstem.open("log")
except ImportError as error:
    print(error)
print(sorted({name.partition(".")[0] for name in sys.modules} & {"numpy", "numba", "pyarrow", "uvicorn", "click"}))
"""


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both packages, built from a copy, because building writes into its folder."""
    copy = tmp_path_factory.mktemp("source")
    for folder in ("src", "packaging"):
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(ROOT / folder, copy / folder, symlinks=True, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    for source, kinds in ((copy, ()), (copy / "packaging/client", ("--wheel",))):
        command = [sys.executable, "-m", "build", "--no-isolation", *kinds, "--outdir", str(copy / "dist")]
        done = subprocess.run([*command, str(source)], capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, done.stdout + done.stderr
    return copy / "dist"


def wheel(dist: Path, name: str) -> zipfile.ZipFile:
    return zipfile.ZipFile(dist / f"{name}-{VERSION}-py3-none-any.whl")


def test_twine_accepts_every_package(dist: Path) -> None:
    packages = sorted(str(path) for path in dist.iterdir())
    assert len(packages) == 3
    done = subprocess.run(
        [sys.executable, "-m", "twine", "check", "--strict", *packages],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_wheel_has_what_the_server_needs_and_nothing_of_the_tests(dist: Path) -> None:
    names = wheel(dist, "mainstem").namelist()
    info = f"mainstem-{VERSION}.dist-info"
    assert {"mainstem/py.typed", "mainstem/spark/log4j2.properties", f"{info}/licenses/LICENSE"} <= {*names}
    static = ROOT / "src/mainstem/console/static"
    console = {f"mainstem/console/static/{path.relative_to(static)}" for path in static.rglob("*.*")}
    assert console <= {*names}
    assert {name.partition("/")[0] for name in names} == {"mainstem", "pyspark_mainstem", info}


def test_the_version_is_written_in_one_place() -> None:
    for project in (ROOT / "pyproject.toml", ROOT / "packaging/client/pyproject.toml"):
        assert VERSION not in project.read_text(encoding="utf-8")


def test_the_client_works_without_the_packages_of_the_server(dist: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    with wheel(dist, "mainstem_client") as package:
        package.extractall(site)
        metadata = package.read(f"mainstem_client-{VERSION}.dist-info/METADATA").decode()
    wanted = re.findall(r"^Requires-Dist: (.*)$", metadata, re.M)
    size = sum(path.stat().st_size for path in site.rglob("*") if path.is_file())
    size += sum(linked(name, site) for name in closure(wanted))
    assert size < CLIENT_BYTES_MAX
    with throw_away_broker() as broker:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(site)!r})\n{_CLIENT}"],
            env={"MAINSTEM_URL": broker.url, "PATH": os.environ["PATH"]},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=180,
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "101 [[('trace', b't1')]]",
        "{'to': 'ada'}",
        "orders",
        "[[101]]",
        "this needs 'pyarrow', which is not installed: pip install pyarrow",
        "results of SQL are Arrow, which is not installed: pip install pyarrow, or use sql_json()",
        "mainstem-client has no mainstem.open: pip install mainstem",
        "[]",
    ]


def test_the_core_serves_every_door_and_names_the_extra_that_is_missing(dist: Path, tmp_path: Path) -> None:
    """`pip install mainstem`: no DuckDB, no Arrow, no Spark."""
    site = tmp_path / "site"
    with wheel(dist, "mainstem") as package:
        package.extractall(site)
        metadata = package.read(f"mainstem-{VERSION}.dist-info/METADATA").decode()
    wanted = [one for one in re.findall(r"^Requires-Dist: (.*)$", metadata, re.M) if "extra ==" not in one]
    core = closure(wanted)
    assert not {"duckdb", "pyarrow", "pyiceberg", "pyspark", "pandas", "grpcio", "obstore"} & core
    for name in core:
        linked(name, site)
    for folder in ("mainstem/records", "mainstem/doors/http/live"):  # their kernels are compiled here already
        shutil.rmtree(site / folder)
        (site / folder).symlink_to(ROOT / "src" / folder)
    start = f"import sys; sys.path.insert(0, {str(site)!r}); from mainstem.cli.main import main; main()"
    ports = tmp_path / "ports.json"
    doors = ("http", "kafka", "text", "pulsar", "s3")
    command = [sys.executable, "-I", "-S", "-c", start, "serve", "--data-dir", str(tmp_path / "data")]
    command += [argument for door in doors for argument in (f"--{door}", "127.0.0.1:0")]
    command += ["--ports-file", str(ports), "--log-format", "text"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        try:
            events = []
            for line in server.stderr:
                events.append(line)
                if "extra=lake" in line:
                    break
            bound = json.loads(ports.read_text())
            assert {*doors} <= {*bound}, "".join(events)
            assert any("extra=sql" in line and "mainstem[sql]" in line for line in events)
            assert "mainstem[lake]" in events[-1]
            produced_by_kafka_and_read_by_http(bound)
            with Client(f"http://{bound['http']}") as client:
                client.create_topic("jobs", type="queue")
                client.produce("jobs", {"to": "ada"})
                with client.worker("jobs") as worker, next(iter(worker)) as job:
                    assert job.value == {"to": "ada"}
                with pytest.raises(MainstemError, match=r"pip install 'mainstem\[sql\]'"):
                    client.sql("SELECT 1")
            console = httpx.get(f"http://{bound['http']}/")
            assert "<div id=" in console.text
            table = httpx.post(f"http://{bound['http']}/iceberg/v1/namespaces", json={"namespace": ["shop"]})
            created = httpx.post(
                f"http://{bound['http']}/iceberg/v1/namespaces/shop/tables",
                json={"name": "t", "schema": {"type": "struct", "fields": []}},
            )
            assert "mainstem[lake]" in created.text, (table.text, created.text)
        finally:
            server.terminate()
            server.stderr.read()
    assert server.returncode == 0


def produced_by_kafka_and_read_by_http(bound: dict[str, str]) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bound["kafka"]})
    producer.produce("orders", b'{"id": 1}', key=b"eu")
    assert producer.flush(20) == 0
    with Client(f"http://{bound['http']}") as client:
        assert [record.value for record in client.read("orders")] == [{"id": 1}]


def closure(requirements: list[str]) -> set[str]:
    """Names of the distributions that an install of these brings."""
    found: set[str] = set()
    left = requirements
    while left:
        requirement = Requirement(left.pop())
        name = canonicalize_name(requirement.name)
        if name in found or not (requirement.marker is None or requirement.marker.evaluate({"extra": ""})):
            continue
        found.add(name)
        left += importlib.metadata.requires(requirement.name) or []
    return found


def linked(distribution: str, site: Path) -> int:
    """Link the files of an installed distribution into a folder. Returns their size."""
    size = 0
    for file in importlib.metadata.files(distribution) or []:
        path = Path(str(file.locate()))
        if ".." in file.parts or path.suffix == ".pyc" or not path.is_file():
            continue
        size += path.stat().st_size
        target = site / str(file)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(path)
    return size
