"""Clients of Amazon S3 as people use them: the AWS CLI and s3fs, whose packages bring no tests of a server.

Each step is a command or a call as its documentation shows it, against a server that has keys. A test is one step.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

from mainstem.testing.server import ServerProcess
from tools.outside.s3_tests import credentials
from tools.outside.suite import Suite, Tally, call, python_with

AWS_CLI = "1.46.2"
S3FS = "2026.9.0"
_STEPS = Path(__file__).with_name("s3_clients_steps.py")


def _run(folder: Path) -> Tally:
    python = python_with(folder, f"awscli=={AWS_CLI}", f"s3fs=={S3FS}", "pandas", "pyarrow")
    tally = Tally()
    keys = {"MAINSTEM_API_KEYS": "key-0"}
    with tempfile.TemporaryDirectory(prefix="s3-clients-") as scratch:
        options = ("--text", "off", "--kafka", "off", "--pulsar", "off")
        with ServerProcess(Path(scratch) / "data", *options, env=keys) as server:
            id, secret = credentials(server, "key-0")
            environment = {
                "AWS_ENDPOINT_URL_S3": f"http://{server.address('s3')}",
                "AWS_ACCESS_KEY_ID": id,
                "AWS_SECRET_ACCESS_KEY": secret,
                "AWS_REGION": "us-east-1",
                "AWS_DEFAULT_REGION": "us-east-1",
                "AWS_CONFIG_FILE": "/dev/null",
                "AWS_EC2_METADATA_DISABLED": "true",
                "PATH": f"{python.parent}:{os.environ['PATH']}",
            }
            output = call(
                [python, _STEPS],
                Path(scratch),
                check=False,
                environment=environment,
                log=folder / "output.log",
            )
            server.terminate()
    for line in output.splitlines():
        if line.startswith("RESULT "):
            name, wrong = json.loads(line.removeprefix("RESULT "))
            if wrong:
                tally.failed[name] = wrong
            else:
                tally.passed.append(name)
    return tally.check_ran(output)


SUITES = (Suite("s3-clients", AWS_CLI, _run, {}),)
