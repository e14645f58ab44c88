"""Apache Kafka's jars, and what its checks share."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from mainstem.testing.broker import ThrowAwayBroker
from tools.outside.suite import call, program

VERSION = "4.3.1"
PATIENCE_S = 300.0
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


class Brokers(ThrowAwayBroker):
    """The server that programs talk to: one broker, or several workers, which can be killed one by one."""

    def __init__(self, directory: Path, workers: int) -> None:
        self._count = workers
        super().__init__(directory, *(("--workers", str(workers)) if workers > 1 else ()))

    @property
    def bootstrap_servers(self) -> str:
        """All brokers, so that clients find one while another is down."""
        return ",".join(f"{host}:{port}" for host, port in self._places())

    def crash(self, turn: int) -> None:
        """Kill -9. One broker is started again; of several, each dies in its turn, then all at once."""
        victim = turn % (self._count + 1)
        if self._count == 1 or victim == self._count:
            self.kill()
            self.restart()
        else:
            lines = self._server.lines
            started = [
                line for line in lines if line["event"] == "worker started" and line["worker"] == victim
            ]
            os.kill(int(str(started[-1]["worker_pid"])), signal.SIGKILL)
            wait(lambda: self._starts(victim) > len(started), f"worker {victim} is started again")
        wait(lambda: all(map(_listens, self._places())), "all brokers listen")

    def _starts(self, worker: int) -> int:
        return sum(
            line["event"] == "worker started" and line["worker"] == worker
            for line in list(self._server.lines)
        )

    def _places(self) -> list[tuple[str, int]]:
        first = self._server.last_address("kafka")
        return [(first.host, first.port + number) for number in range(self._count)]


@contextmanager
def brokers(workers: int) -> Iterator[Brokers]:
    with tempfile.TemporaryDirectory(prefix="mainstem-") as directory:
        found = Brokers(Path(directory), workers)
        try:
            yield found
        finally:
            found.close()


def _listens(place: tuple[str, int]) -> bool:
    try:
        socket.create_connection(place, timeout=5).close()
    except OSError:
        return False
    return True


class Java:
    """The jars of Apache Kafka, and the server that its programs talk to."""

    def __init__(self, folder: Path, broker: Brokers) -> None:
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

    def fresh(self, name: str) -> Path:
        """A folder that holds nothing of an earlier run."""
        folder = self.folder / name
        shutil.rmtree(folder, ignore_errors=True)
        return folder

    def start(self, main: str, *arguments: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{main.rpartition('.')[2]}.log").open("ab") as log:
            return subprocess.Popen(
                [self._java, "-Xmx512m", "-cp", self._classes, main, *arguments], stdout=log, stderr=log
            )


def fetch(folder: Path) -> None:
    javac, maven = program("javac"), program("mvn")
    wanted = _POM.format(
        dependencies="".join(_DEPENDENCY.format(name=name, version=VERSION) for name in _ARTIFACTS)
    )
    pom = folder / "pom.xml"
    if not pom.exists() or pom.read_text() != wanted or not (folder / "jars").exists():
        pom.write_text(wanted)
        call([maven, "-q", "dependency:copy-dependencies", f"-DoutputDirectory={folder / 'jars'}"], folder)
    classes = folder / "classes"
    classes.mkdir(exist_ok=True)
    sources = sorted((Path(__file__).parent / "java").glob("*.java"))
    if not all(_compiled(source, classes) for source in sources):  # another run may be using them
        call([javac, "-cp", f"{folder / 'jars'}/*", "-d", classes, *sources], folder)


def _compiled(source: Path, classes: Path) -> bool:
    made = classes / f"{source.stem}.class"
    return made.exists() and made.stat().st_mtime > source.stat().st_mtime


def values(kafka: str, topic: str, partitions: int) -> list[bytes]:
    return [value for _key, value in records(kafka, topic, partitions)]


def records(kafka: str, topic: str, partitions: int) -> list[tuple[bytes, bytes]]:
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


def asked(url: str, body: object = None) -> object | None:
    """The JSON answer of Connect's REST interface, or None while it does not give one."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            found: object = json.load(answer)
            return found
    except OSError:
        return None


def wait(true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        if time.monotonic() > deadline:
            raise AssertionError(f"in vain: {what}")
        time.sleep(0.5)
