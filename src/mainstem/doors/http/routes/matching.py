"""The match language: ["tag","Eq","a:1"], ["tag","Glob","a:*"], or a bare string with or without a star."""

from __future__ import annotations

from mainstem.broker.routers.tag_matching import Match
from mainstem.doors.http.transport.errors import invalid

_SHAPE = 'a match is ["tag","Eq",value], ["tag","Glob","prefix*"] or a string'


def parse_match(given: object) -> Match:
    """Raises Refusal 400."""
    if isinstance(given, str):
        return _glob(given) if given.endswith("*") else Match(given.encode())
    if not isinstance(given, list) or len(given) != 3 or not all(isinstance(part, str) for part in given):
        raise invalid(_SHAPE)
    attribute, operator, value = given
    if attribute != "tag" or operator not in ("Eq", "Glob"):
        raise invalid(_SHAPE)
    return Match(value.encode()) if operator == "Eq" else _glob(value)


def _glob(pattern: str) -> Match:
    """Only the last star means anything; the rest is literal."""
    if not pattern.endswith("*"):
        raise invalid("a Glob ends with a star: it matches a prefix")
    return Match(pattern[:-1].encode(), prefix=True)


def match_tuple(match: Match) -> list[str]:
    """As answers show it."""
    text = match.text.decode()
    return ["tag", "Glob", text + "*"] if match.prefix else ["tag", "Eq", text]
