"""A real server compared with its own description: every response is one that /openapi.json declares."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

_SEED = 20
_CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
)
# They respond for as long as the client stays, or not in HTTP: a tool that waits for the end sees no response.
_STREAMS = ("/v0/watch/{wid}", "/v0/topics/{topic}/work", "/v0/ws")
_BUDGET_S = 15
_PATIENCE_S = 200


def test_every_answer_is_as_described(serve: Callable[..., Any], chaos: bool, tmp_path: Path) -> None:
    with serve() as server:
        command = [
            str(Path(sys.executable).with_name("schemathesis")),
            "--config-file",
            str(_config(tmp_path)),
            "run",
            f"{server.url}/openapi.json",
            f"--checks={','.join(_CHECKS)}",
            "--phases=coverage,fuzzing",
            "--request-timeout=60",
            f"--seed={_SEED}",
            *(("--max-examples=200",) if chaos else ("--max-examples=5", f"--max-time={_BUDGET_S}")),
            "--generation-database=none",
            "--no-shrink",
            "--no-color",
            "--warnings=off",
            *[f"--exclude-path={path}" for path in _STREAMS],
        ]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=None if chaos else _PATIENCE_S, cwd=tmp_path
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "Coverage" in done.stdout
        assert server.ask("GET", "/v0/ready")[0] == 200
        assert not [line for line in server.process.lines if line["event"] == "request failed"]


def _config(directory: Path) -> Path:
    """An empty one, so that no file in a parent folder applies."""
    path = directory / "schemathesis.toml"
    path.write_text("")
    return path
