"""Two namespaces, each with its own listener, used by unmodified clients that choose equal names."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaException,
    Producer,
    ShareConsumer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from mainstem.testing.ports import kept_ports
from mainstem.testing.server import ServerProcess

ACME, OTHER = "kafka:acme/shop", "kafka:other"
WAIT_S = 30


class TwoNamespaces:
    """A server with a listener for each of two namespaces and one for neither, which restarts on the same ports."""

    def __init__(self, data_dir: Path) -> None:
        acme, other, unbound = kept_ports(3)
        self._data_dir = data_dir
        self._listeners = (
            f"127.0.0.1:{acme},namespace=acme/shop;127.0.0.1:{other},namespace=other;127.0.0.1:{unbound}"
        )
        self.process = self._started()

    def _started(self) -> ServerProcess:
        return ServerProcess(self._data_dir, "--kafka", self._listeners).wait_ready()

    def restart(self, *, kill: bool) -> None:
        self.process.kill() if kill else self.process.terminate()
        self.process = self._started()

    def bootstrap(self, listener: str) -> str:
        return str(self.process.address(listener))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoNamespaces]:
    found = TwoNamespaces(tmp_path_factory.mktemp("namespaces") / "data")
    try:
        yield found
    finally:
        with found.process:
            pass


@pytest.fixture
def topic() -> str:
    return f"orders-{uuid.uuid4().hex[:8]}"


_ADMINS: dict[str, AdminClient] = {}  # a client that is collected cancels its calls


def admin(server: TwoNamespaces, listener: str) -> AdminClient:
    bootstrap = server.bootstrap(listener)
    return _ADMINS.setdefault(bootstrap, AdminClient({"bootstrap.servers": bootstrap}))


def create(server: TwoNamespaces, listener: str, topic: str, partitions: int = 1) -> None:
    admin(server, listener).create_topics([NewTopic(topic, partitions)])[topic].result(WAIT_S)


def produce(server: TwoNamespaces, listener: str, topic: str, *values: str) -> None:
    producer = Producer({"bootstrap.servers": server.bootstrap(listener)})
    failures: list[object] = []
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: error and failures.append(error))
    assert producer.flush(WAIT_S) == 0
    assert not failures


def consume(
    server: TwoNamespaces, listener: str, topic: str, count: int, group: str = "billing", **settings: str
) -> list[str]:
    consumer = Consumer(
        {
            "bootstrap.servers": server.bootstrap(listener),
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": "false",
            "isolation.level": "read_committed",
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )
    consumer.subscribe([topic])
    found: list[str] = []
    try:
        until = time.monotonic() + WAIT_S
        while len(found) < count and time.monotonic() < until:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                found.append(str(message.value().decode()))
        assert len(found) == count, found
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return found


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_equal_topics_and_groups_hold_different_records(
    server: TwoNamespaces, topic: str, protocol: str
) -> None:
    group = f"billing-{protocol}-{topic}"
    for listener in (ACME, OTHER):
        create(server, listener, topic)
        produce(server, listener, topic, *(f"{listener} {number}" for number in range(3)))
    for listener in (ACME, OTHER):
        got = consume(server, listener, topic, 3, group, group_protocol=protocol)
        assert got == [f"{listener} {number}" for number in range(3)]
    produce(server, OTHER, topic, "later")
    assert consume(server, OTHER, topic, 1, group, group_protocol=protocol) == ["later"]
    request = [ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0)])]
    ends = []
    for listener in (ACME, OTHER):
        (future,) = admin(server, listener).list_consumer_group_offsets(request).values()
        ends.append([one.offset for one in future.result(WAIT_S).topic_partitions])
    assert ends == [[3], [4]]


def test_a_pattern_finds_the_topics_of_its_namespace(server: TwoNamespaces, topic: str) -> None:
    create(server, ACME, f"{topic}-a")
    create(server, OTHER, f"{topic}-b")
    produce(server, ACME, f"{topic}-a", "mine")
    produce(server, OTHER, f"{topic}-b", "theirs")
    for protocol in ("classic", "consumer"):
        pattern = f"^{re.escape(topic)}-.*"
        got = consume(server, ACME, pattern, 1, f"pattern-{protocol}-{topic}", group_protocol=protocol)
        assert got == ["mine"]


def test_administrators_see_and_change_their_namespace_only(server: TwoNamespaces, topic: str) -> None:
    create(server, ACME, topic, 2)
    create(server, OTHER, f"{topic}-other")
    produce(server, ACME, topic, "x")
    consume(server, ACME, topic, 1, f"group-{topic}")
    mine, theirs, unbound = (admin(server, listener) for listener in (ACME, OTHER, "kafka"))
    assert topic in mine.list_topics(timeout=WAIT_S).topics
    assert len(mine.list_topics(topic, timeout=WAIT_S).topics[topic].partitions) == 2
    for client in (theirs, unbound):
        assert topic not in client.list_topics(timeout=WAIT_S).topics
        groups = {group.group_id for group in client.list_consumer_groups().result(WAIT_S).valid}
        assert f"group-{topic}" not in groups
    assert f"{topic}-other" not in mine.list_topics(timeout=WAIT_S).topics
    shown = {group.group_id for group in mine.list_consumer_groups().result(WAIT_S).valid}
    assert f"group-{topic}" in shown
    assert not [name for name in shown if "/" in name or "\x1f" in name]
    (described,) = mine.describe_consumer_groups([f"group-{topic}"]).values()
    assert described.result(WAIT_S).group_id == f"group-{topic}"
    resource = ConfigResource(ResourceType.TOPIC, topic)
    (configs,) = mine.describe_configs([resource]).values()
    assert "retention.ms" in configs.result(WAIT_S)
    (refused,) = theirs.describe_configs([resource]).values()
    with pytest.raises(KafkaException):
        refused.result(WAIT_S)
    with pytest.raises(KafkaException) as error:
        theirs.delete_topics([topic])[topic].result(WAIT_S)
    assert "acme" not in str(error.value)
    (deleted,) = mine.delete_consumer_groups([f"group-{topic}"]).values()
    deleted.result(WAIT_S)
    mine.delete_topics([topic])[topic].result(WAIT_S)
    assert f"{topic}-other" in theirs.list_topics(timeout=WAIT_S).topics


def test_equal_transactional_ids_do_not_fence_each_other(server: TwoNamespaces, topic: str) -> None:
    producers = {}
    for listener in (ACME, OTHER):
        create(server, listener, topic)
        create(server, listener, f"{topic}-out")
        produce(server, listener, topic, f"in {listener}")
        producers[listener] = Producer(
            {"bootstrap.servers": server.bootstrap(listener), "transactional.id": "payments"}
        )
        producers[listener].init_transactions(WAIT_S)
    for listener, producer in producers.items():  # both are open now: neither fenced the other
        consumer = Consumer(
            {
                "bootstrap.servers": server.bootstrap(listener),
                "group.id": f"eos-{topic}",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": "false",
            }
        )
        consumer.subscribe([topic])
        message = None
        until = time.monotonic() + WAIT_S
        while message is None and time.monotonic() < until:
            message = consumer.poll(0.2)
        assert message is not None
        assert message.error() is None
        producer.begin_transaction()
        producer.produce(f"{topic}-out", f"out {message.value().decode()}")
        producer.send_offsets_to_transaction(
            [TopicPartition(topic, 0, message.offset() + 1)], consumer.consumer_group_metadata(), WAIT_S
        )
        producer.commit_transaction(WAIT_S)
        producer.begin_transaction()
        producer.produce(f"{topic}-out", "aborted")
        producer.abort_transaction(WAIT_S)
        consumer.close()
    for listener in (ACME, OTHER):
        assert consume(server, listener, f"{topic}-out", 1, f"check-{topic}") == [f"out in {listener}"]


def test_names_with_a_slash_do_not_reach_another_namespace(server: TwoNamespaces, topic: str) -> None:
    create(server, ACME, topic)
    for name in (f"acme/shop/{topic}", f"../acme/shop/{topic}", f"/acme/shop/{topic}"):
        with pytest.raises(KafkaException):
            admin(server, OTHER).create_topics([NewTopic(name, 1)])[name].result(WAIT_S)
        with pytest.raises(KafkaException):
            admin(server, OTHER).delete_topics([name])[name].result(WAIT_S)
    assert topic in admin(server, ACME).list_topics(timeout=WAIT_S).topics


def test_share_groups_of_equal_name_share_nothing(server: TwoNamespaces, topic: str) -> None:
    group = f"share-{topic}"
    for listener in (ACME, OTHER):
        create(server, listener, topic)
        client = admin(server, listener)
        resource = ConfigResource(ResourceType.GROUP, group)
        resource.add_incremental_config(earliest())
        (changed,) = client.incremental_alter_configs([resource]).values()
        changed.result(WAIT_S)
        produce(server, listener, topic, listener)
    for listener in (ACME, OTHER):
        consumer = ShareConsumer({"bootstrap.servers": server.bootstrap(listener), "group.id": group})
        consumer.subscribe([topic])
        found: list[str] = []
        until = time.monotonic() + WAIT_S
        while not found and time.monotonic() < until:
            found += [message.value().decode() for message in consumer.poll(1.0) if message.error() is None]
        consumer.close()
        assert found == [listener]


def earliest() -> object:
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry

    return ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)


@pytest.mark.filterwarnings("ignore")  # kafka-python uses deprecated parts of the standard library
def test_kafka_python_and_its_groups(server: TwoNamespaces, topic: str) -> None:
    from kafka import KafkaConsumer, KafkaProducer

    for listener in (ACME, OTHER):
        producer = KafkaProducer(bootstrap_servers=server.bootstrap(listener))
        producer.send(topic, listener.encode()).get(WAIT_S)
        producer.close()
    for listener in (ACME, OTHER):
        consumer = KafkaConsumer(
            topic,
            bootstrap_servers=server.bootstrap(listener),
            group_id="billing",
            auto_offset_reset="earliest",
            consumer_timeout_ms=WAIT_S * 1000,
        )
        assert next(consumer).value == listener.encode()
        assert not [name for name in consumer.topics() if "/" in name]
        consumer.close()


async def test_aiokafka_and_its_groups(server: TwoNamespaces, topic: str) -> None:
    for listener in (ACME, OTHER):
        async with AIOKafkaProducer(bootstrap_servers=server.bootstrap(listener)) as producer:
            await producer.send_and_wait(topic, listener.encode())
    for listener in (ACME, OTHER):
        async with AIOKafkaConsumer(
            topic,
            bootstrap_servers=server.bootstrap(listener),
            group_id="billing",
            auto_offset_reset="earliest",
        ) as consumer:
            assert (await consumer.getone()).value == listener.encode()


@pytest.mark.parametrize("kill", [False, True])
def test_namespaces_outlive_a_restart(server: TwoNamespaces, topic: str, kill: bool) -> None:
    group = f"restart-{topic}"
    for listener in (ACME, OTHER):
        create(server, listener, topic)
        produce(server, listener, topic, f"{listener} 0")
        assert consume(server, listener, topic, 1, group) == [f"{listener} 0"]
        produce(server, listener, topic, f"{listener} 1")
    server.restart(kill=kill)
    for listener in (ACME, OTHER):
        assert consume(server, listener, topic, 1, group) == [f"{listener} 1"]
        assert topic in admin(server, listener).list_topics(timeout=WAIT_S).topics
    assert topic not in admin(server, "kafka").list_topics(timeout=WAIT_S).topics


def test_a_long_list_of_partitions_has_those_of_one_namespace(server: TwoNamespaces, topic: str) -> None:
    create(server, ACME, topic, partitions=2_500)
    create(server, OTHER, topic, partitions=1_200)
    for listener, partitions in ((ACME, 2_500), (OTHER, 1_200)):
        for _ in range(2):  # the second answer is cached
            listed = admin(server, listener).list_topics(timeout=WAIT_S).topics
            assert sorted(listed[topic].partitions) == list(range(partitions))
            assert not [name for name in listed if "/" in name]
