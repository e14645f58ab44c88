"""Producers of a topic that connect, wait and are disconnected, without a connection."""

from __future__ import annotations

from typing import cast

import pytest

from mainstem.broker.exclusive_producers import ExclusiveProducers
from mainstem.broker.topics.service import Topic, TopicConfig
from mainstem.doors.pulsar.client_details import ClientDetails
from mainstem.doors.pulsar.producers import (
    EXCLUSIVE,
    WAIT_FOR_EXCLUSIVE,
    ProducerClient,
    PulsarProducer,
    PulsarProducers,
)
from mainstem.errors import Unavailable

_STREAM = 1
_TOPIC = Topic(b"i" * 16, "", "t", (_STREAM,), TopicConfig(), 0)


class _Epochs:
    """Those of a log that stores nothing for now."""

    def epoch(self, stream: int) -> int:
        return 0

    async def take(self, stream: int, epoch: int, *, resumes: bool) -> None:
        raise Unavailable("the log takes no commits")


class _Connection:
    def __init__(self) -> None:
        self.producers = PulsarProducers(1, cast("ExclusiveProducers", _Epochs()))
        self.closed: list[str] = []
        self.ready: list[str] = []

    def add(self, name: str, mode: int) -> PulsarProducer:
        client = cast("ProducerClient", self)
        details = ClientDetails({}, "", 0)
        added = PulsarProducer(client, 1, name, _TOPIC, -1, 0, details=details, mode=mode)
        self.producers.add(added, mode, None)
        return added

    def close_producer(self, producer: PulsarProducer) -> None:
        self.closed.append(producer.name)

    def producer_ready(self, producer: PulsarProducer) -> None:
        self.ready.append(producer.name)


def test_producers_that_wait_connect_again_too_when_another_broker_takes_over() -> None:
    connection = _Connection()
    connection.add("first", EXCLUSIVE)
    waiting = connection.add("second", WAIT_FOR_EXCLUSIVE)
    assert not waiting.ready
    connection.producers.disconnect(_STREAM)
    assert connection.closed == ["first", "second"]
    assert connection.ready == []
    assert not connection.producers.streams()


async def test_a_producer_whose_epoch_was_not_stored_is_gone() -> None:
    connection = _Connection()
    created = connection.add("first", EXCLUSIVE)
    with pytest.raises(Unavailable):
        await connection.producers.make_durable(created)
    assert created.closed, "a client that asks again would be told that it has exclusive access"
    assert not connection.producers.streams()
