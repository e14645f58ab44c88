"""Choose the partitions that a query reads, and their start and end. Runs where the query is planned."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

import msgspec

from mainstem.api.topics import PartitionPosition, TopicPositions
from mainstem.client.broker import BrokerClient
from mainstem.errors import InvalidInput, TopicNotFound
from mainstem.spark.source import losses
from mainstem.spark.source.offsets import Partition, PartitionRange, Positions
from mainstem.spark.source.options import EARLIEST, LATEST, OffsetBound, SourceOptions

Topics = dict[str, TopicPositions]  # by topic, with the partitions that are read


class SourcePlanner:
    """With `allow_missing`, named topics may be missing: the case of a started stream that accepts losses."""

    def __init__(self, broker: BrokerClient, options: SourceOptions, *, allow_missing: bool = False) -> None:
        self._broker = broker
        self._options = options
        self._allow_missing = allow_missing

    # Topics

    def topics(self, at: str | int = "latest") -> Topics:
        """The current positions of every topic that is read. Raises TopicNotFound, InvalidInput."""
        options = self._options
        if options.assigned is not None:
            return {topic: self._assigned(topic, numbers, at) for topic, numbers in options.assigned.items()}
        if options.pattern:
            return self._existing(self._matching(), at)
        if self._allow_missing:
            return self._existing(options.topics, at)
        return {topic: self._topic(topic, at) for topic in options.topics}

    def _existing(self, topics: Iterable[str], at: str | int) -> Topics:
        """The topics that exist."""
        found: Topics = {}
        for topic in topics:
            try:
                found[topic] = self._topic(topic, at)
            except TopicNotFound:
                continue  # deleted since it was listed, or its loss is accepted
        return found

    def _matching(self) -> list[str]:
        pattern = re.compile(self._options.pattern)
        return [topic for topic in self._broker.topics() if pattern.fullmatch(topic)]

    def _topic(self, topic: str, at: str | int) -> TopicPositions:
        positions = self._broker.positions(topic, at, committed_only=self._options.committed_only)
        if positions.type == "queue":
            raise InvalidInput(f"topic {topic!r} is a queue: claim its jobs instead of reading it")
        return positions

    def _assigned(self, topic: str, numbers: tuple[int, ...], at: str | int) -> TopicPositions:
        positions = self._topic(topic, at)
        for number in numbers:
            if number >= positions.partitions_total:
                raise InvalidInput(
                    f"option assign has partition {number} of topic {topic!r}, which has "
                    f"{positions.partitions_total} partitions"
                )
        chosen = tuple(one for one in positions.partitions if one.partition in numbers)
        return msgspec.structs.replace(positions, partitions=chosen)

    # Positions

    def starting(self) -> Positions:
        """The start of a new query."""
        return self._positions(self._options.starting, "starting")

    def ending(self) -> Positions:
        """The end of a batch query."""
        return self._positions(self._options.ending, "ending")

    def latest(self) -> Positions:
        return _positions_by(self.topics(), lambda topic, one: one.end)

    def _positions(self, bound: OffsetBound, side: str) -> Positions:
        if bound.kind == "latest":
            return self.latest()
        if bound.kind == "earliest":
            return _positions_by(self.topics("earliest"), lambda topic, one: one.start)
        if bound.kind == "time":
            return self._at_time(bound.time_ms, side)
        topics = self.topics()
        self._check_complete(topics, bound, side)
        if bound.kind == "times":
            times = {time for partitions in bound.positions.values() for time in partitions.values()}
            at = {time: self.topics(time) for time in times}
            return _positions_by(
                topics,
                lambda topic, one: self._offset_at_time(
                    at[bound.positions[topic][one.partition]][topic],
                    one,
                    bound.positions[topic][one.partition],
                    side,
                ),
            )
        return _positions_by(
            topics, lambda topic, one: _resolve_offset(bound.positions[topic][one.partition], one)
        )

    def _at_time(self, time_ms: int, side: str) -> Positions:
        topics = self.topics(time_ms)
        return _positions_by(
            topics, lambda topic, one: self._offset_at_time(topics[topic], one, time_ms, side)
        )

    def _offset_at_time(self, topic: TopicPositions, one: PartitionPosition, time_ms: int, side: str) -> int:
        found = next(each for each in topic.partitions if each.partition == one.partition)
        if found.offset is not None:
            return found.offset
        if side == "starting" and self._options.no_such_time == "error":
            raise InvalidInput(
                f"topic {topic.topic!r}, partition {one.partition}, has no record at or after {time_ms} ms: set "
                "the option startingOffsetsByTimestampStrategy to latest to start at its end"
            )
        return found.end

    def _check_complete(self, topics: Topics, bound: OffsetBound, side: str) -> None:
        """Like the Kafka source, an option with positions must have all partitions that are read, and no others."""
        read = {(topic, one.partition) for topic, positions in topics.items() for one in positions.partitions}
        named = {(topic, number) for topic, partitions in bound.positions.items() for number in partitions}
        option = f"{side}Offsets" + ("ByTimestamp" if bound.kind == "times" else "")
        if read != named:
            missing = _partitions_text(read - named)
            foreign = _partitions_text(named - read)
            raise InvalidInput(
                f"option {option} must name every partition that is read, and no other: "
                + "; ".join(
                    filter(None, (missing and f"not named: {missing}", foreign and f"not read: {foreign}"))
                )
            )

    # Checking ranges against the current topics

    def check_ranges(self, ranges: Iterable[PartitionRange], ids: dict[str, str]) -> list[PartitionRange]:
        """The parts of the ranges that still exist. Reports the rest: an error unless losses are accepted."""
        found: list[PartitionRange] = []
        topics: dict[str, TopicPositions | None] = {}
        for one in ranges:
            if one.topic not in topics:
                topics[one.topic] = self._current_topic(one.topic, ids[one.topic])
            kept = self._clipped(one, topics[one.topic])
            if kept is not None:
                found.append(kept)
        return found

    def _current_topic(self, topic: str, id: str) -> TopicPositions | None:
        """The topic; None if it was deleted or recreated."""
        try:
            positions = self._broker.positions(topic, committed_only=self._options.committed_only)
        except TopicNotFound:
            return None
        return positions if positions.id == id else None

    def _clipped(self, one: PartitionRange, topic: TopicPositions | None) -> PartitionRange | None:
        if topic is None:
            self._report(one, one.start, one.end, "the topic was deleted")
            return None
        current = next((each for each in topic.partitions if each.partition == one.partition), None)
        if current is None or one.start > current.end:
            self._report(one, one.start, one.end, "the topic ends before them")
            return None
        start, end = max(one.start, current.start), min(one.end, current.end)
        if start > one.start:
            self._report(one, one.start, min(start, one.end), "retention or a client deleted them")
        if end < one.end:
            self._report(one, end, one.end, "the topic ends before them")
        return PartitionRange(one.topic, one.partition, start, end) if start < end else None

    def _report(self, one: PartitionRange, start: int, end: int, reason: str) -> None:
        losses.report(one.topic, one.partition, start, end, reason, fail=self._options.fail_on_data_loss)

    def caught_up(self, start: Positions, latest: Positions) -> tuple[Positions, Positions]:
        """Both positions over the same partitions: new partitions start at their first offset, lost ones are reported.

        A recreated topic also starts at its first offset, once its loss is accepted."""
        recreated = {topic for topic, id in latest.ids.items() if start.ids.get(topic) != id}
        self._report_deleted(start, latest, recreated)
        begun: dict[Partition, int] = {
            key: start.offsets[key]
            for key in latest.offsets
            if key in start.offsets and key[0] not in recreated
        }
        added = latest.offsets.keys() - begun.keys()
        if added:
            earliest = _positions_by(self.topics("earliest"), lambda topic, one: one.start)
            begun |= {key: min(earliest.offsets.get(key, 0), latest.offsets[key]) for key in added}
        # A position never goes back: everything before it was read, even if the topic has other records there now.
        reached = {key: max(offset, begun[key]) for key, offset in latest.offsets.items()}
        return Positions(latest.ids, begun), Positions(latest.ids, reached)

    def _report_deleted(self, start: Positions, latest: Positions, recreated: set[str]) -> None:
        for (topic, partition), offset in sorted(start.offsets.items()):
            if topic not in latest.ids or topic in recreated:
                reason = "the topic was deleted" if topic not in latest.ids else "the topic was recreated"
                losses.report(topic, partition, offset, None, reason, fail=self._options.fail_on_data_loss)


def _positions_by(topics: Topics, offset_of: Callable[[str, PartitionPosition], int]) -> Positions:
    return Positions(
        {topic: positions.id for topic, positions in topics.items()},
        {
            (topic, one.partition): offset_of(topic, one)
            for topic, positions in topics.items()
            for one in positions.partitions
        },
    )


def _resolve_offset(number: int, one: PartitionPosition) -> int:
    if number == EARLIEST:
        return one.start
    if number == LATEST:
        return one.end
    return number


def _partitions_text(partitions: set[Partition]) -> str:
    return ", ".join(f"{topic}-{number}" for topic, number in sorted(partitions)[:10])
