"""What the site needs beyond its settings: a menu of all decisions, and links that lead out of the documents."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

_OUTSIDE = re.compile(r"\[([^\]]+)\]\((?:\.\./)+([^)]+)\)")


def on_config(config: Any) -> Any:
    """Called by MkDocs first: the decisions go into the menu in their order."""
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
    """Called for each page: files beside the documents are in the repository, not in the site, so they are named."""
    if page.file.src_uri.startswith("decisions/"):
        return markdown  # one folder down, so what leads up stays within the documents
    return _OUTSIDE.sub(r"\1 (`\2`)", markdown)
