"""Pages made from the code are current."""

from __future__ import annotations

from pathlib import Path

import pytest

from mainstem.cli.main import COMMANDS
from mainstem.config import SETTINGS
from mainstem.doors.http.routes.table import TABLE
from tools.console_types import TARGET, console_types
from tools.reference.metrics import described
from tools.reference.pages import made_pages

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def made() -> dict[str, str]:
    return made_pages(DOCS)


def test_made_pages_are_current(made: dict[str, str]) -> None:
    stale = [name for name, text in made.items() if (DOCS / name).read_text(encoding="utf-8") != text]
    assert stale == [], "run `make reference`"


def test_the_types_of_the_console_are_current() -> None:
    assert TARGET.read_text(encoding="utf-8") == console_types(), "run `make reference`"


def test_every_setting_is_told_of(made: dict[str, str]) -> None:
    assert all(f"| `{row.flag}` |" in made["configuration.md"] for row in SETTINGS)


def test_metrics_have_kind_help_and_labels() -> None:
    found = described(
        "# HELP a_total Of a.\n# TYPE a_total counter\na_total 1.0\n"
        "# HELP b Of b.\n# TYPE b histogram\n"
        'b_bucket{api="x",le="1"} 1.0\nb_sum{api="x"} 1.0\nb_count{api="x"} 1.0\n'
    )
    assert [(metric.name, metric.kind, metric.help, [*metric.labels]) for metric in found.values()] == [
        ("a_total", "counter", "Of a.", []),
        ("b", "histogram", "Of b.", ["api", "le"]),
    ]


def test_every_command_is_told_of(made: dict[str, str]) -> None:
    told = (DOCS / "cli.md").read_text(encoding="utf-8")
    assert [name for name in COMMANDS if f"`{name}" not in told] == []
    assert [name for name in COMMANDS if f"## `mainstem {name}" not in made["commands.md"]] == []


def test_every_request_is_told_of_once(made: dict[str, str]) -> None:
    for endpoint in TABLE:
        assert made["http-requests.md"].count(f"| `{endpoint.name}` |") == 1
        assert endpoint.handler.__doc__, f"{endpoint.name} says what it does"
