"""Regular expressions in schemas, by RE2: its time is linear, whatever the pattern is."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from mainstem.errors import UndecodablePayload


def matches(pattern: str, text: str) -> bool:
    """Whether some part of the text matches. Raises UndecodablePayload for a pattern that RE2 does not know."""
    try:
        return bool(pc.match_substring_regex(pa.scalar(text, pa.string()), pattern).as_py())
    except pa.ArrowInvalid as wrong:
        raise UndecodablePayload(f"the pattern {pattern[:200]!r} cannot be applied: {wrong}") from None
