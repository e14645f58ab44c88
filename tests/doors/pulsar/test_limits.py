"""Limits that policies set: they hold for the clients of a topic."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator

import pulsar
import pytest

from mainstem.testing.server import ServerProcess

from .test_admin import Admin

_WAIT_MS = 10_000
_EARLIEST = pulsar.InitialPosition.Earliest
_SHARED = pulsar.ConsumerType.Shared


@pytest.fixture
def admin(server: ServerProcess) -> Iterator[Admin]:
    opened = Admin(server)
    yield opened
    opened.close()


@pytest.fixture
def topic(admin: Admin) -> str:
    """The name of a new topic in a new namespace."""
    namespace = f"limits/n{uuid.uuid4().hex[:12]}"
    admin.ask("PUT", f"/admin/v2/namespaces/{namespace}")
    admin.ask("PUT", f"/admin/v2/persistent/{namespace}/t")
    return f"{namespace}/t"


def _at_end(consumer: pulsar.Consumer) -> bool:
    try:
        consumer.receive(300)
    except pulsar.Timeout:
        return True
    return False


def test_a_topic_takes_as_many_producers_as_its_policy_says(
    admin: Admin, client: pulsar.Client, topic: str
) -> None:
    admin.ask("POST", f"/admin/v2/persistent/{topic}/maxProducers", 1)
    first = client.create_producer(topic)
    with pytest.raises(pulsar.ProducerBusy):
        client.create_producer(topic)
    first.close()
    client.create_producer(topic)


def test_a_topic_takes_as_many_consumers_and_subscriptions_as_its_namespace_says(
    admin: Admin, client: pulsar.Client, topic: str
) -> None:
    namespace = f"/admin/v2/namespaces/{topic.rpartition('/')[0]}"
    admin.ask("POST", f"{namespace}/maxConsumersPerSubscription", 2)
    admin.ask("POST", f"{namespace}/maxConsumersPerTopic", 3)
    admin.ask("POST", f"{namespace}/maxSubscriptionsPerTopic", 2)
    for _ in range(2):
        client.subscribe(topic, "a", consumer_type=_SHARED)
    with pytest.raises(pulsar.ConsumerBusy):
        client.subscribe(topic, "a", consumer_type=_SHARED)
    third = client.subscribe(topic, "b", consumer_type=_SHARED)
    with pytest.raises(pulsar.ConsumerBusy):
        client.subscribe(topic, "b", consumer_type=_SHARED)
    third.close()
    with pytest.raises(pulsar.NotAllowedError):
        client.subscribe(topic, "c", consumer_type=_SHARED)
    assert admin.refused("PUT", f"/admin/v2/persistent/{topic}/subscription/c")[0] == 409
    admin.ask("DELETE", f"{namespace}/maxSubscriptionsPerTopic")
    client.subscribe(topic, "c", consumer_type=_SHARED)


@pytest.mark.parametrize("policy", ["maxUnackedMessagesOnConsumer", "maxUnackedMessagesOnSubscription"])
def test_a_consumer_holds_as_many_messages_as_the_policy_says(
    admin: Admin, client: pulsar.Client, topic: str, policy: str
) -> None:
    path = f"/admin/v2/persistent/{topic}/{policy}"
    admin.ask("POST", path, 3)
    producer = client.create_producer(topic)
    consumer = client.subscribe(topic, "s", consumer_type=_SHARED)
    for number in range(6):
        producer.send(b"%d" % number)
    held = [consumer.receive(_WAIT_MS) for _ in range(3)]
    assert _at_end(consumer)
    for message in held[:2]:
        consumer.acknowledge(message)
    assert [consumer.receive(_WAIT_MS).data() for _ in range(2)] == [b"3", b"4"]
    assert _at_end(consumer)
    admin.ask("DELETE", path)  # it holds at once, also for consumers that are there
    assert consumer.receive(_WAIT_MS).data() == b"5"


@pytest.mark.parametrize("of", ["namespace", "topic"])
def test_a_dispatch_rate_slows_consumers_down(
    admin: Admin, client: pulsar.Client, topic: str, of: str
) -> None:
    producer = client.create_producer(topic, batching_enabled=True, batching_max_messages=10)
    for _ in range(230):
        producer.send_async(b"x", None)
    producer.flush()
    path = f"namespaces/{topic.rpartition('/')[0]}" if of == "namespace" else f"persistent/{topic}"
    admin.ask("POST", f"/admin/v2/{path}/dispatchRate", {"dispatchThrottlingRateInMsg": 20})
    consumer = client.subscribe(topic, "s", initial_position=_EARLIEST)
    began = time.monotonic()
    for _ in range(230):
        consumer.receive(_WAIT_MS)
    assert time.monotonic() - began > 0.5  # ten seconds of the rate may be used at once
