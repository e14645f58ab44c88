"""A real server process: ready, stopped, killed, restarted."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from mainstem.address import Address
from mainstem.config import OPTIONAL_DOORS
from mainstem.testing.server import ServerProcess
from tests.support.text import TextClient


@pytest.mark.usefixtures("cold_starts")
def test_it_says_where_it_listens_and_takes_the_file_away_at_the_end(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server:
        ports = json.loads(server.ports_file.read_text())
        assert {"text", "kafka"} <= set(ports)
        assert all(Address.parse(address).port for address in ports.values())
        assert server.events() == ["opening", "opened", *["listening"] * len(ports), "ready"]
        assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
        assert server.terminate() == 0
        assert not server.ports_file.exists()
        assert server.events()[-2:] == ["stopping", "closed"]
        assert server.stray_output == ""


@pytest.mark.usefixtures("cold_starts")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_everything_acknowledged_is_there_after_a_restart(tmp_path: Path, number: signal.Signals) -> None:
    with ServerProcess(tmp_path / "data") as server:
        with TextClient(server.address("text")) as client:
            assert client.ask("REGISTER t") == "OK"
            client.send(*(f"PUT t {index}" for index in range(500)))
            assert [client.receive() for _ in range(500)] == ["OK"] * 500
            assert [client.ask("GET t") for _ in range(3)] == ["OK 0", "OK 1", "OK 2"]
        server.signal(number)
        assert server.wait() == (-9 if number == signal.SIGKILL else 0)
    with ServerProcess(tmp_path / "data") as server, TextClient(server.address("text")) as client:
        client.send(*["GET t"] * 498)
        assert [client.receive() for _ in range(498)] == [
            *(f"OK {index}" for index in range(3, 500)),
            "EMPTY",
        ]
        assert client.ask("PUT t more") == "OK"
        assert client.ask("GET t") == "OK more"


def test_a_stop_while_clients_write_loses_no_answer_and_no_record(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server:
        with TextClient(server.address("text")) as client:
            client.ask("REGISTER t")
            acknowledged = 0
            client.send(*(f"PUT t {index}" for index in range(3000)))
            assert client.receive() == "OK"
            server.signal(signal.SIGTERM)
            acknowledged = 1
            while client.receive() == "OK":
                acknowledged += 1
        assert server.wait() == 0
    with ServerProcess(tmp_path / "data") as server, TextClient(server.address("text")) as client:
        client.send(*["GET t"] * (acknowledged + 1))
        answers = [client.receive() for _ in range(acknowledged + 1)]
        assert answers[:-1] == [f"OK {index}" for index in range(acknowledged)]


def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server, TextClient(server.address("text")) as client:
        client.ask("REGISTER t")
        # A client that never reads keeps the drain waiting.
        client.socket.settimeout(2)
        with contextlib.suppress(TimeoutError):
            while True:
                client.send(*["METRICS"] * 1000)
        server.signal(signal.SIGTERM)
        while "stopping" not in server.events():
            os.sched_yield()
        server.signal(signal.SIGTERM)
        assert server.wait() == 128 + signal.SIGTERM


def test_a_port_in_use_is_one_sentence_that_names_the_flag(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        outcome = _serve(tmp_path, "--text", address)
    assert outcome.returncode == 1
    errors = [line for line in outcome.stderr.splitlines() if not line.startswith("{")]
    assert errors == [
        f"error: the text door cannot listen on {address}: another process listens there; "
        "give another address with --text, or turn the door off with --text off"
    ]


def test_a_second_server_on_the_directory_is_told_who_has_it(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server:
        outcome = _serve(tmp_path, "--text", "127.0.0.1:0")
        assert outcome.returncode == 1
        assert f"error: data is in use by process {server.pid}: stop it" in outcome.stderr
        assert "Traceback" not in outcome.stderr
        assert server.terminate() == 0


def test_a_ports_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    outcome = _serve(tmp_path, "--text", "127.0.0.1:0", "--ports-file", "no/such/dir.json")
    assert outcome.returncode == 1
    assert "error: cannot write --ports-file no/such/dir.json" in outcome.stderr


def test_a_door_open_to_the_network_is_warned_about(tmp_path: Path) -> None:
    refused = _serve(tmp_path, "--text", "0.0.0.0:0")
    assert refused.returncode == 1
    assert "the text door does not listen on 0.0.0.0:0 without keys or users" in refused.stderr
    with ServerProcess(tmp_path / "data", "--text", "0.0.0.0:0", "--insecure") as server:
        warning = next(line for line in server.lines if line["level"] == "warning")
        assert warning["event"] == "no authentication"
        assert "text door" in str(warning["message"])
        assert server.terminate() == 0


def test_settings_come_from_the_environment(tmp_path: Path) -> None:
    env = {"MAINSTEM_TEXT_SEGMENT_ENTRIES": "2", "MAINSTEM_BROKER_ID": "12"}
    with ServerProcess(tmp_path / "data", env=env) as server, TextClient(server.address("text")) as client:
        client.send("REGISTER t", *["PUT t x"] * 3)
        assert [client.receive() for _ in range(4)] == ["OK"] * 4
        state = json.loads(client.ask("STATE t") or "")
        assert state["leader_node"] == 12
        assert state["sealed_segments"] == {"1": 2}


def test_log_lines_for_people_are_key_and_value(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        outcome = _serve(tmp_path, "--text", address, "--log-format", "text")
    assert "info    server: opening data_dir=data" in outcome.stderr.splitlines()[0]
    assert "info    server: opened data_dir=data seconds=" in outcome.stderr.splitlines()[1]


def test_a_server_may_have_no_door(tmp_path: Path) -> None:
    closed = [text for door in ("text", "http", "kafka", "s3", "pulsar") for text in (f"--{door}", "off")]
    with ServerProcess(tmp_path / "data", *closed) as server:
        assert json.loads(server.ports_file.read_text()) == {}
        assert server.terminate() == 0


def test_a_server_starts_without_s3_and_pulsar_if_their_default_ports_are_taken(tmp_path: Path) -> None:
    with ExitStack() as stack:
        for _door, address in OPTIONAL_DOORS:
            with suppress(OSError):  # taken already
                stack.enter_context(socket.create_server((address.host, address.port)))
        flags = [text for door, address in OPTIONAL_DOORS for text in (f"--{door}", str(address))]
        with ServerProcess(tmp_path / "data", *flags) as server:
            assert set(json.loads(server.ports_file.read_text())) == {"http", "text", "kafka"}
            warned = {line["door"] for line in server.lines if line["event"] == "door not opened"}
            assert warned == {"s3", "pulsar"}
            assert server.terminate() == 0


FREE_PORTS = ("--http", "127.0.0.1:0", "--kafka", "127.0.0.1:0", "--pulsar", "off", "--s3", "off")


def _serve(directory: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    """Run a server that is expected not to start."""
    return subprocess.run(
        [sys.executable, "-m", "mainstem", "serve", *FREE_PORTS, *flags],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
