"""Members of both protocols in one group, while its clients are upgraded or downgraded one by one (KIP-848).

| event | what happens |
|---|---|
| a member of the next generation joins a classic group | the broker assigns the partitions from now on (`upgraded`) |
| a classic member joins such a group | it gets its assignment from the broker (`heartbeat_of`, `assignment_for`) |
| the last member of the next generation leaves | the members assign the partitions again (`downgraded`) |

Classic members keep their partitions in both cases: they learn from their next heartbeat that they must join again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from mainstem.broker.groups.assignors import Partitions
from mainstem.broker.groups.classic import ClassicGroup
from mainstem.broker.groups.consumer import ConsumerGroup
from mainstem.broker.groups.consumer_member import ConsumerHeartbeat, ConsumerMember
from mainstem.broker.groups.consumer_protocol import (
    CONSUMER_PROTOCOL,
    ByName,
    TopicSubscription,
    read_assignment,
    read_subscription,
    write_assignment,
)
from mainstem.broker.groups.member import ClassicMember, Join
from mainstem.broker.groups.member_states import by_topic
from mainstem.broker.namespaces import DEFAULT, split_id, view_of
from mainstem.errors import InconsistentProtocol, WrongGroupKind
from mainstem.ledger.consumer_groups import ConsumerMemberState, StoredGroup
from mainstem.ledger.topics import Topics


class MovedMember(NamedTuple):
    """A classic member of a group whose members assign the partitions again."""

    join: Join
    generation: int  # that it knows
    assignment: bytes


def heartbeat_of(join: Join, topics: Topics) -> ConsumerHeartbeat:
    """The join of a classic member, as a heartbeat. Raises InconsistentProtocol."""
    subscription = read_subscription(join.protocols[0][1]) if join.protocols else None
    if join.protocol_type != CONSUMER_PROTOCOL or subscription is None:
        raise InconsistentProtocol(
            f"the broker assigns the partitions of group {join.group!r}: only consumers can join it"
        )
    return ConsumerHeartbeat(
        group=join.group,
        member_id=join.member_id,
        epoch=0,
        instance_id=join.instance_id,
        rack=subscription.rack,
        rebalance_ms=join.rebalance_ms,
        topics=_full_names(join.group, subscription.topics),
        pattern="",
        owned=_partitions(join.group, subscription.owned, topics),
        client_id=join.client_id,
        client_host=join.client_host,
        session_ms=join.session_ms,
        protocols=join.protocols,
    )


def assignment_for(group: str, member: ConsumerMember, topics: Topics) -> bytes:
    """The partitions that a classic member may read, in the form that it reads."""
    subscription = read_subscription(member.protocols[0][1])
    version = 0 if subscription is None else subscription.version
    named: dict[str, tuple[int, ...]] = {}
    for topic_id, numbers in by_topic(member.assigned):
        topic = topics.by_id(topic_id)
        name = None if topic is None else _plain_name(group, topic.name)
        if name is not None:
            named[name] = numbers
    return write_assignment(version, named)


def upgraded(group: ClassicGroup, topics: Topics) -> StoredGroup:
    """The members of a classic group as members of a group whose partitions the broker assigns.

    Raises WrongGroupKind if the broker cannot read what they tell each other."""
    after = StoredGroup(group.name)
    after.epoch = after.target_epoch = group.generation
    held: set[tuple[bytes, int]] = set()
    for member in group.members.values():
        metadata = member.metadata(group.protocol) or member.protocols[0][1]
        subscription, assigned = read_subscription(metadata), read_assignment(member.assignment)
        if group.protocol_type != CONSUMER_PROTOCOL or subscription is None or assigned is None:
            raise WrongGroupKind(f"group {group.name!r} has members of another protocol: {group.kind}")
        partitions = _partitions(group.name, assigned, topics)
        if held & partitions:
            raise WrongGroupKind(f"members of group {group.name!r} share partitions: stop them first")
        held |= partitions
        after.put(_state(group, member, subscription, partitions))
    return after


def downgraded(group: ConsumerGroup, topics: Topics) -> list[MovedMember]:
    """The members of a group without members of the next generation."""
    return [
        MovedMember(
            Join(
                group=group.name,
                protocol_type=CONSUMER_PROTOCOL,
                protocols=member.protocols,
                session_ms=member.session_ms,
                rebalance_ms=member.rebalance_ms,
                member_id=member.member_id,
                instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
            ),
            member.epoch,
            assignment_for(group.name, member, topics),
        )
        for member in group.members.values()
    ]


def _state(
    group: ClassicGroup, member: ClassicMember, subscription: TopicSubscription, partitions: Partitions
) -> ConsumerMemberState:
    assigned = by_topic(partitions)
    return ConsumerMemberState(
        member.member_id,
        group.generation,
        0,
        member.instance_id,
        subscription.rack,
        member.client_id,
        member.client_host,
        member.rebalance_ms,
        tuple(sorted(_full_names(group.name, subscription.topics))),
        None,
        None,
        assigned,
        (),
        assigned,
        member.session_ms,
        member.protocols,
    )


def _partitions(group: str, named: ByName, topics: Topics) -> Partitions:
    """Partitions by topic id. Topics that were deleted are left out."""
    return frozenset(
        (topic.topic_id, number)
        for name, numbers in named.items()
        if (topic := topics.get(_full_name(group, name))) is not None
        for number in numbers
        if 0 <= number < len(topic.streams)
    )


def _full_names(group: str, names: Iterable[str]) -> frozenset[str]:
    return frozenset(_full_name(group, name) for name in names)


def _full_name(group: str, name: str) -> str:
    """Members of a namespace's group use plain names among themselves."""
    namespace = split_id(group)[0]
    return name if namespace == DEFAULT else view_of(namespace).topic(name)


def _plain_name(group: str, name: str) -> str | None:
    namespace = split_id(group)[0]
    return name if namespace == DEFAULT else view_of(namespace).plain_topic(name)
