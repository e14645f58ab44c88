"""Brokers: who may write, under which epoch, and which of its commits were applied."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum

import msgspec

from mainstem import limits
from mainstem.errors import BrokerFenced
from mainstem.ledger.digest import MASK, hash_fields


class Admission(IntEnum):
    """What is done with an entry."""

    APPLY = 0
    FENCED = 1  # its broker epoch is over, or never began
    REPEATED = 2  # its commit id was applied before


class BrokerState(msgspec.Struct, frozen=True, array_like=True):
    """One broker as a checkpoint holds it."""

    broker: int
    epoch: int
    boot_id: str
    node: str
    halted: bool
    commit_ids: list[int]  # the last ones applied in this epoch, rising


@dataclass(slots=True)
class Membership:
    broker: int
    epoch: int
    boot_id: str
    node: str
    halted: bool = False
    last_commit_id: int = -1
    commit_ids: deque[int] = field(default_factory=lambda: deque(maxlen=limits.COMMIT_IDS_KEPT_PER_BROKER))

    @property
    def digest(self) -> int:
        return hash_fields("broker", self.broker, self.epoch, self.boot_id, self.node, self.halted)


class Brokers:
    """Every broker that ever booted. A halted one writes nothing until it boots again."""

    def __init__(self) -> None:
        self._members: dict[int, Membership] = {}

    def __iter__(self) -> Iterator[Membership]:
        """By number."""
        return iter(member for _, member in sorted(self._members.items()))

    def get(self, broker: int) -> Membership | None:
        return self._members.get(broker)

    def epoch(self, broker: int) -> int:
        """The broker's newest epoch; 0 if it never booted."""
        member = self._members.get(broker)
        return member.epoch if member else 0

    def clean(self, broker: int) -> bool:
        """Whether nothing the broker wrote can be missing: it halted, or never booted."""
        member = self._members.get(broker)
        return member is None or member.halted

    def live(self, broker: int, epoch: int) -> bool:
        member = self._members.get(broker)
        return member is not None and member.epoch == epoch and not member.halted

    def admit(self, broker: int, epoch: int, first_id: int, last_id: int) -> Admission:
        """Judge entries with consecutive commit ids, and remember the ids if they apply."""
        member = self._members.get(broker)
        if member is None or member.epoch != epoch or member.halted:
            return Admission.FENCED
        if first_id <= member.last_commit_id:
            # An id from before the window may or may not have been applied: refuse, rather than guess.
            return Admission.REPEATED if first_id in member.commit_ids else Admission.FENCED
        if first_id == last_id:
            member.commit_ids.append(last_id)
        else:
            kept = limits.COMMIT_IDS_KEPT_PER_BROKER
            member.commit_ids.extend(range(max(first_id, last_id + 1 - kept), last_id + 1))
        member.last_commit_id = last_id
        return Admission.APPLY

    def boot(self, broker: int, boot_id: str, node: str) -> int:
        """Begin the broker's next epoch and end the one before. Returns it."""
        epoch = self.epoch(broker) + 1
        self._members[broker] = Membership(broker, epoch, boot_id, node)
        return epoch

    def unused(self) -> int:
        """A number that no broker ever had."""
        return max(self._members, default=0) + 1

    def halt(self, broker: int) -> int | BrokerFenced:
        """End the broker's epoch cleanly. Returns it."""
        member = self._members.get(broker)
        if member is None:
            return BrokerFenced(f"broker {broker} never booted, so it cannot halt")
        member.halted = True
        return member.epoch

    def last_commit_id(self, broker: int) -> int:
        """Of the broker's newest epoch; -1 if there is none."""
        member = self._members.get(broker)
        return -1 if member is None else member.last_commit_id

    def refusal(self, broker: int, epoch: int) -> BrokerFenced:
        """Why an entry of that epoch is not applied."""
        return BrokerFenced(
            f"broker {broker} wrote under epoch {epoch}; its newest is {self.epoch(broker)}: boot again"
        )

    def digest(self) -> int:
        return sum(member.digest for member in self._members.values()) & MASK

    def encode(self) -> list[BrokerState]:
        return [BrokerState(m.broker, m.epoch, m.boot_id, m.node, m.halted, list(m.commit_ids)) for m in self]

    @classmethod
    def decode(cls, states: list[BrokerState]) -> Brokers:
        brokers = cls()
        for state in states:
            member = Membership(state.broker, state.epoch, state.boot_id, state.node, state.halted)
            member.commit_ids.extend(state.commit_ids)
            member.last_commit_id = state.commit_ids[-1] if state.commit_ids else -1
            brokers._members[state.broker] = member
        return brokers
