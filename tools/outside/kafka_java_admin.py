"""Each call of Java's Admin against Apache Kafka and Mainstem: each is a test, which fails if the answers differ."""

from __future__ import annotations

from pathlib import Path

from mainstem.testing.broker import throw_away_broker
from tools.outside.kafka_standalone import VERSION, KafkaStandalone
from tools.outside.suite import Suite, Tally, call, program

_FLAGS = ("--kafka-acl", "on", "--kafka-super-users", "ANONYMOUS")
_MAIN = "AdminCalls"


def run(folder: Path) -> Tally:
    jars = KafkaStandalone.jars(folder)
    classes = folder / "classes"
    classes.mkdir(exist_ok=True)
    source = Path(__file__).parent / "java" / f"{_MAIN}.java"
    call([program("javac"), "-nowarn", "-cp", f"{jars}/*", "-d", classes, source], folder)

    def answers(brokers: str) -> dict[str, str]:
        output = call([program("java"), "-cp", f"{jars}/*:{classes}", _MAIN, brokers], folder)
        return dict(line.split("\t", 1) for line in output.splitlines() if "\t" in line)

    with KafkaStandalone(folder) as standalone:
        wanted = answers(f"127.0.0.1:{standalone.port}")
    with throw_away_broker(*_FLAGS) as broker:
        found = answers(broker.bootstrap_servers)
    tally = Tally()
    for name in wanted.keys() | found.keys():
        kafka, mainstem = wanted.get(name, "no answer"), found.get(name, "no answer")
        if kafka == mainstem != "not called":
            tally.passed.append(name)
        else:
            tally.failed[name] = f"{kafka} ≠ {mainstem}"
    return tally


_TOKENS = "neither has delegation tokens here; Kafka refuses them without authentication, Mainstem always"
EXPECTED = {
    "describeFeatures": "features of the quorum of controllers are no features of Mainstem",
    "updateFeatures": "the levels of features cannot be changed",
    "unregisterBroker": "brokers leave by themselves",
    "*DelegationToken": _TOKENS,
    "deleteShareGroups": "a share group without members and offsets is gone already",
    "abortTransaction": "clients cannot write markers",
}
SUITES = (Suite("apache-kafka-admin", VERSION, run, EXPECTED),)
