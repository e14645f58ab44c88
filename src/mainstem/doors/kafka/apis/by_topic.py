"""Group partitions by topic, as messages list them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from uuid import UUID

from kio.schema.types import TopicName
from kio.static.primitive import i32

from mainstem.broker.access.rules import Operation, ResourceType
from mainstem.broker.groups.assignors import Partitions, TopicPartition
from mainstem.doors.kafka.transport.api import Call

HIDDEN = "its members read topics that the access rules do not let you describe"


def by_topic(partitions: Partitions) -> dict[bytes, tuple[i32, ...]]:
    """The partition numbers of each topic id, in order."""
    topics: dict[bytes, list[i32]] = {}
    for topic_id, number in sorted(partitions):
        topics.setdefault(topic_id, []).append(i32(number))
    return {topic_id: tuple(numbers) for topic_id, numbers in topics.items()}


def named_by_topic(call: Call, partitions: Partitions) -> Iterator[tuple[UUID, TopicName, tuple[i32, ...]]]:
    """The same by topic name. Deleted topics have no name and are left out."""
    for topic_id, numbers in by_topic(partitions).items():
        topic = call.context.broker.streams.get_by_id(topic_id)
        if topic is not None:
            yield UUID(bytes=topic_id), TopicName(topic.name), numbers


def hidden(call: Call, held: Iterable[Partitions]) -> bool:
    """Whether these belong to topics whose names the client may not see."""
    everything = frozenset[TopicPartition]().union(*held) if call.restricted else frozenset()
    return not all(
        call.may(Operation.DESCRIBE, ResourceType.TOPIC, name)
        for _, name, _ in named_by_topic(call, everything)
    )
