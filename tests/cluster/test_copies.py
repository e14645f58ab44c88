"""Copies of routers and dead letters, by brokers that share a log: each is made once, and read through any of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from mainstem.broker.broker import Broker
from mainstem.doors.http.transport.app import App
from mainstem.doors.http.transport.context import Context

# A router's settings and its destination's. With all but the first, the router appends its copies.
_WAYS: dict[str, tuple[dict[str, object], dict[str, object]]] = {
    "the source's own bytes": ({}, {}),
    "filtered": ({"filter": "t*"}, {}),
    "exactly once": ({"guarantee": "exactly_once"}, {}),
    "capped": ({}, {"cap_records": 1000}),
    "a queue": ({}, {"type": "queue"}),
}


class Peer:
    """A broker, through its HTTP door. No request carries the position of another broker's response."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.client = httpx.AsyncClient(
            transport=httpx.ASGITransport(App(Context(broker))), base_url="http://test", timeout=30
        )

    async def ask(self, method: str, path: str, body: object) -> Any:
        answer = await self.client.request(method, path, json=body)
        assert answer.status_code in (200, 201), answer.text
        return answer.json()

    async def write(self, topic: str, *values: int) -> None:
        records = [{"data": value, "tag": "t"} for value in values]
        await self.ask("POST", f"/v0/topics/{topic}", {"records": records})

    async def read(self, topic: str) -> list[int]:
        page = await self.ask("POST", f"/v0/topics/{topic}/diff", {"limit": 1000})
        assert page["tombstone"] is None
        return [record["data"] for record in page["records"]]


@pytest.fixture
async def peers(two_brokers: list[Broker]) -> AsyncIterator[list[Peer]]:
    for broker, name in zip(two_brokers, ("one", "two"), strict=True):
        await broker.cluster.join({"http": name})
    found = [Peer(broker) for broker in two_brokers]
    yield found
    for peer in found:
        await peer.client.aclose()


async def _route(peer: Peer, way: str) -> None:
    router, dest = _WAYS[way]
    await peer.ask("PUT", "/v0/topics/b", dest)
    await peer.ask("PUT", "/v0/routers/r", {"source": "a", "dest": "b", **router})


@pytest.mark.parametrize("way", _WAYS)
async def test_a_read_sees_copies_of_records_that_another_broker_accepted(
    peers: list[Peer], way: str
) -> None:
    """Whichever broker copies in the background: here neither does, so the read itself finds the records."""
    await _route(peers[0], way)
    await peers[1].broker.log.barrier()
    for peer in peers:
        await peer.broker.routers.close()
    one, other = peers
    for count in range(1, 9):
        await one.write("a", count)
        assert await other.read("b") == [*range(1, count + 1)]
        one, other = other, one


@pytest.mark.parametrize("way", ["exactly once", "capped"])
async def test_brokers_that_copy_concurrently_make_every_copy_once(peers: list[Peer], way: str) -> None:
    await _route(peers[0], way)
    await peers[1].broker.log.barrier()
    for peer in peers:
        await peer.broker.routers.close()
    written: list[int] = []
    for first in range(0, 40, 4):
        await peers[first // 4 % 2].write("a", *range(first, first + 4))
        written += range(first, first + 4)
        assert await asyncio.gather(*(peer.read("b") for peer in peers)) == [written, written]
    state = await peers[0].client.get("/v0/routers/r")
    assert state.json()["forwarded_total"] == len(written)


async def test_brokers_that_find_an_exhausted_job_concurrently_dead_letter_it_once(peers: list[Peer]) -> None:
    await peers[0].ask("PUT", "/v0/topics/q", {"type": "queue", "max_deliveries": 1, "dead_letter": "dead"})
    for job in range(6):
        one, other = peers if job % 2 else reversed(peers)
        await one.write("q", job)
        claimed = await one.ask("POST", "/v0/topics/q/claim", {"node": "n"})
        seqs = [taken["$seq"] for taken in claimed["claimed"]]
        assert seqs == [job + 1]
        await one.ask("POST", "/v0/topics/q/nack", {"node": "n", "seqs": seqs})
        await other.broker.log.barrier()
        claims = [peer.ask("POST", "/v0/topics/q/claim", {"node": "n"}) for peer in peers]
        assert [claim["count"] for claim in await asyncio.gather(*claims)] == [0, 0]
    await asyncio.gather(*(peer.broker.log.barrier() for peer in peers))
    assert [await peer.read("dead") for peer in peers] == [[*range(6)]] * 2
