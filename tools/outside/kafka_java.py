"""Apache Kafka's own programs, from Maven: its command line tools, Kafka Streams, Connect and MirrorMaker 2.

Each function `check_…` is a test; it fails by raising. The checks of a suite share one server, or three brokers.

    OUTSIDE_CHECKS='*streams*' OUTSIDE_KILLS=10 python -m tools.outside apache-kafka-three-brokers  # these checks alone
"""

from __future__ import annotations

import json
import os
import traceback
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path

from confluent_kafka import Producer

from tools.outside import kafka_java_programs
from tools.outside.kafka_java_kit import VERSION, Java, brokers, fetch, wait
from tools.outside.suite import Suite, Tally


def run_all(folder: Path) -> Tally:
    return _run(folder, _checks(globals()) | _checks(vars(kafka_java_programs)), 1)


def run_on_three_brokers(folder: Path) -> Tally:
    return _run(folder, _checks(vars(kafka_java_programs)), 3)


def _run(folder: Path, checks: dict[str, Callable[[Java], None]], workers: int) -> Tally:
    fetch(folder)
    tally = Tally()
    with brokers(workers) as broker:
        java = Java(folder, broker)
        for name, check in checks.items():
            if not any(fnmatch(name, one) for one in os.environ.get("OUTSIDE_CHECKS", "*").split(",")):
                continue
            try:
                check(java)
            except Exception:  # noqa: BLE001 - it is the test's result
                tally.failed[name] = traceback.format_exc()[-3000:]
            else:
                tally.passed.append(name)
    return tally


def _checks(names: dict[str, object]) -> dict[str, Callable[[Java], None]]:
    found = {name: value for name, value in names.items() if name.startswith("check_") and callable(value)}
    return {name.removeprefix("check_"): value for name, value in found.items()}


# Tools


def check_topics(java: Java) -> None:
    java.tool(
        "TopicCommand",
        "--create",
        "--topic",
        "tools",
        "--partitions",
        "3",
        "--config",
        "retention.ms=1000000",
    )
    assert "tools" in java.tool("TopicCommand", "--list")
    described = java.tool("TopicCommand", "--describe", "--topic", "tools")
    assert "PartitionCount: 3" in described
    assert "retention.ms=1000000" in described
    java.tool("TopicCommand", "--alter", "--topic", "tools", "--partitions", "4")
    assert "PartitionCount: 4" in java.tool("TopicCommand", "--describe", "--topic", "tools")


def check_console_producer_and_consumers(java: Java) -> None:
    java.tool("TopicCommand", "--create", "--topic", "console", "--partitions", "2")
    lines = "".join(f"key{n % 5}:value{n}\n" for n in range(100))
    java.tool(
        "ConsoleProducer",
        *(
            "--topic",
            "console",
            "--reader-property",
            "parse.key=true",
            "--reader-property",
            "key.separator=:",
        ),
        stdin=lines,
    )
    read = java.tool(
        "consumer.ConsoleConsumer",
        *("--topic", "console", "--from-beginning", "--max-messages", "100", "--group", "console"),
    )
    assert {line for line in read.splitlines() if line.startswith("value")} == {
        f"value{n}" for n in range(100)
    }
    assert "console:0:" in java.tool("GetOffsetShell", "--topic", "console")
    described = java.tool("consumer.group.ConsumerGroupCommand", "--describe", "--group", "console")
    assert "LAG" in described
    java.tool(
        "consumer.group.ConsumerGroupCommand",
        *("--reset-offsets", "--to-earliest", "--group", "console", "--topic", "console", "--execute"),
    )


def check_compacted_topic(java: Java) -> None:
    """The broker compacts; a consumer from the start gets the newest record of each key, at its offset."""
    settings = ("cleanup.policy=compact", "segment.ms=100", "min.cleanable.dirty.ratio=0.01")
    configs = [part for one in settings for part in ("--config", one)]
    java.tool("TopicCommand", "--create", "--topic", "compacted", "--partitions", "1", *configs)
    producer = Producer({"bootstrap.servers": java.kafka, "compression.type": "lz4"})
    newest: dict[str, str] = {}
    for number in range(5_000):
        key, value = f"key{number % 40}", f"value{number}"
        producer.produce("compacted", value, key)
        newest[key] = f"Offset:{number}\t{key}\t{value}"
    producer.flush()

    def compacted() -> bool:
        read = java.tool(
            "consumer.ConsoleConsumer",
            *("--topic", "compacted", "--partition", "0", "--offset", "earliest", "--timeout-ms", "8000"),
            *("--formatter-property", "print.key=true", "--formatter-property", "print.offset=true"),
        )
        lines = [line for line in read.splitlines() if line.startswith("Offset:")]
        assert dict(line.split("\t")[1:] for line in lines) == {
            line.split("\t")[1]: line.split("\t")[2] for line in newest.values()
        }
        return lines == list(newest.values())[-40:]

    wait(compacted, "the topic is compacted")


def check_groups(java: Java) -> None:
    java.tool("consumer.group.ConsumerGroupCommand", "--list")
    java.tool("GroupsCommand", "--list")
    java.tool("consumer.group.ShareGroupCommand", "--list")


def check_cluster_descriptions(java: Java) -> None:
    assert "Cluster ID" in java.tool_raw("ClusterTool", "cluster-id", "--bootstrap-server", java.kafka)
    assert "Produce(0)" in java.tool("BrokerApiVersionsCommand")
    assert "logDirs" in java.tool("LogDirsCommand", "--describe")
    assert "LeaderId" in java.tool("MetadataQuorumCommand", "describe", "--status")
    assert "NodeId" in java.tool("MetadataQuorumCommand", "describe", "--replication")
    assert "No partition reassignments" in java.tool("reassign.ReassignPartitionsCommand", "--list")
    java.tool("TransactionsCommand", "list")


def check_performance_tools(java: Java) -> None:
    java.tool("TopicCommand", "--create", "--topic", "perf", "--partitions", "2")
    sent = java.tool_raw(
        "ProducerPerformance",
        *("--topic", "perf", "--num-records", "200000", "--record-size", "100", "--throughput", "-1"),
        *("--producer-props", f"bootstrap.servers={java.kafka}", "acks=all"),
    )
    assert "200000 records sent" in sent
    java.tool("ConsumerPerformance", "--topic", "perf", "--num-records", "200000")


def check_delete_records_and_topics(java: Java) -> None:
    asked = java.folder / "delete.json"
    asked.write_text(
        json.dumps({"version": 1, "partitions": [{"topic": "console", "partition": 0, "offset": 1}]})
    )
    assert "low_watermark" in java.tool("DeleteRecordsCommand", "--offset-json-file", str(asked))
    java.tool("TopicCommand", "--delete", "--topic", "perf")


SUITES = (
    Suite("apache-kafka", VERSION, run_all, {}),
    Suite("apache-kafka-three-brokers", VERSION, run_on_three_brokers, {}),
)
