"""The tests of Python's Kafka clients. No distribution contains them: each needs a checkout of its project.

OUTSIDE_PYTEST='tests/test_admin.py -k topics' python -m tools.outside aiokafka     # these tests alone
"""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path

from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the client exports them without saying so
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)

from mainstem.testing.broker import throw_away_broker
from tools.outside.suite import Suite, Tally, call, checkout, of_junit, python_with

_KAFKA = "4.2.0"  # what the tests take the server for
_NO_CONTAINER = "it starts programs in the container of a Kafka broker"

# Replaces the fixtures of aiokafka that run Apache Kafka in Docker.
_FIXTURES = """

@pytest.fixture(scope="session")
def kafka_image():
    return "mainstem:2.13_4.0.0"


@pytest.fixture(scope="session")
def docker():
    return None


@pytest.fixture(scope="session")
def ssl_folder():
    return pathlib.Path("tests/ssl_cert")


@pytest.fixture(scope="session")
def kafka_server():
    host, port = os.environ["MAINSTEM_KAFKA"].split(":")
    yield KafkaServer(host, int(port), 1, 1, 1, None)


@pytest.fixture(scope="class")
def acl_manager():
    return None


@pytest.fixture(scope="class")
def kafka_config():
    return None


@pytest.fixture(scope="class")
def kerberos_utils():
    return None
"""


# confluent-kafka-python's fixture of an existing cluster lacks what its asynchronous tests ask for.
_ASYNC_REGISTRY = """

ByoFixture.async_schema_registry = lambda self, conf=None: AsyncSchemaRegistryClient({"url": self._sr_url})
"""


def run_kafka_python(folder: Path) -> Tally:
    source = _copy(checkout("kafka-python", "OUTSIDE_KAFKA_PYTHON"), folder)
    python = python_with(
        folder,
        "pytest",
        "pytest-timeout",
        "pytest-mock",
        "crc32c",
        "lz4",
        "python-snappy",
        "zstandard",
        "xxhash",
    )
    return _pytest(
        python,
        source,
        "test/integration",
        flags=("--kafka-num-partitions", "4"),
        KAFKA_VERSION=_KAFKA,
        KAFKA_URI="kafka://{kafka}",
        KAFKA_ROOT=str(source),  # it must exist
    )


def run_confluent(folder: Path) -> Tally:
    source = _copy(checkout("confluent-kafka-python", "OUTSIDE_CONFLUENT_KAFKA_PYTHON"), folder)
    version = next(
        line.split('"')[1]
        for line in (source / "pyproject.toml").read_text().splitlines()
        if line.startswith("version")
    )
    trivup = next((source / "tests" / "trivup").glob("trivup-*.tar.gz"))
    python = python_with(
        folder,
        f"confluent-kafka[avro,json,protobuf,rules,schemaregistry]=={version}",
        "pytest",
        "pytest-timeout",
        "pytest-asyncio",
        "requests-mock",
        "respx",
        str(trivup),
    )
    shutil.rmtree(source / "src")  # the installed one is tested
    with (source / "tests" / "integration" / "cluster_fixture.py").open("a") as fixtures:
        fixtures.write(_ASYNC_REGISTRY)
    # A broker of the suite's own would have this lock.
    return _pytest(python, source, "tests/integration", share_lock_ms=1000, BROKERS="{kafka}", SR_URL="{url}")


def run_aiokafka(folder: Path) -> Tally:
    source = _copy(checkout("aiokafka", "OUTSIDE_AIOKAFKA"), folder)
    version = (source / "aiokafka" / "__init__.py").read_text().split('"')[1]
    python = python_with(
        folder,
        f"aiokafka[lz4,snappy,zstd]=={version}",
        "pytest",
        "pytest-timeout",
        "pytest-asyncio",
        "pytest-mock",
        "docker",
    )
    shutil.rmtree(source / "aiokafka")
    with (source / "tests" / "conftest.py").open("a") as fixtures:
        fixtures.write(_FIXTURES)
    return _pytest(
        python,
        source,
        "tests",
        "--docker-image=mainstem:2.13_4.0.0",
        "--no-pull",
        "-Wdefault",
        flags=("--kafka-num-partitions", "2"),
        MAINSTEM_KAFKA="{kafka}",
    )


def _set_share_lock(kafka: str, ms: int) -> None:
    admin = AdminClient({"bootstrap.servers": kafka})
    setting = ConfigEntry(
        "group.share.record.lock.duration.ms", str(ms), incremental_operation=AlterConfigOpType.SET
    )
    [broker] = admin.list_topics(timeout=30).brokers
    resource = ConfigResource(ConfigResource.Type.BROKER, str(broker), incremental_configs=[setting])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result()


def _copy(checkout: Path, folder: Path) -> Path:
    source = folder / "source"
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(checkout, source, ignore=shutil.ignore_patterns(".git"))
    return source


def _pytest(
    python: Path,
    source: Path,
    tests: str,
    *arguments: str,
    flags: tuple[str, ...] = (),
    share_lock_ms: int | None = None,
    **environment: str,
) -> Tally:
    """Run pytest against a server. `{kafka}` and `{url}` in the environment stand for its addresses."""
    report = source.parent / "report.xml"
    report.unlink(missing_ok=True)
    chosen = shlex.split(os.environ.get("OUTSIDE_PYTEST", tests))
    with throw_away_broker(*flags) as broker:
        if share_lock_ms is not None:
            _set_share_lock(broker.bootstrap_servers, share_lock_ms)
        addresses = {"kafka": broker.bootstrap_servers, "url": broker.url}
        output = call(
            [python, "-m", "pytest", "-v", "--timeout", "180", f"--junitxml={report}", *arguments, *chosen],
            source,
            check=False,
            log=source.parent / "pytest.log",
            environment={"PYTHONPATH": str(source)}
            | {name: value.format(**addresses) for name, value in environment.items()},
        )
    if not report.exists():
        raise RuntimeError(output[-4000:])
    return of_junit(report).check_ran(output)


SUITES = (
    Suite(
        "kafka-python",
        "checkout",
        run_kafka_python,
        {
            "*test_create_describe_delete_acls": "the server has no authorizer, which the suite's own broker has",
            "*test_create_partitions": "it assigns partitions to broker 0, and the only broker is 1",
            "*test_ssl_integration*": "it starts an Apache Kafka broker of its own",
        },
    ),
    Suite(
        "confluent-kafka-python",
        "checkout",
        run_confluent,
        {
            "*test_basic_operations": "the server has no authorizer, which the suite's own broker has",
            "*sasl_cluster*": "it starts Apache Kafka brokers of its own",
            "*share_consumer_oauth*": "it starts Apache Kafka brokers of its own",
            "*test_incremental_alter_configs": "Kafka 4.2 shows min.insync.replicas as a topic's own setting",
            "*test_consume_error_store_offsets": "sessions may be as short as 100 ms, so there is no error to store",
            "*kafka_cluster_cp_7_0_1*": "it expects an error of Confluent's registry 7.0.1, which it starts itself",
        },
    ),
    Suite(
        "aiokafka",
        "checkout",
        run_aiokafka,
        {
            "*test_sasl*": _NO_CONTAINER,
            "*ssl*": "its certificates are made in the container of a Kafka broker",
            "*test_consumer_invalid_session_timeout": "sessions may be as short as 100 ms",
            "*test_exclude_internal_topics": "groups' offsets are state of the ledger: no topic shows them",
            "*test_sender__handler_base_do": "it asks broker 0, and the only broker is 1",
        },
    ),
)
