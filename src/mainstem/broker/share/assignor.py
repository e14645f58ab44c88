"""Which member of a share group reads which partition: a pure function of the subscriptions."""

from __future__ import annotations

from collections.abc import Mapping

from mainstem.broker.groups.assignors import Partitions, TopicPartition

NAME = "simple"


def assign_shared(
    readers: Mapping[str, frozenset[bytes]], partitions: Mapping[bytes, int]
) -> dict[str, Partitions]:
    """Assign every partition to at least one subscriber, and every subscriber a partition of each of its topics. If
    there are more members than partitions, several share one. Each topic begins with a different member."""
    given: dict[str, set[TopicPartition]] = {member: set() for member in readers}
    for shift, (topic, count) in enumerate(sorted(partitions.items())):
        members = sorted(member for member, topics in readers.items() if topic in topics)
        for place in range(max(count, len(members)) if members and count else 0):
            given[members[(place + shift) % len(members)]].add((topic, place % count))
    return {member: frozenset(parts) for member, parts in given.items()}
