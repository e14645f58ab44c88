"""Consumer groups as administrators see them: members, offsets, lag; moving and forgetting them."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from mainstem import limits
from mainstem.broker.group.consumer_member import ConsumerMember
from mainstem.broker.group.member import ClassicMember
from mainstem.broker.group.offsets import OffsetToCommit
from mainstem.broker.groups import Groups, ListedGroup
from mainstem.broker.share.group import ShareMember
from mainstem.doors.http.errors import invalid
from mainstem.doors.http.requests import HttpRequest
from mainstem.doors.http.responses import Response, reply
from mainstem.doors.http.topics import U64
from mainstem.errors import GroupNotEmpty, GroupNotFound, PartitionNotFound

Partition = Annotated[int, Meta(ge=0, le=limits.PARTITIONS_PER_TOPIC_MAX)]


class ResetBody(msgspec.Struct, frozen=True):
    """Where to put a group. No partitions = all of the topic's."""

    topic: str
    to: Literal["earliest", "latest", "offset", "time"]
    offset: U64 | None = None
    timestamp_ms: U64 | None = None
    partitions: list[Partition] = []
    dry_run: bool = False


_reset_body = msgspec.json.Decoder(ResetBody)


async def list_groups(request: HttpRequest) -> Response:
    """Every group that has members or offsets."""
    listed = [
        _row(group) for group in groups_of(request).list(everywhere=True) if allowed(request, group.name)
    ]
    return reply({"groups": listed, "performance": request.performance()})


async def get_group(request: HttpRequest) -> Response:
    """A group's members, its offsets and its lag."""
    name = request.parameters["group"]
    groups = groups_of(request)
    groups.check_coordinator(name)
    listed = next((group for group in groups.list() if group.name == name), None)
    if listed is None or not allowed(request, name):
        raise GroupNotFound(name)
    offsets = _offsets(request, groups, name)
    found = groups.get(name)
    members: list[ClassicMember | ConsumerMember | ShareMember] = (
        [] if found is None else [*found.members.values()]
    )
    return reply(
        {
            **_row(listed),
            "members": [
                {
                    "member_id": member.member_id,
                    "client_id": member.client_id,
                    "client_host": member.client_host,
                    "instance_id": member.instance_id,
                }
                for member in members
            ],
            "offsets": offsets,
            "lag": sum(row["lag"] for row in offsets if isinstance(row["lag"], int)),
            "performance": request.performance(),
        }
    )


async def reset_group(request: HttpRequest) -> Response:
    """Put a group without members elsewhere."""
    name, body = request.parameters["group"], request.json(_reset_body)
    request.require_name(body.topic)
    groups = groups_of(request)
    groups.check_coordinator(name)
    found = groups.get(name)
    if found is not None and not found.empty:
        raise GroupNotEmpty(name)
    partitions = request.broker.topic(body.topic).partitions
    moves = []
    for number in sorted(set(body.partitions)) or range(partitions):
        if number >= partitions:
            raise PartitionNotFound(body.topic, number, partitions)
        stood = _position(request, groups, name, body.topic, number)
        moves.append(
            {
                "topic": body.topic,
                "partition": number,
                "before": stood,
                "after": await _target(request, body, number),
            }
        )
    if not body.dry_run:
        rows = [OffsetToCommit(body.topic, int(str(m["partition"])), int(str(m["after"]))) for m in moves]
        if request.broker.shares.has(name):
            streams = request.broker.streams
            starts = [(streams.of(row.topic, row.partition), row.offset) for row in rows]
            await request.broker.shares.move(name, starts)
        else:
            await _commit(groups, name, rows)
    return reply(
        {"group": name, "moved": moves, "dry_run": body.dry_run, "performance": request.performance()}
    )


async def delete_group(request: HttpRequest) -> Response:
    """Forget a group without members, and its offsets."""
    name = request.parameters["group"]
    groups = groups_of(request)
    for topic in groups.topics_of(name):
        request.require_name(topic)
    await groups.delete(name)
    return reply({"group": name, "deleted": True, "performance": request.performance()})


def groups_of(request: HttpRequest) -> Groups:
    """Those of the door that members come through, or what is known without one."""
    return request.context.known_groups()


def allowed(request: HttpRequest, group: str) -> bool:
    """Whether the key may see all that the group reads."""
    return all(request.key.allows(topic) for topic in groups_of(request).topics_of(group))


def _row(group: ListedGroup) -> dict[str, object]:
    return {
        "group": group.name,
        "state": group.state,
        "kind": group.kind,
        "protocol_type": group.protocol_type,
    }


def _offsets(request: HttpRequest, groups: Groups, name: str) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for topic, cursors in sorted(groups.offsets.of_group(name).items()):
        for number, cursor in sorted(cursors.items()):
            state = request.broker.partition(topic, number)
            rows.append(
                {
                    "topic": topic,
                    "partition": number,
                    "offset": cursor.offset,
                    "start": state.start,
                    "end": state.end,
                    "lag": max(0, state.end - max(cursor.offset, state.start)),
                    "metadata": cursor.metadata,
                }
            )
    return rows + _shares(request, name)


def _shares(request: HttpRequest, name: str) -> list[dict[str, object]]:
    """A share group is where the first record is that it is not through with; its lag is all of those."""
    rows: list[dict[str, object]] = []
    for stream, share in request.broker.shares.of_group(name).items():
        topic = request.broker.streams.of_stream(stream)
        if topic is None:
            continue
        number = topic.streams.index(stream)
        state = request.broker.partition(topic.name, number)
        rows.append(
            {
                "topic": topic.name,
                "partition": number,
                "offset": max(share.start, state.start),
                "start": state.start,
                "end": state.end,
                "lag": share.left(state.start, state.end),
                "metadata": "",
            }
        )
    return rows


def _position(request: HttpRequest, groups: Groups, name: str, topic: str, partition: int) -> int | None:
    cursor = groups.committed(name, topic, partition)
    if cursor is not None:
        return cursor.offset
    share = request.broker.shares.of_group(name).get(request.broker.streams.of(topic, partition))
    return None if share is None else share.start


async def _target(request: HttpRequest, body: ResetBody, partition: int) -> int:
    state = request.broker.partition(body.topic, partition)
    if body.to == "time":
        if body.timestamp_ms is None:
            raise invalid("to time needs timestamp_ms")
        return await request.broker.offset_at(body.topic, body.timestamp_ms, partition)
    if body.to == "offset":
        if body.offset is None:
            raise invalid("to offset needs offset")
        return min(max(body.offset, state.start), state.end)
    return state.start if body.to == "earliest" else state.end


async def _commit(groups: Groups, name: str, rows: list[OffsetToCommit]) -> None:
    for error in await groups.commit(name, rows):
        if error is not None:
            raise error
