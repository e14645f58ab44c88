"""Positions in partitions, and arithmetic on them. No I/O.

The checkpoint of a stream stores positions as JSON, by topic: its id, and the next offset to read of each partition.
The id distinguishes a topic from a later one of the same name.

    {"orders": {"id": "5f…", "offsets": {"0": 17, "1": 4}}}
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mainstem.errors import InvalidInput

Partition = tuple[str, int]  # topic, number


@dataclass(frozen=True, slots=True)
class PartitionRange:
    """Offsets [start, end) of a partition."""

    topic: str
    partition: int
    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Positions:
    """The next offset to read of each partition."""

    ids: Mapping[str, str]  # by topic
    offsets: Mapping[Partition, int]

    def as_json(self) -> dict[str, Any]:
        by_topic: dict[str, Any] = {}
        for (topic, partition), offset in sorted(self.offsets.items()):
            state = by_topic.setdefault(topic, {"id": self.ids[topic], "offsets": {}})
            state["offsets"][str(partition)] = offset
        return by_topic

    @classmethod
    def of_json(cls, value: Mapping[str, Any]) -> Positions:
        """Raises InvalidInput for JSON that is not a checkpoint of this source."""
        try:
            ids = {topic: str(state["id"]) for topic, state in value.items()}
            offsets = {
                (topic, int(partition)): int(offset)
                for topic, state in value.items()
                for partition, offset in state["offsets"].items()
            }
        except (KeyError, TypeError, ValueError, AttributeError):
            raise InvalidInput(f"not an offset of this source: {str(value)[:200]}") from None
        return cls(ids, offsets)


def ranges_between(start: Positions, end: Positions) -> list[PartitionRange]:
    """The ranges between two positions, by topic and partition, without partitions that `start` does not have."""
    return [
        PartitionRange(topic, partition, start.offsets[topic, partition], offset)
        for (topic, partition), offset in sorted(end.offsets.items())
        if (topic, partition) in start.offsets and offset > start.offsets[topic, partition]
    ]


def distance(start: Positions, end: Positions) -> int:
    """The number of offsets between two positions."""
    return sum(map(len, ranges_between(start, end)))


def limited(start: Positions, end: Positions, offsets_max: int) -> Positions:
    """The position at most `offsets_max` offsets after `start`, shared among partitions by their backlog."""
    ranges = ranges_between(start, end)
    total = sum(map(len, ranges))
    if total <= offsets_max:
        return end
    shares = [offsets_max * len(one) // total for one in ranges]
    # The remainder goes to the partitions with the largest fractions: the shares add up, and small backlogs advance.
    by_fraction = sorted(range(len(ranges)), key=lambda i: -(offsets_max * len(ranges[i]) % total))
    for i in by_fraction[: offsets_max - sum(shares)]:
        shares[i] += 1
    reached = {
        (one.topic, one.partition): one.start + share for one, share in zip(ranges, shares, strict=True)
    }
    return Positions(end.ids, {**end.offsets, **reached})


def split(ranges: Iterable[PartitionRange], pieces: int | None) -> list[PartitionRange]:
    """Split ranges into at least this number of pieces, if there are enough offsets; larger ranges get more pieces."""
    nonempty = [one for one in ranges if len(one)]
    if pieces is None or len(nonempty) >= pieces:
        return nonempty
    total = sum(map(len, nonempty))
    found: list[PartitionRange] = []
    left, offsets_left = min(pieces, total), total
    for one in nonempty:
        # Its share of the remaining pieces, rounded: the last range gets all that are left.
        share = min(max(1, (2 * left * len(one) + offsets_left) // (2 * offsets_left)), len(one))
        found += _split_range(one, share)
        left -= share
        offsets_left -= len(one)
    return found


def _split_range(one: PartitionRange, pieces: int) -> Iterator[PartitionRange]:
    for piece in range(pieces):
        start = one.start + len(one) * piece // pieces
        end = one.start + len(one) * (piece + 1) // pieces
        yield PartitionRange(one.topic, one.partition, start, end)
