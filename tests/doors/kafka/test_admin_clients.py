"""Real admin clients against a real server: what they create, change and read back is what they asked for."""

from __future__ import annotations

import asyncio
import time
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewPartitions as AioNewPartitions
from aiokafka.admin import NewTopic as AioNewTopic
from aiokafka.admin.config_resource import ConfigResource as AioConfigResource
from aiokafka.admin.config_resource import ConfigResourceType as AioResourceType
from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.support.cluster_server import server_process

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # caused by the client
    from kafka.admin import ConfigResource as PyConfigResource
    from kafka.admin import KafkaAdminClient
    from kafka.structs import TopicPartition as PyTopicPartition
    from kafka.structs import TopicPartitionReplica as PyTopicPartitionReplica

pytestmark = [
    pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:alter_configs has been deprecated:DeprecationWarning"),
]


@pytest.fixture
def confluent(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


@pytest.fixture
def python(bootstrap: str) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=bootstrap)
    yield client
    client.close()


@pytest.fixture
async def aio(bootstrap: str) -> AsyncIterator[AIOKafkaAdminClient]:
    client = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await client.start()
    yield client
    await client.close()


def _results(futures: dict[Any, Any]) -> dict[str, Any]:
    """The outcome of each, errors included."""
    outcomes: dict[str, Any] = {}
    for key, future in futures.items():
        try:
            outcomes[str(getattr(key, "name", key))] = future.result(30)
        except KafkaException as error:
            outcomes[str(getattr(key, "name", key))] = error.args[0].code()
    return outcomes


def _config(client: AdminClient, topic: str) -> dict[str, ConfigEntry]:
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    entries: dict[str, ConfigEntry] = client.describe_configs([resource])[resource].result(30)
    return entries


def test_librdkafka_creates_describes_grows_and_deletes(confluent: AdminClient) -> None:
    settings = {"retention.ms": "60000", "cleanup.policy": "compact", "segment.ms": "1000"}
    assert _results(
        confluent.create_topics(
            [NewTopic("made", 3, 3, config=settings), NewTopic("by-default"), NewTopic("_", 0)]
        )
    ) == {"made": None, "by-default": None, "_": KafkaError.INVALID_PARTITIONS}
    described = confluent.describe_topics(TopicCollection(["made"]))["made"].result(30)
    leaders = [partition.leader.id for partition in described.partitions]
    assert len(leaders) == 3
    assert set(leaders) <= set(confluent.list_topics(timeout=30).brokers)
    grown = confluent.create_partitions([NewPartitions("made", 5), NewPartitions("by-default", 1)])
    assert _results(grown) == {"made": None, "by-default": KafkaError.INVALID_PARTITIONS}
    assert len(confluent.list_topics(timeout=30).topics["made"].partitions) == 5
    deleted = _results(confluent.delete_topics(["made", "by-default", "none"]))
    assert deleted == {"made": None, "by-default": None, "none": KafkaError.UNKNOWN_TOPIC_OR_PART}
    assert not {"made", "by-default"} & set(confluent.list_topics(timeout=30).topics)


def test_librdkafka_validates_without_creating(confluent: AdminClient) -> None:
    assert _results(confluent.create_topics([NewTopic("maybe", 2)], validate_only=True)) == {"maybe": None}
    assert "maybe" not in confluent.list_topics(timeout=30).topics


def test_librdkafka_changes_settings(confluent: AdminClient) -> None:
    _results(confluent.create_topics([NewTopic("settings", 1, config={"retention.ms": "5"})]))
    edits = [
        ConfigEntry("retention.bytes", "7", incremental_operation=AlterConfigOpType.SET),
        ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND),
        ConfigEntry("retention.ms", None, incremental_operation=AlterConfigOpType.DELETE),
    ]
    resource = ConfigResource(ConfigResource.Type.TOPIC, "settings", incremental_configs=edits)
    assert _results(confluent.incremental_alter_configs([resource])) == {"settings": None}
    entries = _config(confluent, "settings")
    assert entries["retention.bytes"].value == "7"
    assert entries["retention.bytes"].source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    assert entries["cleanup.policy"].value == "delete,compact"
    assert entries["retention.ms"].value == "-1"
    assert entries["retention.ms"].source == ConfigSource.DEFAULT_CONFIG.value
    assert "log.retention.ms" in entries["retention.ms"].synonyms

    whole = ConfigResource(ConfigResource.Type.TOPIC, "settings", set_config={"max.message.bytes": "1000"})
    assert _results(confluent.alter_configs([whole])) == {"settings": None}
    entries = _config(confluent, "settings")
    assert (entries["max.message.bytes"].value, entries["retention.bytes"].value) == ("1000", "-1")

    wrong = ConfigEntry("retention.msx", "1", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, "settings", incremental_configs=[wrong])
    with pytest.raises(
        KafkaException, match=r"unknown topic setting 'retention.msx' \(did you mean retention"
    ):
        confluent.incremental_alter_configs([resource])[resource].result(30)


def test_librdkafka_reads_the_brokers_settings_and_the_cluster(confluent: AdminClient) -> None:
    resource = ConfigResource(ConfigResource.Type.BROKER, "1")
    entries = confluent.describe_configs([resource])[resource].result(30)
    assert entries["log.retention.ms"].value == "-1"
    assert entries["broker.id"].is_read_only
    cluster = confluent.describe_cluster(include_authorized_operations=True).result(30)
    listed = confluent.list_topics(timeout=30)
    assert 1 in listed.brokers
    assert sorted(node.id for node in cluster.nodes) == sorted(listed.brokers)
    assert cluster.cluster_id == listed.cluster_id


def test_librdkafka_is_told_that_there_is_no_security(confluent: AdminClient) -> None:
    rule = AclBinding(
        ResourceType.TOPIC,
        "t",
        ResourcePatternType.LITERAL,
        "User:a",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )
    rules = AclBindingFilter(
        ResourceType.ANY,
        None,
        ResourcePatternType.ANY,
        None,
        None,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    assert confluent.describe_acls(rules).result(30) == []  # this client drops the error code
    for future in (confluent.create_acls([rule])[rule], confluent.delete_acls([rules])[rules]):
        with pytest.raises(KafkaException) as refused:
            future.result(30)
        assert refused.value.args[0].code() == KafkaError.SECURITY_DISABLED
    assert confluent.describe_user_scram_credentials().result(30) == {}


@pytest.mark.parametrize("stored", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("sent", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_consumer_reads_recompressed_batches(
    confluent: AdminClient, bootstrap: str, sent: str, stored: str
) -> None:
    topic = f"{sent}-to-{stored}"
    assert _results(confluent.create_topics([NewTopic(topic, 1, config={"compression.type": stored})])) == {
        topic: None
    }
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": sent,
            "linger.ms": 5,
            "enable.idempotence": False,
        }
    )
    values = [b"%d " % index * (500 if index % 50 == 0 else 1) for index in range(500)]
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(30) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic, "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    read: list[Any] = []
    while len(read) < len(values):
        read += [message.value() for message in consumer.consume(len(values), 0.2)]
    consumer.close()
    assert read == values


def test_kafka_python_does_everything_it_knows(python: KafkaAdminClient) -> None:
    created = python.create_topics(
        {"py": {"num_partitions": 2, "replication_factor": 1, "configs": {"retention.ms": "5"}}},
        wait_for_metadata=True,
    )
    assert created["topics"][0]["error_code"] == 0
    python.create_partitions({"py": 4})
    deadline = time.monotonic() + 30  # another broker learns of them a moment later
    while len(python.describe_topics(["py"])[0]["partitions"]) != 4:
        assert time.monotonic() < deadline, "no client sees the new partitions"
    topic = PyConfigResource("TOPIC", "py", {"retention.bytes": "7", "cleanup.policy": ("APPEND", "compact")})
    python.alter_configs([topic])
    configs = python.describe_configs([PyConfigResource("TOPIC", "py")])["topic"]["py"]
    assert {name: row["value"] for name, row in configs.items()} == {
        "cleanup.policy": "delete,compact",
        "retention.bytes": "7",
        "retention.ms": "5",
    }
    python.reset_configs([PyConfigResource("TOPIC", "py", {"retention.ms": None})])
    assert "retention.ms" not in python.describe_configs([PyConfigResource("TOPIC", "py")])["topic"]["py"]
    pages = python.describe_topic_partitions(["py"])
    assert [len(topic["partitions"]) for topic in pages["topics"]] == [4]
    (directory,) = python.describe_log_dirs(["py"])[0]["log_dirs"]
    assert [topic["name"] for topic in directory["topics"]] == ["py"]
    assert python.list_partition_reassignments() == {}
    assert python.describe_cluster()["brokers"][0]["broker_id"] == 1
    python.delete_topics(["py"])
    assert "py" not in python.list_topics()


async def _comes_to_be(look: Callable[[], Awaitable[Any]], wanted: object) -> None:
    """At once with a single server. This client asks any broker, and the others know a moment later."""
    for _ in range(200):
        if await look() == wanted:
            return
        await asyncio.sleep(0.05)
    assert await look() == wanted


async def test_aiokafka_does_everything_it_knows(aio: AIOKafkaAdminClient) -> None:
    created = await aio.create_topics([AioNewTopic("aio", 2, 1, topic_configs={"retention.ms": "5"})])
    assert [row[1] for row in created.topic_errors] == [0]
    await aio.create_partitions({"aio": AioNewPartitions(3)})

    async def partitions() -> int:
        (described,) = await aio.describe_topics(["aio"])
        return len(described["partitions"])

    await _comes_to_be(partitions, 3)
    resource = AioConfigResource(AioResourceType.TOPIC, "aio", configs={"retention.bytes": "7"})
    (altered,) = await aio.alter_configs([resource])
    assert [row[0] for row in altered.resources] == [0]

    async def settings() -> tuple[str, str]:
        (answer,) = await aio.describe_configs([AioConfigResource(AioResourceType.TOPIC, "aio")])
        values = {row[0]: row[1] for row in answer.resources[0][4]}
        return values["retention.bytes"], values["retention.ms"]

    await _comes_to_be(settings, ("7", "-1"))  # all settings are replaced
    assert (await aio.describe_cluster())["cluster_id"]
    await aio.delete_topics(["aio"])
    assert "aio" not in await aio.list_topics()


def test_topics_and_settings_survive_the_server(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with server_process(data_dir) as server:
        client = AdminClient({"bootstrap.servers": str(server.address("kafka"))})
        topic = NewTopic("kept", 3, 1, config={"retention.ms": "5", "min.insync.replicas": "2"})
        assert _results(client.create_topics([topic])) == {"kept": None}
        server.kill()
    with server_process(data_dir) as server:
        client = AdminClient({"bootstrap.servers": str(server.address("kafka"))})
        entries = _config(client, "kept")
        assert (entries["retention.ms"].value, entries["min.insync.replicas"].value) == ("5", "2")
        assert entries["min.insync.replicas"].source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        assert len(client.list_topics(timeout=30).topics["kept"].partitions) == 3
        assert server.terminate() == 0


def test_scram_credentials_are_stored_before_sasl_is_on(confluent: AdminClient) -> None:
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    changes = [UserScramCredentialUpsertion("ann", info, b"secret")]
    confluent.alter_user_scram_credentials(changes)["ann"].result(10)
    stored = confluent.describe_user_scram_credentials(["ann"])["ann"].result(10)
    assert [row.iterations for row in stored.scram_credential_infos] == [4096]


def test_defaults_of_groups_change_while_the_brokers_run(confluent: AdminClient) -> None:
    name = "group.share.record.lock.duration.ms"

    def alter(kind: Any, resource: str, setting: str, operation: Any, value: str) -> None:
        entry = ConfigEntry(setting, value, incremental_operation=operation)
        asked = ConfigResource(kind, resource, incremental_configs=[entry])
        for future in confluent.incremental_alter_configs([asked]).values():
            future.result()

    def lock(kind: Any, resource: str, setting: str) -> tuple[str, Any]:
        [future] = confluent.describe_configs([ConfigResource(kind, resource)]).values()
        entry = future.result()[setting]
        return entry.value, ConfigSource(entry.source)

    broker = str(next(iter(confluent.list_topics(timeout=30).brokers)))
    assert lock(ResourceType.BROKER, broker, name) == ("30000", ConfigSource.DEFAULT_CONFIG)
    alter(ResourceType.BROKER, broker, name, AlterConfigOpType.SET, "1000")
    try:
        changed = ("1000", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)
        assert lock(ResourceType.BROKER, broker, name) == changed
        assert lock(ResourceType.GROUP, "some-group", name.removeprefix("group.")) == changed
        for setting, value in (("log.dirs", "/elsewhere"), (name, "1")):
            with pytest.raises(KafkaException) as refused:
                alter(ResourceType.BROKER, broker, setting, AlterConfigOpType.SET, value)
            assert refused.value.args[0].code() == KafkaError.INVALID_CONFIG
    finally:
        alter(ResourceType.BROKER, broker, name, AlterConfigOpType.DELETE, "")
    assert lock(ResourceType.BROKER, broker, name) == ("30000", ConfigSource.DEFAULT_CONFIG)


@pytest.mark.alone("expects the log directory of one broker")
def test_kafka_python_moves_nothing_and_describes_the_metadata_log(python: KafkaAdminClient) -> None:
    python.create_topics({"moved": {"num_partitions": 1, "replication_factor": 1}}, wait_for_metadata=True)
    [described] = python.describe_log_dirs(["moved"])
    here = PyTopicPartitionReplica("moved", 0, described["broker"])
    moved = python.alter_replica_log_dirs({here: described["log_dirs"][0]["log_dir"]})
    assert moved[here].errno == 0
    assert python.alter_replica_log_dirs({here: "/elsewhere"})[here].errno == 57, "LOG_DIR_NOT_FOUND"
    partition = PyTopicPartition("moved", 0)
    assert python.alter_partition_reassignments({partition: [described["broker"]]}) == {partition: None}
    refused = python.alter_partition_reassignments({partition: [77]})[partition]
    assert refused.errno == 39, "INVALID_REPLICA_ASSIGNMENT"
    quorum = python.describe_metadata_quorum()
    [row] = quorum["topics"][0]["partitions"]
    assert row["leader_id"] in {node["node_id"] for node in quorum["nodes"]}
    assert row["high_watermark"] > 0
    assert [voter["replica_id"] for voter in row["current_voters"]] == [row["leader_id"]]
