"""Members of a shared log: who serves, until when, and who writes no more."""

from __future__ import annotations

import pytest

from mainstem import limits
from mainstem.errors import BrokerFenced, BrokerNumberTaken, InvalidInput, LimitReached
from mainstem.ledger.brokers import AdmitBroker, Boot, Booted, BrokerGone, ExpireBroker, Halt, Heartbeat
from mainstem.ledger.entry import Entry
from mainstem.ledger.ledger import Ledger
from mainstem.ledger.members import MEMBER_ADDRESSES_MAX, MEMBERS_MAX, BrokerMember, JoinBroker, LeaveBroker
from mainstem.ledger.section import Command

_DOORS = (("http", "h:1"), ("kafka", "h:2"))


class Brokers:
    """Several writers of one ledger."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self._commit_id = 0

    def commit(self, broker: int, epoch: int, command: Command) -> object:
        self._commit_id += 1
        return self.ledger.apply(Entry(broker, epoch, self._commit_id, 1_000, [command]))[0]

    def boot(self, broker: int) -> int:
        booted = self.commit(broker, 0, Boot(broker, f"boot {broker}", jump=False))
        assert isinstance(booted, Booted)
        return booted.broker_epoch

    def join(self, broker: int) -> int:
        epoch = self.boot(broker)
        member = self.commit(broker, epoch, JoinBroker(broker, epoch, _DOORS, "z", "n"))
        assert member == BrokerMember(broker, epoch, _DOORS, "z", "n")
        return epoch

    def last(self, broker: int) -> int:
        return self.ledger.brokers.last_commit_id(broker)


@pytest.fixture
def brokers() -> Brokers:
    return Brokers()


def test_a_member_is_there_until_its_broker_leaves_halts_or_boots_again(brokers: Brokers) -> None:
    for ending in (
        lambda epoch: brokers.commit(1, epoch, LeaveBroker(1, epoch)),
        lambda epoch: brokers.commit(1, epoch, Halt(1)),
        lambda epoch: brokers.boot(1),
    ):
        epoch = brokers.join(1)
        assert [member.broker for member in brokers.ledger.members] == [1]
        ending(epoch)
        assert not list(brokers.ledger.members)
        assert brokers.ledger.members.digest == 0


def test_whoever_leaves_may_write_on(brokers: Brokers) -> None:
    epoch = brokers.join(1)
    assert brokers.commit(1, epoch, LeaveBroker(1, epoch)) == BrokerGone(1, gone=True)
    assert brokers.commit(1, epoch, LeaveBroker(1, epoch)) == BrokerGone(1, gone=False)
    assert brokers.ledger.brokers.live(1, epoch)


def test_an_expired_broker_is_refused_until_it_boots_again(brokers: Brokers) -> None:
    one, two = brokers.join(1), brokers.join(2)
    assert brokers.commit(2, two, ExpireBroker(1, one, brokers.last(1))) == BrokerGone(1, gone=True)
    assert isinstance(brokers.commit(1, one, Heartbeat(1, one)), BrokerFenced)
    assert [member.broker for member in brokers.ledger.members] == [2]
    again = brokers.join(1)
    assert again > one
    assert [member.broker for member in brokers.ledger.members] == [1, 2]


def test_a_broker_that_committed_meanwhile_is_not_expired(brokers: Brokers) -> None:
    one, two = brokers.join(1), brokers.join(2)
    seen = brokers.last(1)
    brokers.commit(1, one, Heartbeat(1, one))
    assert brokers.commit(2, two, ExpireBroker(1, one, seen)) == BrokerGone(1, gone=False)
    assert brokers.ledger.brokers.live(1, one)


def test_an_expiry_of_an_earlier_life_does_nothing(brokers: Brokers) -> None:
    one, two = brokers.join(1), brokers.join(2)
    seen = brokers.last(1)
    again = brokers.join(1)
    assert brokers.commit(2, two, ExpireBroker(1, one, seen)) == BrokerGone(1, gone=False)
    assert brokers.ledger.brokers.live(1, again)


def test_two_that_ask_for_one_number_do_not_both_get_it(brokers: Brokers) -> None:
    assert isinstance(brokers.commit(5, 0, AdmitBroker(5, "x")), Booted)
    assert isinstance(brokers.commit(5, 0, AdmitBroker(5, "y")), BrokerNumberTaken)
    assert brokers.ledger.brokers.get(5).boot_id == "x"  # type: ignore[union-attr]
    assert brokers.ledger.brokers.unused() == 6


def test_nobody_joins_under_an_epoch_that_is_over(brokers: Brokers) -> None:
    old = brokers.boot(1)
    new = brokers.boot(1)
    assert isinstance(brokers.commit(1, new, JoinBroker(1, old, _DOORS)), BrokerFenced)
    assert not len(brokers.ledger.members)


def test_what_a_member_says_of_itself_is_bounded(brokers: Brokers) -> None:
    epoch = brokers.boot(1)
    long = "x" * (limits.NAME_CHARS_MAX + 1)
    many = tuple((str(number), "h:1") for number in range(MEMBER_ADDRESSES_MAX + 1))
    for command in (JoinBroker(1, epoch, _DOORS, long), JoinBroker(1, epoch, many)):
        assert isinstance(brokers.commit(1, epoch, command), InvalidInput)
    for number in range(MEMBERS_MAX):
        brokers.join(number + 10)
    assert isinstance(brokers.commit(1, epoch, JoinBroker(1, epoch, _DOORS)), LimitReached)


def test_members_come_back_from_a_checkpoint(brokers: Brokers) -> None:
    brokers.join(1)
    two = brokers.join(2)
    again = Ledger.decode(brokers.ledger.encode())
    assert list(again.members) == list(brokers.ledger.members)
    assert again.digest() == brokers.ledger.digest()
    assert again.brokers.last_commit_id(2) == brokers.last(2)
    brokers.commit(2, two, LeaveBroker(2, two))
    assert again.digest() != brokers.ledger.digest()
