"""A member of a group whose partitions the broker assigns (KIP-848), or whose tasks (KIP-1071), and its transitions
between assignments.

    Stable ──a new target removes partitions─────▶ Unrevoked ──it confirms the revocation─┐
      │ ▲                                                                                 │
      │ └──────────────all of the target is free─────────────┐                            │
      └──────a new target, parts of which others still hold──▶ Unreleased ◀───────────────┘

Its epoch moves to the target's once it holds nothing beyond the target. A partition is assigned only when its last
holder has revoked it, or was expelled.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, MutableMapping
from dataclasses import dataclass

from mainstem import limits
from mainstem.broker.groups.assignors import Partitions, TopicPartition
from mainstem.broker.groups.timers import Timer

STABLE = "Stable"
UNREVOKED = "Unrevoked"
UNRELEASED = "Unreleased"

LEFT_FOR_NOW = -2  # the epoch of a static member that left temporarily

Owners = MutableMapping[
    Hashable, str
]  # what only one member may hold → the member that holds or must still revoke it


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberHeartbeat:
    """What a member reports. None = unchanged."""

    group: str
    member_id: str
    epoch: int  # 0 = joins, -1 = leaves, -2 = a static member leaves temporarily
    instance_id: str | None = None
    rack: str | None = None
    rebalance_ms: int | None = None
    owned: Partitions | None = None  # partitions that it reads, or tasks that it runs
    client_id: str = ""
    client_host: str = ""


@dataclass(slots=True, eq=False)
class AssignedMember:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session: Timer
    revocation: Timer  # runs while the member has partitions to revoke
    rebalance_ms: int = 0
    rack: str | None = None
    epoch: int = 0
    previous_epoch: int = 0
    state: str = STABLE
    assigned: Partitions = frozenset()
    revoking: Partitions = frozenset()
    owned: Partitions | None = None  # as last reported

    @property
    def facts(self) -> tuple[object, ...]:
        """The state that another coordinator would need. Cheap to compare with an earlier one: unchanged values are the
        same objects."""
        return (
            self.epoch,
            self.previous_epoch,
            self.assigned,
            self.revoking,
            self.rebalance_ms,
            self.rack,
            self.client_id,
            self.client_host,
            *self.own_facts,
        )

    @property
    def own_facts(self) -> tuple[object, ...]:
        """Those of a member of this kind of group."""
        return ()

    def note(self, beat: MemberHeartbeat) -> None:
        """Store what every kind of member reports."""
        self.client_id, self.client_host = beat.client_id, beat.client_host
        if beat.rebalance_ms is not None:
            self.rebalance_ms = max(0, min(beat.rebalance_ms, limits.GROUP_REBALANCE_MS_MAX))
        if beat.rack is not None:
            self.rack = beat.rack
        if beat.owned is not None:
            self.owned = beat.owned

    def claims(self, partition: TopicPartition) -> Iterable[Hashable]:
        """What no other member may hold while this one has the partition."""
        return (partition,)

    def missed_last_response(self, epoch: int, owned: Partitions | None) -> bool:
        """Whether the response with the new epoch was lost: the member sends its last epoch and owns nothing more."""
        return epoch == self.previous_epoch and owned is not None and owned <= self.assigned

    def reconcile(
        self, target: Partitions, target_epoch: int, owned: Partitions | None, owners: Owners
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
        free = frozenset(
            partition
            for partition in missing
            if not any(
                owners.get(claim, self.member_id) != self.member_id for claim in self.claims(partition)
            )
        )
        self.claim(free, owners)
        self.state = STABLE if free == missing else UNRELEASED
        self.assigned = kept | free
        self._move_to(target_epoch)

    def claim(self, partitions: Partitions, owners: Owners) -> None:
        for partition in partitions:
            for claim in self.claims(partition):
                owners[claim] = self.member_id

    def release_all(self, owners: Owners) -> None:
        self._release(self.assigned | self.revoking, owners)

    def _release(self, partitions: Partitions, owners: Owners) -> None:
        for partition in partitions:
            for claim in self.claims(partition):
                if owners.get(claim) == self.member_id:
                    del owners[claim]

    def _move_to(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.previous_epoch, self.epoch = self.epoch, epoch


def _holds(owned: Partitions | None, partitions: Partitions) -> bool:
    """Whether the member may still own these partitions. None means unchanged."""
    return owned is None or bool(owned & partitions)
