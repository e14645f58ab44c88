"""Regular expressions in schemas, by RE2: its time is linear, whatever the pattern is."""

from __future__ import annotations

from mainstem.errors import UndecodablePayload
from mainstem.regexes import InvalidPattern, compiled_pattern


def matches(pattern: str, text: str) -> bool:
    """Whether some part of the text matches. Raises UndecodablePayload for a pattern that RE2 does not know."""
    try:
        return compiled_pattern(pattern).search(text) is not None
    except InvalidPattern as wrong:
        raise UndecodablePayload(f"the pattern {pattern[:200]!r} cannot be applied: {wrong}") from None
