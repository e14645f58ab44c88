"""Regular expressions that clients send, on RE2: its time is linear. Python's `re` may take exponential time."""

from __future__ import annotations

from functools import lru_cache
from typing import Protocol

PATTERN_BYTES_MAX = 2 << 20  # memory of one compiled pattern and its caches
PATTERNS_CACHED = 16


class InvalidPattern(ValueError):
    """RE2 does not know the syntax, or the pattern is too large."""


class Pattern(Protocol):
    @property
    def programsize(self) -> int:
        """Instructions of the compiled pattern."""
        ...

    def search(self, text: str) -> object | None: ...

    def fullmatch(self, text: str) -> object | None: ...


@lru_cache(PATTERNS_CACHED)
def compiled_pattern(text: str) -> Pattern:
    """Raises InvalidPattern."""
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = PATTERN_BYTES_MAX
    try:
        pattern: Pattern = re2.compile(text, options)
    except re2.error as wrong:
        reason = wrong.args[0] if wrong.args else "invalid"
        raise InvalidPattern(
            reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        ) from None
    return pattern
