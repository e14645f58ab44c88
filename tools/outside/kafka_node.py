"""JavaScript clients of Kafka from npm: each check of a program in `node/` is a test."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path

from mainstem.testing.broker import throw_away_broker
from tools.outside.suite import Suite, Tally, call, of_lines, program

_PROGRAMS = Path(__file__).parent / "node"


def run(name: str, package: str, version: str, folder: Path) -> Tally:
    node, npm = program("node"), program("npm")
    manifest = json.dumps({"private": True, "dependencies": {package: version}})
    if not (folder / "package.json").exists() or (folder / "package.json").read_text() != manifest:
        (folder / "package.json").write_text(manifest)
        call([npm, "install", "--no-audit", "--no-fund", "--silent"], folder)
    for source in _PROGRAMS.glob("*.mjs"):
        shutil.copy(source, folder)
    with throw_away_broker(
        "--kafka-acl", "on", "--kafka-allow-everyone-if-no-acl", "true", "--kafka-super-users", "ANONYMOUS"
    ) as broker:
        output = call([node, f"{name}.mjs", broker.bootstrap_servers], folder, log=folder / "tests.log")
    return of_lines(output).check_ran(output)


_CLIENTS = (("kafkajs", "kafkajs", "2.2.4"), ("platformatic", "@platformatic/kafka", "1.35.0"))
SUITES = tuple(
    Suite(f"node-{name}", version, partial(run, name, package, version), {})
    for name, package, version in _CLIENTS
)
