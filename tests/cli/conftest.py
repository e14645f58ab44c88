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
def shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> Iterator[Shell]:
    """Run `mainstem …` in an empty directory, with `stdin` as its standard input."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("MAINSTEM_")]:
        monkeypatch.delenv(name)
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level

    def shell(*arguments: str, stdin: bytes = b"") -> Outcome:
        (tmp_path / "stdin").write_bytes(stdin)
        capfdbinary.readouterr()
        with open(tmp_path / "stdin") as source, monkeypatch.context() as patched:
            patched.setattr("sys.stdin", source)
            code = run(arguments)
        out, err = capfdbinary.readouterr()
        return Outcome(code, out, err.decode())

    yield shell
    root.handlers[:] = handlers
    root.setLevel(level)
