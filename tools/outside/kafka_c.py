"""librdkafka's tests that need a broker. No package contains them: they need a checkout.

TESTS=0115,0119 python -m tools.outside librdkafka     # these tests alone
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from mainstem.testing.broker import throw_away_broker
from tools.outside.kafka_java_kit import fetch
from tools.outside.suite import Suite, Tally, call, checkout, program

_KAFKA = "4.2.0"  # what the tests take the server for
_AT_ONCE = 4
_PER_PROCESS = 30  # a test that ends its process ends those beside it
_SCENARIOS = {"default": "true", "noautocreate": "false"}  # → auto.create.topics.enable
_FLAGS = (
    *("--kafka-num-partitions", "4"),
    *("--kafka-acl", "on", "--kafka-allow-everyone-if-no-acl", "true", "--kafka-super-users", "admin"),
)
_SCRIPTS = {"kafka-topics.sh": "TopicCommand", "kafka-acls.sh": "AclCommand"}
# The first failure ends a test. These are run again in parts, so that the other parts are tested as well.
_PARTS = {
    "0081_admin": ("Create", "Delete", "Describe", "List", "Incremental", "AlterConsumer", "UserScram"),
}
_COLOURS = re.compile(r"\x1b\[\d*m")
_RESULT = re.compile(r"\| *(\w+) +\| +(PASSED|FAILED|SKIPPED|RUNNING) \| +[\d.]+s +\|(.*)")


def run(folder: Path) -> Tally:
    source = checkout("librdkafka", "OUTSIDE_LIBRDKAFKA")
    runner = _build(source, folder)
    scripts = _scripts(folder)
    chosen = os.environ.get("TESTS")
    numbers = chosen.split(",") if chosen else sorted({one.name[:4] for one in source.glob("tests/0*.c*")})

    def ran(tests: Sequence[str], scenario: str, part: str = "") -> Tally:
        with throw_away_broker(*_FLAGS, "--kafka-auto-create", _SCENARIOS[scenario]) as broker:
            settings = folder / "test.conf"
            settings.write_text(f"bootstrap.servers={broker.bootstrap_servers}\ntest.topic.random=true\n")
            output = call(
                [runner, "-L", "-Q", f"-p{_AT_ONCE}", "-s", scenario],
                source / "tests",
                check=False,
                log=folder / f"{scenario}-{tests[0]}{part}.log",
                environment={
                    "TESTS": ",".join(tests),
                    "RDKAFKA_TEST_CONF": str(settings),
                    "TEST_KAFKA_VERSION": _KAFKA,
                    "KAFKA_PATH": str(scripts),
                    "BROKERS": broker.bootstrap_servers,
                    **({"SUBTESTS": part} if part else {}),
                },
            )
        return _results(output, f"[{part}]" if part else "")

    tally = Tally()
    for scenario in _SCENARIOS:
        for first in range(0, len(numbers), _PER_PROCESS):
            _add(tally, ran(numbers[first : first + _PER_PROCESS], scenario))
    for test in [test for test in tally.failed if test in _PARTS]:
        for part in _PARTS[test]:
            _add(tally, ran([test[:4]], "default", part))
    return tally.check_ran("")


def _build(source: Path, folder: Path) -> Path:
    program("gcc")
    made, relative = (
        folder / "made",
        f"-ffile-prefix-map={source}/tests/=",
    )  # tests name topics after their file
    configure = ("-DCMAKE_BUILD_TYPE=Release", "-DRDKAFKA_BUILD_EXAMPLES=OFF", f"-DCMAKE_C_FLAGS={relative}")
    call([program("cmake"), "-S", source, "-B", made, *configure], folder)
    call([program("make"), "-C", made, "-j2", "test-runner"], folder)
    return made / "tests" / "test-runner"


def _scripts(folder: Path) -> Path:
    """A folder with the scripts of Apache Kafka that the tests call."""
    java = folder.parent / "apache-kafka"
    java.mkdir(exist_ok=True)
    fetch(java)
    scripts = folder / "kafka" / "bin"
    shutil.rmtree(scripts, ignore_errors=True)
    scripts.mkdir(parents=True)
    for name, tool in _SCRIPTS.items():
        script = scripts / name
        jars = java / "jars"
        script.write_text(
            f'#!/bin/sh\nexec {program("java")} -cp "{jars}/*" org.apache.kafka.tools.{tool} "$@"\n'
        )
        script.chmod(0o755)
    return scripts.parent


def _results(output: str, part: str) -> Tally:
    """Raises RuntimeError if the process ended before its summary."""
    lines = _COLOURS.sub("", output).splitlines()
    if not any("SUMMARY" in line for line in lines):
        raise RuntimeError(output[-4000:])
    tally = Tally()
    for match in filter(None, map(_RESULT.match, lines)):
        name, state, said = match.groups()
        if name == "MAIN":
            continue
        if state == "PASSED":
            tally.passed.append(name + part)
        elif state == "SKIPPED":
            tally.skipped.append(name + part)
        else:
            tally.failed[name + part] = f"{said.strip()}\n{_trail(lines, name)}"
    return tally


def _add(tally: Tally, more: Tally) -> None:
    tally.passed += more.passed
    tally.failed |= more.failed
    tally.skipped += more.skipped


def _trail(lines: Iterable[str], name: str) -> str:
    return "\n".join(line for line in lines if line.startswith(f"[{name} "))[-1500:]


EXPECTED = {
    "0081_admin": "it sets sasl.kerberos.min.time.before.relogin of a broker, and the server has no Kerberos",
}
SUITES = (Suite("librdkafka", "checkout", run, EXPECTED),)
