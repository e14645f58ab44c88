"""A real server and a real browser for each test; what the browser complains about fails the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser

from mainstem.testing.server import ServerProcess

from .browser import Watched, browsing, chromium, running

OpenPage = Callable[..., Watched]


class Server:
    """A server that can be killed and started again where it was."""

    def __init__(self, data: Path, env: dict[str, str] | None = None) -> None:
        self._data = data
        self._env = env
        self.process = ServerProcess(data, env=env).wait_ready()
        self.http = str(self.process.address("http"))
        self.kafka = str(self.process.address("kafka"))
        self.url = f"http://{self.http}"
        self.client = httpx.Client(base_url=self.url, timeout=30)

    def kill(self) -> None:
        self.process.kill()

    def start(self) -> None:
        flags = ("--http", self.http, "--kafka", self.kafka)
        self.process = ServerProcess(self._data, *flags, env=self._env).wait_ready()

    def write(self, topic: str, *records: dict[str, object]) -> None:
        self.client.post(f"/v0/topics/{topic}", json={"records": list(records)}).raise_for_status()

    def close(self) -> None:
        self.client.close()
        if self.process.running:
            self.process.kill()


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """`serve(env={…})`: a server of this test."""
    chromium()  # before anything is started: it may skip
    with ExitStack() as started:

        def make(env: dict[str, str] | None = None) -> Server:
            server = Server(tmp_path / "data", env)
            started.callback(server.close)
            return server

        yield make


@pytest.fixture
def server(serve: Callable[..., Server]) -> Server:
    return serve()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with running() as started:
        yield started


@pytest.fixture
def open_page(browser: Browser, chaos: bool) -> Iterator[OpenPage]:
    """`open_page(scheme="dark")`: a page of its own. Complaints that it is not told to allow fail the test.

    With --chaos, every answer comes late."""
    pages: list[tuple[Watched, tuple[str, ...]]] = []
    with ExitStack() as opened:

        def make(*, scheme: str = "light", allow: tuple[str, ...] = ()) -> Watched:
            context = opened.enter_context(browsing(browser, scheme, slow=chaos))
            watched = Watched(context.new_page())
            pages.append((watched, allow))
            return watched

        yield make
        for watched, allow in pages:
            print(*watched.notes(), sep="\n")  # noqa: T201 - pytest shows it for tests that failed
            left = [line for line in watched.complaints if not any(word in line for word in allow)]
            assert not left, "the browser complained"


@pytest.fixture
def page(open_page: OpenPage) -> Watched:
    return open_page()
