"""Members of a group whose partitions the broker assigns, in the form of the ledger."""

from __future__ import annotations

from mainstem.broker.groups.assignors import Partitions
from mainstem.broker.groups.consumer_member import STABLE, UNRELEASED, UNREVOKED, ConsumerMember
from mainstem.broker.groups.timers import Timer
from mainstem.ledger.consumer_groups import Assignment, ConsumerMemberState


def kept(member: ConsumerMember, target: Partitions) -> ConsumerMemberState:
    return ConsumerMemberState(
        member.member_id,
        member.epoch,
        member.previous_epoch,
        member.instance_id,
        member.rack,
        member.client_id,
        member.client_host,
        member.rebalance_ms,
        tuple(sorted(member.topics)),
        member.pattern,
        member.assignor,
        by_topic(member.assigned),
        by_topic(member.revoking),
        by_topic(target),
        member.session_ms,
        member.protocols,
    )


def restored(state: ConsumerMemberState, session: Timer, revocation: Timer) -> ConsumerMember:
    assigned, revoking = partitions(state.assigned), partitions(state.revoking)
    at_rest = STABLE if assigned == partitions(state.target) else UNRELEASED
    return ConsumerMember(
        state.member_id,
        state.instance_id,
        state.client_id,
        state.client_host,
        session,
        revocation,
        rebalance_ms=state.rebalance_ms,
        rack=state.rack,
        topics=frozenset(state.topics),
        pattern=state.pattern,
        assignor=state.assignor,
        epoch=state.epoch,
        previous_epoch=state.previous_epoch,
        state=UNREVOKED if revoking else at_rest,
        assigned=assigned,
        revoking=revoking,
        owned=assigned if at_rest == STABLE and not revoking else None,
        session_ms=state.session_ms,
        protocols=state.protocols,
    )


def partitions(assignment: Assignment) -> Partitions:
    return frozenset((topic, number) for topic, numbers in assignment for number in numbers)


def by_topic(given: Partitions) -> Assignment:
    topics: dict[bytes, list[int]] = {}
    for topic, number in sorted(given):
        topics.setdefault(topic, []).append(number)
    return tuple((topic, tuple(numbers)) for topic, numbers in topics.items())
