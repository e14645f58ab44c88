"""Members: the brokers that serve, and where each is reached."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from mainstem import limits
from mainstem.errors import BrokerFenced, InvalidInput, LimitReached
from mainstem.ledger.cluster_commands import JoinBroker
from mainstem.ledger.digest import MASK, hash_fields


class BrokerMember(msgspec.Struct, frozen=True, array_like=True):
    """One broker that serves; also as a checkpoint holds it."""

    broker: int
    epoch: int
    addresses: tuple[tuple[str, str], ...]
    zone: str
    node: str

    @property
    def digest(self) -> int:
        return hash_fields("member", self.broker, self.epoch, self.addresses, self.zone, self.node)

    def address(self, door: str) -> str | None:
        """Where clients of a door reach the broker."""
        return dict(self.addresses).get(door)


class Members:
    """A member stays until its broker boots again, halts, leaves or is expired."""

    def __init__(self) -> None:
        self._members: dict[int, BrokerMember] = {}
        self.digest = 0  # also tells whether anybody came or went

    def __iter__(self) -> Iterator[BrokerMember]:
        """By number."""
        return iter([member for _, member in sorted(self._members.items())])

    def __len__(self) -> int:
        return len(self._members)

    def get(self, broker: int) -> BrokerMember | None:
        return self._members.get(broker)

    def join(
        self, command: JoinBroker, *, live: bool
    ) -> BrokerMember | BrokerFenced | InvalidInput | LimitReached:
        if not live:
            return BrokerFenced(
                f"broker {command.broker} cannot join under epoch {command.epoch}: boot again"
            )
        words = [command.zone, command.node, *(word for pair in command.addresses for word in pair)]
        if len(command.addresses) > limits.MEMBER_ADDRESSES_MAX or any(
            len(word) > limits.NAME_CHARS_MAX for word in words
        ):
            return InvalidInput("a broker's zone, name and addresses are over their limits")
        if command.broker not in self._members and len(self._members) >= limits.MEMBERS_MAX:
            return LimitReached(f"{limits.MEMBERS_MAX} brokers share this log, the most there may be")
        self.forget(command.broker)
        member = BrokerMember(command.broker, command.epoch, command.addresses, command.zone, command.node)
        self._put(member)
        return member

    def forget(self, broker: int) -> bool:
        """Whether it was there."""
        member = self._members.pop(broker, None)
        if member is not None:
            self.digest = (self.digest - member.digest) & MASK
        return member is not None

    def _put(self, member: BrokerMember) -> None:
        self._members[member.broker] = member
        self.digest = (self.digest + member.digest) & MASK

    def encode(self) -> list[BrokerMember]:
        return list(self)

    @classmethod
    def decode(cls, states: list[BrokerMember]) -> Members:
        members = cls()
        for state in states:
            members._put(state)
        return members
