"""The effective settings of a share group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mainstem.broker.groups.settings import (
    BY_DURATION,
    COMMITTED,
    EARLIEST,
    GROUP_SETTINGS,
    SHARE_DELIVERIES,
    SHARE_HEARTBEAT,
    SHARE_IN_FLIGHT,
    SHARE_ISOLATION,
    SHARE_LOCK,
    SHARE_RESET,
    SHARE_SESSION,
    ms_of,
)


@dataclass(frozen=True, slots=True)
class ShareSettings:
    """Settings of one share group."""

    begins_earliest: bool
    begins_ms_ago: int | None  # None: at the start or end offset
    committed_only: bool
    lock_ms: int
    deliveries_max: int
    in_flight_max: int
    session_ms: int
    heartbeat_ms: int

    @classmethod
    def of(cls, values: Mapping[str, str]) -> ShareSettings:
        """`values`: the settings that differ from the default."""

        def value(name: str) -> str:
            return values.get(name, GROUP_SETTINGS[name].default)

        reset = value(SHARE_RESET)
        return cls(
            begins_earliest=reset == EARLIEST,
            begins_ms_ago=ms_of(reset.removeprefix(BY_DURATION)) if reset.startswith(BY_DURATION) else None,
            committed_only=value(SHARE_ISOLATION) == COMMITTED,
            lock_ms=int(value(SHARE_LOCK)),
            deliveries_max=int(value(SHARE_DELIVERIES)),
            in_flight_max=int(value(SHARE_IN_FLIGHT)),
            session_ms=int(value(SHARE_SESSION)),
            heartbeat_ms=int(value(SHARE_HEARTBEAT)),
        )
