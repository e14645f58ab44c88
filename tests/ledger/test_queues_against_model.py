"""Queues against a plain model: a list of jobs, each saying where it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from mainstem.ledger.config import TopicConfig
from mainstem.ledger.entry import SLICE_TRACKED
from mainstem.ledger.queues import Ack, Bury, Claim, ExpireLeases, Extend, Nack, NoteCopies
from mainstem.ledger.record_times import RecordsTimed, TimeRecords
from mainstem.ledger.streams import DeleteRecords, Trim
from mainstem.ledger.topics import AlterTopic

from .replaying import check_replays
from .writer import Writer, run, slice_row

QUEUE, DEAD = 0, 1
NODES = ["ann", "bob"]


@dataclass
class ModelJob:
    size: int
    place: str = "fresh"  # fresh, waiting, leased, delayed, exhausted, gone
    deliveries: int = 0
    node: str = ""
    token: int = 0
    until_ms: int = 0  # deadline or due time


class QueueModel:
    """The rules once more, as simply as they can be said."""

    def __init__(self, config: TopicConfig) -> None:
        self.config = config
        self.jobs: list[ModelJob] = []
        self.dead = 0

    def at(self, *places: str) -> list[int]:
        return [offset for offset, job in enumerate(self.jobs) if job.place in places]

    def settle(self, now: int) -> None:
        for job in self.jobs:
            lapsed = job.place == "leased" and now > job.until_ms
            due = job.place == "delayed" and now >= job.until_ms
            if lapsed or due:
                job.place = "waiting"

    def over(self, job: ModelJob) -> bool:
        bound = self.config.max_deliveries
        return bool(bound and self.config.dead_letter and job.deliveries + 1 > bound)

    def claim(self, claimers: list[tuple[str, int, int, int]], now: int) -> list[list[int]]:
        for offset in self.at("exhausted"):
            if not self.over(self.jobs[offset]):
                self.jobs[offset].place = "waiting"
        hands: list[list[int]] = [[] for _ in claimers]
        room = sum(limit for _, limit, _, _ in claimers)
        taken: list[int] = []
        for offset in self.at("waiting") + self.at("fresh"):
            if len(taken) == room:
                break
            if self.over(self.jobs[offset]) and self.jobs[offset].place == "waiting":
                self.jobs[offset].place = "exhausted"
            else:
                taken.append(offset)
        turn = 0
        for offset in taken:
            while len(hands[turn % len(claimers)]) >= claimers[turn % len(claimers)][1]:
                turn += 1
            node, _, lease_ms, token = claimers[turn % len(claimers)]
            hands[turn % len(claimers)].append(offset)
            turn += 1
            job = self.jobs[offset]
            job.place, job.node, job.token, job.until_ms = "leased", node, token, now + lease_ms
            job.deliveries += 1
        return hands

    def held(self, node: str, offsets: list[int], tokens: list[int]) -> tuple[list[int], list[int]]:
        held: list[int] = []
        skipped: list[int] = []
        for at, offset in enumerate(offsets):
            job = self.jobs[offset] if offset < len(self.jobs) else None
            good = job is not None and job.place == "leased" and job.node == node and offset not in held
            if good and tokens and job is not None:
                good = job.token == tokens[at]
            (held if good else skipped).append(offset)
        return held, skipped

    def remove(self, offsets: list[int]) -> None:
        for offset in offsets:
            if offset < len(self.jobs):
                self.jobs[offset].place = "gone"


CONFIGS = [
    TopicConfig(type="queue"),
    TopicConfig(type="queue", max_deliveries=2, dead_letter="dead", durability="disk"),
    TopicConfig(type="queue", max_deliveries=1, dead_letter="dead", leases_durable=True),
    TopicConfig(type="queue", max_deliveries=3),
]

picks = st.lists(st.integers(0, 40), max_size=8)
claimers = st.lists(
    st.tuples(st.sampled_from(NODES), st.integers(1, 15), st.sampled_from([100, 1_000, 60_000])),
    min_size=1,
    max_size=3,
)


class QueueMachine(RuleBasedStateMachine):
    @initialize(config=st.sampled_from(CONFIGS))
    def begin(self, config: TopicConfig) -> None:
        self.writer = Writer()
        self.ledger = self.writer.ledger
        self.writer.create("q", **{name: getattr(config, name) for name in config.__struct_fields__})
        self.writer.create("dead")
        self.model = QueueModel(config)
        self.token = 0

    @property
    def now(self) -> int:
        return max(self.ledger.time_ms, self.writer.time_ms)

    def do(self, command: Any) -> Any:
        self.model.settle(self.now)
        return self.writer.do(command)

    @rule(sizes=st.lists(st.integers(0, 9), min_size=1, max_size=20))
    def append(self, sizes: list[int]) -> None:
        # Appends are not queue commands: they expire nothing.
        self.writer.append_sizes(QUEUE, *sizes)
        self.model.jobs += [ModelJob(size) for size in sizes]

    @rule(delays=st.lists(st.sampled_from([0, 50, 5_000]), min_size=1, max_size=12))
    def append_with_delays(self, delays: list[int]) -> None:
        now = self.now
        if any(delays):
            self.model.settle(now)
        rows = tuple((at, at + 1, delay, 0) for at, delay in enumerate(delays))
        row = slice_row(QUEUE, len(delays), size=len(delays), flags=SLICE_TRACKED)
        sized = run(row, records=[(1, now)] * len(delays))
        placed, timed = self.writer.apply(sized, TimeRecords(QUEUE, rows))
        assert timed == RecordsTimed(len(self.model.jobs), False)
        assert int(placed.base[0]) == len(self.model.jobs)
        self.model.jobs += [
            ModelJob(1, "delayed", until_ms=now + delay) if delay else ModelJob(1) for delay in delays
        ]

    @rule(claimers=claimers)
    def claim(self, claimers: list[tuple[str, int, int]]) -> None:
        named = []
        for node, limit, lease_ms in claimers:
            self.token += 1
            named.append((node, limit, lease_ms, (self.token * 0x9E3779B97F4A7C15) % 2**64))
        claimed = self.do(Claim(QUEUE, tuple(named), 1))
        hands = self.model.claim(named, self.now)
        assert [grant.offsets for grant in claimed.grants] == hands
        for grant in claimed.grants:
            assert grant.deliveries == [self.model.jobs[offset].deliveries for offset in grant.offsets]
        aside = self.model.at("exhausted")
        assert claimed.exhausted == tuple((o, self.model.jobs[o].deliveries) for o in aside)

    def chosen(self, picks: list[int]) -> list[int]:
        """Mostly jobs that are leased."""
        leased = self.model.at("leased")
        return [leased[pick % len(leased)] if leased and pick % 4 else pick for pick in picks]

    def tokens(self, offsets: list[int], how: str) -> list[int]:
        if how == "none":
            return []
        known = [self.model.jobs[o].token if o < len(self.model.jobs) else 0 for o in offsets]
        return [token + 1 if how == "wrong" and at % 2 else token for at, token in enumerate(known)]

    @rule(
        picks=picks,
        node=st.sampled_from(NODES),
        how=st.sampled_from(["none", "right", "wrong"]),
        what=st.sampled_from(["ack", "ack", "nack", "delay", "extend"]),
    )
    def settle(self, picks: list[int], node: str, how: str, what: str) -> None:
        offsets = self.chosen(picks)
        tokens = self.tokens(offsets, how)
        given_tokens = tuple(tokens)
        command: Any = {
            "ack": Ack(QUEUE, node, tuple(offsets), given_tokens),
            "nack": Nack(QUEUE, node, tuple(offsets), given_tokens),
            "delay": Nack(QUEUE, node, tuple(offsets), given_tokens, 700),
            "extend": Extend(QUEUE, node, tuple(offsets), 2_000, given_tokens),
        }[what]
        outcome = self.do(command)
        held, skipped = self.model.held(node, offsets, tokens)
        assert (outcome.offsets, outcome.skipped) == (held, skipped)
        for offset in held:
            job = self.model.jobs[offset]
            if what == "ack":
                job.place = "gone"
            elif what == "nack":
                job.place = "waiting"
            elif what == "delay":
                job.place, job.until_ms = "delayed", self.now + 700
            else:
                job.until_ms = self.now + 2_000

    @rule()
    def expire(self) -> None:
        self.do(ExpireLeases(QUEUE))

    @rule(ms=st.sampled_from([0, 1, 99, 100, 101, 700, 5_000, -50]))
    def pass_time(self, ms: int) -> None:
        self.writer.time_ms = max(0, self.writer.time_ms + ms)

    @rule(start=st.integers(0, 40), width=st.integers(1, 6))
    def delete(self, start: int, width: int) -> None:
        self.writer.do(DeleteRecords(QUEUE, ((start, start + width),)))
        self.model.remove(list(range(start, start + width)))

    @rule(offset=st.integers(0, 30), reason=st.sampled_from(["cap", "ttl", "delete"]))
    def trim(self, offset: int, reason: Any) -> None:
        self.writer.do(Trim(QUEUE, offset, reason))
        self.model.remove(list(range(offset)))

    @rule()
    def bury(self) -> None:
        aside = self.model.at("exhausted")
        if aside:
            copies = run(slice_row(DEAD, len(aside)))
            noted = self.writer.apply(copies, NoteCopies(QUEUE, tuple(aside), DEAD))[1]
            assert noted.jobs == len(aside)
            assert self.writer.do(Bury(QUEUE, tuple(aside))).jobs == len(aside)
            self.model.remove(aside)
            self.model.dead += len(aside)

    @rule(max_deliveries=st.integers(0, 3))
    def alter(self, max_deliveries: int) -> None:
        topic = self.ledger.topics.get("q")
        assert topic is not None
        config = TopicConfig(
            type="queue",
            max_deliveries=max_deliveries,
            dead_letter="dead",
            durability=topic.config.durability,
            leases_durable=topic.config.leases_durable,
        )
        self.writer.do(AlterTopic(topic.topic_id, config))
        self.model.config = config

    @rule()
    def boot(self) -> None:
        self.writer.boot()
        if not self.model.config.leases_durable:
            for offset in self.model.at("leased"):
                self.model.jobs[offset].place = "waiting"

    @invariant()
    def same_as_model(self) -> None:
        if not hasattr(self, "model"):
            return
        queues, model = self.ledger.queues, self.model
        # Leases that lapsed since the last command count as leased until the next one.
        assert queues.ready(QUEUE) == len(model.at("fresh", "waiting"))
        assert queues.in_flight(QUEUE) == len(model.at("leased"))
        assert queues.dead_lettered(QUEUE) == model.dead
        live = model.at("fresh", "waiting", "leased", "delayed", "exhausted")
        assert self.ledger.streams.records[QUEUE] == len(live)
        assert self.ledger.streams.bytes[QUEUE] == sum(model.jobs[offset].size for offset in live)
        leases = queues.leases(QUEUE)
        for offset in model.at("leased"):
            grant = leases.holder(offset) if leases else None
            job = model.jobs[offset]
            assert grant is not None
            assert (grant.node, grant.token, grant.deadline_ms) == (job.node, job.token, job.until_ms)

    def teardown(self) -> None:
        check_replays(self.writer)


TestQueuesAgainstModel = QueueMachine.TestCase
TestQueuesAgainstModel.settings = settings(
    max_examples=200,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
