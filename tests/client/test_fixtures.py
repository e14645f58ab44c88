"""The pytest fixtures that come with Mainstem, used as somebody else's tests would use them."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

import mainstem
from mainstem.errors import Unreachable
from mainstem.testing.broker import throw_away_broker


def test_somebody_elses_test_gets_a_broker_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "test_orders.py").write_text(
        textwrap.dedent(
            """
            def test_first(mainstem_broker, mainstem_client):
                mainstem_client.produce("orders", {"id": 1})
                mainstem_broker.kill()
                mainstem_broker.restart()
                assert [r.value for r in mainstem_client.read("orders")] == [{"id": 1}]

            def test_second(mainstem_client):
                assert mainstem_client.topics() == []
            """
        )
    )
    # Once Mainstem is installed as it is declared here, pytest finds the fixtures without being told.
    told = [] if "mainstem" in _plugins() else ["-p", "mainstem.testing.pytest_plugin"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:asyncio", *told],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "2 passed" in done.stdout, done.stdout + done.stderr


def _plugins() -> set[str]:
    from importlib.metadata import entry_points

    return {point.name for point in entry_points(group="pytest11")}


def test_the_fixtures_are_declared_for_pytest() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    plugin = import_module(project["entry-points"]["pytest11"]["mainstem"])
    assert plugin.mainstem_broker
    assert "numpy" not in plugin.__dict__


def test_a_broker_ends_with_its_block(tmp_path: Path) -> None:
    began = time.monotonic()
    with throw_away_broker("--node", "brief") as broker:
        assert time.monotonic() - began < 30  # a second where the machine is idle
        assert broker.client.health().status == "ok"
        url = broker.url
    with mainstem.Client(url, retries=False) as client, pytest.raises(Unreachable):
        client.health()
