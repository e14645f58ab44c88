"""Consumer groups with broker-side assignment, driven by a manual clock.

Most tests run twice: with one coordinator, and with a new one after every heartbeat, which continues from ledger
state. Members must not notice. Session tests use one coordinator: each coordinator starts sessions again."""

from __future__ import annotations

import random

import pytest

from mainstem.broker.groups.assignors import Partitions
from mainstem.broker.groups.consumer import ConsumerGroup
from mainstem.broker.groups.consumer_member import ConsumerHeartbeat, ConsumerHeartbeatResult
from mainstem.broker.groups.options import GroupOptions
from mainstem.broker.groups.timers import Timers
from mainstem.errors import (
    FencedInstance,
    FencedMemberEpoch,
    GroupFull,
    InvalidRegex,
    StaleMemberEpoch,
    UnknownMember,
    UnreleasedInstance,
)
from mainstem.ledger.config import TopicConfig
from mainstem.ledger.consumer_groups import ChangeConsumerGroup, ConsumerGroups
from mainstem.ledger.namespaces import Namespaces
from mainstem.ledger.section import Moment
from mainstem.ledger.streams import Streams
from mainstem.ledger.topics import AddPartitions, CreateTopic, DeleteTopic, Topic, Topics
from tests.support.clock import ManualClock

SESSION_MS = 45_000
REBALANCE_MS = 60_000


class Consumers:
    """One group, its topics, and clients that the test controls."""

    def __init__(self, *, members_max: int = 1_000, moving: bool = False) -> None:
        self.clock = ManualClock()
        self.timers = Timers(self.clock)
        self.topics = Topics(Streams(), Namespaces())
        self.topic = self.create("t", 6)
        self.moving = moving
        self.kept = ConsumerGroups()
        self._options = GroupOptions(members_max=members_max, consumer_session_ms=SESSION_MS)
        self.group = ConsumerGroup("g", self.timers, self._options, self)
        self.clients: dict[str, Consumer] = {}

    def move(self) -> None:
        """Another broker coordinates the group from here on. It knows only the last checkpoint of the ledger."""
        revision = self.kept.revision("g")
        change = self.group.take_change(whole=not revision)
        self.kept.change(ChangeConsumerGroup("g", revision, *change), Moment())
        self.crash()
        assert not self.group.has_unsaved_changes

    def crash(self) -> None:
        """As `move`, and the last decision is lost."""
        stored = self.kept.encode()
        self.kept = ConsumerGroups()
        self.kept.load(stored)
        self.group.close()
        self.group = ConsumerGroup("g", self.timers, self._options, self, before=self.kept.get("g"))

    def settings(self, group: str) -> dict[str, str]:
        return {}

    def save(self, group: str) -> None:
        """The decisions are saved by `move`."""

    def create(self, name: str, partitions: int) -> Topic:
        topic_id = name.encode().ljust(16, b"\0")[:16]
        topic = self.topics.create(CreateTopic(name, topic_id, partitions, TopicConfig()), Moment())
        assert isinstance(topic, Topic)
        return topic

    def advance(self, ms: int) -> None:
        self.clock.advance(ms)
        self.timers.fire()

    def join(self, member_id: str, **fields: object) -> Consumer:
        client = Consumer(self, member_id, **fields)
        self.clients[member_id] = client
        client.join()
        return client

    def settle(self) -> None:
        """All members report until the group is stable; no partition ever has two readers on the way."""
        for _ in range(3 + 3 * len(self.clients)):
            for client in list(self.clients.values()):
                client.beat()
                self.check_nobody_reads_twice()
        assert self.group.state in ("Stable", "Empty")

    def check_nobody_reads_twice(self) -> None:
        read = [partition for client in self.clients.values() for partition in client.owned]
        assert len(read) == len(set(read))

    def numbers(self, client: Consumer) -> list[int]:
        return sorted(number for _, number in client.owned)


class Consumer:
    def __init__(
        self,
        stage: Consumers,
        member_id: str,
        *,
        topics: tuple[str, ...] | None = ("t",),
        pattern: str | None = None,
        instance: str | None = None,
        assignor: str | None = None,
    ) -> None:
        self.stage = stage
        self.member_id = member_id
        self.topics = None if topics is None else frozenset(topics)
        self.pattern = pattern
        self.instance = instance
        self.assignor = assignor
        self.epoch = 0
        self.owned: Partitions = frozenset()

    def join(self) -> ConsumerHeartbeatResult:
        self.epoch, self.owned = 0, frozenset()
        return self._take(
            self.ask(
                epoch=0,
                rebalance_ms=REBALANCE_MS,
                topics=self.topics,
                pattern=self.pattern,
                assignor=self.assignor,
                owned=frozenset(),
            )
        )

    def beat(self, **fields: object) -> ConsumerHeartbeatResult:
        """Report the owned partitions."""
        return self._take(self.ask(owned=self.owned, **fields))

    def ask(self, **fields: object) -> ConsumerHeartbeatResult:
        known = {"group": "g", "member_id": self.member_id, "epoch": self.epoch, "instance_id": self.instance}
        answer = self.stage.group.heartbeat(ConsumerHeartbeat(**{**known, **fields}))  # type: ignore[arg-type]
        if self.stage.moving:
            self.stage.move()
        return answer

    def report(self) -> None:
        """A full heartbeat, as clients send after a lost response; they rejoin if that does not help."""
        try:
            self.beat(topics=self.topics, rebalance_ms=REBALANCE_MS)
        except FencedMemberEpoch:
            self.join()

    def leave(self, epoch: int = -1) -> None:
        self.ask(epoch=epoch)
        del self.stage.clients[self.member_id]

    def _take(self, answer: ConsumerHeartbeatResult) -> ConsumerHeartbeatResult:
        self.epoch = answer.epoch
        if answer.assigned is not None:
            self.owned = answer.assigned
        return answer


@pytest.fixture(params=[False, True], ids=["one coordinator", "another at every step"])
def stage(request: pytest.FixtureRequest) -> Consumers:
    return Consumers(moving=request.param)


@pytest.fixture
def timed() -> Consumers:
    return Consumers()


def test_a_single_member_reads_everything_at_once(stage: Consumers) -> None:
    alone = stage.join("a")
    assert stage.numbers(alone) == [0, 1, 2, 3, 4, 5]
    assert (alone.epoch, stage.group.state) == (1, "Stable")
    assert alone.beat().assigned is None  # nothing new


def test_a_partition_is_reassigned_only_after_its_reader_revoked_it(stage: Consumers) -> None:
    first, second = stage.join("a"), stage.join("b")
    assert second.owned == frozenset()
    assert second.epoch == 2
    told = first.ask()  # it is told to revoke, and has not revoked yet
    assert told.assigned is not None
    assert len(told.assigned) == 3
    assert told.epoch == 1
    assert second.beat().assigned is None
    assert first.ask().assigned == told.assigned  # still not: perhaps it missed the response
    assert second.beat().assigned is None
    first.owned = told.assigned
    assert first.beat().epoch == 2
    assert len(second.beat().assigned or ()) == 3
    assert stage.group.state == "Stable"
    stage.check_nobody_reads_twice()


def test_a_member_that_waits_for_partitions_gets_a_shorter_heartbeat_interval(stage: Consumers) -> None:
    first, second = stage.join("a"), stage.join("b")
    slow = first.beat().heartbeat_ms
    assert second.beat().heartbeat_ms < slow
    stage.settle()
    assert second.beat().heartbeat_ms == slow


def test_a_member_that_does_not_revoke_in_time_is_removed(timed: Consumers) -> None:
    first, second = timed.join("a"), timed.join("b")
    first.ask()
    for _ in range(4):
        timed.advance(REBALANCE_MS // 4)
        if timed.group.members.get("a"):
            first.ask()
        second.beat()
    with pytest.raises(UnknownMember):
        first.ask()
    second.beat()
    assert timed.numbers(second) == [0, 1, 2, 3, 4, 5]


def test_a_silent_member_loses_its_partitions_when_its_session_ends(timed: Consumers) -> None:
    _, second = timed.join("a"), timed.join("b")
    timed.settle()
    timed.advance(SESSION_MS - 1)
    second.beat()
    timed.advance(1)
    assert "a" not in timed.group.members
    second.beat()
    assert timed.numbers(second) == [0, 1, 2, 3, 4, 5]


def test_a_leaving_member_hands_over_at_once(stage: Consumers) -> None:
    first, second = stage.join("a"), stage.join("b")
    stage.settle()
    first.leave()
    second.beat()
    assert stage.numbers(second) == [0, 1, 2, 3, 4, 5]
    second.leave()
    assert stage.group.empty
    assert stage.group.state == "Empty"


def test_a_future_or_far_past_epoch_is_fenced(stage: Consumers) -> None:
    first = stage.join("a")
    stage.join("b")
    stage.settle()
    stage.join("c")
    stage.settle()
    for epoch in (first.epoch + 1, 1):
        with pytest.raises(FencedMemberEpoch):
            first.ask(epoch=epoch, owned=first.owned)
    assert first.join().assigned is not None  # it starts over, and gets its partitions again
    stage.settle()


def test_a_lost_response_is_repeated(stage: Consumers) -> None:
    first = stage.join("a")
    stage.join("b")
    first.beat()
    before = first.epoch
    lost = first.ask(owned=first.owned)
    assert lost.epoch == before + 1
    with pytest.raises(FencedMemberEpoch):
        first.ask(epoch=before)  # without its owned partitions
    again = first.ask(epoch=before, owned=first.owned)
    assert (again.epoch, again.assigned) == (lost.epoch, first.owned)


def test_unknown_members_are_refused(stage: Consumers) -> None:
    stage.join("a")
    with pytest.raises(UnknownMember):
        Consumer(stage, "x").ask(epoch=3)
    with pytest.raises(UnknownMember):
        Consumer(stage, "x").ask(epoch=-1)
    with pytest.raises(UnknownMember):
        Consumer(stage, "x", instance="nobody").ask(epoch=3)


def test_the_size_of_a_group_is_bounded() -> None:
    stage = Consumers(members_max=2)
    stage.join("a")
    stage.join("b")
    with pytest.raises(GroupFull):
        stage.join("c")
    stage.join("a")  # a member may rejoin


def test_new_partitions_and_topics_are_found_by_the_next_heartbeat(stage: Consumers) -> None:
    alone = stage.join("a", topics=("t", "later"))
    epoch = alone.epoch
    stage.create("unrelated", 3)
    assert alone.beat().epoch == epoch
    stage.topics.add_partitions(AddPartitions(stage.topic.topic_id, 8), Moment())
    alone.beat()
    assert stage.numbers(alone) == list(range(8))
    later = stage.create("later", 2)
    alone.beat()
    assert len(alone.owned) == 10
    stage.topics.delete(DeleteTopic(later.topic_id), Moment())
    stage.settle()
    assert stage.numbers(alone) == list(range(8))
    assert alone.epoch > epoch


def test_a_changed_subscription_moves_partitions(stage: Consumers) -> None:
    stage.create("u", 4)
    first, second = stage.join("a"), stage.join("b", topics=("u",))
    stage.settle()
    assert (len(first.owned), len(second.owned)) == (6, 4)
    second.beat(topics=frozenset({"t", "u"}))
    stage.settle()
    assert (len(first.owned), len(second.owned)) == (5, 5)


def test_a_pattern_follows_created_and_deleted_topics(stage: Consumers) -> None:
    stage.create("t-1", 1)
    alone = stage.join("a", topics=None, pattern="t-.*")
    assert len(alone.owned) == 1  # the whole name has to match
    stage.create("t-2", 2)
    alone.beat()
    assert len(alone.owned) == 3
    alone.beat(pattern="")
    stage.settle()
    assert alone.owned == frozenset()


def test_an_invalid_pattern_is_refused_before_anything_changes(stage: Consumers) -> None:
    with pytest.raises(InvalidRegex):
        stage.join("a", topics=None, pattern="(")
    with pytest.raises(InvalidRegex):
        stage.join("a", topics=None, pattern="x" * 10_000)
    assert stage.group.empty


def test_a_catastrophic_pattern_does_not_backtrack_forever(stage: Consumers) -> None:
    stage.create("a" * 60 + "-", 1)
    assert stage.join("a", topics=None, pattern="(a+)+(a+)+(a+)+").owned == frozenset()


def test_the_assignor_is_what_most_members_ask_for(stage: Consumers) -> None:
    stage.join("a", assignor="range")
    stage.join("b", assignor="range")
    stage.join("c", assignor="uniform")
    stage.settle()
    assert stage.group.assignor == "range"
    assert [stage.numbers(client) for client in stage.clients.values()] == [[0, 1], [2, 3], [4, 5]]


# Static members


def test_a_static_member_that_left_temporarily_keeps_its_partitions(stage: Consumers) -> None:
    static, other = stage.join("a", instance="i"), stage.join("b")
    stage.settle()
    had, epoch = static.owned, other.epoch
    static.leave(-2)
    other.beat()
    assert len(other.owned) == 3
    back = stage.join("c", instance="i")
    assert back.owned == had
    assert other.beat().epoch == epoch  # no rebalance
    with pytest.raises(FencedInstance):
        static.ask()
    stage.settle()


def test_a_static_member_that_does_not_come_back_is_replaced_when_its_session_ends(timed: Consumers) -> None:
    static, other = timed.join("a", instance="i"), timed.join("b")
    timed.settle()
    static.leave(-2)
    timed.advance(SESSION_MS - 1)
    other.beat()
    assert len(other.owned) == 3
    timed.advance(1)
    other.beat()
    assert len(other.owned) == 6


def test_an_instance_id_in_use_is_refused_to_others(stage: Consumers) -> None:
    static = stage.join("a", instance="i")
    with pytest.raises(UnreleasedInstance):
        stage.join("b", instance="i")
    del stage.clients["b"]
    static.join()  # the same process may start over
    static.leave(-1)
    assert stage.join("b", instance="i").epoch > 0


def test_a_static_member_that_leaves_while_revoking_has_revoked(stage: Consumers) -> None:
    static, other = stage.join("a", instance="i"), stage.join("b")
    static.ask()
    static.leave(-2)
    other.beat()
    assert len(other.owned) == 3


# Commits


def test_members_commit_at_their_epoch_and_strangers_only_without_members(stage: Consumers) -> None:
    stage.group.check_commit("", -1, None)
    alone = stage.join("a")
    stage.group.check_commit("a", alone.epoch, None)
    with pytest.raises(StaleMemberEpoch):
        stage.group.check_commit("a", alone.epoch - 1, None)
    with pytest.raises(UnknownMember):
        stage.group.check_commit("", -1, None)
    stage.group.check_commit("", -1, None, transactional=True)


# Another coordinator


def test_a_new_coordinator_restarts_sessions_and_expires_missing_members(timed: Consumers) -> None:
    first, _ = timed.join("a"), timed.join("b")
    timed.settle()
    timed.advance(SESSION_MS - 1)
    timed.move()
    epoch = first.epoch
    assert first.beat().epoch == epoch
    timed.advance(SESSION_MS - 1)
    assert set(timed.group.members) == {"a", "b"}
    first.beat()
    timed.advance(1)
    assert set(timed.group.members) == {"a"}
    first.beat()
    assert timed.numbers(first) == [0, 1, 2, 3, 4, 5]


def test_a_new_coordinator_restarts_the_revocation_timeout(timed: Consumers) -> None:
    first, _ = timed.join("a"), timed.join("b")
    first.ask()  # it is told to revoke
    timed.move()
    timed.advance(SESSION_MS - 1)
    first.ask()
    timed.advance(REBALANCE_MS - SESSION_MS)
    first.ask()
    timed.advance(1)
    assert set(timed.group.members) == set()


def test_a_silent_member_is_expired_once_by_the_current_coordinator(timed: Consumers) -> None:
    timed.join("a")
    before = timed.group
    timed.move()
    timed.advance(SESSION_MS)
    assert "a" in before.members  # it does nothing any more
    assert timed.group.empty
    timed.move()
    assert timed.kept.names() == []


def test_topics_that_changed_between_coordinators_are_found(stage: Consumers) -> None:
    alone = stage.join("a", topics=None, pattern="t.*")
    stage.move()
    epoch = alone.epoch
    assert stage.group.reads("t")
    assert alone.beat().epoch == epoch
    stage.move()
    stage.topics.add_partitions(AddPartitions(stage.topic.topic_id, 8), Moment())
    stage.create("t-2", 1)
    alone.beat()
    assert (len(alone.owned), alone.epoch) == (9, epoch + 1)
    stage.topics.delete(DeleteTopic(stage.topic.topic_id), Moment())
    stage.move()
    stage.settle()
    assert len(alone.owned) == 1


def test_a_heartbeat_that_changes_nothing_writes_nothing(stage: Consumers) -> None:
    first, second = stage.join("a"), stage.join("b", instance="i")
    stage.settle()
    stage.move()
    for client in (first, second):
        stage.moving = False
        client.beat()
        client.beat(topics=client.topics, rebalance_ms=REBALANCE_MS, assignor=None)
        assert not stage.group.has_unsaved_changes


def test_only_changed_members_are_written(timed: Consumers) -> None:
    first = timed.join("a")
    timed.join("b", topics=("u",))
    timed.move()
    first.beat(topics=frozenset({"t", "v"}))
    change = timed.group.take_change(whole=False)
    assert [state.member_id for state in change.members] == ["a"]
    first.leave()
    assert timed.group.take_change(whole=False).gone == ("a",)


# Many


@pytest.mark.parametrize("moves", [0.0, 0.2, 1.0])
@pytest.mark.parametrize("seed", range(8))
def test_no_partition_is_read_twice_and_all_are_read_eventually(seed: int, moves: float) -> None:
    stage, chance = Consumers(), random.Random(seed)
    stage.create("u", 5)
    for step in range(120):
        stage.moving = chance.random() < moves
        roll = chance.random()
        clients = list(stage.clients.values())
        if roll < 0.15 or not clients:
            topics = chance.choice([("t",), ("u",), ("t", "u")])
            stage.join(f"m{step}", topics=topics, assignor=chance.choice([None, "range", "uniform"]))
        elif roll < 0.25:
            chance.choice(clients).leave()
        elif roll < 0.3:
            chance.choice(clients).beat(topics=frozenset(chance.choice([("t",), ("t", "u")])))
        elif roll < 0.4 and moves:
            unlucky = chance.choice(clients)
            stage.move()
            stage.moving = False
            unlucky.ask(owned=unlucky.owned)  # the response is lost, with or without the decision
            chance.choice([stage.move, stage.crash])()
            unlucky.report()
        else:
            chance.choice(clients).beat()
        stage.check_nobody_reads_twice()
    stage.join("last", topics=("t", "u"))
    stage.settle()
    assert sum(len(client.owned) for client in stage.clients.values()) == 11
