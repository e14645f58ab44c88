"""A member of a group whose partitions the broker assigns (KIP-848), and its transitions between assignments.

    Stable ──a new target removes partitions─────▶ Unrevoked ──it confirms the revocation─┐
      │ ▲                                                                                 │
      │ └──────────────all of the target is free─────────────┐                            │
      └──────a new target, parts of which others still hold──▶ Unreleased ◀───────────────┘

Its epoch moves to the target's once it holds nothing beyond the target. A partition is assigned only when its last
holder has revoked it, or was expelled.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from dataclasses import dataclass

from mainstem import limits
from mainstem.broker.groups.assignors import ASSIGNORS, Partitions, TopicPartition
from mainstem.broker.groups.member import Protocols
from mainstem.broker.groups.timers import Timer
from mainstem.errors import InvalidInput, TooLarge, UnsupportedAssignor

GROUP_TOPICS_PER_MEMBER_MAX = 10_000  # names in one subscription

STABLE = "Stable"
UNREVOKED = "Unrevoked"
UNRELEASED = "Unreleased"

LEFT_FOR_NOW = -2  # the epoch of a static member that left temporarily


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerHeartbeat:
    """What a member reports. None = unchanged."""

    group: str
    member_id: str
    epoch: int  # 0 = joins, -1 = leaves, -2 = a static member leaves temporarily
    instance_id: str | None = None
    rack: str | None = None
    rebalance_ms: int | None = None
    topics: frozenset[str] | None = None
    pattern: str | None = None
    assignor: str | None = None
    owned: Partitions | None = None  # partitions that it reads
    client_id: str = ""
    client_host: str = ""
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
class ConsumerMember:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session: Timer
    revocation: Timer  # runs while the member has partitions to revoke
    rebalance_ms: int = 0
    rack: str | None = None
    topics: frozenset[str] = frozenset()
    pattern: str | None = None
    assignor: str | None = None
    epoch: int = 0
    previous_epoch: int = 0
    state: str = STABLE
    assigned: Partitions = frozenset()
    revoking: Partitions = frozenset()
    owned: Partitions | None = None  # as last reported
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
    def facts(self) -> tuple[object, ...]:
        """The state that another coordinator would need. Cheap to compare with an earlier one: unchanged values are the
        same objects."""
        return (
            self.epoch,
            self.previous_epoch,
            self.assigned,
            self.revoking,
            self.topics,
            self.pattern,
            self.assignor,
            self.rebalance_ms,
            self.rack,
            self.client_id,
            self.client_host,
            self.session_ms,
            self.protocols,
        )

    def take_in(self, beat: ConsumerHeartbeat) -> bool:
        """Store what it reports. Returns whether its subscription or assignor changed."""
        wanted = (self.topics, self.pattern, self.assignor)
        self.client_id, self.client_host = beat.client_id, beat.client_host
        if beat.rebalance_ms is not None:
            self.rebalance_ms = max(0, min(beat.rebalance_ms, limits.GROUP_REBALANCE_MS_MAX))
        if beat.rack is not None:
            self.rack = beat.rack
        if beat.topics is not None:
            self.topics = beat.topics
        if beat.pattern is not None:
            self.pattern = beat.pattern or None  # an empty one ends the subscription by pattern
        if beat.assignor is not None:
            self.assignor = beat.assignor
        if beat.owned is not None:
            self.owned = beat.owned
        if beat.epoch == 0:  # a static member may come back with the other protocol
            self.session_ms, self.protocols = beat.session_ms, beat.protocols
            if beat.protocols:
                self.assignor = None
        return wanted != (self.topics, self.pattern, self.assignor)

    def reconcile(
        self,
        target: Partitions,
        target_epoch: int,
        owned: Partitions | None,
        owners: MutableMapping[TopicPartition, str],
    ) -> None:
        """Move towards the target as far as this member and the owners of its partitions allow."""
        if self.state == STABLE and self.epoch == target_epoch:
            return
        if self.state == UNREVOKED:
            if _holds(owned, self.revoking):
                return
            self._release(self.revoking, owners)
        kept = self.assigned & target
        surplus = self.assigned - target
        if surplus and _holds(owned, surplus):
            self.state, self.assigned, self.revoking = UNREVOKED, kept, surplus
            self.revocation.start(self.rebalance_ms)
            return
        self.revocation.cancel()
        self.revoking = frozenset()
        self._release(surplus, owners)
        missing = target - kept
        free = frozenset(partition for partition in missing if partition not in owners)
        owners.update(dict.fromkeys(free, self.member_id))
        self.state = STABLE if free == missing else UNRELEASED
        self.assigned = kept | free
        self._move_to(target_epoch)

    def release_all(self, owners: MutableMapping[TopicPartition, str]) -> None:
        self._release(self.assigned | self.revoking, owners)

    def _release(self, partitions: Partitions, owners: MutableMapping[TopicPartition, str]) -> None:
        for partition in partitions:
            if owners.get(partition) == self.member_id:
                del owners[partition]

    def _move_to(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.previous_epoch, self.epoch = self.epoch, epoch


def _holds(owned: Partitions | None, partitions: Partitions) -> bool:
    """Whether the member may still own these partitions. None means unchanged."""
    return owned is None or bool(owned & partitions)


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
