"""Consumer groups and transactions as administrators see them: describe, reset, delete and abort them."""

from __future__ import annotations

import msgspec

from mainstem.api.access import Operation, ResourceType
from mainstem.api.groups import (
    AssignedTopic,
    GroupDeletion,
    GroupDescription,
    GroupList,
    GroupListing,
    GroupOffset,
    MemberDescription,
    OffsetReset,
    ResetBody,
    ResetResult,
    SubscriptionReport,
    SubscriptionTypeName,
    TransactionAborted,
    TransactionDescription,
    TransactionList,
    TransactionPartitions,
)
from mainstem.api.topics import ConsumerPartition, TopicConsumer, TopicConsumers
from mainstem.broker.groups.consumer_member import ConsumerMember
from mainstem.broker.groups.consumer_protocol import read_assignment
from mainstem.broker.groups.member import ClassicMember
from mainstem.broker.groups.offsets import OWN_PREFIX, OffsetToCommit
from mainstem.broker.groups.registry import Group
from mainstem.broker.groups.service import SUBSCRIPTION, Groups, ListedGroup, subscription_group
from mainstem.broker.groups.streams_group import StreamsGroup
from mainstem.broker.groups.streams_member import StreamsMember
from mainstem.broker.groups.task_assignor import ACTIVE
from mainstem.broker.namespaces import split_id
from mainstem.broker.share.group import ShareMember
from mainstem.broker.subscriptions.service import SubscriptionSummary, SubscriptionType
from mainstem.broker.topics.service import Topic
from mainstem.broker.transactions.service import TransactionInfo, TransactionPhase
from mainstem.doors.http.transport.errors import invalid
from mainstem.doors.http.transport.requests import HttpRequest, forbidden
from mainstem.doors.http.transport.responses import Response, reply
from mainstem.errors import GroupNotEmpty, GroupNotFound, PartitionNotFound, Unavailable

Member = ClassicMember | ConsumerMember | StreamsMember | ShareMember

_reset_body = msgspec.json.Decoder(ResetBody)


async def list_groups(request: HttpRequest) -> Response:
    """List groups with members or offsets."""
    groups = groups_of(request)
    listed = [group for group in _listed(request, everywhere=True) if allowed(request, group.name)]
    members, known = groups.members(), dict(request.broker.group_lags.of(group.name for group in listed))
    rows = []
    for group in listed:
        subscribed = request.broker.subscriptions.of_group(group.name)
        count = members.get(group.name, 0) if groups.coordinates(group.name) else None
        if group.kind == SUBSCRIPTION:
            count = sum(len(one.consumers) for _, _, one in subscribed)
        lag = known.get(group.name)
        rows.append(
            GroupListing(
                group.name,
                group.state,
                group.kind,
                group.protocol_type,
                count,
                None if lag is None else lag + sum(one.backlog for _, _, one in subscribed),
                sorted(_topics_of(request, group.name)),
                request.context.history.recent_lag(group.name),
            )
        )
    return reply(GroupList(rows, request.performance()))


def _listed(request: HttpRequest, *, everywhere: bool) -> list[ListedGroup]:
    """Groups, and subscriptions whose names no group has."""
    listed = groups_of(request).list(everywhere=everywhere)
    found = {group.name: group for group in listed if not group.name.startswith(OWN_PREFIX)}
    for name, consumers in request.broker.subscriptions.groups().items():
        found.setdefault(name, subscription_group(name, consumers))
    return [found[name] for name in sorted(found)]


async def get_group(request: HttpRequest) -> Response:
    """Get the members, offsets and lag of a group."""
    name = request.parameters["group"]
    groups = groups_of(request)
    redirect = request.flag("redirect", True)
    subscribed = request.broker.subscriptions.of_group(name)
    if redirect and not subscribed:
        groups.check_coordinator(name)
    listed = next((group for group in _listed(request, everywhere=not redirect) if group.name == name), None)
    if listed is None or not allowed(request, name):
        raise GroupNotFound(name)
    offsets = _offsets(request, groups, name) + [_left(request, *row) for row in subscribed]
    found = groups.get(name)
    members: list[Member] = [] if found is None else [*found.members.values()]
    return reply(
        GroupDescription(
            group=listed.name,
            state=listed.state,
            kind=listed.kind,
            protocol_type=listed.protocol_type,
            members=[_member(request, found, member) for member in members] + _consumers(subscribed),
            offsets=offsets,
            lag=sum(row.lag for row in offsets),
            performance=request.performance(),
            coordinator=request.broker.cluster.other_coordinator(name, "http"),
        )
    )


async def reset_group(request: HttpRequest) -> Response:
    """Reset the offsets of a group without members, or those of a subscription, whose consumers connect again."""
    name, body = request.parameters["group"], request.json(_reset_body)
    request.require_topic(body.topic, Operation.READ)
    require_group(request, Operation.DELETE, name)
    groups = groups_of(request)
    partitions = request.broker.topic(body.topic).partitions
    subscribed = _subscribed(request, name, body.topic)
    if not subscribed:
        groups.check_coordinator(name)
        found = groups.get(name)
        if found is not None and not found.empty:
            raise GroupNotEmpty(name)
    moves = []
    for number in sorted(set(body.partitions)) or range(partitions):
        if number >= partitions:
            raise PartitionNotFound(body.topic, number, partitions)
        stood = subscribed.get(
            number, None if subscribed else _position(request, groups, name, body.topic, number)
        )
        moves.append(
            OffsetReset(body.topic, number, stood, await _target(request, name, body, number, stood))
        )
    if not body.dry_run:
        await _move(request, name, body, moves, bool(subscribed))
    return reply(ResetResult(name, moves, body.dry_run, request.performance()))


def _subscribed(request: HttpRequest, name: str, topic: str) -> dict[int, int]:
    """Where the subscription of that name is in each partition of a topic, unless a group has offsets there.

    Raises Unavailable if another broker serves its consumers."""
    if topic in groups_of(request).topics_of(name):
        return {}
    found = {
        partition: one.mark
        for owner, partition, one in request.broker.subscriptions.of_group(name)
        if owner.name == topic
    }
    cluster = request.broker.cluster
    if found and cluster.shared and cluster.coordinator("pulsar", topic) != cluster.broker:
        raise Unavailable("another broker serves the consumers of this topic: send the request there")
    return found


async def _move(
    request: HttpRequest, name: str, body: ResetBody, moves: list[OffsetReset], subscribed: bool
) -> None:
    if subscribed:
        topic, subscription = request.broker.topic(body.topic), split_id(name)[1]
        subscriptions = request.broker.subscriptions
        work = subscriptions.skip if body.to == "skip" else subscriptions.move
        for move in moves:
            if body.to == "redeliver":
                subscriptions.redeliver(request.broker.stream(body.topic, move.partition), subscription)
            elif move.before is not None:
                await work(topic, move.partition, subscription, move.after)
        return
    if request.broker.shares.has(name):
        streams = request.broker.streams
        starts = [(streams.of(move.topic, move.partition), move.after) for move in moves]
        await request.broker.shares.move(name, starts)
    else:
        rows = [OffsetToCommit(move.topic, move.partition, move.after) for move in moves]
        await _commit(groups_of(request), name, rows)


async def delete_group(request: HttpRequest) -> Response:
    """Delete a group without members, and its offsets; or the subscriptions of that name, without consumers."""
    name = request.parameters["group"]
    require_group(request, Operation.DELETE, name)
    subscribed = request.broker.subscriptions.of_group(name)
    if any(one.consumers for _, _, one in subscribed):
        raise GroupNotEmpty(name)
    if not subscribed or groups_of(request).exists(name):
        await groups_of(request).delete(name)
    for topic, partition, one in subscribed:
        await request.broker.subscriptions.delete(topic, partition, one.name)
    return reply(GroupDeletion(name, True, request.performance()))


def groups_of(request: HttpRequest) -> Groups:
    """Those of the door that members come through, or what is known without one."""
    return request.broker.groups


def allowed(request: HttpRequest, group: str) -> bool:
    """Whether the client may see the group, and all that it reads."""
    return (
        request.sees_id(group)
        and may_group(request, Operation.DESCRIBE, group)
        and all(map(request.sees, _topics_of(request, group)))
    )


def _topics_of(request: HttpRequest, group: str) -> set[str]:
    """Topics in which a group or a subscription of that name has a position."""
    subscribed = {topic.name for topic, _, _ in request.broker.subscriptions.of_group(group)}
    return groups_of(request).topics_of(group) | subscribed


def may_group(request: HttpRequest, operation: Operation, group: str) -> bool:
    """By a rule about the group; or by the prefixes of an API key, which cover a group by all the topics it reads."""
    if request.may(operation, ResourceType.GROUP, group):
        return True
    if not _covers_by_topics(request, operation, ResourceType.GROUP, group):
        return False
    groups = groups_of(request)
    topics, found = _topics_of(request, group), groups.get(group)
    # Of a group with members that has not committed an offset yet, nobody knows what it reads.
    return all(map(request.sees, topics)) and (bool(topics) or found is None or found.empty)


def _covers_by_topics(request: HttpRequest, operation: Operation, kind: ResourceType, name: str) -> bool:
    """Whether the topics of a group or transaction decide: for API keys, unless a rule denies it by name."""
    return (
        bool(request.principal.grants)
        and request.broker.access.allows_some(request.principal, request.host, operation, kind)
        and not request.denied(operation, kind, name)
    )


def require_group(request: HttpRequest, operation: Operation, group: str) -> None:
    """Raises Refusal 403."""
    if not may_group(request, operation, group):
        raise forbidden(operation, ResourceType.GROUP, group)


def _member(request: HttpRequest, group: Group | None, member: Member) -> MemberDescription:
    if isinstance(group, StreamsGroup):
        partitions = group.partitions_of(member.assigned, ACTIVE) if isinstance(member, StreamsMember) else {}
    elif isinstance(member, ClassicMember):
        given = read_assignment(member.assignment) or {}
        partitions = {topic: sorted(numbers) for topic, numbers in given.items()}
    else:
        partitions = {}
        for topic_id, number in sorted(member.assigned):
            topic = request.broker.streams.get_by_id(topic_id)
            if topic is not None:
                partitions.setdefault(topic.name, []).append(number)
    assignment = [AssignedTopic(topic, numbers) for topic, numbers in sorted(partitions.items())]
    return MemberDescription(
        member.member_id, member.client_id, member.client_host, member.instance_id, assignment
    )


def _offsets(request: HttpRequest, groups: Groups, name: str) -> list[GroupOffset]:
    rows: list[GroupOffset] = []
    for topic, cursors in sorted(groups.offsets.of_group(name).items()):
        for number in range(request.broker.topic(topic).partitions):
            state, cursor = request.broker.partition(topic, number), cursors.get(number)
            offset = None if cursor is None else cursor.offset
            lag = _lag(offset, state.start, state.end)
            metadata = "" if cursor is None else cursor.metadata
            rows.append(GroupOffset(topic, number, offset, state.start, state.end, lag, metadata))
    return rows + _shares(request, name)


def _lag(offset: int | None, start: int, end: int) -> int:
    """A group that reads a topic has read nothing of the partitions in which it has not committed."""
    return max(0, end - max(offset or 0, start))


def _shares(request: HttpRequest, name: str) -> list[GroupOffset]:
    """A share group is where the first record is that it is not through with; its lag is all of those."""
    rows: list[GroupOffset] = []
    for stream, share in request.broker.shares.of_group(name).items():
        topic = request.broker.streams.of_stream(stream)
        if topic is None:
            continue
        number = topic.streams.index(stream)
        state = request.broker.partition(topic.name, number)
        rows.append(
            GroupOffset(
                topic.name,
                number,
                max(share.start, state.start),
                state.start,
                state.end,
                share.left(state.start, state.end),
                "",
            )
        )
    return rows


def _consumers(subscribed: list[tuple[Topic, int, SubscriptionSummary]]) -> list[MemberDescription]:
    """The consumers of subscriptions, each with the partition that it reads."""
    return [
        MemberDescription(consumer.name, consumer.name, "", None, [AssignedTopic(topic.name, [partition])])
        for topic, partition, one in subscribed
        for consumer in one.consumers
    ]


def _left(request: HttpRequest, topic: Topic, partition: int, one: SubscriptionSummary) -> GroupOffset:
    """A subscription is where the first record is that it has not acknowledged; its lag is all of those."""
    state = request.broker.partition(topic.name, partition)
    held = sum(consumer.unacked for consumer in one.consumers)
    type = None if one.type is None else _TYPES[one.type]
    return GroupOffset(
        topic.name,
        partition,
        max(one.mark, state.start),
        state.start,
        state.end,
        one.backlog,
        "",
        SubscriptionReport(type, len(one.consumers), held),
    )


_TYPES: dict[SubscriptionType, SubscriptionTypeName] = {
    SubscriptionType.EXCLUSIVE: "exclusive",
    SubscriptionType.SHARED: "shared",
    SubscriptionType.FAILOVER: "failover",
    SubscriptionType.KEY_SHARED: "key_shared",
}


def _position(request: HttpRequest, groups: Groups, name: str, topic: str, partition: int) -> int | None:
    cursor = groups.committed(name, topic, partition)
    if cursor is not None:
        return cursor.offset
    share = request.broker.shares.of_group(name).get(request.broker.streams.of(topic, partition))
    return None if share is None else share.start


async def _target(request: HttpRequest, name: str, body: ResetBody, partition: int, stood: int | None) -> int:
    state = request.broker.partition(body.topic, partition)
    if body.to == "redeliver":
        if not _subscribed(request, name, body.topic):
            raise invalid("only subscriptions support redelivery")
        return stood or 0
    if body.to == "skip":
        if body.count is None:
            raise invalid("to skip needs count")
        stream, subscription = request.broker.stream(body.topic, partition), split_id(name)[1]
        if _subscribed(request, name, body.topic):
            return request.broker.subscriptions.after_unacked(stream, subscription, body.count)
        return min(max(stood or 0, state.start) + body.count, state.end)
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


# Consumers of a topic


async def get_consumers(request: HttpRequest) -> Response:
    """List the groups that have read a topic, with offset and lag in each partition."""
    topic = request.broker.streams.topic(request.topic)
    groups = groups_of(request)
    found = []
    for group in _listed(request, everywhere=True):
        rows = _read_by(request, groups, topic, group.name) if allowed(request, group.name) else []
        if rows:
            lag = sum(row.lag for row in rows)
            found.append(TopicConsumer(group.name, group.state, group.kind, lag, rows))
    return reply(TopicConsumers(topic.name, found, request.performance()))


def _read_by(request: HttpRequest, groups: Groups, topic: Topic, name: str) -> list[ConsumerPartition]:
    """Where a group, share group or subscription is in each partition of a topic. Empty if it does not read it."""
    cursors = groups.offsets.of_group(name).get(topic.name)
    if cursors:
        offsets = [
            cursors[number].offset if number in cursors else None for number in range(len(topic.streams))
        ]
        bounds = [request.broker.streams.bounds(stream) for stream in topic.streams]
        return [
            ConsumerPartition(number, offset, _lag(offset, *bounds[number]))
            for number, offset in enumerate(offsets)
        ]
    subscribed = [row for row in request.broker.subscriptions.of_group(name) if row[0] is topic]
    left = _shares(request, name) + [_left(request, *row) for row in subscribed]
    return [ConsumerPartition(row.partition, row.offset, row.lag) for row in left if row.topic == topic.name]


# Transactions


async def list_transactions(request: HttpRequest) -> Response:
    """Every transactional id, and its current or last transaction."""
    now_ms = request.broker.ledger_time_ms
    shown = [
        _transaction(info, now_ms)
        for info in request.broker.transactions.all()
        if request.sees_id(info.id) and _may_transaction(request, Operation.DESCRIBE, info)
    ]
    return reply(TransactionList(shown, request.performance()))


async def abort_transaction(request: HttpRequest) -> Response:
    """Abort the open transaction of a transactional id, and fence its producer."""
    id = request.parameters["transaction"]
    if not _may_transaction(request, Operation.ALTER, request.broker.transactions.describe(id)):
        raise forbidden(Operation.ALTER, ResourceType.TRANSACTIONAL_ID, id)
    aborted = await request.broker.transactions.abort(id)
    return reply(TransactionAborted(id, aborted, request.performance()))


def _may_transaction(request: HttpRequest, operation: Operation, info: TransactionInfo) -> bool:
    """By a rule about its id; or by the prefixes of an API key, which cover it by the topics that it writes to."""
    if request.may(operation, ResourceType.TRANSACTIONAL_ID, info.id):
        return True
    if not _covers_by_topics(request, operation, ResourceType.TRANSACTIONAL_ID, info.id):
        return False
    return bool(info.partitions) and all(map(request.sees, info.partitions))


def _transaction(info: TransactionInfo, now_ms: int) -> TransactionDescription:
    is_open = info.phase is TransactionPhase.OPEN
    open_ms = max(0, now_ms - info.started_ms) if is_open else 0
    return TransactionDescription(
        transaction=info.id,
        phase=info.phase.name.lower(),
        producer=info.producer,
        epoch=info.epoch,
        timeout_ms=info.timeout_ms,
        started_ms=None if info.started_ms < 0 else info.started_ms,
        open_ms=open_ms,
        hanging=is_open and open_ms * 2 > info.timeout_ms,
        partitions=[
            TransactionPartitions(topic, list(numbers)) for topic, numbers in info.partitions.items()
        ],
    )
