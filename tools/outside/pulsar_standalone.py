"""Apache Pulsar standalone, from Maven: a broker, its storage and its metadata in one JVM."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType

from tools.outside.suite import call, program

VERSION = "4.0.7"
_START_S = 120.0
_POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>mainstem</groupId>
  <artifactId>outside</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.pulsar</groupId><artifactId>pulsar-broker</artifactId><version>{VERSION}</version>
    </dependency>
  </dependencies>
</project>
"""
# Acknowledged messages stay, as they do in Mainstem, so that a seek finds them in both.
_SETTINGS = """bindAddress=127.0.0.1
advertisedAddress=127.0.0.1
clusterName=standalone
managedLedgerDefaultEnsembleSize=1
managedLedgerDefaultWriteQuorum=1
managedLedgerDefaultAckQuorum=1
allowAutoTopicCreationType=non-partitioned
loadBalancerEnabled=false
transactionCoordinatorEnabled=false
acknowledgmentAtBatchIndexLevelEnabled=true
delayedDeliveryTickTimeMillis=100
defaultRetentionTimeInMinutes=-1
defaultRetentionSizeInMB=-1
brokerDeleteInactiveTopicsEnabled=false
webSocketServiceEnabled=false
diskUsageThreshold=0.99
diskUsageWarnThreshold=0.98
"""
_OPENED = (
    *("java.base/java.io", "java.base/java.lang", "java.base/java.nio", "java.base/java.util.zip"),
    *("java.base/jdk.internal.loader", "java.base/jdk.internal.misc", "java.base/jdk.internal.platform"),
    *("java.base/sun.net", "java.management/sun.management", "jdk.management/com.sun.management.internal"),
)


class PulsarStandalone:
    """A running server. Its files are below `folder`, and are new at each start."""

    def __init__(self, folder: Path, *, synced: bool = False) -> None:
        """`synced`: its journal syncs before a message is acknowledged, which its own settings say too."""
        self._folder = folder
        self._synced = synced
        self._process: subprocess.Popen[bytes] | None = None
        self.pulsar = f"127.0.0.1:{_free_port()}"
        self.http = f"127.0.0.1:{_free_port()}"

    def __enter__(self) -> PulsarStandalone:
        _fetch(self._folder)
        data = self._folder / "standalone"
        shutil.rmtree(data, ignore_errors=True)
        data.mkdir()
        settings = data / "standalone.conf"
        ports = {"brokerServicePort": self.pulsar, "webServicePort": self.http}
        settings.write_text(
            f"{_SETTINGS}journalSyncData={str(self._synced).lower()}\n"
            + "".join(f"{name}={address.rpartition(':')[2]}\n" for name, address in ports.items())
        )
        command = [
            *(program("java"), "-Xmx1g", "-XX:MaxDirectMemorySize=512m"),
            *(f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED),
            *("-cp", f"{self._folder / 'jars'}/*", "org.apache.pulsar.PulsarStandaloneStarter"),
            *("-c", str(settings), "--metadata-dir", str(data / "metadata")),
            *("--bookkeeper-dir", str(data / "bookkeeper"), "--bookkeeper-port", str(_free_port())),
            *("-nfw", "-nss", "--wipe-data"),
        ]
        with (data / "output.log").open("wb") as output:
            self._process = subprocess.Popen(command, cwd=data, stdout=output, stderr=subprocess.STDOUT)
        try:
            self._wait_until_healthy()
        except BaseException:
            self.stop()
            raise
        return self

    def _wait_until_healthy(self) -> None:
        deadline = time.monotonic() + _START_S
        while True:
            if self._process is None or self._process.poll() is not None:
                raise RuntimeError(f"Pulsar ended: see {self._folder / 'standalone' / 'output.log'}")
            try:
                for path in ("brokers/health", "namespaces/public/default"):
                    urllib.request.urlopen(f"http://{self.http}/admin/v2/{path}", timeout=5).close()
                return
            except OSError:
                if time.monotonic() > deadline:
                    raise RuntimeError("Pulsar did not start in time") from None
                time.sleep(0.5)

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError("Pulsar does not run")
        return self._process.pid

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _fetch(folder: Path) -> None:
    pom, jars = folder / "pom.xml", folder / "jars"
    if not pom.exists() or pom.read_text() != _POM or not jars.exists():
        pom.write_text(_POM)
        call([program("mvn"), "-q", "dependency:copy-dependencies", f"-DoutputDirectory={jars}"], folder)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
