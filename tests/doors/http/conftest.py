"""The door's application in this process with a manual clock, and real servers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from mainstem.api.route import EVENTS
from mainstem.broker.access.keys import parse_keys
from mainstem.broker.access.options import AccessOptions
from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.doors.http.transport.app import App
from mainstem.doors.http.transport.context import Context, HttpLimits
from mainstem.testing.server import ServerProcess
from tests.support import cluster_server
from tests.support.clock import ManualClock
from tests.support.cluster_server import server_process
from tests.support.contract import check_response

from .any_broker import AnyBroker, host

pytest.register_assert_rewrite(f"{__package__}.contract_walk", f"{__package__}.contract_queue_walk")

JSON = {"content-type": "application/json"}


class _CheckingClient(httpx.AsyncClient):
    """Every response that a test reads as a whole is one that the contract declares."""

    async def send(self, request: httpx.Request, *, stream: bool = False, **more: Any) -> httpx.Response:
        response = await super().send(request, stream=stream, **more)
        content_type = response.headers.get("content-type", "")
        if not stream and not content_type.startswith(EVENTS):
            path = response.request.url.raw_path.decode()
            check_response(request.method, path, response.status_code, content_type, response.content)
        return response


class Api:
    """The application in this process. Responses are (status, body)."""

    def __init__(self, broker: Broker, clock: ManualClock, *peers: Broker, **context: Any) -> None:
        self.broker = broker
        self.clock = clock
        self.context = Context(broker, **context)
        apps = [App(self.context), *(App(Context(peer, **context)) for peer in peers)]
        self.client = _CheckingClient(
            transport=AnyBroker(apps) if peers else httpx.ASGITransport(apps[0]),
            base_url="http://localhost",
            timeout=30,
            follow_redirects=bool(peers),
        )

    async def ask(
        self, method: str, path: str, body: object = None, *, key: str | None = None, **more: Any
    ) -> tuple[int, Any]:
        headers = {"authorization": f"Bearer {key}"} if key else {}
        if body is None:
            answer = await self.client.request(method, path, headers=headers, **more)
        else:
            answer = await self.client.request(method, path, json=body, headers=headers, **more)
        return answer.status_code, answer.json()

    async def put(self, topic: str, **config: object) -> Any:
        status, body = await self.ask("PUT", f"/v0/topics/{topic}", config)
        assert status in (200, 201), body
        return body

    async def write(self, topic: str, *data: object, **more: object) -> Any:
        """Append values; `more` is added beside the records."""
        records = [{"data": value} for value in data]
        status, body = await self.ask("POST", f"/v0/topics/{topic}", {"records": records, **more})
        assert status in (200, 201), body
        return body

    async def records(self, topic: str, *records: dict[str, object], **more: object) -> Any:
        status, body = await self.ask("POST", f"/v0/topics/{topic}", {"records": list(records), **more})
        assert status in (200, 201), body
        return body

    async def diff(self, topic: str, from_seq: int = 0, **more: object) -> Any:
        status, body = await self.ask("POST", f"/v0/topics/{topic}/diff", {"from_seq": from_seq, **more})
        assert status == 200, body
        return body

    async def state(self, topic: str) -> Any:
        status, body = await self.ask("GET", f"/v0/topics/{topic}?touch=false")
        assert status == 200, body
        return body


def code(answer: tuple[int, Any]) -> tuple[int, str]:
    """Status and code of an error, whose shape is checked too."""
    status, body = answer
    assert list(body) == ["error"]
    assert {"code", "message"} <= set(body["error"]) <= {"code", "message", "detail"}
    assert body["error"]["message"]
    return status, body["error"]["code"]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def open_api(tmp_path: Path, clock: ManualClock) -> Callable[..., Any]:
    """Open a separate application: `async with open_api(api_keys="k", topics_max=2) as api`."""

    @asynccontextmanager
    async def opened(
        *, api_keys: str = "", bounds: HttpLimits | None = None, probe_auth: bool = False, **options: Any
    ) -> AsyncIterator[Api]:
        access = AccessOptions(keys=parse_keys(api_keys))
        settings = replace(BrokerOptions(tmp_path / "data", segment_bytes=1 << 20, access=access), **options)
        async with _brokers(settings, clock) as (broker, *peers):
            api = Api(broker, clock, *peers, limits=bounds or HttpLimits(), probe_auth=probe_auth)
            try:
                yield api
            finally:
                await api.client.aclose()

    return opened


@asynccontextmanager
async def _brokers(settings: BrokerOptions, clock: ManualClock) -> AsyncIterator[list[Broker]]:
    """The broker of a test. In a run through a cluster: that, and two more over the same log."""
    async with AsyncExitStack() as opened:
        brokers: list[Broker] = []
        for number, options in enumerate(cluster_server.broker_options(settings)):
            broker = await Broker.open(options, clock=clock)
            opened.push_async_callback(broker.close)
            brokers.append(broker)
            if broker.cluster.shared:
                broker.cluster.take_clock(
                    0
                )  # the test's clock, which the store does not know, and which all brokers share
                await broker.cluster.join({"http": host(number)})
        yield brokers


@pytest.fixture
async def api(open_api: Callable[..., Any]) -> AsyncIterator[Api]:
    async with open_api() as api:
        yield api


class Server:
    """A real server, over HTTP/1.1."""

    def __init__(self, process: ServerProcess) -> None:
        self.process = process
        self.url = f"http://{process.address('http')}"
        self.client = httpx.Client(base_url=self.url, timeout=30, follow_redirects=True)

    def ask(self, method: str, path: str, body: object = None, **more: Any) -> tuple[int, Any]:
        answer = (
            self.client.request(method, path, **more)
            if body is None
            else self.client.request(method, path, json=body, **more)
        )
        return answer.status_code, answer.json()


@pytest.fixture
def serve(tmp_path: Path) -> Callable[..., Any]:
    """`with serve("--flag", env={…}) as server`: a second start uses the same data."""

    @contextmanager
    def served(*flags: str, env: dict[str, str] | None = None) -> Iterator[Server]:
        quiet = ("--text", "off", "--kafka", "off")
        with server_process(tmp_path / "data", *quiet, *flags, env=env) as process:
            server = Server(process)
            with server.client:
                yield server

    return served
