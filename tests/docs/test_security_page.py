"""Every row of the threats names a test or an attack that exists, and every attack has a row."""

from __future__ import annotations

import re
from pathlib import Path

from tests.doors.attacks.attackers import ATTACKS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
_TESTS = frozenset(
    name
    for path in (ROOT / "tests").rglob("test_*.py")
    for name in re.findall(r"def (test_\w+)", path.read_text(encoding="utf-8"))
)


def _rows() -> list[list[str]]:
    """The cells of the tables whose first column is the threat."""
    rows: list[list[str]] = []
    inside = False
    for line in PAGE.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        inside = bool(cells) and (inside or cells[0] == "threat")
        if inside and cells[0] != "threat" and not set(cells[0]) <= {"-"}:
            rows.append(cells)
    return rows


def _named(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_every_threat_names_a_test_that_exists() -> None:
    assert len(_rows()) > 50
    for threat, _, tests, *_ in _rows():
        named = _named(tests)
        assert named, threat
        for name in named:
            assert name in _TESTS or name in ATTACKS or (ROOT / name).is_file(), (threat, name)


def test_every_attack_has_a_row() -> None:
    named = {name for row in _rows() for name in _named(row[2])}
    without = (
        set(ATTACKS) - named - {"silent", "silent_handshakes", "metadata"}
    )  # run by tests of other names
    assert not without
