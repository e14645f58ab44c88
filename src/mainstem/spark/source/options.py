"""Options of a read: topics, start and end, limits. The names are those of Spark's Kafka source."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, cast, get_args

import msgspec

from mainstem.errors import InvalidInput
from mainstem.spark.option_values import OptionValues

ValueFormat = Literal["raw", "json", "avro", "protobuf"]

EARLIEST = -2
LATEST = -1

_ByPartition = dict[str, dict[int, int]]
_MAX_TRIGGER_DELAY_MS = 900_000


@dataclass(frozen=True, slots=True)
class OffsetBound:
    """Where a read starts or ends: one bound for all partitions, or one for each."""

    kind: Literal["earliest", "latest", "offsets", "time", "times"]
    time_ms: int = 0
    by_partition: _ByPartition | None = None

    @property
    def positions(self) -> _ByPartition:
        return self.by_partition or {}


@dataclass(frozen=True, slots=True)
class SourceOptions:
    url: str
    api_key: str
    topics: tuple[str, ...]  # by name …
    pattern: str  # … or by a regular expression …
    assigned: dict[str, tuple[int, ...]] | None  # … or by partition
    starting: OffsetBound
    ending: OffsetBound
    no_such_time: Literal["error", "latest"]  # where to start if no record is at or after the time
    fail_on_data_loss: bool
    max_offsets: int | None
    min_offsets: int | None
    max_trigger_delay_ms: int  # maximum wait for `min_offsets`
    min_partitions: int | None
    headers: bool
    committed_only: bool
    group: str
    value_format: ValueFormat
    value_subject: str  # of the registry; empty: that of the topic
    value_version: str  # of the subject
    value_message: str  # of a Protobuf schema; empty: its first
    malformed: Literal["permissive", "failfast", "dropmalformed"]
    via_broker: bool  # fetch from the broker only, for workers that cannot reach its objects

    @classmethod
    def parse(cls, given: Mapping[str, str], *, streaming: bool) -> SourceOptions:
        """Raises InvalidInput with the option and its allowed values."""
        values = OptionValues(given)
        topics, pattern, assigned = _subscription(values)
        starting = _bound(values, "starting", "latest" if streaming else "earliest")
        ending = _bound(values, "ending", "latest")
        _check_bounds(starting, ending, streaming)
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
            value_subject=values.text("valueSubject") or "",
            value_version=values.text("valueVersion") or "latest",
            value_message=values.text("valueMessage") or "",
            malformed=values.choice("mode", "permissive", "failfast", "dropmalformed"),  # type: ignore[arg-type]
            via_broker=values.choice("readFrom", "objects", "broker") == "broker",
        )
        values.finish()
        if options.min_offsets and options.max_offsets and options.min_offsets > options.max_offsets:
            raise InvalidInput("option minOffsetsPerTrigger must not be greater than maxOffsetsPerTrigger")
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
            raise InvalidInput("option subscribe has no topic")
        return names, "", None
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            raise InvalidInput(
                f"option subscribePattern {pattern!r} is not a regular expression: {error}"
            ) from None
        return (), pattern, None
    return (), "", _assigned(assign or "")


def _assigned(text: str) -> dict[str, tuple[int, ...]]:
    try:
        assigned = msgspec.json.decode(text, type=dict[str, list[int]])
    except msgspec.DecodeError as error:
        raise InvalidInput(f'option assign must be JSON such as {{"orders":[0,1]}}: {error}') from None
    if not assigned or any(min(partitions, default=-1) < 0 for partitions in assigned.values()):
        raise InvalidInput(
            'option assign needs topics with partition numbers from 0 on, as in {"orders":[0,1]}'
        )
    return {topic: tuple(sorted(set(partitions))) for topic, partitions in assigned.items()}


def _bound(values: OptionValues, side: Literal["starting", "ending"], default: str) -> OffsetBound:
    """One time for all takes precedence over times by partition, and those over offsets, as in the Kafka source."""
    time = values.number(f"{side}Timestamp", 0)
    times = values.text(f"{side}OffsetsByTimestamp")
    offsets = values.text(f"{side}Offsets") or default
    if time is not None:
        return OffsetBound("time", time)
    if times is not None:
        return OffsetBound("times", by_partition=_by_partition(f"{side}OffsetsByTimestamp", times, least=0))
    keyword = offsets.strip().lower()
    if keyword == "earliest":
        return OffsetBound("earliest")
    if keyword == "latest":
        return OffsetBound("latest")
    return OffsetBound("offsets", by_partition=_by_partition(f"{side}Offsets", offsets, least=EARLIEST))


def _by_partition(name: str, text: str, least: int) -> _ByPartition:
    try:
        positions = msgspec.json.decode(text, type=dict[str, dict[int, int]])
    except msgspec.DecodeError as error:
        raise InvalidInput(
            f'option {name} must be JSON such as {{"orders":{{"0":23,"1":-2}}}}: {error}'
        ) from None
    for topic, partitions in positions.items():
        for partition, number in partitions.items():
            if partition < 0 or number < least:
                raise InvalidInput(
                    f"option {name}: invalid position {number} for partition {partition} of {topic!r}"
                )
    return positions


def _check_bounds(starting: OffsetBound, ending: OffsetBound, streaming: bool) -> None:
    if streaming and ending != OffsetBound("latest"):
        raise InvalidInput("a stream has no end: use the options ending… with spark.read only")
    if streaming:
        return
    if starting.kind == "latest" or LATEST in _numbers(starting):
        raise InvalidInput("spark.read cannot start at the latest offset: no record follows it")
    if ending.kind == "earliest" or EARLIEST in _numbers(ending):
        raise InvalidInput("spark.read cannot end at the earliest offset: no record precedes it")


def _numbers(bound: OffsetBound) -> set[int]:
    if bound.kind != "offsets":
        return set()
    return {number for partitions in bound.positions.values() for number in partitions.values()}


def _value_format(values: OptionValues) -> ValueFormat:
    value = (values.text("valueFormat") or "raw").strip().lower()
    if value == "binary":
        return "raw"
    if value in get_args(ValueFormat):
        return cast(ValueFormat, value)
    raise InvalidInput(f"option valueFormat must be raw, json, avro or protobuf, not {value!r}")
