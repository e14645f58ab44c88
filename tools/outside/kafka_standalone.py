"""Apache Kafka, one node that is its own controller, from Maven."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
import uuid
from base64 import urlsafe_b64encode
from pathlib import Path
from types import TracebackType

from tools.outside.suite import call, program

VERSION = "4.3.1"
_START_S = 120.0
_POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>mainstem</groupId>
  <artifactId>outside</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{VERSION}</version>
    </dependency>
  </dependencies>
</project>
"""
_SETTINGS = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
controller.listener.names=CONTROLLER
log.dirs={data}
auto.create.topics.enable=false
num.partitions=1
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
allow.everyone.if.no.acl.found=true
group.initial.rebalance.delay.ms=50
group.consumer.min.heartbeat.interval.ms=100
group.consumer.heartbeat.interval.ms=1000
group.streams.min.heartbeat.interval.ms=100
group.streams.heartbeat.interval.ms=1000
group.share.min.heartbeat.interval.ms=100
group.share.heartbeat.interval.ms=1000
group.min.session.timeout.ms=100
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
log.initial.task.delay.ms=86400000
"""


class KafkaStandalone:
    """A running server. Its files are below `folder`, and are new at each start."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self.port = _free_port()

    @staticmethod
    def jars(folder: Path) -> Path:
        """The folder of its jars, which are fetched once."""
        pom, jars = folder / "pom.xml", folder / "jars"
        if not pom.exists() or pom.read_text() != _POM or not jars.exists():
            pom.write_text(_POM)
            call([program("mvn"), "-q", "dependency:copy-dependencies", f"-DoutputDirectory={jars}"], folder)
        return jars

    def __enter__(self) -> KafkaStandalone:
        jars = self.jars(self._folder)
        data = self._folder / "standalone"
        shutil.rmtree(data, ignore_errors=True)
        data.mkdir()
        settings = data / "server.properties"
        settings.write_text(_SETTINGS.format(port=self.port, controller=_free_port(), data=data / "logs"))
        java = [program("java"), "-Xmx768m", "-cp", f"{jars}/*"]
        identity = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        call([*java, "kafka.tools.StorageTool", "format", "-t", identity, "-c", settings], data)
        with (data / "output.log").open("wb") as output:
            self._process = subprocess.Popen(
                [*java, "kafka.Kafka", str(settings)], cwd=data, stdout=output, stderr=subprocess.STDOUT
            )
        try:
            self._wait_until_open()
        except BaseException:
            self.stop()
            raise
        return self

    def _wait_until_open(self) -> None:
        deadline = time.monotonic() + _START_S
        while True:
            if self._process is None or self._process.poll() is not None:
                raise RuntimeError(f"Kafka ended: see {self._folder / 'standalone' / 'output.log'}")
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            if time.monotonic() > deadline:
                raise RuntimeError("Kafka did not start in time")
            time.sleep(0.2)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
