"""A Python serializer for Apicurio Registry, and Confluent's beside it, against the registry of a server."""

from __future__ import annotations

import os
from pathlib import Path

from mainstem.testing.broker import throw_away_broker
from tools.outside.suite import Suite, Tally, call, of_junit, python_with

VERSION = "0.5.0"
_PROGRAM = Path(__file__).with_name("apicurio_program.py")


def run(folder: Path) -> Tally:
    python = python_with(folder, f"apicurio-serdes=={VERSION}", "confluent-kafka[avro]==2.15.0", "pytest")
    report = folder / "report.xml"
    report.unlink(missing_ok=True)
    with throw_away_broker() as broker:
        output = call(
            [python, "-m", "pytest", "-c", os.devnull, "-v", f"--junitxml={report}", _PROGRAM],
            folder,
            check=False,
            log=folder / "tests.log",
            environment={"KAFKA": broker.bootstrap_servers, "REGISTRY": broker.url, "PYTHONPATH": ""},
        )
    if not report.exists():
        raise RuntimeError(output[-4000:])
    return of_junit(report).check_ran(output)


SUITES = (Suite("apicurio-serdes", VERSION, run, {}),)
