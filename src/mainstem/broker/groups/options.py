"""Options of consumer groups."""

from __future__ import annotations

from dataclasses import dataclass

from mainstem import limits

GROUPS_MAX = 100_000  # with members, now or recently; committed offsets alone do not count


@dataclass(frozen=True, slots=True)
class GroupOptions:
    members_max: int = limits.GROUP_MEMBERS_MAX
    groups_max: int = GROUPS_MAX
    session_ms_min: int = limits.GROUP_SESSION_MS_MIN
    session_ms_max: int = limits.GROUP_SESSION_MS_MAX
    initial_delay_ms: int = limits.GROUP_INITIAL_DELAY_MS  # 0 = the first member does not wait for others
    consumer_session_ms: int = limits.GROUP_CONSUMER_SESSION_MS
    consumer_heartbeat_ms: int = limits.GROUP_CONSUMER_HEARTBEAT_MS
    offsets_retention_ms: int = limits.OFFSETS_RETENTION_MS
