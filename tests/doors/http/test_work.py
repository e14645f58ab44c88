"""GET /work: jobs as events, against a real server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from tests.support.cluster_server import server_process

from .conftest import Api, Server, code


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    data_dir = tmp_path_factory.mktemp("work") / "data"
    with server_process(data_dir, "--text", "off", "--kafka", "off") as process:
        yield Server(process)


class Events:
    """An open event stream, frame by frame."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self._lines = response.aiter_lines()

    async def frame(self) -> dict[str, str]:
        """The next frame's fields; a comment comes under the name ''. Empty at the end."""
        fields: dict[str, str] = {}
        async with asyncio.timeout(60):
            async for line in self._lines:
                if not line:
                    return fields
                name, _, value = line.partition(":")
                fields[name] = value.removeprefix(" ")
        return fields

    async def job(self) -> Any:
        frame = await self.frame()
        assert frame["event"] == "job", frame
        job = json.loads(frame["data"])
        assert frame["id"] == str(job["$seq"])
        return job


class Client:
    def __init__(self, http: httpx.AsyncClient, queue: str) -> None:
        self.http = http
        self.queue = queue

    @asynccontextmanager
    async def work(self, query: str = "node=w1", **headers: str) -> AsyncIterator[Events]:
        async with self.http.stream(
            "GET", f"/v0/topics/{self.queue}/work?{query}", headers=headers
        ) as response:
            assert response.status_code == 200, await response.aread()
            events = Events(response)
            assert await events.frame() == {"retry": "2000"}
            yield events

    async def post(self, path: str, **body: object) -> Any:
        answer = await self.http.post(f"/v0/topics/{self.queue}{path}", json=body)
        assert answer.status_code in (200, 201), answer.text
        return answer.json()

    async def write(self, *data: object) -> None:
        await self.post("", records=[{"data": value, "tag": "t", "meta": {"m": 1}} for value in data])

    async def counts(self) -> tuple[int, int]:
        queue = (await self.http.get(f"/v0/topics/{self.queue}")).json()["queue"]
        return queue["ready"], queue["in_flight"]

    async def settled(self, ready: int, in_flight: int) -> None:
        """Wait until the queue holds so many; a server notices a hang-up when it does."""
        async with asyncio.timeout(60):
            while await self.counts() != (ready, in_flight):
                continue


@asynccontextmanager
async def connected(server: Server, queue: str) -> AsyncIterator[Client]:
    async with httpx.AsyncClient(base_url=server.url, timeout=30) as http:
        await http.put(f"/v0/topics/{queue}", json={"type": "queue"})
        yield Client(http, queue)


@pytest.fixture
async def client(server: Server, request: pytest.FixtureRequest) -> AsyncIterator[Client]:
    async with connected(server, request.node.name.split("[")[0]) as client:
        yield client


async def test_jobs_come_as_events_with_the_fields_of_a_claim(client: Client) -> None:
    await client.write({"a": 1})
    async with client.work("node=w1&lease_ms=60000") as events:
        assert events.response.headers["content-type"] == "text/event-stream"
        assert events.response.headers["cache-control"] == "no-store"
        assert events.response.headers["x-accel-buffering"] == "no"
        job = await events.job()
        fields = ["topic", "$seq", "lease_id", "deadline", "$ts", "$tag", "deliveries", "data", "meta"]
        assert list(job) == fields
        assert (job["topic"], job["$seq"], job["deliveries"]) == (client.queue, 1, 1)
        assert (job["data"], job["$tag"], job["meta"]) == ({"a": 1}, "t", {"m": 1})
        assert job["deadline"] - job["$ts"] >= 60_000
        named = {"node": "w1", "seqs": [1], "lease_ids": [job["lease_id"]]}
        assert (await client.post("/ack", **named))["acked"] == 1


async def test_a_connection_holds_as_many_as_it_asked_for_and_is_refilled_by_acks(client: Client) -> None:
    await client.write(*range(6))
    async with client.work("node=w1&max=2") as events:
        assert [(await events.job())["$seq"] for _ in range(2)] == [1, 2]
        assert await client.counts() == (4, 2)
        await client.post("/ack", node="w1", seqs=[2])
        assert (await events.job())["$seq"] == 3
        await client.post("/ack", node="w1", seqs=[1, 3])
        assert [(await events.job())["$seq"] for _ in range(2)] == [4, 5]
        assert await client.counts() == (1, 2)


async def test_an_append_wakes_a_worker_that_waits(client: Client) -> None:
    async with client.work("node=w1&max=5") as events:
        for seq in (1, 2):
            await client.write("job")
            assert (await events.job())["$seq"] == seq


async def test_a_hang_up_gives_the_leases_back_at_once(client: Client) -> None:
    await client.write(1, 2, 3)
    async with client.work("node=w1&max=2&lease_ms=86400000") as events:
        await events.job()
        await events.job()
        await client.post("/ack", node="w1", seqs=[1])
        await events.job()
    await client.settled(2, 0)
    again = await client.post("/claim", node="w2", max=9)
    assert [(job["$seq"], job["deliveries"]) for job in again["claimed"]] == [(2, 2), (3, 2)]


async def test_leases_of_others_with_the_same_name_stay_when_it_hangs_up(client: Client) -> None:
    await client.write(1, 2)
    await client.post("/claim", node="w1", lease_ms=600_000)
    async with client.work("node=w1") as events:
        assert (await events.job())["$seq"] == 2
    await client.settled(1, 1)


async def test_what_another_gives_back_or_lets_lapse_comes_here(client: Client) -> None:
    await client.write(1, 2)
    await client.post("/claim", node="w2", lease_ms=600_000)
    await client.post("/claim", node="w2", lease_ms=100)
    async with client.work("node=w1&max=5") as events:
        lapsed = await events.job()
        assert (lapsed["$seq"], lapsed["deliveries"]) == (2, 2)
        await client.post("/nack", node="w2", seqs=[1], delay_ms=50)
        assert (await events.job())["$seq"] == 1


async def test_its_own_lapsed_job_comes_again(client: Client) -> None:
    await client.write(1)
    async with client.work("node=w1&lease_ms=100") as events:
        assert [(await events.job())["deliveries"] for _ in range(3)] == [1, 2, 3]


async def test_two_workers_share_the_jobs(client: Client) -> None:
    async with client.work("node=w1") as one, client.work("node=w2") as two:
        await client.write(1, 2)
        assert {(await one.job())["$seq"], (await two.job())["$seq"]} == {1, 2}


async def test_the_stream_ends_with_an_error_when_the_queue_is_gone(client: Client) -> None:
    await client.write(1)
    async with client.work("node=w1") as events:
        await events.job()
        await client.http.delete(f"/v0/topics/{client.queue}")
        frame = await events.frame()
        assert frame["event"] == "error"
        assert json.loads(frame["data"])["code"] == "topic_not_found"
        assert await events.frame() == {}


async def test_the_stream_ends_politely_when_the_server_stops(serve: Callable[..., Any]) -> None:
    with serve() as server:
        async with connected(server, "q") as client:
            await client.write(1)
            async with client.work("node=w1") as events:
                await events.job()
                stopping = asyncio.create_task(asyncio.to_thread(server.process.terminate))
                frame = await events.frame()
                assert frame["event"] == "error"
                assert json.loads(frame["data"])["code"] == "server_shutting_down"
                assert await stopping == 0


async def test_refusals(api: Api) -> None:
    await api.put("q", type="queue")
    await api.put("log")
    wrong = {"accept": "application/json"}
    assert code(await api.ask("GET", "/v0/topics/q/work")) == (400, "invalid_request")
    assert code(await api.ask("GET", "/v0/topics/q/work?node=")) == (400, "invalid_request")
    assert code(await api.ask("GET", f"/v0/topics/q/work?node={'x' * 129}")) == (400, "invalid_request")
    assert code(await api.ask("GET", "/v0/topics/none/work?node=w")) == (404, "topic_not_found")
    assert code(await api.ask("GET", "/v0/topics/log/work?node=w")) == (409, "not_a_queue")
    assert code(await api.ask("POST", "/v0/topics/q/work", {})) == (405, "method_not_allowed")
    refused = await api.client.get("/v0/topics/q/work?node=w", headers=wrong)
    assert code((refused.status_code, refused.json())) == (406, "not_acceptable")


async def test_scopes_and_the_token_in_the_query(open_api: Callable[..., Any]) -> None:
    async with open_api(api_keys="reader:r,writer:w,other:rw:x") as api:
        for key in ("reader", "writer", "other"):
            assert (await api.ask("GET", "/v0/topics/q/work?node=w", key=key))[0] == 403
        assert (await api.ask("GET", "/v0/topics/q/work?node=w"))[0] == 401
        assert (await api.ask("GET", "/v0/topics/xq/work?node=w&token=other"))[0] == 404
