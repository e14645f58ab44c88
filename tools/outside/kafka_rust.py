"""rskafka's tests: its crate contains them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from mainstem.testing.broker import throw_away_broker
from tools.outside.suite import Suite, Tally, call, of_cargo, program

VERSION = "0.6.0"
_RSASL = "2.3.1"  # the version in its lock file does not compile any more
_MANIFEST = f"""[package]
name = "outside"
version = "0.1.0"
edition = "2021"

[lib]
path = "lib.rs"

[dependencies]
rskafka = "={VERSION}"
"""


def run(folder: Path) -> Tally:
    cargo = program("cargo")
    asking = folder / "asking"
    asking.mkdir(exist_ok=True)
    (asking / "Cargo.toml").write_text(_MANIFEST)
    (asking / "lib.rs").touch()
    call([cargo, "fetch", "--quiet"], asking)
    packages = json.loads(call([cargo, "metadata", "--quiet", "--format-version", "1"], asking))["packages"]
    fetched = next(Path(one["manifest_path"]).parent for one in packages if one["name"] == "rskafka")
    source = folder / "source"
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(fetched, source)
    (source / "rust-toolchain.toml").unlink(missing_ok=True)  # the machine's own compiler
    call([cargo, "update", "--quiet", "--package", "rsasl", "--precise", _RSASL], source)
    with throw_away_broker("--kafka-auto-create", "false") as broker:
        output = call(
            [cargo, "test", "--no-fail-fast", "--features", "full", "--target-dir", folder / "target"],
            source,
            check=False,
            log=folder / "tests.log",
            environment={
                "TEST_INTEGRATION": "1",
                "TEST_BROKER_IMPL": "kafka",
                "KAFKA_CONNECT": broker.bootstrap_servers,
            },
        )
    return of_cargo(output).check_ran(output)


SUITES = (Suite("rskafka", VERSION, run, {}),)
