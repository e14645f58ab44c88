"""The container image: deploy/Dockerfile built by Buildah without a registry, and a server run from it.

Debian's Python takes the place of the base image of the Dockerfile, under its name. Needs root, buildah and
mmdebstrap."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any

from tools.outside.suite import Suite, Tally, program

_ROOT = Path(__file__).parents[2]
_RELEASE = "trixie"  # whose Python is the base image's
_IMAGE = "localhost/mainstem"
_READY_S = 60.0
_CERTIFICATES = "/etc/ssl/certs:/etc/ssl/certs:ro"
_ENVIRONMENT = {"STORAGE_DRIVER": "vfs", "BUILDAH_ISOLATION": "chroot"}


def _run(*command: str, timeout: float = 1_200) -> str:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        env={**os.environ, **_ENVIRONMENT},
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[:3])}: {(done.stdout + done.stderr)[-2000:]}")
    return done.stdout.strip()


def _base(folder: Path, name: str) -> None:
    archive = folder / "base.tar"
    if not archive.exists():
        packages = "--include=python3,python3-venv,ca-certificates"
        _run(program("mmdebstrap"), "--variant=minbase", packages, _RELEASE, str(archive))
    container = _run("buildah", "from", "scratch")
    root = _run("buildah", "mount", container)
    _run("tar", "-C", root, "-xf", str(archive), "--exclude=./dev/*")
    (Path(root) / "usr/bin/python").symlink_to("python3")
    _run("buildah", "umount", container)
    _run("buildah", "commit", "--rm", container, f"docker.io/library/{name}")


def run(folder: Path) -> Tally:
    program("buildah")
    text = (_ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8")
    [name] = set(re.findall(r"^FROM (\S+)", text, re.M))
    _base(folder, name)
    options = ("--pull-never", "--network", "host", "--volume", _CERTIFICATES)
    files = ("-f", "deploy/Dockerfile", "--ignorefile", "deploy/Dockerfile.dockerignore")
    _run(
        "buildah",
        "bud",
        *options,
        *(str(_ROOT / one) if "/" in one else one for one in files),
        "-t",
        _IMAGE,
        str(_ROOT),
    )
    tally = Tally(passed=["the image is built"])
    container = _run("buildah", "from", "--pull-never", _IMAGE)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    data = folder / "data"
    data.mkdir(exist_ok=True)
    os.chown(data, 10001, 10001)
    server = subprocess.Popen(
        (
            *("buildah", "run", "--network", "host", "--user", "10001:10001", "-v", f"{data}:/data"),
            *(
                "--env",
                f"MAINSTEM_HTTP=127.0.0.1:{port}",
                "--env",
                "MAINSTEM_S3=off",
                "--env",
                "MAINSTEM_PULSAR=off",
            ),
            *(container, "--", "mainstem", "serve"),
        ),
        env={**os.environ, **_ENVIRONMENT},
    )
    try:
        _ask(port, "/v0/ready")
        tally.passed.append("its server is ready")
        written = _ask(port, "/v0/topics/t", {"records": [{"data": 1}]})
        read = _ask(port, "/v0/sql", {"query": "select count(*) from t"})
        if written["last_seq"] >= 1 and read["rows"][0][0] >= 1:
            tally.passed.append("it writes, and answers SQL")
        else:
            tally.failed["it writes, and answers SQL"] = f"{written} {read}"
    finally:
        server.terminate()
        server.wait(_READY_S)
        _run("buildah", "rm", container)
    return tally


def _ask(port: int, path: str, body: object = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}", data, {"content-type": "application/json"}
    )
    until = time.monotonic() + _READY_S
    while True:
        try:
            with urllib.request.urlopen(asked, timeout=30) as answer:
                return json.load(answer)
        except OSError:
            if time.monotonic() > until or path != "/v0/ready":
                raise
            time.sleep(0.2)


SUITES = (Suite("image", "of this checkout", run, {}),)
