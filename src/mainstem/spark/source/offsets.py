"""Positions in partitions, and what can be reckoned with them. No I/O in here.

A stream's checkpoint holds them as JSON, by topic: its id, and the next offset to read of each partition.
The id tells a topic from another one that was made later under the same name.

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
            known = by_topic.setdefault(topic, {"id": self.ids[topic], "offsets": {}})
            known["offsets"][str(partition)] = offset
        return by_topic

    @classmethod
    def of_json(cls, value: Mapping[str, Any]) -> Positions:
        """Raises InvalidInput for what is no checkpoint of this source."""
        try:
            ids = {topic: str(known["id"]) for topic, known in value.items()}
            offsets = {
                (topic, int(partition)): int(offset)
                for topic, known in value.items()
                for partition, offset in known["offsets"].items()
            }
        except (KeyError, TypeError, ValueError, AttributeError):
            raise InvalidInput(f"these are no offsets of this source: {str(value)[:200]}") from None
        return cls(ids, offsets)


def ranges_between(start: Positions, end: Positions) -> list[PartitionRange]:
    """What lies between two positions, by topic and partition; partitions that only the end has are left out."""
    return [
        PartitionRange(topic, partition, start.offsets[topic, partition], offset)
        for (topic, partition), offset in sorted(end.offsets.items())
        if (topic, partition) in start.offsets and offset > start.offsets[topic, partition]
    ]


def distance(start: Positions, end: Positions) -> int:
    """How many offsets lie between."""
    return sum(map(len, ranges_between(start, end)))


def limited(start: Positions, end: Positions, most: int) -> Positions:
    """As far towards the end as `most` offsets go, shared among partitions by how much each has."""
    ranges = ranges_between(start, end)
    total = sum(map(len, ranges))
    if total <= most:
        return end
    shares = [most * len(one) // total for one in ranges]
    # What rounding left goes to those it cost most, so that the shares add up and a small backlog moves, too.
    cut = sorted(range(len(ranges)), key=lambda i: -(most * len(ranges[i]) % total))
    for i in cut[: most - sum(shares)]:
        shares[i] += 1
    reached = {
        (one.topic, one.partition): one.start + share for one, share in zip(ranges, shares, strict=True)
    }
    return Positions(end.ids, {**end.offsets, **reached})


def split(ranges: Iterable[PartitionRange], pieces: int | None) -> list[PartitionRange]:
    """The same offsets in at least so many ranges, if there are enough offsets; large ones give more pieces."""
    known = [one for one in ranges if len(one)]
    if pieces is None or len(known) >= pieces:
        return known
    total = sum(map(len, known))
    found: list[PartitionRange] = []
    left, offsets_left = min(pieces, total), total
    for one in known:
        # Its share of the pieces that are still due, to the nearest: the last range takes all that are left.
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
