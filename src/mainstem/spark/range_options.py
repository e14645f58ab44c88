"""From where to where, as people say it on a command line, as options of the source."""

from __future__ import annotations

from typing import Literal

import msgspec

from mainstem.errors import InvalidInput
from mainstem.spark.broker import RemoteBroker

Place = tuple[str, int]  # as in cli/start_positions.py


def bound(side: Literal["starting", "ending"], place: Place | None) -> dict[str, str]:
    """Options for any topics: a time, the start or the end. Raises InvalidInput for an offset."""
    if place is None:
        return {}
    kind, number = place
    if kind == "@":
        return {f"{side}Timestamp": str(number), **_at_end_if_late(side)}
    if kind in ("start", "end"):
        return {f"{side}Offsets": "earliest" if kind == "start" else "latest"}
    raise InvalidInput("an offset belongs to one topic: say start, end or @TIME for several")


def topic_bound(
    broker: RemoteBroker, topic: str, side: Literal["starting", "ending"], place: Place | None
) -> dict[str, str]:
    """The same for one topic, where an offset is meant for each of its partitions."""
    if place is None or place[0] in ("@", "start", "end"):
        return bound(side, place)
    kind, number = place
    offsets = {}
    for one in broker.places(topic).partitions:
        wanted = number if kind == "+" else one.end - number
        offsets[str(one.partition)] = min(max(wanted, one.start), one.end)
    return {f"{side}Offsets": msgspec.json.encode({topic: offsets}).decode()}


def _at_end_if_late(side: str) -> dict[str, str]:
    return {"startingOffsetsByTimestampStrategy": "latest"} if side == "starting" else {}
