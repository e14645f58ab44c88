"""Matches records by tag: one tag, or all tags with a prefix."""

from __future__ import annotations

from dataclasses import dataclass

from mainstem.records.index import Integers
from mainstem.records.lookup import offsets_with_key, offsets_with_key_prefix


@dataclass(frozen=True, slots=True)
class Match:
    """A record without a tag never matches."""

    text: bytes
    prefix: bool = False  # match tags that begin with it, instead of equal ones

    def covers(self, tag: bytes | None) -> bool:
        if tag is None:
            return False
        return tag.startswith(self.text) if self.prefix else tag == self.text

    def offsets(self, batches: memoryview) -> Integers:
        """The offsets of matching records in some stamped batches."""
        find = offsets_with_key_prefix if self.prefix else offsets_with_key
        return find(batches, self.text)
