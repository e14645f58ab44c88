"""Who reads a topic: its consumer groups, and how far behind each is."""

from __future__ import annotations

from mainstem.doors.http.groups import allowed, groups_of
from mainstem.doors.http.requests import HttpRequest
from mainstem.doors.http.responses import Response, reply


async def get_consumers(request: HttpRequest) -> Response:
    """Groups that have read a topic, with their offset and lag in each partition."""
    topic = request.broker.streams.topic(request.topic)
    groups = groups_of(request)
    states = {group.name: group.state for group in groups.list(everywhere=True)}
    bounds = [request.broker.streams.bounds(stream) for stream in topic.streams]
    found = []
    for name, state in sorted(states.items()):
        if not allowed(request, name):
            continue
        cursors = groups.offsets.of_group(name).get(topic.name)
        if not cursors:
            continue
        rows = [
            {
                "partition": number,
                "offset": cursor.offset,
                "lag": max(0, bounds[number][1] - max(cursor.offset, bounds[number][0])),
            }
            for number, cursor in sorted(cursors.items())
        ]
        lag = sum(row["lag"] for row in rows)
        found.append({"group": name, "state": state, "lag": lag, "partitions": rows})
    return reply({"topic": topic.name, "consumers": found, "performance": request.performance()})
