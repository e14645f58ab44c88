"""The tests of Apache Pulsar's Python client. No distribution contains them: they need a checkout of the project.

The tests use fixed addresses: 6650, 6651 with TLS, and 8080 for the admin API, all of localhost.

    OUTSIDE_PULSAR_PYTHON_FILES=reader_test,schema_test python -m tools.outside pulsar-client-python   # only these
    OUTSIDE_PULSAR_PYTHON_NAMES='seek or nack' python -m tools.outside pulsar-client-python             # pytest's -k
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import urllib.request
from pathlib import Path

from mainstem.testing.server import ServerProcess
from tools.outside.suite import Suite, Tally, call, checkout, of_junit, python_with

CLIENT = "3.13.0"  # the wheel that the checkout's tests are for
TESTS = (
    "asyncio_test",
    "auto_cluster_failover_test",  # skipped: it runs Apache Pulsar in containers
    "custom_logger_test",
    "debug_logger_test",
    "interrupted_test",
    "oauth2_test",
    "pulsar_test",
    "reader_test",
    "schema_test",
    "table_view_test",
)
_TOKEN = "a-token-of-the-tests"


def run(folder: Path) -> Tally:
    source = folder / "source"
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(
        checkout("apache/pulsar-client-python", "OUTSIDE_PULSAR_PYTHON"),
        source,
        ignore=shutil.ignore_patterns(".git"),
    )
    python = python_with(
        folder, f"pulsar-client[avro]=={CLIENT}", "pytest", "pytest-timeout", "protobuf", "requests"
    )
    tests, report = source / "tests", folder / "report.xml"
    chosen, names = (
        os.environ.get("OUTSIDE_PULSAR_PYTHON_FILES"),
        os.environ.get("OUTSIDE_PULSAR_PYTHON_NAMES"),
    )
    files = chosen.split(",") if chosen else TESTS
    report.unlink(missing_ok=True)
    (tests / ".test-token.txt").write_text(_TOKEN)
    certificates = tests / "test-conf"
    access = (
        *("--api-keys", _TOKEN, "--kafka-sasl", "plain", "--kafka-users", "admin:123456"),
        *("--kafka-super-users", "admin", "--text", "off"),
    )
    tls = (
        *("--pulsar-tls-cert", str(certificates / "broker-cert.pem")),
        *("--pulsar-tls-key", str(certificates / "broker-key.pem")),
        *("--pulsar-tls-ca", str(certificates / "cacert.pem")),
        *("--kafka-acl", "off"),
    )
    open_to_all = ("--http", "127.0.0.1:8080", "--insecure-http", "--insecure-pulsar")
    with (
        tempfile.TemporaryDirectory(dir=folder) as data,
        ServerProcess(Path(data) / "plain", *_at("6650"), *access, *open_to_all) as plain,
        ServerProcess(Path(data) / "tls", *_at("6651"), *access, *tls) as encrypted,
    ):
        _create_namespace(plain, "public/default-2")
        for server in (plain, encrypted):
            _create_namespace(server, "private/auth")
        output = call(
            [
                *(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout", "120"),
                *("-c", os.devnull, "--rootdir", tests),  # not with the settings of this project
                f"--junitxml={report}",
                *(("-k", names) if names else ()),
                *(f"{name}.py" for name in files),
            ],
            tests,
            check=False,
        )
    return of_junit(report).check_ran(output)


def _at(port: str) -> tuple[str, ...]:
    return ("--pulsar", f"127.0.0.1:{port}", "--pulsar-advertise", f"localhost:{port}")


def _create_namespace(server: ServerProcess, name: str) -> None:
    request = urllib.request.Request(
        f"http://{server.address('http')}/admin/v2/namespaces/{name}",
        json.dumps({}).encode(),
        {"Content-Type": "application/json", "Authorization": f"Bearer {_TOKEN}"},
        method="PUT",
    )
    urllib.request.urlopen(request).close()


SUITES = (
    Suite(
        "pulsar-client-python",
        f"checkout, {CLIENT}",
        run,
        {
            "*::test_connect_timeout": "it expects that an address of another network never answers",
            "*::test_basic_auth_method": "an unknown method is an anonymous client, which may do everything here",
            "*::test_invalid_basic_auth": "the lookup over HTTP is open to everybody here, so the client retries",
        },
    ),
)
