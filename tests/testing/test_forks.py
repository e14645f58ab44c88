"""Servers that are forked are the servers that anybody starts."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import httpx
import psutil
import pytest

from mainstem.testing.server import ServerProcess

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere they are not forked")


def test_they_end_as_they_are_told_to(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "a") as one, ServerProcess(tmp_path / "b") as other:
        assert one.pid != other.pid
        assert one.kill() == -signal.SIGKILL
        assert other.running
        assert other.terminate() == 0
        assert other.events()[-2:] == ["stopping", "closed"]
        assert not one.running
        assert one.stray_output == other.stray_output == ""


def test_they_take_their_flags_environment_and_folder(tmp_path: Path) -> None:
    refused = ServerProcess(tmp_path / "data", "--nonsense")
    assert refused.wait() == 2
    assert "--nonsense" in refused.stray_output
    with ServerProcess(tmp_path / "data", env={"MAINSTEM_API_KEYS": "k"}) as process:
        url = f"http://{process.address('http')}/v0/topics"
        assert httpx.get(url).status_code == 401
        assert httpx.get(url, headers={"authorization": "Bearer k"}).status_code == 200
        assert psutil.Process(process.pid).cwd() == str(tmp_path)
