"""Records that are gone before they were read: an error that names them, or a gap that the reader accepted."""

from __future__ import annotations

import logging

from mainstem.errors import DataLost

_log = logging.getLogger("mainstem.spark")


def report(topic: str, partition: int, start: int, end: int | None, reason: str, *, fail: bool) -> None:
    """Raises DataLost if `fail`, else says so in the log. Without an `end`, all from `start` on is gone."""
    if fail:
        raise DataLost(topic, partition, start, end, reason)
    _log.warning(
        "records were lost before they were read",
        extra={"topic": topic, "partition": partition, "from": start, "to": end, "reason": reason},
    )
