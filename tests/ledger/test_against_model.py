"""Random command sequences against the plain model, then the same log again in every other way."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mainstem import limits
from mainstem.errors import MainstemError
from mainstem.ledger.config import TopicConfig
from mainstem.ledger.cursors import NO_POSITION, CommitOffsets, DeleteOffsets, Take, Taken
from mainstem.ledger.entry import SLICE_TRACKED
from mainstem.ledger.producers import ExpireProducers
from mainstem.ledger.streams import DeleteRecords, MarkLost, RaiseCeilings, Trim
from mainstem.ledger.topics import AddPartitions, AlterTopic, CreateTopic, DeleteTopic, Topic

from .model import DELETED, Model, ModelStream
from .replaying import check_replays
from .writer import Writer, run, slice_row

RECORD_BYTES = 10  # of untracked streams: one size, so that averages are exact

CONFIGS = [
    TopicConfig(),
    TopicConfig(durability="memory"),
    TopicConfig(durability="disk", cap_records=5),
    TopicConfig(durability="ephemeral"),
    TopicConfig(cap_records=3),
    TopicConfig(cap_records=6, discard="reject"),
    TopicConfig(cap_bytes=60),
    TopicConfig(cap_bytes=90, cap_records=7, durability="memory"),
    TopicConfig(cap_bytes=60, discard="reject"),
    TopicConfig(ttl_ms=1000),
    TopicConfig(type="queue"),
]

offsets = st.integers(0, 40)
picks = st.integers(0, 1 << 16)
groups = st.sampled_from(["g", "h"])


class LedgerMachine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.writer = Writer()
        self.ledger = self.writer.ledger
        self.model = Model()
        self.made = 0

    def pick_topic(self, pick: int) -> Topic | None:
        topics = list(self.ledger.topics)
        return topics[pick % len(topics)] if topics else None

    def pick_stream(self, pick: int) -> int:
        """Mostly one that exists; now and then one that never did or no longer does."""
        streams = sorted(self.model.streams)
        if not streams or pick % 17 == 0:
            return self.ledger.streams.count + pick % 2 - 1 if self.ledger.streams.count else 7
        return streams[pick % len(streams)]

    def do(self, part: object) -> object:
        self.model.time_ms = max(self.model.time_ms, self.writer.time_ms)
        return self.writer.do(part)  # type: ignore[arg-type]

    # Topics

    @rule(config=st.sampled_from(CONFIGS), partitions=st.integers(1, 3), slot=st.integers(0, 4))
    def create(self, config: TopicConfig, partitions: int, slot: int) -> None:
        self.made += 1
        expected = self.ledger.streams.count
        taken = self.ledger.topics.get(f"t{slot}") is not None
        topic = self.do(CreateTopic(f"t{slot}", self.made.to_bytes(16, "big"), partitions, config))
        if taken:
            assert isinstance(topic, MainstemError)
            return
        assert isinstance(topic, Topic)
        assert topic.streams == tuple(range(expected, expected + partitions))
        self.model.streams |= {stream: ModelStream(config) for stream in topic.streams}

    @rule(pick=picks)
    def delete_topic(self, pick: int) -> None:
        topic = self.pick_topic(pick)
        if topic is not None and pick % 3 == 0:
            assert self.do(DeleteTopic(topic.topic_id)) == topic
            self.model.delete_topic(topic.streams)

    @rule(pick=picks, config=st.sampled_from(CONFIGS))
    def alter(self, pick: int, config: TopicConfig) -> None:
        topic = self.pick_topic(pick)
        # Sizes of records from before tracking began are averages, which the model does not know.
        if topic is None or config.tracked != topic.config.tracked:
            return
        altered = self.do(AlterTopic(topic.topic_id, config))
        allowed = config.type == topic.config.type and (config.durability == "ephemeral") == (
            topic.config.durability == "ephemeral"
        )
        assert isinstance(altered, Topic) == allowed
        if allowed:
            for stream in topic.streams:
                self.model.streams[stream].config = config
                self.model.streams[stream].evict()

    @rule(pick=picks)
    def add_partition(self, pick: int) -> None:
        topic = self.pick_topic(pick)
        if topic is None or len(topic.streams) > 4:
            return
        grown = self.do(AddPartitions(topic.topic_id, len(topic.streams) + 1))
        assert isinstance(grown, Topic)
        self.model.streams[grown.streams[-1]] = ModelStream(topic.config)

    # Records

    @rule(
        rows=st.lists(
            st.tuples(
                picks,
                st.lists(st.integers(0, 25), min_size=1, max_size=4),
                st.integers(0, 5_000),
                st.sampled_from([-1, -1, 0, 1]),  # producer
                st.integers(0, 1),  # epoch
                st.sampled_from(["next", "next", "next", "again", "skip"]),
                st.booleans(),  # carries record rows
            ),
            min_size=1,
            max_size=12,
        )
    )
    def append(self, rows: list[tuple[int, list[int], int, int, int, str, bool]]) -> None:
        packed, records, expected = [], [], []
        self.model.time_ms = max(self.model.time_ms, self.writer.time_ms)
        for pick, sizes, time, producer, epoch, how, tracked in rows:
            stream = self.pick_stream(pick)
            target = self.model.streams.get(stream)
            tracked = tracked and target is not None and target.config.tracked
            if not tracked:
                sizes = [RECORD_BYTES] * len(sizes)
            first = self.sequence(producer, stream, epoch, how) if producer >= 0 else -1
            flags = SLICE_TRACKED if tracked else 0
            packed.append(
                slice_row(
                    stream,
                    len(sizes),
                    size=sum(sizes),
                    time=time,
                    producer=producer,
                    epoch=epoch if producer >= 0 else -1,
                    sequence=first,
                    flags=flags,
                )
            )
            records += [(size, time) for size in sizes] if tracked else []
            expected.append(self.model.append(stream, sizes, time, producer, epoch, first))
        outcome = self.writer.do(run(*packed, records=records))
        assert list(zip(outcome.base.tolist(), outcome.code.tolist(), strict=True)) == expected

    def sequence(self, producer: int, stream: int, epoch: int, how: str) -> int:
        known = self.model.producers.get((producer, stream))
        if known is None or known.epoch != epoch:
            return 0 if how != "skip" else 5
        if how == "again":
            return known.batches[0][0]
        return (known.batches[-1][1] + (1 if how == "next" else 3)) % (1 << 31)

    @rule(pick=picks, offset=offsets, reason=st.sampled_from(["delete", "delete ", "cap", "ttl"]))
    def trim(self, pick: int, offset: int, reason: str) -> None:
        stream = self.pick_stream(pick)
        keeps, reason = reason == "delete", reason.strip()  # deletes of an older log do not
        outcome = self.do(Trim(stream, offset, reason, 0, keeps))  # type: ignore[arg-type]
        target = self.model.streams.get(stream)
        assert isinstance(outcome, MainstemError) == (target is None)
        if target:
            target.trim(offset, reason, keeps)

    @rule(pick=picks, ranges=st.lists(st.tuples(offsets, st.integers(1, 6)), min_size=1, max_size=4))
    def delete_records(self, pick: int, ranges: list[tuple[int, int]]) -> None:
        stream = self.pick_stream(pick)
        spans = tuple((start, start + width) for start, width in ranges)
        target = self.model.streams.get(stream)
        before = target.records if target else 0
        outcome = self.do(DeleteRecords(stream, spans))
        if target:
            for span in spans:
                target.punch(*span, DELETED)
            assert getattr(outcome, "records") == before - target.records  # noqa: B009
        else:
            assert isinstance(outcome, MainstemError)

    @rule(pick=picks, start=offsets, width=st.integers(1, 5), reason=st.sampled_from(["damaged", "worm"]))
    def mark_lost(self, pick: int, start: int, width: int, reason: str) -> None:
        stream = self.pick_stream(pick)
        self.do(MarkLost(stream, start, start + width, reason))
        if stream in self.model.streams:
            self.model.streams[stream].punch(start, start + width, reason)

    @rule(pick=picks, ceiling=st.integers(0, 60))
    def raise_ceiling(self, pick: int, ceiling: int) -> None:
        stream = self.pick_stream(pick)
        self.do(RaiseCeilings(((stream, ceiling),)))
        if stream in self.model.streams:
            target = self.model.streams[stream]
            target.ceiling = max(target.ceiling, ceiling)

    @rule(jump=st.booleans())
    def boot(self, jump: bool) -> None:
        self.writer.boot(jump=jump)
        self.model.time_ms = max(self.model.time_ms, self.writer.time_ms)
        for stream in self.model.streams.values():
            stream.jump(jump)

    # Groups, producers, time

    @rule(group=groups, pick=picks, offset=offsets | st.just(NO_POSITION))
    def commit_offset(self, group: str, pick: int, offset: int) -> None:
        stream = self.pick_stream(pick)
        outcome = self.do(CommitOffsets(group, ((stream, offset, "m"),)))
        assert isinstance(outcome, MainstemError) == (stream not in self.model.streams)
        if offset == NO_POSITION:
            self.model.cursors.pop((group, stream), None)
        elif stream in self.model.streams:
            self.model.cursors[group, stream] = offset

    @rule(group=groups, pick=picks)
    def delete_offset(self, group: str, pick: int) -> None:
        stream = self.pick_stream(pick)
        self.do(DeleteOffsets(group, (stream,)))
        self.model.cursors.pop((group, stream), None)

    @rule(group=groups, pick=picks, limit=st.integers(1, 6))
    def take(self, group: str, pick: int, limit: int) -> None:
        stream = self.pick_stream(pick)
        outcome = self.do(Take(group, stream, limit))
        target = self.model.streams.get(stream)
        if target is None:
            assert isinstance(outcome, MainstemError)
            return
        assert isinstance(outcome, Taken)
        taken = [offset for start, end in outcome.ranges for offset in range(start, end)]
        assert taken == target.take(self.model.cursors.get((group, stream), 0), limit)
        if taken:
            self.model.cursors[group, stream] = taken[-1] + 1

    @rule(ms=st.sampled_from([-500, 1, 30_000, 100_000]))
    def pass_time(self, ms: int) -> None:
        self.writer.time_ms = max(0, self.writer.time_ms + ms)

    @precondition(lambda self: self.model.producers)
    @rule(ago=st.integers(0, 200_000))
    def expire_producers(self, ago: int) -> None:
        before = max(self.model.time_ms, self.writer.time_ms) - ago
        self.do(ExpireProducers(before))
        self.model.expire(before, limits.PRODUCER_TIME_STEP_MS)

    # What must hold after every step

    @invariant()
    def same_as_model(self) -> None:
        streams = self.ledger.streams
        for number, stream in self.model.streams.items():
            seen = self.writer.state(number)
            assert seen == (stream.start, len(stream.cells), stream.records, stream.bytes), number
            assert streams.max_timestamp[number] == stream.max_timestamp
            assert streams.evict_floor[number] == stream.evict_floor
            assert streams.lost(number) == stream.ranges(lost=True)
            passed = streams.passed.above(number, 0)
            assert {
                at: why for first, last, why in passed for at in range(first, last)
            } == stream.has_unsaved_changes()
            assert streams.deleted(number) == [(a, b) for a, b, _ in stream.ranges(lost=False)]
        assert len(self.ledger.producers) == len(self.model.producers)
        cursors = self.ledger.cursors
        seen_cursors = {
            (group, stream): cursor.offset
            for group in cursors.groups()
            for stream, cursor in cursors.of_group(group).items()
        }
        assert seen_cursors == self.model.cursors

    def teardown(self) -> None:
        check_replays(self.writer)


TestLedgerAgainstModel = LedgerMachine.TestCase
TestLedgerAgainstModel.settings = settings(
    max_examples=250,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
