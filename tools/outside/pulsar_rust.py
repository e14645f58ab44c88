"""The tests of the `pulsar` crate, Rust's client: the crate contains them.

They use fixed addresses: 6650, and 8080 for the admin API, both of localhost.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

from mainstem.testing.server import ServerProcess
from tools.outside.suite import Suite, Tally, call, of_cargo, program, python_with

VERSION = "6.9.1"
_MANIFEST = f"""[package]
name = "outside"
version = "0.1.0"
edition = "2021"

[lib]
path = "lib.rs"

[dependencies]
pulsar = "={VERSION}"
"""


def run(folder: Path) -> Tally:
    cargo = program("cargo")
    asking = folder / "asking"
    asking.mkdir(exist_ok=True)
    (asking / "Cargo.toml").write_text(_MANIFEST)
    (asking / "lib.rs").touch()
    environment = {"PROTOC": str(_protoc(folder))}
    call([cargo, "fetch", "--quiet"], asking)
    packages = json.loads(call([cargo, "metadata", "--quiet", "--format-version", "1"], asking))["packages"]
    fetched = next(Path(one["manifest_path"]).parent for one in packages if one["name"] == "pulsar")
    source = folder / "source"
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(fetched, source)
    (source / "rust-toolchain.toml").unlink(missing_ok=True)  # the machine's own compiler
    build: list[str | Path] = [cargo, "test", "--lib", "--target-dir", folder / "target"]
    call([*build, "--no-run"], source, environment=environment)
    address = ("--pulsar", "127.0.0.1:6650", "--pulsar-advertise", "127.0.0.1:6650")
    with (
        tempfile.TemporaryDirectory(dir=folder) as data,
        ServerProcess(
            Path(data) / "data", *address, "--http", "127.0.0.1:8080", "--text", "off", "--kafka", "off"
        ),
    ):
        output = call(
            [*build, "--no-fail-fast"],
            source,
            check=False,
            log=folder / "tests.log",
            environment=environment,
        )
    return of_cargo(output).check_ran(output)


def _protoc(folder: Path) -> Path:
    """The compiler of protobuf, which the crate is built with."""
    python = python_with(folder, "grpcio-tools")
    protoc = folder / "protoc"
    protoc.write_text(f'#!/bin/sh\nexec "{python}" -m grpc_tools.protoc "$@"\n')
    protoc.chmod(0o755)
    return protoc


SUITES = (Suite("pulsar-rust", VERSION, run, {}),)
