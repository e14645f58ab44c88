"""Assignors: which member reads which partition, as pure functions of the subscriptions.

Each one assigns every partition of a subscribed topic to exactly one of its subscribers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from heapq import heapify, heappop, heappush

TopicPartition = tuple[bytes, int]  # topic id, partition
Partitions = frozenset[TopicPartition]

# member → topics it reads, topic → number of partitions, member → its previous partitions
Assignor = Callable[
    [Mapping[str, frozenset[bytes]], Mapping[bytes, int], Mapping[str, Partitions]], dict[str, Partitions]
]


def assign_ranges(
    readers: Mapping[str, frozenset[bytes]],
    partitions: Mapping[bytes, int],
    before: Mapping[str, Partitions],
) -> dict[str, Partitions]:
    """Assign each topic in runs of adjacent partitions, by member name. Topics with the same number of partitions are
    split the same way, so equal keys of two topics go to one member. Previous assignments do not matter."""
    given: dict[str, set[TopicPartition]] = {member: set() for member in readers}
    for topic, count in partitions.items():
        members = sorted(member for member, topics in readers.items() if topic in topics)
        start = 0
        for place, member in enumerate(members):
            size = count // len(members) + (place < count % len(members))
            given[member].update((topic, number) for number in range(start, start + size))
            start += size
    return _frozen(given)


def assign_uniformly(
    readers: Mapping[str, frozenset[bytes]],
    partitions: Mapping[bytes, int],
    before: Mapping[str, Partitions],
) -> dict[str, Partitions]:
    """Assign as evenly as the subscriptions allow, with as few changes as possible."""
    given, free = _split_kept(readers, partitions, before)
    if len(set(readers.values())) <= 1:
        _level(given, free)
    else:
        _place_each(given, free, readers)
        _balance(given, readers)
    return _frozen(given)


ASSIGNORS: dict[str, Assignor] = {"uniform": assign_uniformly, "range": assign_ranges}
DEFAULT_ASSIGNOR = "uniform"


def _split_kept(
    readers: Mapping[str, frozenset[bytes]],
    partitions: Mapping[bytes, int],
    before: Mapping[str, Partitions],
) -> tuple[dict[str, set[TopicPartition]], list[TopicPartition]]:
    """The partitions that each member keeps, and the unassigned ones."""
    subscribed = frozenset[bytes]().union(*readers.values())
    free = {
        (topic, number): None  # a dict, because it is ordered
        for topic, count in partitions.items()
        if topic in subscribed
        for number in range(count)
    }
    given: dict[str, set[TopicPartition]] = {member: set() for member in sorted(readers)}
    for member, kept in given.items():
        for partition in sorted(before.get(member, ())):
            if partition[0] in readers[member] and partition in free:
                kept.add(partition)
                del free[partition]
    return given, list(free)


def _level(given: dict[str, set[TopicPartition]], free: list[TopicPartition]) -> None:
    """All members read the same topics: level their counts to within one; members with more keep the extra one."""
    if not given:
        return
    total = len(free) + sum(map(len, given.values()))
    least, more = divmod(total, len(given))
    rank = sorted(given, key=lambda member: -len(given[member]))
    quota = {member: least + (place < more) for place, member in enumerate(rank)}
    for member, kept in given.items():
        for partition in sorted(kept)[quota[member] :]:
            kept.discard(partition)
            free.append(partition)
    rest = iter(free)
    for member, kept in given.items():
        while len(kept) < quota[member]:
            kept.add(next(rest))


def _place_each(
    given: dict[str, set[TopicPartition]],
    free: Sequence[TopicPartition],
    readers: Mapping[str, frozenset[bytes]],
) -> None:
    """Give each unassigned partition to the reader of its topic with the fewest partitions."""
    heaps: dict[bytes, list[tuple[int, str]]] = {}
    for topic, number in free:
        heap = heaps.get(topic)
        if heap is None:
            heap = heaps[topic] = [(len(given[m]), m) for m, topics in readers.items() if topic in topics]
            heapify(heap)
        load, member = heappop(heap)
        while load != len(given[member]):  # it got partitions of another topic in the meantime
            heappush(heap, (len(given[member]), member))
            load, member = heappop(heap)
        given[member].add((topic, number))
        heappush(heap, (load + 1, member))


def _balance(given: dict[str, set[TopicPartition]], readers: Mapping[str, frozenset[bytes]]) -> None:
    """Move single partitions until no move makes the counts of two members more equal."""
    of_topic: dict[bytes, list[str]] = {}
    for member, topics in readers.items():
        for topic in topics:
            of_topic.setdefault(topic, []).append(member)

    def load(member: str) -> int:
        return len(given[member])

    moved = True
    while moved:  # terminates: each move lowers the sum of the squared loads
        moved = False
        least: dict[bytes, str] = {}  # topic → its reader with the fewest partitions; valid until a move
        for member in sorted(given, key=load, reverse=True):
            if load(member) - min(map(len, given.values())) <= 1:
                break  # the members after it have no surplus either
            for partition in sorted(given[member]):
                topic = partition[0]
                if topic not in least:
                    least[topic] = min(of_topic[topic], key=load)
                if load(member) - load(least[topic]) > 1:
                    given[member].discard(partition)
                    given[least[topic]].add(partition)
                    least.clear()
                    moved = True


def _frozen(given: Mapping[str, set[TopicPartition]]) -> dict[str, Partitions]:
    return {member: frozenset(partitions) for member, partitions in given.items()}
