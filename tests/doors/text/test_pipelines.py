"""A pipeline that is served in batches gives the same responses as its requests one by one."""

from __future__ import annotations

import asyncio
import random
import struct

import pytest

from mainstem.broker.append import Waiter
from mainstem.broker.topics.service import Topic
from mainstem.ledger.config import TopicConfig

from .conftest import TextStage, Wire

_TOPICS = ("plain", "small", "full")
_CAP = 40
_MESSAGE_BYTES_MAX = 300


class Model:
    """The contract, one request at a time."""

    def __init__(self) -> None:
        self._stored: dict[str, list[str]] = {}
        self._read: dict[str, int] = {}

    def answer(self, verb: str, topic: str, payload: str) -> str:
        if verb == "REGISTER":
            self._stored.setdefault(topic, [])
            self._read.setdefault(topic, 0)
            return "OK"
        if topic not in self._stored:
            return f"ERR unknown topic {topic}"
        if verb == "GET":
            if self._read[topic] == len(self._stored[topic]):
                return "EMPTY"
            self._read[topic] += 1
            return "OK " + self._stored[topic][self._read[topic] - 1]
        if topic == "small" and len(payload) > _MESSAGE_BYTES_MAX:
            return "ERR the batch"
        if topic == "full" and len(self._stored[topic]) == _CAP:
            return "ERR the topic's cap"
        self._stored[topic].append(payload)
        return "OK"


@pytest.mark.parametrize("seed", range(12))
async def test_a_pipeline_is_answered_as_its_requests_one_by_one(text: TextStage, seed: int) -> None:
    chance = random.Random(seed)
    small = TopicConfig(durability="disk", max_message_bytes=_MESSAGE_BYTES_MAX)
    await text.broker.create_topic("small", config=small)
    full = TopicConfig(durability="disk", cap_records=_CAP, discard="reject")
    await text.broker.create_topic("full", config=full)
    model = Model()
    expected = [model.answer("REGISTER", topic, "") for topic in ("small", "full")]
    requests = ["REGISTER small", "REGISTER full"]
    verb, topic = "PUT", "small"
    for number in range(600):
        if chance.random() < 0.3:  # runs of similar requests, as in real pipelines
            verb = chance.choice(["PUT", "PUT", "GET", "REGISTER"])
        if chance.random() < 0.5:
            topic = chance.choice([*_TOPICS, "plain", "nowhere"])
        if verb == "REGISTER" and topic == "nowhere":
            topic = "plain"
        payload = f"{number}-" + "x" * chance.choice([0, 0, 20, 100, 500])
        requests.append({"PUT": f"PUT {topic} {payload}"}.get(verb, f"{verb} {topic}"))
        expected.append(model.answer(verb, topic, payload))

    wire = await text.connect()
    stream = b"".join(struct.pack("<I", len(request)) + request.encode() for request in requests)
    while stream:
        cut = chance.choice([1, 7, 100, 5000, 100_000])
        wire.writer.write(stream[:cut])
        await wire.writer.drain()
        stream = stream[cut:]
    answers = await wire.answers(len(requests))
    assert [
        answer[: len(wanted)] if wanted.startswith("ERR the") else answer
        for answer, wanted in zip(answers, expected, strict=True)
    ] == expected


async def test_requests_behind_a_put_that_is_served_alone_wait_for_it(
    text: TextStage, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    await wire.ask("REGISTER t")
    real, put, waiters = text.broker.appends.value, asyncio.Event(), []

    def held(topic: Topic, value: bytes, waiter: Waiter) -> None:
        waiters.append(waiter)
        put.set()

    with monkeypatch.context() as patched:
        patched.setattr(text.broker.appends, "value", held)
        wire.send("PUT t first")
        await put.wait()
    wire.send("PUT t second", "GET t", "GET t")
    other = await text.connect()
    assert await other.ask("GET t") == "EMPTY"  # the second PUT was not served
    (waiter,) = waiters
    real(text.broker.streams.topic("t"), b"first", waiter)
    assert await wire.answers(4) == ["OK", "OK", "OK first", "OK second"]
    await other.close()


async def test_a_put_is_stored_whose_client_disconnects_meanwhile(
    text: TextStage, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    await wire.ask("REGISTER t")
    real, put, waiters = text.broker.appends.value, asyncio.Event(), []

    def held(topic: Topic, value: bytes, waiter: Waiter) -> None:
        waiters.append(waiter)
        put.set()

    with monkeypatch.context() as patched:
        patched.setattr(text.broker.appends, "value", held)
        wire.send("PUT t x")
        await put.wait()
    await wire.close()
    real(text.broker.streams.topic("t"), b"x", waiters[0])
    other = await text.connect()
    assert await other.ask("PUT t y") == "OK"
    assert [await other.ask("GET t"), await other.ask("GET t")] == ["OK x", "OK y"]
    await other.close()
