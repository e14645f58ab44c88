"""A member of a group whose partitions the broker assigns (KIP-848), and what it reports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mainstem import limits
from mainstem.broker.groups.assigned_member import LEFT_FOR_NOW, AssignedMember, MemberHeartbeat
from mainstem.broker.groups.assignors import ASSIGNORS, Partitions
from mainstem.broker.groups.member import Protocols
from mainstem.errors import InvalidInput, TooLarge, UnsupportedAssignor

GROUP_TOPICS_PER_MEMBER_MAX = 10_000  # names in one subscription


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerHeartbeat(MemberHeartbeat):
    topics: frozenset[str] | None = None
    pattern: str | None = None
    assignor: str | None = None
    sees: Callable[[str], bool] | None = None  # which topics its pattern may match; None = all
    rights: int = 0  # changes when `sees` may give other results
    session_ms: int = 0  # of a member of the classic protocol
    protocols: Protocols = ()  # of a member of the classic protocol, with which it joins; else empty


@dataclass(frozen=True, slots=True)
class ConsumerHeartbeatResult:
    member_id: str
    epoch: int
    heartbeat_ms: int
    assigned: Partitions | None  # None = unchanged


@dataclass(slots=True, eq=False)
class ConsumerMember(AssignedMember):
    topics: frozenset[str] = frozenset()
    pattern: str | None = None
    assignor: str | None = None
    sees: Callable[[str], bool] | None = None  # from its last heartbeat
    rights: int = 0
    found: frozenset[str] = frozenset()  # topics that its pattern matches
    session_ms: int = 0  # of a member of the classic protocol; 0 = the group's setting
    protocols: Protocols = ()  # of a member of the classic protocol; else empty

    @property
    def classic(self) -> bool:
        """Whether it uses the classic protocol: it joins again for every change."""
        return bool(self.protocols)

    @property
    def own_facts(self) -> tuple[object, ...]:
        return self.topics, self.pattern, self.assignor, self.session_ms, self.protocols

    def take_in(self, beat: ConsumerHeartbeat) -> bool:
        """Store what it reports. Returns whether its subscription or assignor changed."""
        wanted = (self.topics, self.pattern, self.assignor)
        self.note(beat)
        if beat.topics is not None:
            self.topics = beat.topics
        if beat.pattern is not None:
            self.pattern = beat.pattern or None  # an empty one ends the subscription by pattern
        if beat.assignor is not None:
            self.assignor = beat.assignor
        if beat.epoch == 0:  # a static member may come back with the other protocol
            self.session_ms, self.protocols = beat.session_ms, beat.protocols
            if beat.protocols:
                self.assignor = None
        return wanted != (self.topics, self.pattern, self.assignor)


def check_consumer_heartbeat(beat: ConsumerHeartbeat) -> None:
    """Raises InvalidInput, UnsupportedAssignor."""
    if beat.epoch < LEFT_FOR_NOW:
        raise InvalidInput(f"{beat.epoch} is not a member epoch")
    if beat.epoch != 0 and not beat.member_id:
        raise InvalidInput("a member of a group says its id")
    if beat.instance_id == "" or beat.rack == "":
        raise InvalidInput("an instance id or a rack, if given, is not empty")
    if beat.epoch == LEFT_FOR_NOW and beat.instance_id is None:
        raise InvalidInput("only a member with an instance id can leave for now")
    if beat.epoch == 0:
        if beat.rebalance_ms is None or beat.rebalance_ms < 0:
            raise InvalidInput("a member that joins says how long a rebalance may take")
        if beat.topics is None and beat.pattern is None:
            raise InvalidInput("a member that joins says which topics it reads")
        if beat.owned:
            raise InvalidInput("a member that joins owns no partitions yet")
    if beat.topics is not None and len(beat.topics) > GROUP_TOPICS_PER_MEMBER_MAX:
        raise TooLarge(f"a member reads at most {GROUP_TOPICS_PER_MEMBER_MAX} topics by name")
    if beat.assignor is not None and beat.assignor not in ASSIGNORS:
        raise UnsupportedAssignor(f"there is no assignor {beat.assignor!r}: use {' or '.join(ASSIGNORS)}")


def check_share_heartbeat(beat: ConsumerHeartbeat) -> None:
    """Raises InvalidInput, TooLarge."""
    if beat.epoch < -1:
        raise InvalidInput(f"{beat.epoch} is not a member epoch")
    if not 1 <= len(beat.member_id) <= limits.NAME_CHARS_MAX:
        raise InvalidInput(f"a member of a share group has an id of 1 to {limits.NAME_CHARS_MAX} characters")
    if beat.rack == "":
        raise InvalidInput("a rack, if given, is not empty")
    if beat.epoch == 0 and not beat.topics:
        raise InvalidInput("a member that joins says which topics it reads")
    if beat.topics is not None and len(beat.topics) > GROUP_TOPICS_PER_MEMBER_MAX:
        raise TooLarge(f"a member reads at most {GROUP_TOPICS_PER_MEMBER_MAX} topics by name")
