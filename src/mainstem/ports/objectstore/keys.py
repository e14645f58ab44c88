"""Object keys: parts joined by "/", each usable as a file name."""

from __future__ import annotations

from mainstem import limits
from mainstem.errors import InvalidName

PART_BYTES_MAX = limits.NAME_CHARS_MAX  # what file systems take


def check_key(key: str) -> tuple[str, ...]:
    """The parts of a key. Raises InvalidName."""
    parts = tuple(key.split("/"))
    for part in parts:
        if not part:
            raise InvalidName(f"object key {key!r} has an empty part: no leading, trailing or double '/'")
        if part.startswith("."):
            raise InvalidName(f"object key {key!r} has a part that starts with a dot, which is reserved")
        if "\0" in part or len(part.encode("utf-8", "surrogatepass")) > PART_BYTES_MAX:
            raise InvalidName(f"object key {key!r} has a part that cannot be a file name")
    return parts
