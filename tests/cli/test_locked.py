"""Credentials from files, standard input and the environment, and doors that do not open by mistake."""

from __future__ import annotations

import json
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from mainstem.address import Address
from mainstem.broker.access.keys import parse_keys, settings_key
from mainstem.broker.access.options import AccessOptions
from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.doors.http.door import HttpDoor
from mainstem.doors.tls import tls_context
from mainstem.testing.server import ServerProcess
from tests.support.certificates import make_self_signed
from tests.support.text import TextClient

_OFF = ("--http", "off", "--text", "off", "--kafka", "off", "--pulsar", "off")


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
        _run("user", "delete", "ann", "-y", url=url)
        assert "ann" not in _run("user", "list", url=url)


def test_keys_come_from_standard_input(tmp_path: Path) -> None:
    assert "only one of --api-keys and --kafka-users" in _refused(
        tmp_path, "--api-keys", "-", "--kafka-users", "-"
    )
    assert "entry 1 of MAINSTEM_API_KEYS has a scope" in _refused(
        tmp_path, "--api-keys", "-", stdin="k:wrong\n"
    )


def test_a_certificate_identifies_an_http_client(tmp_path: Path) -> None:
    make_self_signed(tmp_path)
    cert, key = str(tmp_path / "cert.pem"), str(tmp_path / "key.pem")
    trust = ssl.create_default_context(cafile=cert)
    trust.load_cert_chain(cert, key)
    flags = ("--http", "127.0.0.1:0", "--tls-cert", cert, "--tls-key", key, "--tls-ca", cert)
    for more, status in ((), 200), (("--kafka-acl", "on"), 403):
        with ServerProcess(tmp_path / "data", *flags, *more) as server:
            url = f"https://{server.address('http')}/v0/topics"
            for http2 in (False, True):
                with httpx.Client(verify=trust, http2=http2, http1=not http2, timeout=60) as client:
                    assert client.get(url).status_code == status
            with TextClient(server.address("text")) as text:
                assert text.ask("METRICS") == "ERR authentication required"


async def test_the_lake_reaches_a_server_with_tls_and_keys(tmp_path: Path) -> None:
    """The driver's calls: its own port and its own key, which no setting lists."""
    make_self_signed(tmp_path)
    inside = settings_key("inside", name="lake")
    access = AccessOptions(keys=parse_keys("boss"), internal=(inside,))
    broker = await Broker.open(BrokerOptions(tmp_path / "data", access=access))
    door = HttpDoor(broker, tls=tls_context(tmp_path / "cert.pem", tmp_path / "key.pem", None))
    await door.start(Address("127.0.0.1", 0))
    address = await door.listen_inside()
    async with httpx.AsyncClient(base_url=f"http://{address}", timeout=60) as client:
        assert (await client.get("/v0/lake/tables")).status_code == 401
        headers = {"authorization": "Bearer inside"}
        assert (await client.get("/v0/lake/tables", headers=headers)).status_code == 200
    await door.stop(1)
    await broker.close()


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
