"""Pulsar clients of three brokers: one of them serves a topic, and another one takes over when it dies."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

import pulsar
import pytest

from tests.support.cluster import BrokerProcesses, broker_processes, eventually
from tests.support.etcd import EtcdCluster

_NAMES = ("one", "two", "three")
_WAIT_MS = 60_000
_EARLIEST = pulsar.InitialPosition.Earliest


@pytest.fixture(scope="module", params=["folder", pytest.param("etcd", marks=pytest.mark.slow)])
def brokers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcesses]:
    folder = Path(tmp_path_factory.mktemp("brokers"))
    flags = ("--store", (folder / "bucket").as_uri())
    closed = ("--kafka", "off", "--text", "off", "--s3", "off")
    if request.param == "folder":
        with broker_processes(folder, *flags, *closed) as started:
            started.start(*_NAMES)
            yield started
    else:
        with (
            EtcdCluster(folder / "etcd") as etcd,
            broker_processes(folder, *flags, "--etcd", etcd.endpoints[0], *closed) as started,
        ):
            started.start(*_NAMES)
            yield started


@pytest.fixture
def client(brokers: BrokerProcesses) -> Iterator[pulsar.Client]:
    for name in _NAMES:
        if name not in brokers.running:
            brokers.start(name)
    opened = _connect(brokers)
    yield opened
    opened.close()


def _connect(brokers: BrokerProcesses) -> pulsar.Client:
    addresses = ",".join(str(one.last_address("pulsar")) for one in brokers.running.values())
    logger = pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null")
    return pulsar.Client(f"pulsar://{addresses}", logger=logger, operation_timeout_seconds=60)


def _name() -> str:
    return f"t-{uuid.uuid4().hex}"


def _server_of(brokers: BrokerProcesses, topic: str) -> str:
    """The broker that serves a topic, once all that run agree on it."""
    path = f"/lookup/v2/topic/persistent/public/default/{topic}"
    addresses = {f"pulsar://{one.last_address('pulsar')}": name for name, one in brokers.running.items()}

    def look() -> set[str | None]:
        urls = {brokers.request(name, "GET", path).json["brokerUrl"] for name in brokers.running}
        return {addresses.get(url) for url in urls}

    found = eventually(look, lambda names: len(names) == 1 and None not in names).pop()
    assert found is not None
    return found


def test_lookups_spread_topics_over_the_brokers(brokers: BrokerProcesses, client: pulsar.Client) -> None:
    assert {_server_of(brokers, f"t{number}") for number in range(24)} == set(_NAMES)


def test_a_failover_subscription_goes_on_at_another_broker(
    brokers: BrokerProcesses, client: pulsar.Client
) -> None:
    topic = _name()
    producer = client.create_producer(topic)
    consumers = [
        client.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.Failover, consumer_name=name)
        for name in ("a", "b")
    ]
    for number in range(10):
        producer.send(b"%d" % number)
    for number in range(5):
        message = consumers[0].receive(_WAIT_MS)
        assert message.data() == b"%d" % number
        consumers[0].acknowledge(message)
    stats = f"/admin/v2/persistent/public/default/{topic}/stats"
    server = _server_of(brokers, topic)
    eventually(
        lambda: brokers.request(server, "GET", stats).json["subscriptions"]["s"]["msgBacklog"],
        lambda backlog: backlog == 5,
    )
    brokers.kill(server)
    producer.send(b"10")  # the client finds the new one
    assert _server_of(brokers, topic) != server
    got = _received(consumers, 6)
    assert got == [b"%d" % number for number in range(5, 11)]


def _received(consumers: list[pulsar.Consumer], count: int, before: Sequence[bytes] = ()) -> list[bytes]:
    """The messages that any of the consumers gets, each as it came first, until there are `count` of them."""
    got = list(before)

    def look() -> list[bytes]:
        for consumer in consumers:
            try:
                message = consumer.receive(50)
            except pulsar.Timeout:
                continue
            if message.data() not in got:
                got.append(message.data())
            consumer.acknowledge(message)
        return got

    return eventually(look, lambda found: len(found) >= count)


def test_key_shared_keeps_the_order_of_keys_when_its_broker_dies(
    brokers: BrokerProcesses, client: pulsar.Client
) -> None:
    topic = _name()
    producer = client.create_producer(topic)
    consumers = [client.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.KeyShared) for _ in range(3)]
    for number in range(30):
        producer.send(b"%d" % number, partition_key=f"k{number % 6}")
    before = _received(consumers, 12)
    brokers.kill(_server_of(brokers, topic))
    for number in range(30, 60):
        producer.send(b"%d" % number, partition_key=f"k{number % 6}")
    got = _received(consumers, 60, before)
    assert sorted(map(int, got)) == list(range(60))
    for key in range(6):
        of_key = [int(one) for one in got if int(one) % 6 == key]
        assert of_key == sorted(of_key)


def test_an_exclusive_producer_keeps_its_topic_when_its_broker_dies(
    brokers: BrokerProcesses, client: pulsar.Client
) -> None:
    topic = _name()
    mode = pulsar.ProducerAccessMode.Exclusive
    producer = client.create_producer(topic, access_mode=mode)
    producer.send(b"before")
    brokers.kill(_server_of(brokers, topic))
    producer.send(b"after")
    other = _connect(brokers)
    with pytest.raises(pulsar.ProducerFenced):
        other.create_producer(topic, access_mode=mode)
    consumer = other.subscribe(topic, "s", initial_position=_EARLIEST)
    assert [consumer.receive(_WAIT_MS).data() for _ in range(2)] == [b"before", b"after"]
    other.close()


def test_clients_follow_a_topic_to_a_broker_that_joins(
    brokers: BrokerProcesses, client: pulsar.Client
) -> None:
    """Two brokers never serve one subscription: an exclusive one has one consumer, wherever it is."""
    brokers.kill("three")
    topics = [_name() for _ in range(12)]
    before = {topic: _server_of(brokers, topic) for topic in topics}
    consumers = {topic: client.subscribe(topic, "s") for topic in topics}
    producers = {topic: client.create_producer(topic) for topic in topics}
    brokers.start("three")
    moved = eventually(
        lambda: [topic for topic in topics if _server_of(brokers, topic) != before[topic]],
        lambda found: bool(found),
    )
    for topic in moved:
        stats = f"/admin/v2/persistent/public/default/{topic}/stats"
        eventually(
            lambda: brokers.request("three", "GET", stats).json,  # noqa: B023
            lambda found: (
                len(found["publishers"]) == 1 and len(found["subscriptions"]["s"]["consumers"]) == 1
            ),
        )
        with pytest.raises(pulsar.ConsumerBusy):
            client.subscribe(topic, "s")
        producers[topic].send(b"after")
        assert consumers[topic].receive(_WAIT_MS).data() == b"after"
