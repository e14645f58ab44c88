"""Which names topics may have: Kafka's alphabet, and the colon."""

from __future__ import annotations

import re

from mainstem import limits
from mainstem.errors import InvalidName

_NAME = re.compile(rf"[A-Za-z0-9._:-]{{1,{limits.NAME_CHARS_MAX}}}")


def bad_name(name: str) -> InvalidName | None:
    """Why the name is refused, if it is."""
    if _NAME.fullmatch(name) and name not in (".", ".."):
        return None
    return InvalidName(
        f"{name[:64]!r} is no topic name: use 1 to {limits.NAME_CHARS_MAX} letters, digits and . _ : - "
        "and not just dots"
    )
