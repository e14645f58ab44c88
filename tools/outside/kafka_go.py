"""Go's clients of Kafka: their modules contain their tests.

OUTSIDE_GO='TestConsumer|TestProducer' python -m tools.outside sarama     # these tests alone
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mainstem.testing.broker import ThrowAwayBroker, throw_away_broker
from mainstem.testing.ports import consecutive_ports
from tools.outside.kafka_java_kit import wait
from tools.outside.suite import Suite, Tally, call, of_go, program

FRANZ_GO = "v1.22.2"
KAFKA_GO = "v0.4.51"
SARAMA = "v1.61.1"
_TOXIPROXY = "v2.12.0"
RECORDS = 50_000  # of each of franz-go's large tests, which default to 500,000
_BROKERS = 5  # that sarama's tests expect
_KAFKA = "4.1.0"  # what the tests take the server for


def run_franz_go(folder: Path) -> Tally:
    source = _source(folder, "github.com/twmb/franz-go", FRANZ_GO)
    with throw_away_broker() as broker:
        return _tests(
            source / "pkg" / "kgo",
            folder,
            KGO_SEEDS=broker.bootstrap_servers,
            KGO_TEST_RF="1",
            KGO_TEST_RECORDS=str(RECORDS),
        )


def run_kafka_go(folder: Path) -> Tally:
    source = _source(folder, "github.com/segmentio/kafka-go", KAFKA_GO)
    call([program("go"), "mod", "tidy"], source)  # its go.sum lacks what today's Go needs
    with throw_away_broker() as broker:
        for tests in source.rglob("*_test.go"):
            found = tests.read_text()
            for place in ("localhost:9092", "127.0.0.1:9092"):
                found = found.replace(place, broker.bootstrap_servers)
            tests.write_text(found)
        return _tests(source, folder, KAFKA_VERSION=_KAFKA)


def run_sarama(folder: Path) -> Tally:
    source = _source(folder, "github.com/IBM/sarama", SARAMA)
    with _proxied_brokers(folder) as proxies:
        return _tests(
            source, folder, "-tags", "functional", "-p", "1", TOXIPROXY_ADDR=proxies, KAFKA_VERSION=_KAFKA
        )


def _source(folder: Path, module: str, version: str) -> Path:
    """A fresh copy of a module."""
    fetched = json.loads(call([program("go"), "mod", "download", "-json", f"{module}@{version}"], folder))
    source = folder / "source"
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(fetched["Dir"], source)
    call(["chmod", "-R", "u+w", source], folder)
    return source


def _tests(source: Path, folder: Path, *arguments: str, **environment: str) -> Tally:
    chosen = os.environ.get("OUTSIDE_GO")
    output = call(
        [
            *(program("go"), "test", "-json", "-timeout", "50m", *arguments),
            *(("-run", chosen) if chosen else ()),
            "./...",
        ],
        source,
        check=False,
        log=folder / "tests.log",
        environment=environment,
    )
    return of_go(output).check_ran(output)


@contextmanager
def _proxied_brokers(folder: Path) -> Iterator[str]:
    """Brokers behind the proxy that sarama's tests disturb them with. Yields the address of the proxy's API."""
    module = f"github.com/Shopify/toxiproxy/v2/cmd/server@{_TOXIPROXY}"
    call([program("go"), "install", module], folder, environment={"GOBIN": str(folder)})
    listens = 29091  # the tests expect these ports
    api = consecutive_ports(1)
    first = consecutive_ports(_BROKERS)
    with (
        tempfile.TemporaryDirectory(prefix="mainstem-") as directory,
        (folder / "proxy.log").open("wb") as log,
    ):
        proxy = subprocess.Popen([folder / "server", "-port", str(api)], stdout=log, stderr=log)
        url = f"http://127.0.0.1:{api}"
        try:
            wait(lambda: _asked(f"{url}/version", None), "the proxy starts")
            for number in range(_BROKERS):
                made = {
                    "name": f"kafka{number + 1}",
                    "listen": f"127.0.0.1:{listens + number}",
                    "upstream": f"127.0.0.1:{first + number}",
                }
                _asked(f"{url}/proxies", made)
            broker = ThrowAwayBroker(
                Path(directory),
                *("--workers", str(_BROKERS), "--kafka", f"127.0.0.1:{first}"),
                *("--kafka-advertise", f"127.0.0.1:{listens}", "--kafka-auto-create", "false"),
            )
            try:
                yield url
            finally:
                broker.close()
        finally:
            proxy.kill()
            proxy.wait()


def _asked(url: str, body: object) -> bool:
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data), timeout=30):
            return True
    except ConnectionError:
        return False
    except OSError:
        if body is not None:
            raise
        return False


_NO_OFFSETS_TOPIC = "offsets of groups are state of the ledger: there is no topic __consumer_offsets"
FRANZ_GO_EXPECTED = dict.fromkeys(
    ("TestConsumeRegex", "TestConsumeRegexShareSkipsInternal", "Test848RegexBrokerResolves"),
    _NO_OFFSETS_TOPIC,
)
_CONTAINERS = "it stops brokers, or reads their logs, with docker compose"
_BY_HAND = "it assigns partitions to brokers by hand, and the cluster assigns them"
SARAMA_EXPECTED = {
    "TestFuncAdminListConsumerGroupOffsets": _CONTAINERS,
    "TestFuncTxnProduceWithBrokerFailure": _CONTAINERS,
    "TestFuncIdempotentBufferedSequence": _CONTAINERS,
    "TestConsumerFetchFollowerFailover": "one replica is reported: the store replicates the data",
    "TestFuncAdminUpdateFeatures": "the levels of features cannot be changed",
    "TestFuncAdminIncrementalAlterConfigs": "it changes a setting that brokers of Mainstem do not have",
    "TestFuncAdminAlterPartitionReassignments": _BY_HAND,
    "TestFuncAdminDeleteRecords": _BY_HAND,
    "TestFuncAdminListOffsets": _BY_HAND,
}
SUITES = (
    Suite("franz-go", FRANZ_GO, run_franz_go, FRANZ_GO_EXPECTED),
    Suite("kafka-go", KAFKA_GO, run_kafka_go, {}),
    Suite("sarama", SARAMA, run_sarama, SARAMA_EXPECTED),
)
