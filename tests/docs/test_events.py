"""Log events: one style in the whole package, names that never change, and documents that name existing ones."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import mainstem

PACKAGE = Path(mainstem.__file__).parent
DOCS = PACKAGE.parent.parent / "docs"
LEVELS = {"debug", "info", "warning", "error", "exception", "failure"}
FORWARDED = "spark/driver/child.py"  # repeats the events of its child process
SILENCED = {"doors/http/door.py", "spark/pipelines/views.py"}  # they set the level of a library's log
ROW = re.compile(r"^\| ((?:`[^`]+`(?:, )?)+) \| ((?:`[^`]+`(?:, )?)+) \|", re.MULTILINE)


@cache
def logged() -> dict[str, set[str]]:
    """The fields of each event, by its name."""
    found: dict[str, set[str]] = {}
    for path, call in calls():
        if str(path) != FORWARDED:
            for name in names(call):
                found.setdefault(name, set()).update(one.arg for one in call.keywords if one.arg)
    return found


def calls() -> Iterator[tuple[Path, ast.Call]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in LEVELS
                and ast.unparse(node.func.value) == "_log"
            ):
                yield path.relative_to(PACKAGE), node


def names(call: ast.Call) -> list[str]:
    """The name of the event, or both of a condition."""
    first = call.args[0]
    texts = [first.body, first.orelse] if isinstance(first, ast.IfExp) else [first]
    return [one.value for one in texts if isinstance(one, ast.Constant) and isinstance(one.value, str)]


def test_an_event_has_a_fixed_name_and_its_details_are_fields() -> None:
    computed = [
        f"{path}:{call.lineno}" for path, call in calls() if not names(call) and str(path) != FORWARDED
    ]
    assert computed == []
    assert [
        name for name in logged() if len(name.split()) > 6 or re.search(r"[:%{}]|^[A-Z]|^an? ", name)
    ] == []


def test_every_part_logs_through_events() -> None:
    found = {
        str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py") if "getLogger(" in path.read_text()
    }
    assert found == {"events.py", *SILENCED}


def test_documented_events_exist_with_their_fields() -> None:
    section = (DOCS / "observability.md").read_text().partition("## Events")[2].partition("\n## ")[0]
    rows = [tuple(re.findall(r"`([^`]+)`", cell) for cell in row) for row in ROW.findall(section)]
    assert len(rows) > 10
    for events, fields in rows:
        assert set(events) <= logged().keys()
        assert set(fields) <= set().union(*(logged()[event] for event in events)), events
