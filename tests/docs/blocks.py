"""The code blocks of a page of documents, and what stands in the comment before each.

| comment                    | meaning                                                                    |
|----------------------------|----------------------------------------------------------------------------|
| `<!-- not run: REASON -->` | the block after it is not run                                              |
| `<!-- prints -->`          | the block after it is what the one before has printed, in part             |
| `<!-- before: PYTHON -->`  | run before the block after it, to stand for what a reader has already      |
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

_BLOCK = re.compile(
    r"(?:<!--\s*(?P<word>not run|prints|before)(?::\s*(?P<said>.*?))?\s*-->\n+)?"
    r"^```(?P<language>\w*)\n(?P<code>.*?)^```$",
    re.M | re.S,
)
SHELL = {"sh", "bash"}
PYTHON = {"python"}
DATA = {"json", "yaml", "toml"}
TEXT = {"text", "sql"}


class Block(NamedTuple):
    line: int
    language: str
    code: str
    comment: str = ""  # not run, prints, before, or none
    said: str = ""

    @property
    def runs(self) -> bool:
        return self.language in SHELL | PYTHON and self.comment != "not run"


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(
            text.count("\n", 0, found.start("language")) + 1,
            found["language"],
            found["code"],
            found["word"] or "",
            found["said"] or "",
        )
        for found in _BLOCK.finditer(text)
    ]
