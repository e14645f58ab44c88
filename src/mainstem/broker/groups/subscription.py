"""Which topics a pattern matches."""

from __future__ import annotations

from collections.abc import Iterable

from mainstem.errors import InvalidRegex
from mainstem.regexes import InvalidPattern, compiled_pattern

GROUP_REGEX_CHARS_MAX = 1_024


def matching(pattern: str, names: Iterable[str]) -> frozenset[str]:
    """The names that a pattern matches as a whole. Raises InvalidRegex.

    The time is linear, whatever the pattern is."""
    if len(pattern) > GROUP_REGEX_CHARS_MAX:
        raise InvalidRegex(f"a pattern has at most {GROUP_REGEX_CHARS_MAX} characters")
    try:
        compiled = compiled_pattern(pattern)
    except InvalidPattern as error:
        raise InvalidRegex(f"{pattern!r} is not a valid regular expression: {error}") from None
    return frozenset(name for name in names if compiled.fullmatch(name))
