"""Records that were lost before a query read them: raise an error, or log them if the query accepts losses."""

from __future__ import annotations

import logging

from mainstem.errors import DataLost

_log = logging.getLogger("mainstem.spark")


def report(topic: str, partition: int, start: int, end: int | None, reason: str, *, fail: bool) -> None:
    """Raises DataLost if `fail`, otherwise logs a warning. Without an `end`, everything from `start` on is lost."""
    if fail:
        raise DataLost(topic, partition, start, end, reason)
    _log.warning(
        "records lost before they were read",
        extra={"topic": topic, "partition": partition, "from": start, "to": end, "reason": reason},
    )
