"""Brokers: which brokers may write, under which epoch, and which of their commits were applied."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

import msgspec

from mainstem.errors import BrokerFenced, BrokerNumberTaken, InvalidInput
from mainstem.ledger.digest import MASK, hash_fields
from mainstem.ledger.section import Command, Moment, Section, applies
from mainstem.ledger.streams import Streams

COMMIT_IDS_KEPT_PER_BROKER = 1024

_BROKERS = 1 << 32  # broker numbers fit 32 bits


class Boot(Command, frozen=True, tag=40):
    """A broker starts: it gets a new epoch, and its older epochs are fenced.

    `jump`: the machine stopped uncleanly, so relaxed streams continue at their ceiling."""

    broker: int
    boot_id: str
    jump: bool
    node: str = ""


class Halt(Command, frozen=True, tag=41):
    """A broker stops cleanly: everything it wrote is synced."""

    broker: int


class Heartbeat(Command, frozen=True, tag=121):
    """Shows that a broker is alive when it has nothing else to commit."""

    broker: int
    epoch: int


class ExpireBroker(Command, frozen=True, tag=123):
    """A broker was silent for too long: end its epoch, unless it has committed since.

    `last_commit_id` is the broker's last commit that the proposer saw."""

    broker: int
    epoch: int
    last_commit_id: int


class AdmitBroker(Command, frozen=True, tag=124):
    """Boot a broker that has no number yet. Rejected if the number was ever used."""

    broker: int
    boot_id: str
    node: str = ""


@dataclass(frozen=True, slots=True)
class Booted:
    broker_epoch: int
    jumped: tuple[tuple[int, int, int], ...]  # (stream, first lost offset, new end)


@dataclass(frozen=True, slots=True)
class Halted:
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class HeartbeatApplied:
    """The result of Heartbeat."""


@dataclass(frozen=True, slots=True)
class BrokerGone:
    """The result of LeaveBroker and ExpireBroker."""

    broker: int
    gone: bool  # False: it had left before, or has committed since


class BrokerEpochEnded(NamedTuple):
    """An event: a broker halted, expired or booted again."""

    broker: int
    halted: bool  # cleanly: leases that the broker granted stay until it boots again


class Admission(IntEnum):
    """How an entry is treated."""

    APPLY = 0
    FENCED = 1  # its broker epoch is over, or never began
    REPEATED = 2  # its commit id was applied before


class BrokerState(msgspec.Struct, frozen=True, array_like=True):
    """One broker, in a checkpoint."""

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
    commit_ids: deque[int] = field(default_factory=lambda: deque(maxlen=COMMIT_IDS_KEPT_PER_BROKER))

    @property
    def digest(self) -> int:
        return hash_fields("broker", self.broker, self.epoch, self.boot_id, self.node, self.halted)


class Brokers(Section[list[BrokerState]]):
    """Every broker that ever booted. A halted one writes nothing until it boots again."""

    requires = (Streams,)

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self._members: dict[int, Membership] = {}  # a plain dict, because every entry looks up its broker

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

    def unused(self) -> int:
        """A number that no broker ever had."""
        return max(self._members, default=0) + 1

    def last_commit_id(self, broker: int) -> int:
        """The last commit id of the broker's newest epoch; -1 if there is none."""
        member = self._members.get(broker)
        return -1 if member is None else member.last_commit_id

    # Entries

    def admit(self, broker: int, epoch: int, first_id: int, last_id: int) -> Admission:
        """Check entries with consecutive commit ids, and remember the ids if the entries apply."""
        member = self._members.get(broker)
        if member is None or member.epoch != epoch or member.halted:
            return Admission.FENCED
        if first_id <= member.last_commit_id:
            # Whether an id from before the window was applied is unknown: refuse it.
            return Admission.REPEATED if first_id in member.commit_ids else Admission.FENCED
        if first_id == last_id:
            member.commit_ids.append(last_id)
        else:
            kept = COMMIT_IDS_KEPT_PER_BROKER
            member.commit_ids.extend(range(max(first_id, last_id + 1 - kept), last_id + 1))
        member.last_commit_id = last_id
        return Admission.APPLY

    def refusal(self, broker: int, epoch: int) -> BrokerFenced:
        """Why an entry of that epoch is not applied."""
        return BrokerFenced(
            f"broker {broker} wrote under epoch {epoch}; its newest is {self.epoch(broker)}: boot again"
        )

    # Commands

    @applies(Boot)
    def boot(self, command: Boot, now: Moment) -> Booted | InvalidInput:
        """Begin the broker's next epoch and end the one before."""
        broker = command.broker
        if not 0 <= broker < _BROKERS:
            return InvalidInput(f"invalid broker number {broker}")
        epoch = self.epoch(broker) + 1
        self._members[broker] = Membership(broker, epoch, command.boot_id, command.node)
        now.publish(BrokerEpochEnded(broker, halted=False))
        return Booted(epoch, tuple(self._streams.jump(command.jump)))

    @applies(AdmitBroker)
    def admit_new(self, command: AdmitBroker, now: Moment) -> Booted | InvalidInput | BrokerNumberTaken:
        if command.broker in self._members:
            return BrokerNumberTaken(command.broker)
        return self.boot(Boot(command.broker, command.boot_id, jump=False, node=command.node), now)

    @applies(Halt)
    def halt(self, command: Halt, now: Moment) -> Halted | BrokerFenced:
        now.publish(BrokerEpochEnded(command.broker, halted=True))
        member = self._members.get(command.broker)
        if member is None:
            return BrokerFenced(f"broker {command.broker} never booted, so it cannot halt")
        member.halted = True
        return Halted(member.epoch)

    @applies(Heartbeat)
    def beat(self, command: Heartbeat, now: Moment) -> HeartbeatApplied:
        return HeartbeatApplied()

    @applies(ExpireBroker)
    def expire(self, command: ExpireBroker, now: Moment) -> BrokerGone:
        broker = command.broker
        silent = self.last_commit_id(broker) == command.last_commit_id
        if not silent or not self.live(broker, command.epoch):
            return BrokerGone(broker, gone=False)
        self._members[broker].halted = True
        now.publish(BrokerEpochEnded(broker, halted=False))
        return BrokerGone(broker, gone=True)

    # State as a whole

    @property
    def digest(self) -> int:
        return sum(member.digest for member in self._members.values()) & MASK

    def encode(self) -> list[BrokerState]:
        return [BrokerState(m.broker, m.epoch, m.boot_id, m.node, m.halted, list(m.commit_ids)) for m in self]

    def load(self, state: list[BrokerState]) -> None:
        for one in state:
            member = Membership(one.broker, one.epoch, one.boot_id, one.node, one.halted)
            member.commit_ids.extend(one.commit_ids)
            member.last_commit_id = one.commit_ids[-1] if one.commit_ids else -1
            self._members[one.broker] = member
