"""Generates the list of decisions from their titles."""

from __future__ import annotations

from pathlib import Path

from tools.reference.markdown import MADE, table

_TEXT = """# Decisions

Each decision is one page: context, choice, cost, and what would change our mind.

"""


def decisions_page(docs: Path) -> str:
    rows = []
    for page in sorted((docs / "decisions").glob("[0-9]*.md")):
        with page.open(encoding="utf-8") as text:
            number, _, title = text.readline().removeprefix("#").strip().partition(" ")
        rows.append((f"[{number}]({page.name})", title))
    return MADE + _TEXT + table(("number", "decision"), rows)
