"""Groups with broker-side assignment, on brokers that share a log: a new coordinator continues from ledger state."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from mainstem.broker.broker import Broker
from mainstem.broker.groups.assignors import Partitions
from mainstem.broker.groups.consumer import ConsumerGroup
from mainstem.broker.groups.consumer_member import ConsumerHeartbeat
from mainstem.broker.groups.offsets import OffsetToCommit
from mainstem.broker.groups.options import GroupOptions
from mainstem.broker.groups.service import Groups
from mainstem.errors import StaleMemberEpoch
from tests.support.clock import ManualClock
from tests.support.cluster import BrokerProcesses, eventually
from tests.support.waiting import until

SESSION_MS = 45_000


class Coordinator:
    """One of two brokers, each of which believes that it coordinates every group."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.clock = ManualClock()
        self.groups = Groups(broker.log, self.clock, GroupOptions(consumer_session_ms=SESSION_MS))
        self.groups.start()
        self.groups.timers.stop()  # the test moves the clock

    @property
    def members(self) -> set[str]:
        group = self.groups.get("g")
        return set(group.members) if isinstance(group, ConsumerGroup) else set()

    def advance(self, ms: int) -> None:
        self.clock.advance(ms)
        self.groups.timers.fire()


class Member:
    def __init__(self, name: str) -> None:
        self.beats = ConsumerHeartbeat(
            group="g", member_id=name, epoch=0, rebalance_ms=1_000, topics=frozenset({"t"})
        )
        self.owned: Partitions = frozenset()

    @property
    def epoch(self) -> int:
        return self.beats.epoch

    async def beat(self, coordinator: Coordinator) -> int:
        """Returns its new epoch."""
        answer = await coordinator.groups.consumer_heartbeat(replace(self.beats, owned=self.owned))
        self.beats = replace(self.beats, epoch=answer.epoch)
        self.owned = self.owned if answer.assigned is None else answer.assigned
        return answer.epoch


@pytest.fixture
async def two(two_brokers: list[Broker]) -> list[Coordinator]:
    await two_brokers[0].create_topic("t", partitions=4)
    await two_brokers[1].log.barrier()
    return [Coordinator(broker) for broker in two_brokers]


async def test_members_continue_at_a_broker_that_does_not_know_them_yet(two: list[Coordinator]) -> None:
    a, b = Member("a"), Member("b")
    for turn in range(8):
        for number, member in enumerate((a, b)):
            epoch, owned = member.epoch, member.owned
            here = two[(turn + number) % 2]
            await member.beat(here)
            assert member.epoch >= epoch
            assert not a.owned & b.owned
            if turn >= 6:
                assert (member.epoch, member.owned) == (epoch, owned)
            commit = [OffsetToCommit("t", number, turn)]
            other = two[(turn + number + 1) % 2]  # it may not know that epoch either
            assert await other.groups.commit(
                "g", commit, member_id=member.beats.member_id, generation=member.epoch
            ) == [None]
    assert len(a.owned | b.owned) == 4


async def test_a_replaced_coordinator_expels_no_member(two: list[Coordinator]) -> None:
    before, now = two
    a, b = Member("a"), Member("b")
    for member in (a, b) * 3:
        await member.beat(before)
    assert before.members == {"a", "b"}
    epoch = a.epoch
    assert await a.beat(now) == epoch  # nothing to decide, but the group is another broker's from here on
    await before.broker.log.barrier()
    position = before.broker.last_position
    before.advance(SESSION_MS)  # no member reported for that long
    await until(lambda: before.broker.last_position > position)  # it tried to write that
    await now.broker.log.barrier()
    assert now.members == {"a", "b"}
    assert await b.beat(now) == b.epoch
    await until(lambda: before.members == {"a", "b"})  # it knows better by now


async def test_a_former_coordinator_applies_newer_decisions_before_it_decides(
    two: list[Coordinator],
) -> None:
    before, now = two
    a, b, c = Member("a"), Member("b"), Member("c")
    await a.beat(before)
    await b.beat(now)
    await c.beat(before)
    assert before.members == {"a", "b", "c"}
    with pytest.raises(StaleMemberEpoch):
        await before.groups.commit("g", [OffsetToCommit("t", 0, 1)], member_id="c", generation=1)


async def test_a_new_coordinator_expires_members_that_do_not_return(two: list[Coordinator]) -> None:
    before, now = two
    await Member("a").beat(before)
    await now.broker.log.barrier()
    now.groups.hand_over()
    now.advance(SESSION_MS)
    await until(lambda: not now.broker.log.ledger.consumer_groups.names())
    await before.broker.log.barrier()
    assert before.members == set()


# Real ones


class Reader:
    """Polls in its own thread, and commits now and then."""

    def __init__(self, bootstrap: str) -> None:
        self.values: list[bytes] = []
        self.assigned: set[int] = set()
        self.moved: list[str] = []  # after it had its share
        self._settled = threading.Event()
        self._stop = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "g",
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 1_000,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
                "error_cb": lambda _: None,
            }
        )
        self._consumer.subscribe(["t"], on_assign=self._given, on_revoke=self._taken, on_lost=self._taken)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _given(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._note("given", partitions)

    def _taken(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._note("taken", partitions)

    def _note(self, what: str, partitions: list[TopicPartition]) -> None:
        if self._settled.is_set() and not self._stop.is_set():
            self.moved.append(f"{what}: {[part.partition for part in partitions]}")

    def settled(self) -> None:
        self._settled.set()

    def _run(self) -> None:
        while not self._stop.is_set():
            message = self._consumer.poll(0.05)
            self.assigned = {part.partition for part in self._consumer.assignment()}
            if message is not None and message.error() is None:
                self.values.append(message.value() or b"")

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self._consumer.close()


class Writer:
    """Writes numbers, a few hundred a second, until stopped."""

    def __init__(self, bootstrap: str) -> None:
        self.acked: set[bytes] = set()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
                "error_cb": lambda _: None,
            }
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stop.wait(0.005):
            value = b"%d" % number
            self._producer.produce("t", value, partition=number % 4, callback=self._delivered)
            self._producer.poll(0)
            number += 1
        self._producer.flush(30)

    def _delivered(self, error: object, message: object) -> None:
        if error is None:
            self.acked.add(message.value())  # type: ignore[attr-defined]

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(60)


def coordinator(brokers: BrokerProcesses, asked: str) -> int:
    """The number of the group's coordinator."""
    admin = AdminClient({"bootstrap.servers": str(brokers[asked].address("kafka")), "log_level": 0})
    return int(admin.describe_consumer_groups(["g"])["g"].result(60).coordinator.id)


@pytest.mark.slow
def test_members_do_not_notice_that_their_coordinator_was_killed(folder_brokers: BrokerProcesses) -> None:
    brokers = folder_brokers
    brokers.start("a", "b", "c")
    numbers = eventually(lambda: brokers.numbers("a"), lambda found: len(found) == 3)
    admin = AdminClient({"bootstrap.servers": brokers.bootstrap, "log_level": 0})
    for made in admin.create_topics([NewTopic("t", 4)]).values():
        made.result(20)
    with ExitStack() as ending:
        readers = [Reader(brokers.bootstrap) for _ in range(2)]
        for reader in readers:
            ending.callback(reader.close)
        eventually(lambda: [len(reader.assigned) for reader in readers], lambda found: found == [2, 2])
        for reader in readers:
            reader.settled()
        writer = Writer(brokers.bootstrap)
        ending.callback(writer.stop)
        eventually(lambda: min(len(reader.values) for reader in readers), lambda count: count >= 50)
        victim = coordinator(brokers, "a")
        name = next(node for node, number in numbers.items() if number == victim)
        brokers.kill(name)
        alive = next(iter(brokers.running))
        eventually(lambda: brokers.numbers(alive), lambda found: name not in found)
        eventually(lambda: coordinator(brokers, alive), lambda found: found != victim)
        # The new coordinator knows every member that asks.
        beyond = len(writer.acked) + 200
        eventually(lambda: len(writer.acked), lambda count: count >= beyond)
        writer.stop()
        eventually(
            lambda: {value for reader in readers for value in reader.values},
            lambda found: found == writer.acked,
        )
        times = Counter(value for reader in readers for value in reader.values)
        assert [reader.moved for reader in readers] == [[], []]
        assert times.most_common(1)[0][1] == 1, "nothing was read twice"
        described = admin.describe_consumer_groups(["g"])["g"].result(10)
        assert sorted(len(one.assignment.topic_partitions) for one in described.members) == [2, 2]
