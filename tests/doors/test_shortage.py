"""A server that runs out of disk space or of file descriptors says so, and recovers by itself."""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from mainstem.testing.server import ServerProcess

_WITHIN_S = 30.0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(place)], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip(
            "this user may not mount a file system; tests/log/test_faults.py has the same on a simulated one"
        )
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def _url(server: ServerProcess) -> str:
    return f"http://{server.address('http')}"


def _write(server: ServerProcess, size: int = 50_000) -> int:
    body = {"records": [{"data": os.urandom(size // 2).hex()}]}
    return httpx.post(f"{_url(server)}/v0/topics/t", json=body, timeout=60).status_code


def _writable(server: ServerProcess) -> tuple[float, int]:
    """The metric, and the status of the readiness probe."""
    answer = httpx.get(f"{_url(server)}/v0/metrics", headers={"accept": "application/json"}, timeout=60)
    found: dict[str, Any] = answer.json()
    return found["mainstem_writable"], httpx.get(f"{_url(server)}/v0/ready", timeout=60).status_code


def _eventually(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + _WITHIN_S
    while not condition():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.05)


def test_a_full_disk_is_not_ready_and_recovers_without_a_write(small_disk: Path, tmp_path: Path) -> None:
    with ServerProcess(small_disk / "data", "--segment-bytes", "16MiB") as server:
        assert _write(server) == 201
        assert _writable(server) == (1.0, 200)
        filler = small_disk / "filler"
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            while file.write(bytes(65536)):
                pass
        _eventually(lambda: _write(server) == 503)
        assert _writable(server) == (0.0, 503)
        assert _write(server, 64) in (
            200,
            201,
            503,
        )  # a small one may still fit: which does not end the shortage
        assert _writable(server) == (0.0, 503)
        filler.unlink()
        _eventually(lambda: _writable(server) == (1.0, 200))
        assert _write(server) in (200, 201)
        assert {"writes refused", "writes accepted again"} <= set(server.events())
        assert server.terminate() == 0


def test_a_server_without_free_descriptors_refuses_writes_for_now(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", "--segment-bytes", "64KiB") as server:
        url = _url(server)
        with httpx.Client(base_url=url, timeout=60) as client:
            body = {"records": [{"data": "x" * 30_000}]}
            client.post("/v0/topics/t", json=body).raise_for_status()
            client.post("/v0/topics/t/diff", json={}).raise_for_status()  # the kernels are loaded
            limit = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
            resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (3, limit[1]))  # open ones stay open
            try:
                statuses = [client.post("/v0/topics/t", json=body).status_code for _ in range(12)]
                assert 503 in statuses
                assert client.get("/v0/ready").status_code == 503
                metrics = client.get("/v0/metrics", headers={"accept": "application/json"}).json()
                assert metrics["mainstem_writable"] == 0
            finally:
                resource.prlimit(server.pid, resource.RLIMIT_NOFILE, limit)
            _eventually(lambda: client.get("/v0/ready").status_code == 200)
            client.post("/v0/topics/t", json=body).raise_for_status()
            taken = sum(status < 300 for status in statuses) + 2
            assert client.get("/v0/topics/t").json()["count"] == taken
        assert server.terminate() == 0
