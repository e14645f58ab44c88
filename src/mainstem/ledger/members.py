"""Members: the brokers that serve clients, and their addresses."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from mainstem import limits
from mainstem.errors import BrokerFenced, InvalidInput, LimitReached
from mainstem.ledger.brokers import BrokerEpochEnded, BrokerGone, Brokers
from mainstem.ledger.keyed import Keyed, fields_hash
from mainstem.ledger.section import Command, Moment, Section, applies, reacts

MEMBERS_MAX = 256
MEMBER_ADDRESSES_MAX = 16


class JoinBroker(Command, frozen=True, tag=120):
    """A booted broker is ready to serve, until its epoch ends."""

    broker: int
    epoch: int
    addresses: tuple[tuple[str, str], ...]  # door, host:port as clients see it
    zone: str = ""
    node: str = ""


class LeaveBroker(Command, frozen=True, tag=122):
    """A broker stops serving clients. It may continue to write."""

    broker: int
    epoch: int


class BrokerMember(msgspec.Struct, frozen=True, array_like=True):
    """A broker that serves; also the form in a checkpoint."""

    broker: int
    epoch: int
    addresses: tuple[tuple[str, str], ...]
    zone: str
    node: str

    def address(self, door: str) -> str | None:
        """Where clients of a door reach the broker."""
        return dict(self.addresses).get(door)

    def listens(self, door: str) -> bool:
        """Whether the broker has a listener of the door, for any namespace."""
        return any(name.partition(":")[0] == door for name, _ in self.addresses)


class Members(Section[list[BrokerMember]]):
    """A member stays until its broker leaves or its epoch ends. The digest changes when a broker joins or leaves."""

    requires = (Brokers,)

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._members: Keyed[int, BrokerMember] = Keyed(fields_hash("member"))

    def __iter__(self) -> Iterator[BrokerMember]:
        """By number."""
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)

    def get(self, broker: int) -> BrokerMember | None:
        return self._members.get(broker)

    @applies(JoinBroker)
    def join(
        self, command: JoinBroker, now: Moment
    ) -> BrokerMember | BrokerFenced | InvalidInput | LimitReached:
        if not self._brokers.live(command.broker, command.epoch):
            return BrokerFenced(
                f"broker {command.broker} cannot join under epoch {command.epoch}: boot again"
            )
        words = [command.zone, command.node, *(word for pair in command.addresses for word in pair)]
        if len(command.addresses) > MEMBER_ADDRESSES_MAX or any(
            len(word) > limits.NAME_CHARS_MAX for word in words
        ):
            return InvalidInput("a broker's zone, name and addresses are over their limits")
        full = self._members.refusal(command.broker, MEMBERS_MAX, "brokers")
        if full is not None:
            return full
        member = BrokerMember(command.broker, command.epoch, command.addresses, command.zone, command.node)
        self._members.put(member.broker, member)
        return member

    @applies(LeaveBroker)
    def leave(self, command: LeaveBroker, now: Moment) -> BrokerGone:
        member = self._members.get(command.broker)
        same = member is not None and member.epoch == command.epoch
        return BrokerGone(command.broker, same and self._members.pop(command.broker) is not None)

    @reacts(BrokerEpochEnded)
    def on_broker_epoch_ended(self, event: BrokerEpochEnded, now: Moment) -> None:
        self._members.pop(event.broker)

    @property
    def digest(self) -> int:
        return self._members.digest

    def encode(self) -> list[BrokerMember]:
        return list(self._members)

    def load(self, state: list[BrokerMember]) -> None:
        for member in state:
            self._members.put(member.broker, member)
