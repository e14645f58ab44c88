"""Leader epochs: a client that knows another one than the current has old metadata, or newer."""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from mainstem.broker.streams import LEADER_EPOCH

__all__ = ("LEADER_EPOCH", "UNKNOWN_EPOCH", "wrong_epoch")

UNKNOWN_EPOCH = -1  # the client has none to compare


def wrong_epoch(current: int) -> ErrorCode:
    """What is wrong with the epoch that a client takes for the current one."""
    if current in (LEADER_EPOCH, UNKNOWN_EPOCH):
        return ErrorCode.none
    return ErrorCode.unknown_leader_epoch if current > LEADER_EPOCH else ErrorCode.fenced_leader_epoch
