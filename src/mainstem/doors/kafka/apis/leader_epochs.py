"""Leader epochs: a client with an epoch other than the current one has older or newer metadata."""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from mainstem.broker.streams import LEADER_EPOCH

__all__ = ("LEADER_EPOCH", "UNKNOWN_EPOCH", "wrong_epoch")

UNKNOWN_EPOCH = -1  # the client has no epoch


def wrong_epoch(current: int) -> ErrorCode:
    """The error code for an epoch that is not the current one."""
    if current in (LEADER_EPOCH, UNKNOWN_EPOCH):
        return ErrorCode.none
    return ErrorCode.unknown_leader_epoch if current > LEADER_EPOCH else ErrorCode.fenced_leader_epoch
