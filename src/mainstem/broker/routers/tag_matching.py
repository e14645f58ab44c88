"""Which records a match on their tag means: one tag, or all that begin alike."""

from __future__ import annotations

from dataclasses import dataclass

from mainstem.records.index import Integers
from mainstem.records.lookup import offsets_with_key, offsets_with_key_prefix


@dataclass(frozen=True, slots=True)
class Match:
    """A record without a tag never matches."""

    text: bytes
    prefix: bool = False  # the tag begins with it; else the tag is it

    def covers(self, tag: bytes | None) -> bool:
        if tag is None:
            return False
        return tag.startswith(self.text) if self.prefix else tag == self.text

    def offsets(self, batches: memoryview) -> Integers:
        """Of the records in some stamped batches that match."""
        find = offsets_with_key_prefix if self.prefix else offsets_with_key
        return find(batches, self.text)
