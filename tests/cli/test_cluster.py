"""`mainstem cluster`: who is there, and what is wrong with them."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from mainstem.api.server import BrokerView, ClusterView
from mainstem.cli.cluster import cluster, judge
from mainstem.errors import MainstemError, Unreachable
from mainstem.testing.ports import consecutive_ports
from mainstem.testing.server import ServerProcess
from tests.support.certificates import make_self_signed


def view(broker: int = 1, **changes: object) -> ClusterView:
    brokers = [BrokerView(number, 1, f"n{number}", "", {"http": "h:1"}, 0.0) for number in (1, 2)]
    fields: dict[str, object] = {
        "cluster": "c",
        "shared": True,
        "broker": broker,
        "epoch": 1,
        "position": 100,
        "refusal": None,
        "upkeep": 1,
        "clock_off_ms": 0,
        "brokers": brokers,
    }
    return ClusterView(**{**fields, **changes})  # type: ignore[arg-type]


def levels(answers: Sequence[ClusterView | MainstemError]) -> list[str]:
    return [finding.level for finding in judge(view(), list(answers))]


def test_brokers_that_agree_are_sound() -> None:
    assert levels([view(1), view(2, position=99)]) == ["ok", "ok"]


@pytest.mark.parametrize(
    ("answer", "level", "said"),
    [
        (Unreachable("http://h:1", "refused"), "problem", "does not respond"),
        (view(2, cluster="other"), "problem", "another log"),
        (view(2, refusal="full"), "problem", "full"),
        (view(2, clock_off_ms=-900), "problem", "-900 ms"),
        (view(2, brokers=[]), "note", "different list of brokers"),
        (view(1, position=10_000), "ok", "10000"),
    ],
)
def test_what_is_wrong_with_a_broker_is_told(
    answer: ClusterView | MainstemError, level: str, said: str
) -> None:
    found = judge(view(), [view(1), answer])[-1]
    assert (found.level, found.about) == (level, "broker 2 (n2)")
    assert said in found.what


def test_a_broker_far_behind_is_noted() -> None:
    assert levels([view(1, position=10_000), view(2)]) == ["ok", "note"]


def test_a_server_alone_is_a_cluster_of_one(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server:
        url = f"http://{server.address('http')}"
        shown = CliRunner().invoke(cluster, ["status", "--url", url, "--json"])
        assert shown.exit_code == 0
        told = json.loads(shown.output)
        assert (told["broker"], told["shared"], len(told["brokers"])) == (1, False, 1)
        assert told["brokers"][0]["addresses"]["http"] == url.removeprefix("http://")
        table = CliRunner().invoke(cluster, ["status", "--url", url])
        assert table.exit_code == 0
        assert "local" in table.output
        checked = CliRunner().invoke(cluster, ["doctor", "--url", url])
        assert checked.exit_code == 0
        assert "ok" in checked.output


def test_brokers_with_tls_are_asked_over_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = make_self_signed(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(made / "cert.pem"))
    flags = ("--tls-cert", str(made / "cert.pem"), "--tls-key", str(made / "key.pem"))
    with ServerProcess(tmp_path / "data", *flags) as server:
        asked = CliRunner().invoke(cluster, ["doctor", "--url", f"https://{server.address('http')}"])
    assert asked.exit_code == 0, asked.output
    assert "at position" in asked.output


def test_a_local_cluster_starts_with_every_port_of_its_own(tmp_path: Path) -> None:
    """By default a broker's S3 door had the port of the next broker's HTTP door."""
    http, kafka, pulsar = consecutive_ports(2), consecutive_ports(2), consecutive_ports(2)
    ports = ("--http-port", str(http), "--kafka-port", str(kafka), "--pulsar-port", str(pulsar))
    command = (
        sys.executable,
        "-m",
        "mainstem",
        "cluster",
        "start",
        "2",
        "--dir",
        str(tmp_path / "c"),
        *ports,
    )
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as started:
        assert started.stdout is not None
        try:
            told = [started.stdout.readline() for _ in range(2)]
            assert told[:2] == [
                f"broker {number}: http://127.0.0.1:{http + number}  kafka 127.0.0.1:{kafka + number}\n"
                for number in range(2)
            ], told
            for number in range(2):
                doors = json.loads((tmp_path / "c" / f"broker-{number}.ports.json").read_text())
                assert {"s3", "text"}.isdisjoint(doors)
        finally:
            started.terminate()  # before the command says that it is ready: it must not leave a broker behind
            started.wait(60)
    for number in range(2):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", http + number), 1)
