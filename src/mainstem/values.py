"""Parse settings from text: whole numbers, sizes, choices.

Each parser raises ValueError with the end of a sentence that starts with the setting's name.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection
from pathlib import Path

from mainstem.limits import GIB, KIB, MIB

INT64_MAX = 2**63 - 1

_UNITS = {"": 1, "b": 1, "kib": KIB, "mib": MIB, "gib": GIB}


def whole(low: int, high: int = INT64_MAX) -> Callable[[str], int]:
    """A whole number in [low, high]."""

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise ValueError(f"takes a whole number, not {text!r}") from None
        return _within(value, low, high)

    return parse


def size(low: int, high: int) -> Callable[[str], int]:
    """Bytes in [low, high]: 1048576, 64KiB, 1 GiB."""

    def parse(text: str) -> int:
        number = text.strip().rstrip("bBkKmMgGiI ")
        unit = text.strip()[len(number) :].strip().lower()
        try:
            value = int(number) * _UNITS[unit]
        except (ValueError, KeyError):
            raise ValueError(f"takes bytes, such as 1048576 or 64MiB, not {text!r}") from None
        return _within(value, low, high)

    return parse


def one_of(*choices: str) -> Callable[[str], str]:
    """One of a few words."""

    def parse(text: str) -> str:
        if text not in choices:
            raise ValueError(f"takes one of {', '.join(choices)}; not {text!r}{did_you_mean(text, choices)}")
        return text

    return parse


def flag(text: str) -> bool:
    """true or 1, false or 0."""
    if text.lower() in ("true", "1"):
        return True
    if text.lower() in ("false", "0"):
        return False
    raise ValueError(f"takes true or false, not {text!r}")


def name(text: str) -> str:
    """A printable name of one or more words."""
    if not text.strip() or not text.isprintable():
        raise ValueError("needs a printable name that is not empty")
    return text.strip()


def path(text: str) -> Path:
    if not text or "\0" in text:
        raise ValueError("needs a path")
    return Path(text).expanduser()


def did_you_mean(word: str, known: Collection[str]) -> str:
    """` (did you mean …?)`, or nothing if no known word is similar."""
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    return f" (did you mean {near[0]}?)" if near else ""


def _within(value: int, low: int, high: int) -> int:
    if not low <= value <= high:
        raise ValueError(f"takes {low} to {high}, not {value}")
    return value
