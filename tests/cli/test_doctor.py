"""`mainstem doctor`, completion scripts, and commands that find no server."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from mainstem.api.security import KeyDescription
from mainstem.cli import doctor_access_checks, doctor_store_checks
from mainstem.cli.main import COMMANDS
from mainstem.testing.broker import ThrowAwayBroker

from .conftest import Outcome, Shell

_CLOSED = "127.0.0.1:9"  # nobody listens there
_FREE = ["--http", "127.0.0.1:0", "--text", "off", "--kafka", "off", "--pulsar", "off"]


def _about(outcome: Outcome, about: str) -> list[tuple[str, str]]:
    found: list[dict[str, Any]] = outcome.json["findings"]
    return [(row["level"], f"{row['what']}: {row['advice']}") for row in found if row["about"] == about]


def test_all_is_well_beside_a_running_server(online: Shell, broker: ThrowAwayBroker) -> None:
    outcome = online("doctor", *_FREE, "--json")
    assert outcome.json["sound"], outcome.text
    assert outcome.code == 0
    assert _about(outcome, "server")[0][1].startswith(f"{broker.url} runs version")
    assert _about(outcome, "clock") == [("ok", "this clock matches the server's: ")]
    lines = online("doctor", *_FREE).text.splitlines()
    assert any(line.startswith("  ok       disk: ") for line in lines)


def test_no_server_is_a_problem_only_if_one_was_named(plain: Shell) -> None:
    outcome = plain("doctor", *_FREE, "--url", f"http://{_CLOSED}", "--json")
    [(level, text)] = _about(outcome, "server")
    assert (outcome.code, level) == (1, "problem")
    assert "start it with `mainstem serve`" in text
    [(level, text)] = _about(plain("doctor", *_FREE, "--url", "nonsense", "--json"), "server")
    assert (level, "correct --url" in text) == ("problem", True)


def test_a_port_that_is_taken_names_who_has_it(plain: Shell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        outcome = plain(
            "doctor",
            "--http",
            "127.0.0.1:0",
            "--text",
            address,
            "--kafka",
            "off",
            "--pulsar",
            "off",
            "--json",
        )
    [(level, text)] = _about(outcome, "text door")
    assert level == "problem"
    assert f"{address} is in use by process {os.getpid()} (" in text
    assert "set another address with --text HOST:PORT" in text
    assert outcome.code == 1
    assert _about(outcome, "kafka door") == [("note", "disabled: ")]


def test_an_advertised_address_nobody_can_use(plain: Shell, broker: ThrowAwayBroker) -> None:
    served = ["--http", "off", "--text", "off", "--pulsar", "off", "--kafka", broker.bootstrap_servers]
    for wrong, said in (
        ("no-such-host.invalid:1", "cannot be resolved"),
        (_CLOSED, f"{_CLOSED} does not respond"),
    ):
        [(level, text)] = _about(
            plain("doctor", *served, "--kafka-advertise", wrong, "--json"), "advertised address"
        )
        assert (level, said in text, "--kafka-advertise" in text) == ("problem", True, True)
    right = plain("doctor", *served, "--kafka-advertise", broker.bootstrap_servers, "--json")
    assert _about(right, "advertised address")[0][0] == "ok"


def test_a_door_that_listens_everywhere_sends_clients_to_this_machines_name(
    plain: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    everywhere = ["--http", "off", "--text", "off", "--pulsar", "off", "--kafka", "0.0.0.0:9"]
    monkeypatch.setattr(socket, "gethostname", lambda: "no-such-host.invalid")
    [(level, text)] = _about(plain("doctor", *everywhere, "--json"), "advertised address")
    assert (level, "no-such-host.invalid cannot be resolved" in text) == ("problem", True)
    assert "--kafka-advertise" in text
    monkeypatch.setattr(socket, "gethostname", lambda: "localhost")
    [(level, text)] = _about(plain("doctor", *everywhere, "--json"), "advertised address")
    assert (level, "localhost:9 does not respond" in text) == ("note", True)


def test_directories_that_cannot_be_used(plain: Shell, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    outcome = plain("doctor", *_FREE, "--data-dir", "file", "--json")
    assert _about(outcome, "data directory") == [
        ("problem", "file is not a directory: set another --data-dir")
    ]
    missing = plain("doctor", *_FREE, "--data-dir", "missing", "--json")
    assert _about(missing, "data directory")[0][0] == "note"


def test_a_directory_in_use_names_its_owner(plain: Shell, tmp_path: Path) -> None:
    import mainstem

    with mainstem.open(tmp_path / "data"):
        outcome = plain("doctor", *_FREE, "--json")
    assert _about(outcome, "data directory") == [("ok", f"data is in use by process {os.getpid()}: ")]
    outcome = plain("doctor", *_FREE, "--json")
    assert _about(outcome, "data directory") == [("ok", "data is usable, and no process has it open: ")]


def test_a_disk_that_is_nearly_full(plain: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(".")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(total=1 << 40, free=1 << 30))
    outcome = plain("doctor", *_FREE, "--json")
    [(level, text)] = _about(outcome, "disk")
    assert (outcome.code, level, "free some space" in text) == (1, "problem", True)


def test_a_clock_that_is_off_and_another_version(
    online: Shell, broker: ThrowAwayBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time
    monkeypatch.setattr("mainstem.cli.doctor.time.time", lambda: now() + 3600)
    monkeypatch.setattr("mainstem.cli.doctor.VERSION", "99.0")
    outcome = online("doctor", *_FREE, "--json")
    [(level, text)] = _about(outcome, "clock")
    assert level == "problem"
    told = re.match(r"this clock is (\d+) s ahead of", text)
    assert told is not None
    assert int(told[1]) == pytest.approx(3600, abs=60)  # as long as the answer may take
    [(level, text)] = _about(outcome, "server")
    assert (level, "this command is version 99.0" in text) == ("problem", True)


def test_java_is_only_a_note(plain: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_392\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr("mainstem.cli.doctor_checks.find_spec", lambda name: None)
    outcome = plain("doctor", *_FREE, "--json")
    [(level, text)] = _about(outcome, "java")
    assert (level, text.startswith(f"Java 8 at {java} is too old: only the lake needs it")) == ("note", True)
    java.unlink()
    assert _about(plain("doctor", *_FREE, "--json"), "java")[0][0] == "note"


@pytest.mark.parametrize(
    "arguments",
    [
        ["topic", "list"],
        ["topic", "create", "t"],
        ["produce", "t", "x"],
        ["consume", "t"],
        ["tail", "t"],
        ["group", "list"],
        ["queue", "list"],
        ["router", "list"],
        ["table", "show", "t"],
    ],
)
def test_no_server_is_one_clear_sentence_at_once(plain: Shell, arguments: list[str]) -> None:
    began = time.monotonic()
    outcome = plain(*arguments, "--url", f"http://{_CLOSED}")
    assert time.monotonic() - began < 20  # not as long as it would wait for one that comes back
    assert outcome.code == 1
    assert outcome.out == b""
    assert outcome.err.startswith(
        f"error: no server at http://{_CLOSED}: start one with `mainstem serve`, or "
    )
    offline = arguments[0] in ("topic", "produce", "consume")
    assert ("use --data-dir to open a directory that no server has open" in outcome.err) == offline
    assert outcome.err.count("\n") == 1


def test_the_flag_wins_over_the_variable(online: Shell, broker: ThrowAwayBroker) -> None:
    online("topic", "create", "t")
    assert online("topic", "list", "--json", "--url", broker.url + "/").json[0]["name"] == "t"
    both = online("topic", "list", "--url", broker.url, "--data-dir", "data")
    assert (both.code, "mutually exclusive" in both.err) == (2, True)


def test_a_key_the_server_does_not_know(plain: Shell) -> None:
    from mainstem.testing.broker import throw_away_broker

    with throw_away_broker("--api-keys", "right,reader:r") as broker:
        url = ["--url", broker.url]
        assert plain("topic", "list", *url).err.startswith("error: this server needs a key")
        wrong = plain("topic", "list", *url, "--api-key", "wrong").err
        assert wrong.startswith("error: the server does not accept this key")
        assert plain("topic", "create", "t", *url, "--api-key", "right").code == 0
        refused = plain("topic", "create", "u", *url, "--api-key", "reader")
        assert (refused.code, "lacks the scope admin" in refused.err) == (1, True)


@pytest.mark.parametrize("shell_name", ["bash", "zsh", "fish"])
def test_completion_scripts(plain: Shell, shell_name: str) -> None:
    outcome = plain("completion", shell_name)
    assert outcome.code == 0
    assert "_MAINSTEM_COMPLETE" in outcome.text
    if shutil.which(shell_name):
        subprocess.run([shell_name, "-n"], input=outcome.out, check=True, timeout=30)


def test_the_completion_knows_the_commands(plain: Shell) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from mainstem.cli.main import main; main()"],
        env={
            **os.environ,
            "_MAINSTEM_COMPLETE": "bash_complete",
            "COMP_WORDS": "mainstem ",
            "COMP_CWORD": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert {line.partition(",")[2] for line in done.stdout.splitlines()} == set(COMMANDS)


def test_help_comes_at_once() -> None:
    """Counted in time of the processor, of which others take none away."""
    took = []
    for _ in range(3):
        command = [sys.executable, "-m", "mainstem", "--help"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        took.append(used.ru_utime + used.ru_stime)
    assert min(took) < 0.3


def test_the_store_of_brokers_is_tried_before_they_start(
    plain: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_store_checks, "_ANSWER_S", 0.5)
    folder = tmp_path / "bucket"
    sound = plain("doctor", *_FREE, "--store", folder.as_uri(), "--json")
    assert [level for level, _ in _about(sound, "store")] == ["ok"]
    assert [level for level, _ in _about(sound, "store's clock")] == ["ok"]
    assert [path for path in folder.rglob("*") if path.is_file()] == []  # nothing is left of it
    nobody = f"s3://bucket/x?endpoint=http://{_CLOSED}&region=r&access_key_id=a&secret_access_key=HIDDEN"
    wrong = plain("doctor", *_FREE, "--store", nobody, "--etcd", _CLOSED, "--json")
    [(level, text)] = _about(wrong, "store")
    assert (wrong.code, level, "check the endpoint" in text) == (1, "problem", True)
    assert "HIDDEN" not in wrong.text
    assert [level for level, _ in _about(wrong, "etcd")] == ["problem"]


# Access


def _access(outcome: Outcome) -> list[tuple[str, str]]:
    return _about(outcome, "access")


def test_a_server_on_loopback_is_fine_without_credentials(plain: Shell) -> None:
    assert _access(plain("doctor", *_FREE, "--json")) == [("ok", "other machines cannot reach any door: ")]


@pytest.mark.parametrize("door", ["http", "text", "kafka"])
def test_a_door_that_other_machines_reach(plain: Shell, tmp_path: Path, door: str) -> None:
    doors = [*_FREE, "--insecure"]
    doors += [f"--{door}", "0.0.0.0:0"]
    (level, text), (tls, clear) = _access(plain("doctor", *doors, "--json"))
    assert (level, tls) == ("problem", "note")
    assert f"everyone who reaches the {door} door at 0.0.0.0:0 may do everything" in text
    assert "mainstem key create" in text
    assert "without encryption" in clear
    (tmp_path / "keys").write_text("k")
    locked = [*doors, "--api-keys-file", "keys"]
    assert _access(plain("doctor", *locked, "--json")) == [(tls, clear)]
    found = _access(plain("doctor", *locked, f"--insecure-{door}", "--json"))
    assert (
        "problem",
        f"--insecure-{door} lets anonymous clients do everything at 0.0.0.0:0: start the server "
        f"without --insecure-{door}",
    ) in found


def test_secrets_on_a_command_line(plain: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    [(level, text)] = _access(plain("doctor", *_FREE, "--api-keys", "secret-key", "--json"))
    assert level == "problem"
    assert "--api-keys shows secrets in the list of processes" in text
    assert "secret-key" not in text
    monkeypatch.setenv("MAINSTEM_API_KEYS", "secret-key")
    assert _access(plain("doctor", *_FREE, "--json")) == [("ok", "every door asks for credentials: ")]
    monkeypatch.delenv("MAINSTEM_API_KEYS")
    listen = "import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=1); input()"
    for secret, shown in (("secret-key", True), ("-", False)):
        command = [sys.executable, "-c", listen, "--api-keys", secret]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdin is not None
            assert server.stdout is not None
            address = f"127.0.0.1:{server.stdout.readline().strip()}"
            found = _access(
                plain(
                    "doctor",
                    "--http",
                    address,
                    "--text",
                    "off",
                    "--kafka",
                    "off",
                    "--pulsar",
                    "off",
                    "--json",
                )
            )
            server.stdin.write("\n")
        assert any(f"--api-keys of process {server.pid} shows secrets" in text for _, text in found) == shown


def test_old_and_expired_keys() -> None:
    day, now = 24 * 3600 * 1000, 400 * 24 * 3600 * 1000
    key = partial(KeyDescription, principal="User:a", scopes="read", prefixes=[], namespace="")
    keys = [
        key(id="old", created_ms=0, expires_ms=None, rotated_ms=None),
        key(id="rotated", created_ms=0, expires_ms=None, rotated_ms=now - day),
        key(id="expired", created_ms=now - 2 * day, expires_ms=now - day, rotated_ms=None),
        key(id="new", created_ms=now - day, expires_ms=now + day, rotated_ms=None),
    ]
    old, expired = doctor_access_checks.stored_keys(keys, now)
    assert ("old" in old.what, "400 days" in old.what, "mainstem key rotate old" in old.advice) == (
        True,
        True,
        True,
    )
    assert ("has expired" in expired.what, "mainstem key revoke expired" in expired.advice) == (True, True)
