"""Apache Kafka's own programs, from Maven: its command line tools, Kafka Streams, Connect and MirrorMaker 2.

Each function `check_…` is a test; it fails by raising. All of them share one server.
"""

from __future__ import annotations

import json
import subprocess
import time
import traceback
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from mainstem.testing.broker import ThrowAwayBroker, throw_away_broker
from tools.outside.suite import Suite, Tally, call, program

VERSION = "4.3.1"
PATIENCE_S = 120.0
KILLS = 4  # of the Streams program and of the server, in turn
_ARTIFACTS = (
    "kafka-tools",
    "kafka-streams",
    "connect-runtime",
    "connect-file",
    "connect-json",
    "connect-mirror",
)
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>mainstem</groupId>
  <artifactId>outside</artifactId>
  <version>1</version>
  <dependencies>{dependencies}</dependencies>
</project>
"""
_DEPENDENCY = (
    "<dependency><groupId>org.apache.kafka</groupId><artifactId>{name}</artifactId>"
    "<version>{version}</version></dependency>"
)


class Java:
    """The jars of Apache Kafka, and the server that its programs talk to."""

    def __init__(self, folder: Path, broker: ThrowAwayBroker) -> None:
        self.folder = folder
        self.broker = broker
        self._java = program("java")

    @property
    def kafka(self) -> str:
        return self.broker.bootstrap_servers

    @property
    def _classes(self) -> str:
        return f"{self.folder / 'jars'}/*:{self.folder / 'classes'}"

    def tool(self, name: str, *arguments: str, stdin: str = "") -> str:
        """What a tool of Kafka writes about this server. Raises RuntimeError if it fails."""
        return self.tool_raw(name, "--bootstrap-server", self.kafka, *arguments, stdin=stdin)

    def tool_raw(self, name: str, *arguments: str, stdin: str = "") -> str:
        done = subprocess.run(
            [self._java, "-cp", self._classes, f"org.apache.kafka.tools.{name}", *arguments],
            input=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{name} {' '.join(arguments)}: {done.returncode}\n{done.stdout[-3000:]}")
        return done.stdout

    def start(self, main: str, *arguments: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{main.rpartition('.')[2]}.log").open("ab") as log:
            return subprocess.Popen(
                [self._java, "-Xmx512m", "-cp", self._classes, main, *arguments], stdout=log, stderr=log
            )

    @contextmanager
    def running(self, main: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
        started = self.start(main, *arguments)
        try:
            yield started
        finally:
            started.kill()
            started.wait()


def run(folder: Path) -> Tally:
    _fetch(folder)
    tally = Tally()
    with throw_away_broker() as broker:
        java = Java(folder, broker)
        for name, check in _checks().items():
            try:
                check(java)
            except Exception:  # noqa: BLE001 - it is the test's result
                tally.failed[name] = traceback.format_exc()[-3000:]
            else:
                tally.passed.append(name)
    return tally


def _fetch(folder: Path) -> None:
    javac, maven = program("javac"), program("mvn")
    wanted = _POM.format(
        dependencies="".join(_DEPENDENCY.format(name=name, version=VERSION) for name in _ARTIFACTS)
    )
    pom = folder / "pom.xml"
    if not pom.exists() or pom.read_text() != wanted or not (folder / "jars").exists():
        pom.write_text(wanted)
        call([maven, "-q", "dependency:copy-dependencies", f"-DoutputDirectory={folder / 'jars'}"], folder)
    (folder / "classes").mkdir(exist_ok=True)
    sources = (Path(__file__).parent / "java").glob("*.java")
    call([javac, "-cp", f"{folder / 'jars'}/*", "-d", folder / "classes", *sources], folder)


def _checks() -> dict[str, Callable[[Java], None]]:
    found = {name: value for name, value in globals().items() if name.startswith("check_")}
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

    _wait(compacted, "the topic is compacted")


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


# Programs


def check_streams_counts_exactly_once_through_kills(java: Java) -> None:
    java.tool("TopicCommand", "--create", "--topic", "lines", "--partitions", "2")
    java.tool("TopicCommand", "--create", "--topic", "counts", "--partitions", "2")
    words = ["alpha", "beta", "gamma", "delta"]
    producer = Producer({"bootstrap.servers": java.kafka, "enable.idempotence": True, "log_level": 0})
    expected: Counter[str] = Counter()
    program = java.start("WordCount", java.kafka, str(java.folder / "state"))
    try:
        for step in range(2 * KILLS):
            for n in range(250):
                line = f"{words[n % 4]} {words[(n + step) % 4]}"
                expected.update(line.split())
                producer.produce("lines", line.encode(), key=str(n))
                producer.poll(0)
            producer.flush(PATIENCE_S)
            _wait(lambda: sum(_counts(java).values()) > 0, "the first counts")
            if step % 2:
                java.broker.kill()
                java.broker.restart()
            else:
                program.kill()
                program.wait()
                program = java.start("WordCount", java.kafka, str(java.folder / "state"))
        _wait(lambda: _counts(java) == expected, f"{expected}")
    finally:
        program.kill()
        program.wait()


def check_connect_copies_a_file(java: Java) -> None:
    port = 28083
    settings = java.folder / "connect.properties"
    settings.write_text(
        "\n".join(
            [
                f"bootstrap.servers={java.kafka}",
                "group.id=connect",
                *(f"{name}.storage.topic=connect-{name}s" for name in ("config", "offset", "status")),
                *(f"{name}.storage.replication.factor=1" for name in ("config", "offset", "status")),
                "key.converter=org.apache.kafka.connect.storage.StringConverter",
                "value.converter=org.apache.kafka.connect.storage.StringConverter",
                f"listeners=http://127.0.0.1:{port}",
                "offset.flush.interval.ms=500",
                "exactly.once.source.support=enabled",
            ]
        )
    )
    source, copy = java.folder / "connect-in.txt", java.folder / "connect-out.txt"
    lines = [f"line {n}" for n in range(1000)]
    source.write_text("\n".join(lines) + "\n")
    copy.unlink(missing_ok=True)
    with java.running("org.apache.kafka.connect.cli.ConnectDistributed", str(settings)):
        _wait(lambda: _asked(f"http://127.0.0.1:{port}/") is not None, "Connect starts")
        for name, kind in (("source", "FileStreamSource"), ("sink", "FileStreamSink")):
            settings_of = {
                "connector.class": f"org.apache.kafka.connect.file.{kind}Connector",
                "tasks.max": "1",
                "file": str(source if name == "source" else copy),
                **({"topic": "copied"} if name == "source" else {"topics": "copied"}),
            }
            _wait(
                lambda name=name, settings_of=settings_of: (
                    _asked(  # type: ignore[misc]  # of this turn
                        f"http://127.0.0.1:{port}/connectors", {"name": name, "config": settings_of}
                    )
                    is not None
                ),
                f"the connector {name} is created",
            )
        _wait(lambda: copy.exists() and copy.read_text().splitlines() == lines, "the file is copied")


def check_mirror_maker_copies_topics_and_offsets(java: Java) -> None:
    with throw_away_broker() as target:
        java.tool("TopicCommand", "--create", "--topic", "mirrored", "--partitions", "2")
        producer = Producer({"bootstrap.servers": java.kafka})
        for n in range(500):
            producer.produce("mirrored", str(n), partition=n % 2)
        producer.flush(PATIENCE_S)
        settings = java.folder / "mirror.properties"
        settings.write_text(
            "\n".join(
                [
                    "clusters=a,b",
                    f"a.bootstrap.servers={java.kafka}",
                    f"b.bootstrap.servers={target.bootstrap_servers}",
                    "a->b.enabled=true",
                    "b->a.enabled=false",
                    "topics=mirrored",
                    "replication.factor=1",
                    *(f"{name}.replication.factor=1" for name in ("checkpoints.topic", "heartbeats.topic")),
                    "offset-syncs.topic.replication.factor=1",
                    *(f"{name}.storage.replication.factor=1" for name in ("offset", "status", "config")),
                    "refresh.topics.interval.seconds=2",
                    "dedicated.mode.enable.internal.rest=false",
                ]
            )
        )
        with java.running("org.apache.kafka.connect.mirror.MirrorMaker", str(settings)):
            _wait(
                lambda: len(_values(target.bootstrap_servers, "a.mirrored", 2)) >= 500,
                "the topic is mirrored",
            )
        values = _values(target.bootstrap_servers, "a.mirrored", 2)
        assert sorted(map(int, values)) == list(range(500))


def _counts(java: Java) -> Counter[str]:
    """The newest count of each word, as a read_committed consumer sees it."""
    found: Counter[str] = Counter()
    for key, value in _records(java.kafka, "counts", 2):
        found[key.decode()] = int(value)
    return found


def _values(kafka: str, topic: str, partitions: int) -> list[bytes]:
    return [value for _key, value in _records(kafka, topic, partitions)]


def _records(kafka: str, topic: str, partitions: int) -> list[tuple[bytes, bytes]]:
    """All committed records of a topic; none if it does not exist."""
    consumer = Consumer(
        {
            "bootstrap.servers": kafka,
            "group.id": "outside",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "allow.auto.create.topics": False,
        }
    )
    try:
        if topic not in consumer.list_topics(timeout=30).topics:
            return []
        consumer.assign([TopicPartition(topic, n, 0) for n in range(partitions)])
        found, ended, deadline = list[tuple[bytes, bytes]](), 0, time.monotonic() + 30
        while ended < partitions and time.monotonic() < deadline:
            message = consumer.poll(1.0)
            if message is None:
                continue
            if message.error() is not None:
                ended += 1
            else:
                found.append((message.key() or b"", message.value() or b""))
        return found
    finally:
        consumer.close()


def _asked(url: str, body: object = None) -> object | None:
    """The JSON answer of Connect's REST interface, or None while it does not give one."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            found: object = json.load(answer)
            return found
    except OSError:
        return None


def _wait(true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        if time.monotonic() > deadline:
            raise AssertionError(f"in vain: {what}")
        time.sleep(0.5)


SUITES = (Suite("apache-kafka", VERSION, run, {}),)
