"""What the import contracts in pyproject.toml cannot see: a door that reaches below the broker by an attribute."""

from __future__ import annotations

import ast
from pathlib import Path

import mainstem

DOORS = Path(mainstem.__file__).parent / "doors"


def test_doors_do_not_reach_for_the_log_of_the_broker() -> None:
    found = [
        f"{path.relative_to(DOORS)}:{node.lineno}"
        for path in sorted(DOORS.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and node.attr == "log"
        and ast.unparse(node.value).lstrip("_").split(".")[-1].lstrip("_") == "broker"
    ]
    assert found == []
