"""A program of Apache Pulsar's Java client, from Maven: transactions, Key_Shared, schemas and patterns."""

from __future__ import annotations

import tempfile
from pathlib import Path

from mainstem.testing.server import ServerProcess
from tools.outside.suite import Suite, Tally, call, program

VERSION = "4.0.7"
CHECKS = (
    *(
        "transactions",
        "abort",
        "batches",
        "key_shared",
        "schemas",
        "patterns",
        "dead_letters",
        "retry_letters",
    ),
    *(
        "delayed",
        "seek",
        "encryption",
        "chunks",
        "batch_indexes",
        "priorities",
        "unacked",
        "key_shared_changes",
    ),
    "table_view",
)
_POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>mainstem</groupId>
  <artifactId>outside</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.pulsar</groupId><artifactId>pulsar-client</artifactId><version>{VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.slf4j</groupId><artifactId>slf4j-nop</artifactId><version>2.0.16</version>
    </dependency>
  </dependencies>
</project>
"""


def run(folder: Path) -> Tally:
    classes = _compiled(folder)
    tally = Tally()
    with (
        tempfile.TemporaryDirectory(dir=folder) as data,
        ServerProcess(Path(data) / "data", "--text", "off") as server,
    ):
        for check in CHECKS:
            command = [
                program("java"),
                *("-cp", f"{folder / 'jars'}/*:{classes}"),
                *("PulsarProgram", f"pulsar://{server.address('pulsar')}", check),
            ]
            try:
                call(command, folder)
            except RuntimeError as failure:
                tally.failed[check] = str(failure)
            else:
                tally.passed.append(check)
    return tally


def _compiled(folder: Path) -> Path:
    """The classes of the program, with the client's jars beside them."""
    pom, classes = folder / "pom.xml", folder / "classes"
    if not pom.exists() or pom.read_text() != _POM or not (folder / "jars").exists():
        maven = program("mvn")
        pom.write_text(_POM)
        call([maven, "-q", "dependency:copy-dependencies", f"-DoutputDirectory={folder / 'jars'}"], folder)
    source = Path(__file__).parent / "pulsar_java" / "PulsarProgram.java"
    call([program("javac"), "-cp", f"{folder / 'jars'}/*", "-d", classes, source], folder)
    return classes


SUITES = (Suite("pulsar-java", VERSION, run, {}),)
