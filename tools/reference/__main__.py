"""`python -m tools.reference [DOCS]`: write the generated pages."""

from __future__ import annotations

import sys
from pathlib import Path

from tools.reference.pages import made_pages


def main(docs: Path) -> None:
    for name, text in made_pages(docs).items():
        (docs / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("docs"))
