"""Commands run in this process, as a shell would run them."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mainstem.cli.main import run
from mainstem.testing.broker import ThrowAwayBroker, throw_away_broker


@dataclass
class Outcome:
    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return self.out.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Shell = Callable[..., Outcome]


@pytest.fixture
def plain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> Iterator[Shell]:
    """Run `mainstem …` in an empty directory, with `stdin` as its standard input."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("MAINSTEM_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level

    def shell(*arguments: str, stdin: bytes = b"") -> Outcome:
        (tmp_path / "stdin").write_bytes(stdin)
        capsysbinary.readouterr()
        with open(tmp_path / "stdin") as source, monkeypatch.context() as patched:
            patched.setattr("sys.stdin", source)
            code = run(arguments)
        out, err = capsysbinary.readouterr()
        return Outcome(code, out, err.decode())

    yield shell
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def shell(plain: Shell) -> Shell:
    """The same; commands that could ask a server open the directory `data` themselves."""

    def offline(*arguments: str, stdin: bytes = b"") -> Outcome:
        named = {"--data-dir", "--url", "--help"} & set(arguments)
        if arguments and arguments[0] in ("topic", "produce", "consume") and not named:
            depth = 2 if arguments[0] == "topic" else 1
            arguments = (*arguments[:depth], "--data-dir", "data", *arguments[depth:])
        return plain(*arguments, stdin=stdin)

    return offline


@pytest.fixture(scope="session")
def broker() -> Iterator[ThrowAwayBroker]:
    with throw_away_broker() as broker:
        yield broker


@pytest.fixture
def online(plain: Shell, broker: ThrowAwayBroker, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    """The same against a real server, which is empty before and after."""
    monkeypatch.setenv("MAINSTEM_URL", broker.url)
    yield plain
    for group in broker.client.groups():
        broker.client.delete_group(group.group)
    for topic in broker.client.topics():
        broker.client.delete_topic(topic.topic)


@pytest.fixture(params=["directory", "server"])
def either(request: pytest.FixtureRequest) -> Shell:
    """Both ways, one after the other."""
    either: Shell = request.getfixturevalue("shell" if request.param == "directory" else "online")
    return either
