"""Which topics a pattern matches."""

from __future__ import annotations

from collections.abc import Iterable

from mainstem.errors import InvalidRegex

GROUP_REGEX_CHARS_MAX = 1_024


def matching(pattern: str, names: Iterable[str]) -> frozenset[str]:
    """The names that a pattern matches as a whole. Raises InvalidRegex.

    Patterns come from clients, so they run on RE2, whose time is linear: Python's `re` may take exponential time."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if len(pattern) > GROUP_REGEX_CHARS_MAX:
        raise InvalidRegex(f"a pattern has at most {GROUP_REGEX_CHARS_MAX} characters")
    column = pa.array(list(names), pa.string())
    try:
        matched = pc.match_substring_regex(column, pattern=rf"\A(?:{pattern})\z")
    except pa.ArrowInvalid as error:
        raise InvalidRegex(f"{pattern!r} is not a valid regular expression: {error}") from None
    return frozenset(column.filter(matched).to_pylist())
