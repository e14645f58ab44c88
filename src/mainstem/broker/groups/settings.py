"""What a group may be set to, by the names that Kafka has for it: `consumer.*` where the broker assigns partitions,
`share.*` where members share them."""

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

EARLIEST, LATEST = "earliest", "latest"
BY_DURATION = "by_duration:"
COMMITTED, UNCOMMITTED = "read_committed", "read_uncommitted"


@dataclass(frozen=True, slots=True)
class GroupSetting:
    name: str
    kind: Literal["string", "int"]
    default: str
    help: str
    check: Callable[[str], str]  # the value as it is kept; raises ValueError


def _one_of(*words: str) -> Callable[[str], str]:
    def check(value: str) -> str:
        if value.lower() not in words:
            raise ValueError(f"it is {' or '.join(words)}")
        return value.lower()

    return check


def _between(least: int, most: int) -> Callable[[str], str]:
    def check(value: str) -> str:
        if not least <= int(value) <= most:
            raise ValueError(f"it is {least} to {most}")
        return str(int(value))

    return check


def _beginning(value: str) -> str:
    word = value.lower()
    if word in (EARLIEST, LATEST):
        return word
    if not word.startswith(BY_DURATION):
        raise ValueError(f"it is {EARLIEST}, {LATEST} or {BY_DURATION} and an ISO 8601 duration")
    duration = value[len(BY_DURATION) :].upper()
    ms_of(duration)
    return BY_DURATION + duration


def ms_of(duration: str) -> int:
    """Of an ISO 8601 duration of days, hours, minutes and seconds. Raises ValueError."""
    try:
        ms = msgspec.convert(duration, timedelta) // timedelta(milliseconds=1)
    except msgspec.ValidationError as error:
        raise ValueError(f"{error}: one is PT1H or P3DT12H") from None
    if ms < 0:
        raise ValueError("a group begins at a time that is past")
    return ms


SHARE_RESET, SHARE_ISOLATION = "share.auto.offset.reset", "share.isolation.level"
SHARE_LOCK, SHARE_DELIVERIES = "share.record.lock.duration.ms", "share.delivery.count.limit"
SHARE_IN_FLIGHT = "share.partition.max.record.locks"
SHARE_SESSION, SHARE_HEARTBEAT = "share.session.timeout.ms", "share.heartbeat.interval.ms"
_SESSION, _HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


def _session(name: str) -> GroupSetting:
    return GroupSetting(
        name,
        "int",
        str(limits.GROUP_CONSUMER_SESSION_MS),
        "after which a consumer that was not heard of is expelled",
        _between(limits.GROUP_SESSION_MS_MIN, limits.GROUP_SESSION_MS_MAX),
    )


def _heartbeat(name: str) -> GroupSetting:
    return GroupSetting(
        name,
        "int",
        str(limits.GROUP_CONSUMER_HEARTBEAT_MS),
        "how often a consumer reports",
        _between(1, limits.GROUP_SESSION_MS_MAX),
    )


GROUP_SETTINGS = {
    setting.name: setting
    for setting in (
        GroupSetting(
            SHARE_RESET,
            "string",
            LATEST,
            "where the group begins in a partition that it has not read: earliest, latest, "
            "or by_duration: and how long ago (by_duration:PT1H)",
            _beginning,
        ),
        GroupSetting(
            SHARE_ISOLATION,
            "string",
            UNCOMMITTED,
            "whether records of transactions that are still open are handed out",
            _one_of(COMMITTED, UNCOMMITTED),
        ),
        GroupSetting(
            SHARE_LOCK,
            "int",
            str(SHARE_LOCK_MS),
            "how long a consumer has a record before others may have it",
            _between(SHARE_LOCK_MS_MIN, SHARE_LOCK_MS_MAX),
        ),
        GroupSetting(
            SHARE_DELIVERIES,
            "int",
            str(limits.SHARE_DELIVERIES),
            "how often a record is handed out before it is given up",
            _between(1, SHARE_DELIVERIES_MAX),
        ),
        GroupSetting(
            SHARE_IN_FLIGHT,
            "int",
            str(limits.SHARE_IN_FLIGHT),
            "records of one partition that may be handed out and not dealt with",
            _between(1, limits.SHARE_IN_FLIGHT_MAX),
        ),
        _session(SHARE_SESSION),
        _heartbeat(SHARE_HEARTBEAT),
        _session(_SESSION),
        _heartbeat(_HEARTBEAT),
    )
}


def known(name: str) -> GroupSetting:
    """Raises InvalidConfig."""
    setting = GROUP_SETTINGS.get(name)
    if setting is None:
        raise InvalidConfig(f"{name[:64]!r} is no setting of a group: there are {', '.join(GROUP_SETTINGS)}")
    return setting


def checked(name: str, value: str) -> str:
    """The value as it is kept. Raises InvalidConfig."""
    setting = known(name)
    try:
        return setting.check(value.strip())
    except ValueError as error:
        raise InvalidConfig(f"{name} cannot be {value[:64]!r}: {error}") from None


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """Of one group whose partitions the broker assigns."""

    session_ms: int
    heartbeat_ms: int

    @classmethod
    def of(cls, values: Mapping[str, str], options: GroupOptions) -> ConsumerSettings:
        """`values`: those that are not the default."""
        return cls(
            int(values.get(_SESSION, options.consumer_session_ms)),
            int(values.get(_HEARTBEAT, options.consumer_heartbeat_ms)),
        )
