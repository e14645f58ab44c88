"""Which partitions are read, and from where to where. Runs where the query is planned."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from mainstem.errors import InvalidInput, TopicNotFound
from mainstem.spark.broker import PartitionPosition, RemoteBroker, TopicPositions
from mainstem.spark.source import losses
from mainstem.spark.source.offsets import Partition, PartitionRange, Positions
from mainstem.spark.source.options import EARLIEST, LATEST, OffsetBound, SourceOptions

Looked = dict[str, TopicPositions]  # by topic, with the partitions that are read


class SourcePlanner:
    """`gone_is_fine`: topics by name may be missing, as they may once a stream that accepts losses has begun."""

    def __init__(self, broker: RemoteBroker, options: SourceOptions, *, gone_is_fine: bool = False) -> None:
        self._broker = broker
        self._options = options
        self._gone_is_fine = gone_is_fine

    # Topics

    def look(self, at: str | int = "latest") -> Looked:
        """Every topic that is read, as it is now. Raises TopicNotFound, InvalidInput."""
        options = self._options
        if options.assigned is not None:
            return {topic: self._assigned(topic, numbers, at) for topic, numbers in options.assigned.items()}
        if options.pattern:
            return self._present(self._matching(), at)
        if self._gone_is_fine:
            return self._present(options.topics, at)
        return {topic: self._places(topic, at) for topic in options.topics}

    def _present(self, topics: Iterable[str], at: str | int) -> Looked:
        """Those that are there."""
        found: Looked = {}
        for topic in topics:
            try:
                found[topic] = self._places(topic, at)
            except TopicNotFound:
                continue  # it was deleted since it was listed, or its loss is accepted
        return found

    def _matching(self) -> list[str]:
        pattern = re.compile(self._options.pattern)
        return [topic for topic in self._broker.topics() if pattern.fullmatch(topic)]

    def _places(self, topic: str, at: str | int) -> TopicPositions:
        places = self._broker.places(topic, at, committed_only=self._options.committed_only)
        if places.type == "queue":
            raise InvalidInput(f"topic {topic!r} is a queue: its jobs are claimed, not read")
        return places

    def _assigned(self, topic: str, numbers: tuple[int, ...], at: str | int) -> TopicPositions:
        places = self._places(topic, at)
        for number in numbers:
            if number >= places.partitions_total:
                raise InvalidInput(
                    f"option assign names partition {number} of topic {topic!r}, which has "
                    f"{places.partitions_total}"
                )
        chosen = tuple(one for one in places.partitions if one.partition in numbers)
        return TopicPositions(
            places.topic, places.id, places.type, places.max_batch_bytes, places.partitions_total, chosen
        )

    # Positions

    def starting(self) -> Positions:
        """Where a new query begins."""
        return self._positions(self._options.starting, "starting")

    def ending(self) -> Positions:
        """Where a query that ends does so."""
        return self._positions(self._options.ending, "ending")

    def latest(self) -> Positions:
        return _placed(self.look(), lambda topic, one: one.end)

    def _positions(self, place: OffsetBound, side: str) -> Positions:
        if place.kind == "latest":
            return self.latest()
        if place.kind == "earliest":
            return _placed(self.look("earliest"), lambda topic, one: one.start)
        if place.kind == "time":
            return self._at_time(place.time_ms, side)
        looked = self.look()
        self._check_named(looked, place, side)
        if place.kind == "times":
            times = {time for partitions in place.named.values() for time in partitions.values()}
            at = {time: self.look(time) for time in times}
            return _placed(
                looked,
                lambda topic, one: self._of_time(
                    at[place.named[topic][one.partition]][topic], one, place.named[topic][one.partition], side
                ),
            )
        return _placed(looked, lambda topic, one: _of_number(place.named[topic][one.partition], one))

    def _at_time(self, time_ms: int, side: str) -> Positions:
        looked = self.look(time_ms)
        return _placed(looked, lambda topic, one: self._of_time(looked[topic], one, time_ms, side))

    def _of_time(self, places: TopicPositions, one: PartitionPosition, time_ms: int, side: str) -> int:
        found = next(place for place in places.partitions if place.partition == one.partition)
        if found.offset is not None:
            return found.offset
        if side == "starting" and self._options.no_such_time == "error":
            raise InvalidInput(
                f"topic {places.topic!r}, partition {one.partition}, has no record of {time_ms} ms or later: set "
                "the option startingOffsetsByTimestampStrategy to latest to begin at its end"
            )
        return found.end

    def _check_named(self, looked: Looked, place: OffsetBound, side: str) -> None:
        """As in the Kafka source, an option that names partitions names all that are read, and no others."""
        read = {(topic, one.partition) for topic, places in looked.items() for one in places.partitions}
        named = {(topic, number) for topic, partitions in place.named.items() for number in partitions}
        option = f"{side}Offsets" + ("ByTimestamp" if place.kind == "times" else "")
        if read != named:
            missing = _partitions_text(read - named)
            foreign = _partitions_text(named - read)
            raise InvalidInput(
                f"option {option} names every partition that is read, and no other: "
                + "; ".join(
                    filter(None, (missing and f"not named: {missing}", foreign and f"not read: {foreign}"))
                )
            )

    # Checking what is to be read against what is there

    def checked(self, ranges: Iterable[PartitionRange], ids: dict[str, str]) -> list[PartitionRange]:
        """The ranges as far as they are there. What is not is reported: an error unless losses are accepted."""
        found: list[PartitionRange] = []
        looked: dict[str, TopicPositions | None] = {}
        for one in ranges:
            if one.topic not in looked:
                looked[one.topic] = self._current_topic(one.topic, ids[one.topic])
            kept = self._clipped(one, looked[one.topic])
            if kept is not None:
                found.append(kept)
        return found

    def _current_topic(self, topic: str, id: str) -> TopicPositions | None:
        """The topic, None if it is gone or another one has its name now."""
        try:
            places = self._broker.places(topic, committed_only=self._options.committed_only)
        except TopicNotFound:
            return None
        return places if places.id == id else None

    def _clipped(self, one: PartitionRange, places: TopicPositions | None) -> PartitionRange | None:
        if places is None:
            self._report(one, one.start, one.end, "the topic was deleted")
            return None
        here = next((place for place in places.partitions if place.partition == one.partition), None)
        if here is None or one.start > here.end:
            self._report(one, one.start, one.end, "the topic ends before them")
            return None
        start, end = max(one.start, here.start), min(one.end, here.end)
        if start > one.start:
            self._report(
                one, one.start, min(start, one.end), "retention removed them, or somebody deleted them"
            )
        if end < one.end:
            self._report(one, end, one.end, "the topic ends before them")
        return PartitionRange(one.topic, one.partition, start, end) if start < end else None

    def _report(self, one: PartitionRange, start: int, end: int, reason: str) -> None:
        losses.report(one.topic, one.partition, start, end, reason, fail=self._options.fail_on_data_loss)

    def caught_up(self, start: Positions, latest: Positions) -> tuple[Positions, Positions]:
        """Both positions over the same partitions: new ones begin at their start, lost ones are reported.

        A topic that was made anew under its old name begins at its start, too, once its loss is accepted."""
        fresh = {topic for topic, id in latest.ids.items() if start.ids.get(topic) != id}
        self._report_gone(start, latest, fresh)
        begun: dict[Partition, int] = {
            key: start.offsets[key] for key in latest.offsets if key in start.offsets and key[0] not in fresh
        }
        unknown = latest.offsets.keys() - begun.keys()
        if unknown:
            earliest = _placed(self.look("earliest"), lambda topic, one: one.start)
            begun |= {key: min(earliest.offsets.get(key, 0), latest.offsets[key]) for key in unknown}
        # A position never goes back: what lies before it was read, whatever is there by now.
        reached = {key: max(offset, begun[key]) for key, offset in latest.offsets.items()}
        return Positions(latest.ids, begun), Positions(latest.ids, reached)

    def _report_gone(self, start: Positions, latest: Positions, fresh: set[str]) -> None:
        for (topic, partition), offset in sorted(start.offsets.items()):
            if topic not in latest.ids or topic in fresh:
                reason = "the topic was deleted" if topic not in latest.ids else "the topic was made anew"
                losses.report(topic, partition, offset, None, reason, fail=self._options.fail_on_data_loss)


def _placed(looked: Looked, offset_of: Callable[[str, PartitionPosition], int]) -> Positions:
    return Positions(
        {topic: places.id for topic, places in looked.items()},
        {
            (topic, one.partition): offset_of(topic, one)
            for topic, places in looked.items()
            for one in places.partitions
        },
    )


def _of_number(number: int, one: PartitionPosition) -> int:
    if number == EARLIEST:
        return one.start
    if number == LATEST:
        return one.end
    return number


def _partitions_text(partitions: set[Partition]) -> str:
    return ", ".join(f"{topic}-{number}" for topic, number in sorted(partitions)[:10])
