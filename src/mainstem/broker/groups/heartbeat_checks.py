"""Validates the heartbeats of group members."""

from __future__ import annotations

from mainstem import limits
from mainstem.broker.groups.assignors import ASSIGNORS
from mainstem.broker.groups.consumer_member import LEFT_FOR_NOW, ConsumerHeartbeat
from mainstem.errors import InvalidInput, TooLarge, UnsupportedAssignor


def check_consumer_heartbeat(beat: ConsumerHeartbeat) -> None:
    """Raises InvalidInput, UnsupportedAssignor."""
    if beat.epoch < LEFT_FOR_NOW:
        raise InvalidInput(f"{beat.epoch} is not a valid member epoch")
    if beat.epoch != 0 and not beat.member_id:
        raise InvalidInput("a group member must send its id")
    if beat.instance_id == "" or beat.rack == "":
        raise InvalidInput("an instance id or a rack must not be empty")
    if beat.epoch == LEFT_FOR_NOW and beat.instance_id is None:
        raise InvalidInput("only a member with an instance id can leave temporarily")
    if beat.epoch == 0:
        if beat.rebalance_ms is None or beat.rebalance_ms < 0:
            raise InvalidInput("a member must send a rebalance timeout when it joins")
        if beat.topics is None and beat.pattern is None:
            raise InvalidInput("a member must send its subscription when it joins")
        if beat.owned:
            raise InvalidInput("a member cannot own partitions when it joins")
    if beat.topics is not None and len(beat.topics) > limits.GROUP_TOPICS_PER_MEMBER_MAX:
        raise TooLarge(f"a member reads at most {limits.GROUP_TOPICS_PER_MEMBER_MAX} topics by name")
    if beat.assignor is not None and beat.assignor not in ASSIGNORS:
        raise UnsupportedAssignor(f"unknown assignor {beat.assignor!r}: use {' or '.join(ASSIGNORS)}")


def check_share_heartbeat(beat: ConsumerHeartbeat) -> None:
    """Raises InvalidInput, TooLarge."""
    if beat.epoch < -1:
        raise InvalidInput(f"{beat.epoch} is not a valid member epoch")
    if not 1 <= len(beat.member_id) <= limits.NAME_CHARS_MAX:
        raise InvalidInput(f"a member of a share group has an id of 1 to {limits.NAME_CHARS_MAX} characters")
    if beat.rack == "":
        raise InvalidInput("a rack must not be empty")
    if beat.epoch == 0 and not beat.topics:
        raise InvalidInput("a member must send its subscription when it joins")
    if beat.topics is not None and len(beat.topics) > limits.GROUP_TOPICS_PER_MEMBER_MAX:
        raise TooLarge(f"a member reads at most {limits.GROUP_TOPICS_PER_MEMBER_MAX} topics by name")
