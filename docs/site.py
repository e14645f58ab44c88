"""MkDocs hooks: the menu of decisions, and links to files outside the documentation."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

_FOREIGN_SCRIPT = re.compile(r'<script src="?https?://[^>]*></script>')
_OUTSIDE = re.compile(r"\[([^\]]+)\]\((?:\.\./)+([^)]+)\)")


def on_config(config: Any) -> Any:
    """Add the decisions to the menu, in order."""
    docs = Path(config["docs_dir"])
    decisions = sorted(docs.glob("decisions/[0-9]*.md"))
    for section in config["nav"]:
        if isinstance(section, dict) and "Decisions" in section:
            section["Decisions"] = [
                "decisions/index.md",
                *(str(page.relative_to(docs)) for page in decisions),
            ]
    return config


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Replace links to files outside the documentation with their paths, because the site does not contain them."""
    if page.file.src_uri.startswith("decisions/"):
        return markdown  # these pages are one folder down, so their `../` links stay inside the documentation
    return _OUTSIDE.sub(r"\1 (`\2`)", markdown)


def on_post_build(*, config: Any) -> None:
    """Remove scripts of other hosts: the plugin `offline` loads one for searching pages that are opened as files."""
    for page in Path(config["site_dir"]).rglob("*.html"):
        page.write_text(_FOREIGN_SCRIPT.sub("", page.read_text(encoding="utf-8")), encoding="utf-8")
