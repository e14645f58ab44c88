"""Who reads which partition in a share group: a pure function of who subscribes to what."""

from __future__ import annotations

from collections.abc import Mapping

from mainstem.broker.groups.assignors import Partitions, TopicPartition

NAME = "simple"


def assign_shared(
    readers: Mapping[str, frozenset[bytes]], partitions: Mapping[bytes, int]
) -> dict[str, Partitions]:
    """Every partition to a subscriber at least, and every subscriber a partition of each of its topics: where there
    are more of the one than of the other, several share one. Each topic begins with another member."""
    given: dict[str, set[TopicPartition]] = {member: set() for member in readers}
    for shift, (topic, count) in enumerate(sorted(partitions.items())):
        members = sorted(member for member, topics in readers.items() if topic in topics)
        for place in range(max(count, len(members)) if members and count else 0):
            given[members[(place + shift) % len(members)]].add((topic, place % count))
    return {member: frozenset(parts) for member, parts in given.items()}
