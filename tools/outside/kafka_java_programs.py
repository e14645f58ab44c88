"""Kafka Streams, Connect and MirrorMaker 2 through kills of themselves and of the server.

`OUTSIDE_KILLS` is the number of kills of each of the two. After `OUTSIDE_SECONDS` a check makes no more kills, and says
how many it made.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the client exports them without saying so
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)

from mainstem.testing.broker import throw_away_broker
from mainstem.testing.ports import consecutive_ports
from tools.outside.kafka_java_kit import PATIENCE_S, Java, asked, records, values, wait

KILLS = int(os.environ.get("OUTSIDE_KILLS", "2"))
SECONDS = float(os.environ.get("OUTSIDE_SECONDS", "inf"))
_WORDS = ("alpha", "beta", "gamma", "delta")


class _Program:
    """A program of Kafka that may be killed and started again."""

    def __init__(self, java: Java, main: str, *arguments: str) -> None:
        self._java = java
        self.name = main.rpartition(".")[2]
        self._command = (main, *arguments)
        self.process: subprocess.Popen[bytes] = java.start(*self._command)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def restart(self) -> None:
        self.kill()
        self.process = self._java.start(*self._command)

    def stop(self) -> None:
        """Let it leave its group."""
        self.process.terminate()
        self.process.wait()


def _through_kills(java: Java, programs: Sequence[_Program], feed: Callable[[int], None]) -> None:
    """Feed the programs, and kill one of them and the server in turn."""
    until, kills = time.monotonic() + SECONDS, 0
    try:
        while kills < 2 * KILLS and time.monotonic() < until:
            feed(kills)
            if kills % 2:
                java.broker.crash(kills // 2)
            else:
                programs[kills // 2 % len(programs)].restart()
            kills += 1
        feed(kills)
        print(
            f"  {programs[0].name}: {kills - kills // 2} kills of the program, {kills // 2} of the server",
            flush=True,
        )
    except BaseException:
        _end(programs)
        raise


def _end(programs: Sequence[_Program]) -> None:
    for program in programs:
        program.kill()


class _Words:
    """Lines for WordCount, and what it must count."""

    def __init__(self, java: Java, source: str, counts: str) -> None:
        self._java, self._source, self._counts = java, source, counts
        self.expected: Counter[str] = Counter()
        for topic in (source, counts):
            java.tool("TopicCommand", "--create", "--topic", topic, "--partitions", "2")

    def feed(self, step: int) -> None:
        before = sum(self.counted().values())
        producer = Producer(
            {"bootstrap.servers": self._java.kafka, "enable.idempotence": True, "log_level": 0}
        )
        for n in range(250):
            line = f"{_WORDS[n % 4]} {_WORDS[(n + step) % 4]}"
            self.expected.update(line.split())
            producer.produce(self._source, line.encode(), key=str(n))
            producer.poll(0)
        producer.flush(PATIENCE_S)
        wait(lambda: sum(self.counted().values()) > before, "more words are counted")

    def counted(self) -> Counter[str]:
        """The newest count of each word, as a read_committed consumer sees it."""
        found: Counter[str] = Counter()
        for key, value in records(self._java.kafka, self._counts, 2):
            found[key.decode()] = int(value)
        return found

    def check(self) -> None:
        wait(lambda: self.counted() == self.expected, f"{self.expected}")


def check_streams_counts_exactly_once_through_kills(java: Java) -> None:
    words = _Words(java, "lines", "counts")
    program = _Program(
        java, "WordCount", java.kafka, str(java.fresh("state")), "wordcount", "lines", "counts",
        "consumer.session.timeout.ms=6000",
    )  # fmt: skip
    _through_kills(java, [program], words.feed)
    try:
        words.check()
    finally:
        program.kill()


def check_streams_group_counts_exactly_once_through_kills(java: Java) -> None:
    """With `group.protocol=streams` the broker assigns the tasks to two instances, which come and go."""
    _set_default(java, "group.streams.session.timeout.ms", "6000")
    _set_default(java, "group.streams.num.standby.replicas", "1")
    words = _Words(java, "lines-of-group", "counts-of-group")
    first, second = (
        _Program(
            java, "WordCount", java.kafka, str(java.fresh(f"state-{number}")), "wordcount-group",
            "lines-of-group", "counts-of-group", "group.protocol=streams",
        )
        for number in (1, 2)
    )  # fmt: skip
    _through_kills(java, [first, second], words.feed)
    try:
        words.check()
        group = ("--group", "wordcount-group")
        described = java.tool("streams.StreamsGroupCommand", "--describe", *group, "--members", "--verbose")
        assert described.count("streams ") == 2, described
        assert "STANDBY" in described, described
        first.stop()
        words.feed(0)  # by the other one alone
        words.check()
        second.stop()
        assert "wordcount-group" in java.tool("streams.StreamsGroupCommand", "--list")
        java.tool(
            "streams.StreamsGroupCommand",
            *("--reset-offsets", "--to-earliest", "--all-input-topics", *group, "--execute"),
        )
        java.tool("streams.StreamsGroupCommand", "--delete", *group)
        assert "wordcount-group" not in java.tool("streams.StreamsGroupCommand", "--list")
    finally:
        _end([first, second])


def check_members_change_the_group_protocol_one_by_one(java: Java) -> None:
    """From the classic protocol to the next generation and back; nothing is read twice, and nothing is missed."""
    java.tool("TopicCommand", "--create", "--topic", "upgraded", "--partitions", "4")
    log = java.folder / "GroupMember.log"
    log.unlink(missing_ok=True)
    producer = Producer({"bootstrap.servers": java.kafka})
    sent = 0

    def read() -> Counter[str]:
        lines = log.read_text().splitlines() if log.exists() else []
        return Counter(line.removeprefix("read ") for line in lines if line.startswith("read "))

    def feed() -> None:
        nonlocal sent
        for n in range(sent, sent + 400):
            producer.produce("upgraded", str(n), partition=n % 4)
        producer.flush(PATIENCE_S)
        sent += 400
        wait(lambda: len(read()) == sent, f"{sent} records are read")

    def member(protocol: str) -> _Program:
        settings = {
            "classic": "partition.assignment.strategy="
            "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
        }
        own = (settings[protocol],) if protocol in settings else ()
        return _Program(
            java, "GroupMember", java.kafka, "upgraded", "upgraded", f"group.protocol={protocol}", *own
        )

    members = [member("classic"), member("classic")]
    try:
        feed()
        for protocol in ("consumer", "classic"):
            for place in range(2):
                members[place].stop()
                members[place] = member(protocol)
                feed()
            kind = "Consumer" if protocol == "consumer" else "Classic"
            listed = [line.split() for line in java.tool("GroupsCommand", "--list").splitlines()]
            assert ["upgraded", kind] in [line[:2] for line in listed], listed
        assert set(read().values()) == {1}, "each record is read once"
    finally:
        _end(members)


def check_connect_reads_a_file_exactly_once_through_kills(java: Java) -> None:
    url = f"http://127.0.0.1:{consecutive_ports(1)}"
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
                f"listeners={url}",
                "offset.flush.interval.ms=500",
                "session.timeout.ms=6000",
                "heartbeat.interval.ms=1000",
                "exactly.once.source.support=enabled",
            ]
        )
    )
    source, copy = java.folder / "connect-in.txt", java.folder / "connect-out.txt"
    source.write_text("")
    copy.unlink(missing_ok=True)
    java.tool("TopicCommand", "--create", "--topic", "copied", "--partitions", "1")
    connect = _Program(java, "org.apache.kafka.connect.cli.ConnectDistributed", str(settings))
    lines: list[str] = []

    def feed(step: int) -> None:
        fresh = [f"line {step} {n}" for n in range(500)]
        with source.open("a") as out:
            out.write("".join(f"{line}\n" for line in fresh))
        lines.extend(fresh)
        wait(lambda: len(values(java.kafka, "copied", 1)) > len(lines) - len(fresh), "lines arrive")

    try:
        wait(lambda: asked(f"{url}/") is not None, "Connect starts")
        _connect(url, "source", "FileStreamSource", source, {"topic": "copied"})
        _connect(url, "sink", "FileStreamSink", copy, {"topics": "copied"})
        _through_kills(java, [connect], feed)
        wait(
            lambda: len(values(java.kafka, "copied", 1)) >= len(lines), f"{len(lines)} lines are in the topic"
        )
        assert [value.decode() for value in values(java.kafka, "copied", 1)] == lines
        # The sink is no exactly-once connector: after a kill it may repeat lines.
        wait(lambda: copy.exists() and set(copy.read_text().splitlines()) >= set(lines), "the file is copied")
    finally:
        connect.kill()


def _connect(url: str, name: str, kind: str, file: Path, settings: dict[str, str]) -> None:
    config = {
        "connector.class": f"org.apache.kafka.connect.file.{kind}Connector",
        "tasks.max": "1",
        "file": str(file),
        **settings,
    }
    wait(
        lambda: asked(f"{url}/connectors", {"name": name, "config": config}) is not None,
        f"the connector {name} is created",
    )


def check_mirror_maker_copies_exactly_once_through_kills(java: Java) -> None:
    with throw_away_broker() as target:
        java.tool("TopicCommand", "--create", "--topic", "mirrored", "--partitions", "2")
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
                    "b.exactly.once.source.support=enabled",
                    "b.session.timeout.ms=6000",
                    "b.heartbeat.interval.ms=1000",
                    "dedicated.mode.enable.internal.rest=true",
                    f"listeners=http://127.0.0.1:{consecutive_ports(1)}",
                ]
            )
        )
        mirror = _Program(java, "org.apache.kafka.connect.mirror.MirrorMaker", str(settings))
        sent = 0

        def copied() -> list[bytes]:
            return values(target.bootstrap_servers, "a.mirrored", 2)

        def feed(step: int) -> None:
            nonlocal sent
            producer = Producer({"bootstrap.servers": java.kafka, "enable.idempotence": True, "log_level": 0})
            for n in range(sent, sent + 500):
                producer.produce("mirrored", str(n), partition=n % 2)
            producer.flush(PATIENCE_S)
            sent += 500
            wait(lambda: len(copied()) > sent - 500, "records are mirrored")

        _through_kills(java, [mirror], feed)
        try:
            wait(lambda: len(copied()) >= sent, f"{sent} records are mirrored")
            assert sorted(map(int, copied())) == list(range(sent))
        finally:
            mirror.kill()


def _set_default(java: Java, name: str, value: str) -> None:
    """A setting of all groups."""
    admin = AdminClient({"bootstrap.servers": java.kafka})
    setting = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    broker = next(iter(admin.list_topics(timeout=30).brokers))
    resource = ConfigResource(ConfigResource.Type.BROKER, str(broker), incremental_configs=[setting])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result()
