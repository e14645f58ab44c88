"""Credentials from files, standard input and the environment, and doors that do not open by mistake."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from mainstem.testing.server import ServerProcess

_OFF = ("--http", "off", "--text", "off", "--kafka", "off")


def _refused(folder: Path, *flags: str, stdin: str = "") -> str:
    outcome = subprocess.run(
        [sys.executable, "-m", "mainstem", "serve", *_OFF, *flags],
        cwd=folder,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert outcome.returncode == 1
    return outcome.stderr


@pytest.mark.parametrize("door", ["http", "kafka", "text"])
def test_no_door_opens_to_the_network_without_authentication(tmp_path: Path, door: str) -> None:
    assert f"the {door} door does not listen on 0.0.0.0:0 without keys" in _refused(
        tmp_path, f"--{door}", "0.0.0.0:0"
    )


def test_keys_come_from_a_file_and_close_every_door(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("# the owner\nboss\nreader:r\n")
    flags = ("--api-keys-file", str(tmp_path / "keys"), "--http", "127.0.0.1:0", "--kafka", "127.0.0.1:0")
    with ServerProcess(tmp_path / "data", *flags) as server:
        url = f"http://{server.address('http')}"

        def status(key: str, method: str = "GET") -> int:
            headers = {"authorization": f"Bearer {key}"} if key else {}
            return httpx.request(method, f"{url}/v0/topics/t", headers=headers).status_code

        assert (status(""), status("boss", "PUT"), status("reader")) == (401, 201, 200)
        access: dict[str, Any] = next(line for line in server.lines if line["event"] == "access")
        assert access["restricted"]
        assert {access[door] for door in ("http", "kafka", "text")} == {"authenticated"}
        created = _run("key", "create", "team", "--scopes", "rw", "--prefix", "a.", "--json", url=url)
        made = json.loads(created)
        assert status(made["secret"]) == 403
        assert made["secret"] not in _run("key", "list", url=url)
        _run("key", "revoke", made["id"], url=url)
        assert status(made["secret"]) == 401
        assert "password" in _run("user", "create", "ann", url=url)
        _run("acl", "add", "User:ann", "read", "topic", "t", url=url)
        assert "User:ann" in _run("acl", "list", url=url)
        _run("acl", "remove", "User:ann", "read", "topic", "t", url=url)
        assert "User:ann" not in _run("acl", "list", url=url)
        _run("user", "delete", "ann", url=url)
        assert "ann" not in _run("user", "list", url=url)


def test_keys_come_from_standard_input(tmp_path: Path) -> None:
    assert "only one of --api-keys and --kafka-users" in _refused(
        tmp_path, "--api-keys", "-", "--kafka-users", "-"
    )
    assert "entry 1 of MAINSTEM_API_KEYS has a scope" in _refused(
        tmp_path, "--api-keys", "-", stdin="k:wrong\n"
    )


def _run(*arguments: str, url: str) -> str:
    outcome = subprocess.run(
        [sys.executable, "-m", "mainstem", *arguments, "--url", url, "--api-key", "boss"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert outcome.returncode == 0, outcome.stderr
    return outcome.stdout
