"""Options of the whole suite: how much of the seeded work to do, and how to do one piece of it again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

_SEEDS = {  # (a normal run, --chaos)
    "sweep_seed": (2, 12),
    "walk_seed": (16, 200),
    "kill_seed": (2, 10),
    "cluster_seed": (60, 3000),
    "brokers_seed": (10, 1500),
    "http_seed": (80, 3000),
    "http_server_seed": (1, 60),
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--chaos", action="store_true", help="all the crash points and seeds, not a slice")
    parser.addoption("--seed", type=int, help="run seeded tests with this seed only")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    for name, (few, many) in _SEEDS.items():
        if name in metafunc.fixturenames:
            chosen = metafunc.config.getoption("--seed")
            count = many if metafunc.config.getoption("--chaos") else few
            metafunc.parametrize(name, range(count) if chosen is None else [chosen])


@pytest.fixture
def chaos(request: pytest.FixtureRequest) -> bool:
    """Whether to leave nothing out."""
    return bool(request.config.getoption("--chaos"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report = yield
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    for name in _SEEDS.keys() & parameters.keys():
        if report.failed:
            whole = " --chaos" if item.config.getoption("--chaos") else ""
            test = item.nodeid.partition("[")[0]
            report.sections.append(("run it again", f"pytest '{test}' --seed {parameters[name]}{whole}"))
    return report
