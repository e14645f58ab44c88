"""Records that were lost before a query read them: raise an error, or log them if the query accepts losses."""

from __future__ import annotations

from mainstem import events
from mainstem.errors import DataLost

_log = events.named("spark")


def report(topic: str, partition: int, start: int, end: int | None, reason: str, *, fail: bool) -> None:
    """Raises DataLost if `fail`, otherwise logs a warning. Without an `end`, everything from `start` on is lost."""
    if fail:
        raise DataLost(topic, partition, start, end, reason)
    _log.warning(
        "records lost before they were read",
        topic=topic,
        partition=partition,
        start=start,
        end=end,
        reason=reason,
    )
