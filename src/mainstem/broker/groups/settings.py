"""Settings of groups, by their Kafka names: `consumer.*` for groups with broker-side assignment, `share.*` for share
groups, `streams.*` for streams groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

import msgspec

from mainstem import limits
from mainstem.broker.groups.options import GroupOptions
from mainstem.errors import InvalidConfig

SHARE_LOCK_MS = 30_000  # default acquisition lock
SHARE_LOCK_MS_MIN = 1_000
SHARE_LOCK_MS_MAX = 3_600_000
SHARE_DELIVERIES_MAX = 100
STANDBYS_MAX = 10

EARLIEST, LATEST = "earliest", "latest"
BY_DURATION = "by_duration:"
COMMITTED, UNCOMMITTED = "read_committed", "read_uncommitted"


@dataclass(frozen=True, slots=True)
class GroupSetting:
    name: str
    kind: Literal["string", "int"]
    default: str
    help: str
    check: Callable[[str], str]  # returns the value to store; raises ValueError


def _one_of(*words: str) -> Callable[[str], str]:
    def check(value: str) -> str:
        if value.lower() not in words:
            raise ValueError(f"it is {' or '.join(words)}")
        return value.lower()

    return check


def _between(least: int, most: int) -> Callable[[str], str]:
    def check(value: str) -> str:
        if not least <= int(value) <= most:
            raise ValueError(f"must be {least} to {most}")
        return str(int(value))

    return check


def _beginning(value: str) -> str:
    word = value.lower()
    if word in (EARLIEST, LATEST):
        return word
    if not word.startswith(BY_DURATION):
        raise ValueError(f"must be {EARLIEST}, {LATEST}, or {BY_DURATION} followed by an ISO 8601 duration")
    duration = value[len(BY_DURATION) :].upper()
    ms_of(duration)
    return BY_DURATION + duration


def ms_of(duration: str) -> int:
    """The milliseconds of an ISO 8601 duration of days, hours, minutes and seconds. Raises ValueError."""
    try:
        ms = msgspec.convert(duration, timedelta) // timedelta(milliseconds=1)
    except msgspec.ValidationError as error:
        raise ValueError(f"{error}: use for example PT1H or P3DT12H") from None
    if ms < 0:
        raise ValueError("the duration must not be negative")
    return ms


SHARE_RESET, SHARE_ISOLATION = "share.auto.offset.reset", "share.isolation.level"
SHARE_LOCK, SHARE_DELIVERIES = "share.record.lock.duration.ms", "share.delivery.count.limit"
SHARE_IN_FLIGHT = "share.partition.max.record.locks"
SHARE_SESSION, SHARE_HEARTBEAT = "share.session.timeout.ms", "share.heartbeat.interval.ms"
_SESSION, _HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
_STREAMS_SESSION, _STREAMS_HEARTBEAT = "streams.session.timeout.ms", "streams.heartbeat.interval.ms"
_STANDBYS = "streams.num.standby.replicas"


def _session(name: str) -> GroupSetting:
    return GroupSetting(
        name,
        "int",
        str(limits.GROUP_CONSUMER_SESSION_MS),
        "time without heartbeats after which a consumer is removed",
        _between(limits.GROUP_SESSION_MS_MIN, limits.GROUP_SESSION_MS_MAX),
    )


def _heartbeat(name: str) -> GroupSetting:
    return GroupSetting(
        name,
        "int",
        str(limits.GROUP_CONSUMER_HEARTBEAT_MS),
        "interval of a consumer's heartbeats",
        _between(1, limits.GROUP_SESSION_MS_MAX),
    )


GROUP_SETTINGS = {
    setting.name: setting
    for setting in (
        GroupSetting(
            SHARE_RESET,
            "string",
            LATEST,
            "where the group starts in a partition without a position: earliest, latest, "
            "or by_duration: with a duration before now (by_duration:PT1H)",
            _beginning,
        ),
        GroupSetting(
            SHARE_ISOLATION,
            "string",
            UNCOMMITTED,
            "whether consumers get records of open transactions",
            _one_of(COMMITTED, UNCOMMITTED),
        ),
        GroupSetting(
            SHARE_LOCK,
            "int",
            str(SHARE_LOCK_MS),
            "how long a consumer holds a record before others can acquire it",
            _between(SHARE_LOCK_MS_MIN, SHARE_LOCK_MS_MAX),
        ),
        GroupSetting(
            SHARE_DELIVERIES,
            "int",
            str(limits.SHARE_DELIVERIES),
            "how often a record is delivered before it is archived",
            _between(1, SHARE_DELIVERIES_MAX),
        ),
        GroupSetting(
            SHARE_IN_FLIGHT,
            "int",
            str(limits.SHARE_IN_FLIGHT),
            "maximum number of records in flight per partition",
            _between(1, limits.SHARE_IN_FLIGHT_MAX),
        ),
        _session(SHARE_SESSION),
        _heartbeat(SHARE_HEARTBEAT),
        _session(_SESSION),
        _heartbeat(_HEARTBEAT),
        _session(_STREAMS_SESSION),
        _heartbeat(_STREAMS_HEARTBEAT),
        GroupSetting(
            _STANDBYS,
            "int",
            "0",
            "copies of the state of each stateful task, kept up to date by members of other processes",
            _between(0, STANDBYS_MAX),
        ),
    )
}


def known(name: str) -> GroupSetting:
    """Raises InvalidConfig."""
    setting = GROUP_SETTINGS.get(name)
    if setting is None:
        raise InvalidConfig(f"unknown group setting {name[:64]!r}: use one of {', '.join(GROUP_SETTINGS)}")
    return setting


def checked(name: str, value: str) -> str:
    """The value to store. Raises InvalidConfig."""
    setting = known(name)
    try:
        return setting.check(value.strip())
    except ValueError as error:
        raise InvalidConfig(f"invalid value {value[:64]!r} of {name}: {error}") from None


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """Settings of one group with broker-side assignment."""

    session_ms: int
    heartbeat_ms: int

    @classmethod
    def of(cls, values: Mapping[str, str], options: GroupOptions) -> ConsumerSettings:
        """`values`: the settings that differ from the default."""
        return cls(
            int(values.get(_SESSION, options.consumer_session_ms)),
            int(values.get(_HEARTBEAT, options.consumer_heartbeat_ms)),
        )


@dataclass(frozen=True, slots=True)
class StreamsSettings:
    """Settings of one streams group."""

    session_ms: int
    heartbeat_ms: int
    standbys: int

    @classmethod
    def of(cls, values: Mapping[str, str], options: GroupOptions) -> StreamsSettings:
        """`values`: the settings that differ from the default."""
        return cls(
            int(values.get(_STREAMS_SESSION, options.consumer_session_ms)),
            int(values.get(_STREAMS_HEARTBEAT, options.consumer_heartbeat_ms)),
            int(values.get(_STANDBYS, 0)),
        )
