"""Partitions as messages list them: by topic."""

from __future__ import annotations

from kio.static.primitive import i32

from mainstem.broker.group.assignors import Partitions


def by_topic(partitions: Partitions) -> dict[bytes, tuple[i32, ...]]:
    """The numbers of the partitions of each topic id, in order."""
    topics: dict[bytes, list[i32]] = {}
    for topic_id, number in sorted(partitions):
        topics.setdefault(topic_id, []).append(i32(number))
    return {topic_id: tuple(numbers) for topic_id, numbers in topics.items()}
