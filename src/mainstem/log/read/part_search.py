"""Search parts by time and by size, from what the ledger records of their files."""

from __future__ import annotations

from collections.abc import Sequence

from mainstem.api.lake import Part


def first_at_time(parts: Sequence[Part], offset: int, time_ms: int) -> int | None:
    """The lowest offset, from `offset` on, at which a record of `time_ms` or later may be."""
    for part in parts:
        late = [file.base for file in part.files if file.end > offset and file.max_timestamp >= time_ms]
        if late:
            return max(offset, min(late))
    return None


def latest_time(parts: Sequence[Part], offset: int) -> int | None:
    """The latest time of a file that has records at or after `offset`."""
    times = [file.max_timestamp for part in parts for file in part.files if file.end > offset]
    return max(times, default=None)


def first_kept(parts: Sequence[Part], keep_after_ms: int) -> int | None:
    """The base of the first part with a record of this time or later: parts are deleted whole."""
    for part in parts:
        if any(file.max_timestamp >= keep_after_ms for file in part.files):
            return part.base
    return None


def first_within_bytes(parts: Sequence[Part], max_bytes: int) -> int | None:
    """The base of the longest tail of parts whose files have at most `max_bytes`; None if the last part has more."""
    kept: int | None = None
    size = 0
    for part in reversed(parts):
        size += part.bytes
        if size > max_bytes:
            break
        kept = part.base
    return kept
