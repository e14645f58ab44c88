"""Members of a group whose partitions or tasks the broker assigns, in the form of the ledger."""

from __future__ import annotations

from typing import Any

from mainstem.broker.groups.assigned_member import STABLE, UNRELEASED, UNREVOKED, AssignedMember
from mainstem.broker.groups.assignors import Partitions
from mainstem.broker.groups.consumer_member import ConsumerMember
from mainstem.broker.groups.streams_member import StreamsMember
from mainstem.broker.groups.timers import Timer
from mainstem.ledger.consumer_groups import Assignment, ConsumerMemberState, StreamsMemberState


def stored_consumer(member: ConsumerMember, target: Partitions) -> ConsumerMemberState:
    return _stored(
        member,
        target,
        tuple(sorted(member.topics)),
        member.pattern,
        member.assignor,
        session_ms=member.session_ms,
        protocols=member.protocols,
    )


def restored_consumer(state: ConsumerMemberState, session: Timer, revocation: Timer) -> ConsumerMember:
    return ConsumerMember(
        **_restored(state, session, revocation),
        topics=frozenset(state.topics),
        pattern=state.pattern,
        assignor=state.assignor,
        session_ms=state.session_ms,
        protocols=state.protocols,
    )


def stored_streams(member: StreamsMember, target: Partitions) -> ConsumerMemberState:
    own = StreamsMemberState(member.process_id, member.topology_epoch, member.endpoint, member.tags)
    return _stored(member, target, streams=own)


def restored_streams(state: ConsumerMemberState, session: Timer, revocation: Timer) -> StreamsMember:
    own = state.streams or StreamsMemberState("", 0, None, ())
    return StreamsMember(
        **_restored(state, session, revocation),
        process_id=own.process_id,
        topology_epoch=own.topology_epoch,
        endpoint=own.endpoint,
        tags=own.tags,
    )


def _stored(
    member: AssignedMember,
    target: Partitions,
    topics: tuple[str, ...] = (),
    pattern: str | None = None,
    assignor: str | None = None,
    **own: Any,
) -> ConsumerMemberState:
    return ConsumerMemberState(
        member.member_id,
        member.epoch,
        member.previous_epoch,
        member.instance_id,
        member.rack,
        member.client_id,
        member.client_host,
        member.rebalance_ms,
        topics,
        pattern,
        assignor,
        by_topic(member.assigned),
        by_topic(member.revoking),
        by_topic(target),
        **own,
    )


def _restored(state: ConsumerMemberState, session: Timer, revocation: Timer) -> dict[str, Any]:
    """The fields of every kind of member."""
    assigned, revoking = partitions(state.assigned), partitions(state.revoking)
    at_rest = STABLE if assigned == partitions(state.target) else UNRELEASED
    return {
        "member_id": state.member_id,
        "instance_id": state.instance_id,
        "client_id": state.client_id,
        "client_host": state.client_host,
        "session": session,
        "revocation": revocation,
        "rebalance_ms": state.rebalance_ms,
        "rack": state.rack,
        "epoch": state.epoch,
        "previous_epoch": state.previous_epoch,
        "state": UNREVOKED if revoking else at_rest,
        "assigned": assigned,
        "revoking": revoking,
        "owned": assigned if at_rest == STABLE and not revoking else None,
    }


def partitions(assignment: Assignment) -> Partitions:
    return frozenset((topic, number) for topic, numbers in assignment for number in numbers)


def by_topic(given: Partitions) -> Assignment:
    topics: dict[bytes, list[int]] = {}
    for topic, number in sorted(given):
        topics.setdefault(topic, []).append(number)
    return tuple((topic, tuple(numbers)) for topic, numbers in topics.items())
