"""What a read is asked for: topics, where to begin and end, limits. The names are those of Spark's Kafka source."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import msgspec

from mainstem.errors import InvalidInput
from mainstem.spark.option_values import OptionValues

EARLIEST = -2
LATEST = -1

_ByPartition = dict[str, dict[int, int]]
_MAX_TRIGGER_DELAY_MS = 900_000


@dataclass(frozen=True, slots=True)
class OffsetBound:
    """Where to begin or to end: the same for all partitions, or by topic and partition."""

    kind: Literal["earliest", "latest", "offsets", "time", "times"]
    time_ms: int = 0
    by_partition: _ByPartition | None = None

    @property
    def named(self) -> _ByPartition:
        return self.by_partition or {}


@dataclass(frozen=True, slots=True)
class SourceOptions:
    url: str
    api_key: str
    topics: tuple[str, ...]  # by name …
    pattern: str  # … by a regular expression …
    assigned: dict[str, tuple[int, ...]] | None  # … or partition by partition
    starting: OffsetBound
    ending: OffsetBound
    no_such_time: Literal["error", "latest"]  # where to start if no record is so late
    fail_on_data_loss: bool
    max_offsets: int | None
    min_offsets: int | None
    max_trigger_delay_ms: int  # `min_offsets` are waited for so long, and no longer
    min_partitions: int | None
    headers: bool
    committed_only: bool
    group: str
    value_format: Literal["raw", "json"]
    malformed: Literal["permissive", "failfast", "dropmalformed"]
    via_broker: bool  # read nothing but what the broker hands out, as where its objects cannot be reached

    @classmethod
    def parse(cls, given: Mapping[str, str], *, streaming: bool) -> SourceOptions:
        """Raises InvalidInput, saying which option and what it takes."""
        values = OptionValues(given)
        topics, pattern, assigned = _subscription(values)
        starting = _place(values, "starting", "latest" if streaming else "earliest")
        ending = _place(values, "ending", "latest")
        _check_places(starting, ending, streaming)
        options = cls(
            url=values.url(),
            api_key=values.api_key(),
            topics=topics,
            pattern=pattern,
            assigned=assigned,
            starting=starting,
            ending=ending,
            no_such_time=values.choice("startingOffsetsByTimestampStrategy", "error", "latest"),  # type: ignore[arg-type]
            fail_on_data_loss=values.flag("failOnDataLoss", True),
            max_offsets=values.number("maxOffsetsPerTrigger"),
            min_offsets=values.number("minOffsetsPerTrigger"),
            max_trigger_delay_ms=values.duration_ms("maxTriggerDelay", _MAX_TRIGGER_DELAY_MS),
            min_partitions=values.number("minPartitions"),
            headers=values.flag("includeHeaders", False),
            committed_only=values.choice("isolation", "read_committed", "read_uncommitted")
            == "read_committed",
            group=values.text("group") or "",
            value_format=_value_format(values),
            malformed=values.choice("mode", "permissive", "failfast", "dropmalformed"),  # type: ignore[arg-type]
            via_broker=values.choice("readFrom", "objects", "broker") == "broker",
        )
        values.finish()
        if options.min_offsets and options.max_offsets and options.min_offsets > options.max_offsets:
            raise InvalidInput("option minOffsetsPerTrigger is not over maxOffsetsPerTrigger")
        return options


def _subscription(
    values: OptionValues,
) -> tuple[tuple[str, ...], str, dict[str, tuple[int, ...]] | None]:
    path = values.text("path")  # of .load("topic")
    subscribe, pattern, assign = (values.text(name) for name in ("subscribe", "subscribePattern", "assign"))
    if subscribe is None and path is not None:
        subscribe = path
    if sum(one is not None for one in (subscribe, pattern, assign)) != 1:
        raise InvalidInput("give exactly one of the options subscribe, subscribePattern and assign")
    if subscribe is not None:
        names = tuple(dict.fromkeys(name.strip() for name in subscribe.split(",") if name.strip()))
        if not names:
            raise InvalidInput("option subscribe names no topic")
        return names, "", None
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            raise InvalidInput(
                f"option subscribePattern {pattern!r} is no regular expression: {error}"
            ) from None
        return (), pattern, None
    return (), "", _assigned(assign or "")


def _assigned(text: str) -> dict[str, tuple[int, ...]]:
    try:
        named = msgspec.json.decode(text, type=dict[str, list[int]])
    except msgspec.DecodeError as error:
        raise InvalidInput(f'option assign is JSON such as {{"orders":[0,1]}}: {error}') from None
    if not named or any(min(partitions, default=-1) < 0 for partitions in named.values()):
        raise InvalidInput('option assign names a topic and partitions from 0 on, as in {"orders":[0,1]}')
    return {topic: tuple(sorted(set(partitions))) for topic, partitions in named.items()}


def _place(values: OptionValues, side: Literal["starting", "ending"], default: str) -> OffsetBound:
    """A time for all comes before times by partition, and those before offsets, as in the Kafka source."""
    time = values.number(f"{side}Timestamp", 0)
    times = values.text(f"{side}OffsetsByTimestamp")
    offsets = values.text(f"{side}Offsets") or default
    if time is not None:
        return OffsetBound("time", time)
    if times is not None:
        return OffsetBound("times", by_partition=_by_partition(f"{side}OffsetsByTimestamp", times, least=0))
    plain = offsets.strip().lower()
    if plain == "earliest":
        return OffsetBound("earliest")
    if plain == "latest":
        return OffsetBound("latest")
    return OffsetBound("offsets", by_partition=_by_partition(f"{side}Offsets", offsets, least=EARLIEST))


def _by_partition(name: str, text: str, least: int) -> _ByPartition:
    try:
        named = msgspec.json.decode(text, type=dict[str, dict[int, int]])
    except msgspec.DecodeError as error:
        raise InvalidInput(f'option {name} is JSON such as {{"orders":{{"0":23,"1":-2}}}}: {error}') from None
    for topic, partitions in named.items():
        for partition, number in partitions.items():
            if partition < 0 or number < least:
                raise InvalidInput(f"option {name}: partition {partition} of {topic!r} cannot be at {number}")
    return named


def _check_places(starting: OffsetBound, ending: OffsetBound, streaming: bool) -> None:
    if streaming and ending != OffsetBound("latest"):
        raise InvalidInput("a stream has no end: the options ending… are for spark.read")
    if streaming:
        return
    if starting.kind == "latest" or LATEST in _numbers(starting):
        raise InvalidInput(
            "spark.read cannot start at the latest offset: there is nothing to read from there"
        )
    if ending.kind == "earliest" or EARLIEST in _numbers(ending):
        raise InvalidInput("spark.read cannot end at the earliest offset: there is nothing before it")


def _numbers(place: OffsetBound) -> set[int]:
    if place.kind != "offsets":
        return set()
    return {number for partitions in place.named.values() for number in partitions.values()}


def _value_format(values: OptionValues) -> Literal["raw", "json"]:
    value = (values.text("valueFormat") or "raw").strip().lower()
    if value in ("raw", "binary"):
        return "raw"
    if value == "json":
        return "json"
    raise InvalidInput(
        f"option valueFormat is raw or json, not {value!r}: read the value as bytes and decode it in Spark"
        " (from_avro, from_protobuf) instead"
    )
