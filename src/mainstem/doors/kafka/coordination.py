"""Requests for the coordinator of a group: a broker that lags may not know yet that it is the one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mainstem.broker.groups import Groups


def coordinated_elsewhere(groups: Groups, message: Any) -> bool:
    """Whether another broker looks after a group that a request is about, as far as this one knows."""
    return not all(map(groups.coordinates, _groups_in(message)))


def _groups_in(message: Any) -> Iterator[str]:
    """The groups, wherever a request names them in its newest version."""
    if hasattr(message, "group_id"):
        yield message.group_id
    for field in ("group_ids", "groups_names", "groups"):
        for named in getattr(message, field, ()):
            yield getattr(named, "group_id", named)
