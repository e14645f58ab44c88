"""Erasures from the command line."""

from __future__ import annotations

from pathlib import Path

from mainstem.broker.erasures.reports import ReportKey

from .conftest import Shell


def test_an_erasure_is_started_listed_and_shown(online: Shell) -> None:
    online("topic", "create", "t")
    started = online("erase", "t", "--key", "k", "--yes")
    assert started.code == 0, started.err
    id = started.text.split()[1]
    assert id in [row["id"] for row in online("erase", "list", "--json").json]
    found = online("erase", "show", id, "--json").json
    assert (found["topic"], found["by"]) == ("t", "key")
    assert online("erase", "start", "t", "--where", "user.id=3", "--yes").code == 0
    assert online("erase", "t", "--yes").code == 2
    assert online("erase", "t", "--key", "k", "--tag", "k", "--yes").code == 2
    early = online("erase", "show", id, "--report", "report.json")
    assert early.code == 1
    assert "is not done" in early.err


def test_a_report_is_verified_with_the_public_key(plain: Shell, tmp_path: Path) -> None:
    key = ReportKey(tmp_path)
    (tmp_path / "report.json").write_bytes(key.sign({"erasure": "1", "topics": []}))
    verified = plain("erase", "verify", "report.json", "--public-key", key.public())
    assert (verified.code, verified.err) == (0, "the signature is valid\n")
    (tmp_path / "report.json").write_bytes(key.sign({"erasure": "1"}).replace(b'"1"', b'"2"'))
    forged = plain("erase", "verify", "report.json", "--public-key", key.public())
    assert forged.code == 1
    assert "was changed" in forged.err
