"""Options of the whole suite: how much of the seeded work to do, and how to do one piece of it again."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mainstem.testing import server
from tests.support import cluster_server
from tests.support.forks import Forks
from tests.support.simulation.schedules import Schedules

if TYPE_CHECKING:
    from tests.support.s3 import S3Server

# A test's JVM ends before an optimising compiler pays: without one it starts with little more than half the work.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

# Without a bytecode cache, each of hundreds of processes would compile all its imports.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A start is mostly imports; `cold_starts` is for tests of the start itself.
_FORKS = Forks()
if sys.platform == "linux":
    server.start = _FORKS.start

# Folders with the dearest tests, and about how many seconds they take together.
_DEAR_S = {
    "tests/spark/": 370,
    "tests/cluster/": 330,
    "tests/doors/attacks/": 250,
    "tests/console/": 170,
}

_SEEDS = {  # (a normal run, --chaos)
    "sweep_seed": (2, 12),
    "walk_seed": (16, 200),
    "kill_seed": (2, 10),
    "chaos_seed": (1, 2),
    "http_seed": (80, 3000),
    "http_server_seed": (1, 60),
    "lake_seed": (1, 3),
    "share_seed": (4, 60),
    "migration_seed": (4, 100),
}

_BLOCKS = {  # (schedules in a normal run, with --chaos, in one test)
    "etcd_schedules": (250, 12_000, 250),
    "bucket_schedules": (100, 6_000, 100),
    "broker_schedules": (60, 3_000, 60),
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--chaos", action="store_true", help="all the crash points and seeds, not a slice")
    parser.addoption("--seed", type=int, help="run seeded tests with this seed only")
    parser.addoption(
        "--through", choices=cluster_server.KINDS, help="servers of the doors' tests are brokers of a cluster"
    )


def pytest_sessionstart(session: pytest.Session) -> None:
    kind = session.config.getoption("--through")
    if kind is not None:
        cluster_server.start(kind, Path(tempfile.mkdtemp(prefix="mainstem-through-")))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    spread = spread_dear_tests(items, int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))
    assert len(spread) == len(items), "no test is left out"
    items[:] = spread
    if config.getoption("--through") is None:
        return
    for item in items:
        alone = item.get_closest_marker("alone")
        if alone is not None:
            item.add_marker(pytest.mark.skip(reason=alone.args[0]))
        elif "ephemeral" in str(getattr(getattr(item, "callspec", None), "params", {})):
            item.add_marker(pytest.mark.skip(reason="brokers that share a log refuse ephemeral topics"))


def spread_dear_tests(items: list[pytest.Item], workers: int) -> list[pytest.Item]:
    """The tests in another order. Each worker begins with an equal share of the list, in order, and takes single tests
    from the end of others' shares when it is done. So a share begins with folders of dear tests, which stay together
    and share their servers, and ends with cheap ones, which divide well."""
    dear: dict[str, list[pytest.Item]] = {folder: [] for folder in _DEAR_S}
    cheap: list[pytest.Item] = []
    for item in items:
        folder = next((folder for folder in _DEAR_S if item.nodeid.startswith(folder)), "")
        dear.get(folder, cheap).append(item)
    loads = [0] * workers
    shares: list[list[pytest.Item]] = [[] for _ in range(workers)]
    for folder, found in dear.items():
        lightest = loads.index(min(loads))
        loads[lightest] += _DEAR_S[folder]
        shares[lightest] += found
    for number, share in enumerate(shares):
        room = len(items) * (number + 1) // workers - len(items) * number // workers - len(share)
        share += cheap[: max(room, 0)]
        del cheap[: max(room, 0)]
    return [item for share in shares for item in share] + cheap


def pytest_sessionfinish() -> None:
    cluster_server.end()
    _FORKS.close()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    for name, (few, many) in _SEEDS.items():
        if name in metafunc.fixturenames:
            chosen = metafunc.config.getoption("--seed")
            count = many if metafunc.config.getoption("--chaos") else few
            metafunc.parametrize(name, range(count) if chosen is None else [chosen])
    for name, block in _BLOCKS.items():
        if name in metafunc.fixturenames:
            metafunc.parametrize(name, _schedules(metafunc.config, *block), ids=repr)


def _schedules(config: pytest.Config, few: int, many: int, size: int) -> list[Schedules]:
    chosen = config.getoption("--seed")
    if chosen is not None:
        return [Schedules([chosen], whole=False)]
    count = many if config.getoption("--chaos") else few
    return [Schedules(range(first, min(first + size, count))) for first in range(0, count, size)]


@pytest.fixture
def chaos(request: pytest.FixtureRequest) -> bool:
    """Whether to leave nothing out."""
    return bool(request.config.getoption("--chaos"))


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """An S3 server; every test uses a bucket of its own."""
    from tests.support.s3 import S3Server  # most runs of a few tests need none

    with S3Server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def cold_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers are started as anybody starts them."""
    monkeypatch.setattr(server, "start", server.execute)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report = yield
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    for name in (_SEEDS.keys() | _BLOCKS.keys()) & parameters.keys():
        if report.failed:
            whole = " --chaos" if item.config.getoption("--chaos") else ""
            test = item.nodeid.partition("[")[0]
            seed = getattr(parameters[name], "current", parameters[name])
            report.sections.append(("run it again", f"pytest '{test}' --seed {seed}{whole}"))
    return report
