"""Which topics a member reads: by name, by pattern, or from its protocol metadata."""

from __future__ import annotations

import struct
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


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics in the metadata that consumers send each other; None if it is something else.

    | field | size | meaning |
    |---|---|---|
    | version | 2 | ignored: all versions begin with the fields below |
    | topics | 4 | how many |
    | name | 2 + n | length and UTF-8, one per topic |
    | … | | user data and more, ignored |
    """
    try:
        _, count = struct.unpack_from(">hi", metadata)
        at = 6
        names = []
        for _ in range(count):
            (length,) = struct.unpack_from(">h", metadata, at)
            name = metadata[at + 2 : at + 2 + length]
            if length < 0 or len(name) != length:
                return None
            names.append(name.decode())
            at += 2 + length
    except (struct.error, UnicodeDecodeError):
        return None
    return frozenset(names)


def assigned_partitions(assignment: bytes) -> dict[str, list[int]]:
    """The partitions that the leader of a classic group gave to a member; none if it is something else.

    | field | size | meaning |
    |---|---|---|
    | version | 2 | ignored: all versions begin with the fields below |
    | topics | 4 | how many |
    | name | 2 + n | length and UTF-8 |
    | partitions | 4 + 4 n | how many, and their numbers |
    | … | | user data, ignored |
    """
    found: dict[str, list[int]] = {}
    try:
        _, topics = struct.unpack_from(">hi", assignment)
        at = 6
        for _ in range(topics):
            (length,) = struct.unpack_from(">h", assignment, at)
            name = assignment[at + 2 : at + 2 + length].decode()
            (count,) = struct.unpack_from(">i", assignment, at + 2 + length)
            at += 6 + length
            found[name] = sorted(struct.unpack_from(f">{count}i", assignment, at))
            at += 4 * count
    except (struct.error, UnicodeDecodeError):
        return {}
    return found
