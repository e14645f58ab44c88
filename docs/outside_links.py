"""Links to files beside the documents lead somewhere in the repository, but nowhere in the site: they become names there."""

from __future__ import annotations

import re
from typing import Any

_OUTSIDE = re.compile(r"\[([^\]]+)\]\((?:\.\./)+([^)]+)\)")


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Called by MkDocs for each page."""
    if page.file.src_uri.startswith("decisions/"):
        return markdown  # one folder down, so what leads up stays within the documents
    return _OUTSIDE.sub(r"\1 (`\2`)", markdown)
