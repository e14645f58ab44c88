"""Start and end positions of a command line as options of the source."""

from __future__ import annotations

from typing import Literal

import msgspec

from mainstem.client.broker import BrokerClient
from mainstem.errors import InvalidInput

Place = tuple[str, int]  # as in cli/start_positions.py


def bound(side: Literal["starting", "ending"], place: Place | None) -> dict[str, str]:
    """Options for any topics: a time, the start or the end. Raises InvalidInput for an offset."""
    if place is None:
        return {}
    kind, number = place
    if kind == "@":
        return {f"{side}Timestamp": str(number), **_latest_if_no_record(side)}
    if kind in ("start", "end"):
        return {f"{side}Offsets": "earliest" if kind == "start" else "latest"}
    raise InvalidInput("an offset is valid for one topic only: use start, end or @TIME for several")


def topic_bound(
    broker: BrokerClient, topic: str, side: Literal["starting", "ending"], place: Place | None
) -> dict[str, str]:
    """Like `bound` for one topic; an offset applies to each of its partitions."""
    if place is None or place[0] in ("@", "start", "end"):
        return bound(side, place)
    kind, number = place
    offsets = {}
    for position in broker.positions(topic).partitions:
        wanted = number if kind == "+" else position.end - number
        offsets[str(position.partition)] = min(max(wanted, position.start), position.end)
    return {f"{side}Offsets": msgspec.json.encode({topic: offsets}).decode()}


def _latest_if_no_record(side: str) -> dict[str, str]:
    return {"startingOffsetsByTimestampStrategy": "latest"} if side == "starting" else {}
