"""Compaction in the broker: the newest record of each key stays, at its offset."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import msgspec
import pytest
from crc32c import crc32c
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mainstem.api.lake import PlanRequest
from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.broker.routers.service import RouterSettings
from mainstem.broker.transactions.service import ProducerStamp
from mainstem.errors import Closed, StalePlan
from mainstem.ledger.config import TopicConfig
from mainstem.ledger.repacked_objects import PublishRepack
from mainstem.ledger.section import Command
from mainstem.ledger.streams import DeleteRecords
from mainstem.log.log import Log, LogOptions
from mainstem.log.objects.checkpoints import InlineCheckpointer
from mainstem.log.objects.repack import shrinking
from mainstem.log.read.views import View
from mainstem.log.verification.directory import DirectoryCheck
from mainstem.ports.commitlog.local.log import LocalCommitLog
from mainstem.ports.objectstore.local import LocalObjectStore
from mainstem.records.building import build_batch
from mainstem.records.compression import CODECS
from mainstem.records.decoding import StoredRecord, decode_records
from mainstem.records.header import crc_matches, walk
from mainstem.tables.parts.materialise import materialise
from tests.support.machine import DIRECTORY, Machine
from tests.support.waiting import finished

from .repacking import SMALL, repacker

TOPIC = "compacted"
EAGER = TopicConfig(cleanup_policy="compact", min_cleanable_dirty_ratio=0.0, segment_ms=1)
HOUR_MS = 3_600_000


class Written(NamedTuple):
    offset: int
    key: bytes
    value: bytes | None


class CompactedTopic:
    """A compacted topic, and the records that were written and committed to it."""

    def __init__(self, machine: Machine, config: TopicConfig = EAGER) -> None:
        self.machine = machine
        self.config = config
        self.written: list[Written] = []
        self._sequences: dict[str, int] = {}

    @property
    def broker(self) -> Broker:
        assert self.machine.broker is not None
        return self.machine.broker

    @property
    def stream(self) -> int:
        return self.broker.streams.of(TOPIC, 0)

    async def create(self) -> CompactedTopic:
        await self.broker.create_topic(TOPIC, config=self.config)
        await self.broker.create_topic("other")
        return self

    async def append(self, records: Sequence[tuple[bytes, bytes | None]], codec: str = "none") -> int:
        keys, values = zip(*records, strict=True)
        batch = build_batch(values, keys=keys, timestamps_ms=self.machine.clock.now_ms(), codec=codec)  # type: ignore[arg-type]
        base = (await self.broker.append(TOPIC, batch)).base_offset
        self.written += [Written(base + at, key, value) for at, (key, value) in enumerate(records)]
        return base

    async def in_transaction(
        self, name: str, records: Sequence[tuple[bytes, bytes | None]], *, commit: bool | None
    ) -> ProducerStamp:
        """Write in a transaction, and end it. None: leave it open."""
        transactions = self.broker.transactions
        stamp = ProducerStamp(name, *await transactions.initialise(name, 600_000))
        await transactions.add_partitions(stamp, [self.stream])
        keys, values = zip(*records, strict=True)
        batch = build_batch(
            values,
            keys=keys,
            timestamps_ms=self.machine.clock.now_ms(),
            producer=stamp.producer,
            producer_epoch=stamp.epoch,
            base_sequence=0,
            transactional=True,
        )
        base = (await self.broker.append(TOPIC, batch)).base_offset
        if commit is not None:
            await transactions.end(stamp, commit=commit)
        if commit:
            self.written += [Written(base + at, key, value) for at, (key, value) in enumerate(records)]
        return stamp

    async def compact(self) -> None:
        """Repack and compact all that is in the log."""
        self.machine.clock.advance(20_000)
        while await repacker(self.broker).step():
            await finished(self.broker)
        await finished(self.broker)
        while await repacker(self.broker).step():
            await finished(self.broker)

    async def records(self, view: View = View.COMMITTED) -> list[StoredRecord]:
        found: list[StoredRecord] = []
        offset, end = self.broker.log.streams.of(self.stream).bounds(self.stream)
        while offset < end:
            chunk = await self.broker.log.streams.of(self.stream).read(self.stream, offset, 1_000, view=view)
            for batch in chunk.batches:
                found += decode_records(batch, offset)
            assert chunk.next_offset > offset
            offset = chunk.next_offset
        return found

    async def contents(self) -> list[Written]:
        return [Written(one.offset, one.key or b"", one.value) for one in await self.records()]

    def newest(self) -> list[Written]:
        """The newest record of each key, in the order of offsets."""
        return sorted({one.key: one for one in self.written}.values())

    @property
    def compacted_to(self) -> int:
        return self.broker.log.ledger.compactions.get(self.stream).end


class OnDisk(Machine):
    """The same in real files, which workers of the lake read."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._directory = directory

    async def open(self) -> Broker:
        port = await LocalCommitLog.open(self._directory, segment_bytes=4096)
        objects = LocalObjectStore(self._directory / "objects")
        log = await Log.open(port, self.clock, LogOptions(repack=SMALL), InlineCheckpointer(port), objects)
        self.broker = Broker(log, BrokerOptions(self._directory, lake_topics="all"), self.clock, self.random)
        return self.broker


@pytest.fixture
async def topic(machine: Machine) -> CompactedTopic:
    await machine.open()
    return await CompactedTopic(machine).create()


async def test_only_the_newest_record_of_each_key_stays_at_its_offset(topic: CompactedTopic) -> None:
    for number in range(40):
        await topic.append([(b"k%d" % (key % 7), b"%d %d" % (number, key)) for key in range(number % 5 + 1)])
    await topic.compact()
    assert await topic.contents() == topic.newest()
    assert topic.broker.log.streams.of(topic.stream).bounds(topic.stream) == (0, len(topic.written))
    assert topic.broker.log.ledger.streams.records[topic.stream] == len(topic.newest())
    assert (
        await topic.broker.log.streams.of(topic.stream).offset_at(topic.stream, 0) == topic.newest()[0].offset
    )


@pytest.mark.parametrize("codec", CODECS)
async def test_a_compacted_batch_keeps_its_first_and_last_offset(topic: CompactedTopic, codec: str) -> None:
    await topic.append([(b"a", b"1"), (b"b", b"old"), (b"c", b"old"), (b"d", b"4")], codec)
    await topic.append([(b"b", b"new"), (b"c", b"new")], codec)
    await topic.compact()
    chunk = await topic.broker.log.streams.of(topic.stream).read(topic.stream, 0, 10_000)
    headers = [header for batch in chunk.batches for header in walk(batch)]
    facts = [(one.base_offset, one.last_offset_delta, one.count, one.codec_id) for one in headers]
    number = CODECS.index(codec)
    assert facts == [(0, 3, 2, number), (4, 1, 2, number)]
    assert all(crc_matches(batch, header) for batch in chunk.batches for header in walk(batch))
    assert [(one.offset, one.key) for one in await topic.records()] == [
        (0, b"a"),
        (3, b"d"),
        (4, b"b"),
        (5, b"c"),
    ]


async def test_a_read_from_a_removed_offset_goes_on_behind_it(topic: CompactedTopic) -> None:
    for number in range(10):
        await topic.append([(b"k", b"%d" % number)])
    await topic.append([(b"z", b"last")])
    await topic.compact()
    for offset in range(9):
        chunk = await topic.broker.log.streams.of(topic.stream).read(topic.stream, offset, 1)
        while not chunk.batches:
            chunk = await topic.broker.log.streams.of(topic.stream).read(topic.stream, chunk.next_offset, 1)
        assert next(walk(chunk.batches[0])).base_offset == 9


async def test_records_of_an_open_transaction_neither_go_nor_remove_others(topic: CompactedTopic) -> None:
    await topic.append([(b"k", b"before"), (b"k", b"settled")])
    stamp = await topic.in_transaction("t", [(b"k", b"open")], commit=None)
    await topic.append([(b"k", b"after")])
    await topic.compact()
    assert topic.compacted_to == 2
    assert [one.value for one in await topic.records(View.STORED)] == [b"settled", b"open", b"after"]
    await topic.broker.transactions.end(stamp, commit=False)
    await topic.append([(b"other", b"1")])
    await topic.compact()
    assert [(one.offset, one.value) for one in await topic.records()] == [(3, b"after"), (5, b"1")]
    assert b"open" not in [one.value for one in await topic.records(View.STORED)]


async def test_aborted_records_remove_nothing(topic: CompactedTopic) -> None:
    await topic.append([(b"k", b"1")])
    await topic.in_transaction("t", [(b"k", b"aborted"), (b"k", None)], commit=False)
    await topic.append([(b"z", b"1")])
    await topic.compact()
    assert await topic.contents() == topic.newest()


async def test_a_deleted_record_removes_nothing(topic: CompactedTopic) -> None:
    await topic.append([(b"k", b"1"), (b"k", b"2"), (b"z", b"3")])
    await topic.broker.log.propose(DeleteRecords(topic.stream, ((1, 2),)))
    await topic.compact()
    assert [one.value for one in await topic.contents()] == [b"1", b"3"]


async def test_a_tombstone_stays_for_its_retention_after_the_compaction(topic: CompactedTopic) -> None:
    await topic.append([(b"k", b"1"), (b"k", None), (b"z", b"1")])
    topic.machine.clock.advance(200 * HOUR_MS)  # before it is compacted, no time counts
    await topic.compact()
    assert await topic.contents() == [(1, b"k", None), (2, b"z", b"1")]
    topic.machine.clock.advance(23 * HOUR_MS)
    await topic.compact()
    assert await topic.contents() == [(1, b"k", None), (2, b"z", b"1")]
    topic.machine.clock.advance(2 * HOUR_MS)
    await topic.compact()
    assert await topic.contents() == [(2, b"z", b"1")]
    assert topic.broker.log.ledger.streams.records[topic.stream] == 1


async def test_readers_reach_the_end_behind_a_removed_tombstone(topic: CompactedTopic) -> None:
    """A consumer that never gets a batch never gets to the end."""
    await topic.append([(b"a", b"1"), (b"a", None)])
    await topic.compact()
    topic.machine.clock.advance(25 * HOUR_MS)
    await topic.compact()
    assert await topic.contents() == []
    chunk = await topic.broker.log.streams.of(topic.stream).read(topic.stream, 0, 1_000)
    assert [header.next_offset for batch in chunk.batches for header in walk(batch)] == [2]
    await topic.append([(b"b", b"1")])
    await topic.compact()
    assert await topic.contents() == [(2, b"b", b"1")]


async def test_offsets_of_a_round_without_records_are_not_missing(topic: CompactedTopic) -> None:
    await topic.append([(b"a", b"1"), (b"a", None)])
    await topic.compact()
    await topic.broker.alter_topic(TOPIC, msgspec.structs.replace(EAGER, segment_ms=1_000 * HOUR_MS))
    await topic.append([(b"b", b"1")])
    topic.machine.clock.advance(25 * HOUR_MS)
    await topic.compact()
    topic.machine.clock.advance(HOUR_MS)
    await topic.compact()
    assert topic.broker.log.ledger.repacked.rounds == []
    assert await topic.contents() == [(2, b"b", b"1")]
    await topic.machine.restart()
    assert await topic.contents() == [(2, b"b", b"1")]
    assert topic.broker.log.missing.count() == 0


async def test_young_records_stay_and_remove_nothing(machine: Machine) -> None:
    await machine.open()
    config = msgspec.structs.replace(EAGER, min_compaction_lag_ms=HOUR_MS, max_compaction_lag_ms=2 * HOUR_MS)
    topic = await CompactedTopic(machine, config).create()
    await topic.append([(b"k", b"1"), (b"k", b"2")])
    machine.clock.advance(2 * HOUR_MS)
    await topic.append([(b"k", b"3")])
    await topic.compact()
    assert [one.value for one in await topic.contents()] == [b"2", b"3"]
    machine.clock.advance(2 * HOUR_MS)
    await topic.append([(b"z", b"1")])
    await topic.compact()
    assert [one.value for one in await topic.contents()] == [b"3", b"1"]


async def test_compaction_waits_for_the_dirty_ratio_or_the_lag(machine: Machine) -> None:
    await machine.open()
    config = msgspec.structs.replace(EAGER, min_cleanable_dirty_ratio=0.9, max_compaction_lag_ms=9 * HOUR_MS)
    topic = await CompactedTopic(machine, config).create()
    await topic.append([(b"%d" % key, b"x" * 100) for key in range(20)])
    await topic.compact()
    assert topic.compacted_to == 20  # nothing was compacted before, so all bytes are dirty
    await topic.append([(b"1", b"new")])
    await topic.compact()
    assert topic.compacted_to == 20
    assert len(await topic.contents()) == 21
    machine.clock.advance(10 * HOUR_MS)
    await topic.compact()
    assert await topic.contents() == topic.newest()


async def test_the_open_object_ends_for_old_records_only(machine: Machine) -> None:
    await machine.open()
    topic = await CompactedTopic(machine, msgspec.structs.replace(EAGER, segment_ms=HOUR_MS)).create()
    await topic.append([(b"k", b"1"), (b"k", b"2")])
    await topic.compact()
    assert len(await topic.contents()) == 2
    machine.clock.advance(HOUR_MS)
    await topic.compact()
    assert await topic.contents() == topic.newest()


async def test_a_full_index_of_keys_compacts_in_several_steps(topic: CompactedTopic) -> None:
    repacker(topic.broker).compactor.key_index_bytes = 400  # sixteen slots
    for number in range(90):
        await topic.append([(b"k%d" % (number % 30), b"%d" % number)])
    await topic.compact()
    assert await topic.contents() == topic.newest()
    assert repacker(topic.broker).compactor.counts.compactions > 2


async def test_a_topic_of_many_keys_is_copied_first_and_compacted_later(
    topic: CompactedTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shrinking, "SHRUNK_RECORDS_MIN", 4)
    keys = [b"key %d" % number for number in range(100)]
    for turn in range(2):
        for key in keys:
            await topic.append([(key, b"%d" % turn)])
    topic.machine.clock.advance(20_000)
    counts = repacker(topic.broker).compactor.counts
    await repacker(topic.broker).step()
    judged = counts.read_records
    assert judged >= 4
    await repacker(topic.broker).step()
    assert (counts.compactions, counts.read_records) == (0, judged)
    await topic.compact()
    assert await topic.contents() == topic.newest()


async def test_streams_beside_it_and_copies_of_it_stay_whole(topic: CompactedTopic) -> None:
    await topic.broker.routers.put("r", RouterSettings(TOPIC, "copy"))
    for number in range(30):
        await topic.append([(b"k", b"%d" % number)])
        await topic.broker.append_values("other", [b"%d" % number])
    await topic.broker.routers.drain("copy")
    await topic.compact()
    for name in ("other", "copy"):
        stream = topic.broker.streams.of(name, 0)
        chunk = await topic.broker.log.streams.of(stream).read(stream, 0, 1 << 20)
        values = [one.value for batch in chunk.batches for one in decode_records(batch)]
        at = chunk.next_offset
        while at < 30:
            chunk = await topic.broker.log.streams.of(stream).read(stream, at, 1 << 20)
            values += [one.value for batch in chunk.batches for one in decode_records(batch, at)]
            at = chunk.next_offset
        assert values == [b"%d" % number for number in range(30)]


async def test_the_ledger_refuses_to_remove_records_that_copies_need(topic: CompactedTopic) -> None:
    """A router may copy records while a compaction is under way."""
    for number in range(30):
        await topic.append([(b"k%d" % number, b"%d" % number)])
    await topic.broker.routers.put("r", RouterSettings(TOPIC, "copy"))
    for number in range(30):
        await topic.append([(b"k", b"%d" % number)])
    await topic.broker.routers.drain("copy")
    await topic.compact()
    (made, *_) = topic.broker.log.ledger.repacked.rounds
    removed = ((topic.stream, 30, 31, 1),)
    with pytest.raises(StalePlan, match="copies"):
        await topic.broker.log.propose(PublishRepack(made.first, made.end, made.keys, (), removed))


async def test_tables_are_made_of_what_compaction_left(tmp_path: Path) -> None:
    disk = OnDisk(tmp_path)
    await disk.open()
    topic = await CompactedTopic(disk).create()
    for number in range(40):
        await topic.append([(b"k%d" % (number % 4), b"%d" % number)])
    await topic.compact()
    await topic.append([(b"new", b"1")])
    for _ in range(3):
        plan = await topic.broker.lake.plan(PlanRequest("tests", kinds=("materialise",)))
        for task in plan.tasks:
            await topic.broker.lake.publish(await asyncio.to_thread(materialise, task))
    assert await topic.contents() == topic.newest()
    ledger = topic.broker.log.ledger
    assert ledger.generations.frontier(topic.stream) == 41
    assert ledger.streams.records[topic.stream] == len(topic.newest())
    await topic.broker.trim(TOPIC, 41)
    assert ledger.streams.records[topic.stream] == 0
    await topic.broker.close()


async def test_a_batch_that_cannot_be_decoded_stays(machine: Machine) -> None:
    """Topics that were not compacted take batches without decoding them."""
    await machine.open()
    topic = await CompactedTopic(machine, TopicConfig(segment_ms=1)).create()
    await topic.append([(b"k", b"1")])
    broken = build_batch([b"value"], keys=[b"k"], timestamps_ms=0)
    broken[61] = 0x7E  # a record that claims to be longer than the batch
    broken[17:21] = crc32c(broken[21:]).to_bytes(4, "big")
    await topic.broker.append(TOPIC, broken)
    await topic.append([(b"k", b"3"), (b"k", b"4")])
    await topic.broker.alter_topic(TOPIC, EAGER)
    await topic.compact()
    chunk = await topic.broker.log.streams.of(topic.stream).read(topic.stream, 0, 10_000)
    bases = [header.base_offset for batch in chunk.batches for header in walk(batch)]
    assert bases == [1, 2]


async def test_the_directory_is_sound_after_compaction(machine: Machine) -> None:
    await machine.open()
    topic = await CompactedTopic(machine).create()
    for number in range(60):
        await topic.append([(b"k%d" % (number % 3), b"%d" % number * 30)])
        await finished(topic.broker)
    await topic.compact()
    await topic.broker.log.collect()
    await machine.close()
    report = DirectoryCheck(DIRECTORY, files=machine.files).run()
    assert not report.problems, [problem.line for problem in report.problems]


# Against a model


KEYS = st.integers(0, 9).map(lambda key: b"key %d" % key)
VALUES = st.one_of(st.none(), st.binary(min_size=1, max_size=60))
RECORDS = st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=6)
STEPS = st.one_of(
    st.tuples(st.just("append"), RECORDS, st.sampled_from(CODECS)),
    st.tuples(st.just("append"), RECORDS, st.sampled_from(CODECS)),
    st.tuples(st.just("transaction"), RECORDS, st.booleans()),
    st.tuples(st.just("compact")),
    st.tuples(st.just("wait"), st.sampled_from((1_000, 13 * HOUR_MS))),
    st.tuples(st.just("kill")),
    st.tuples(st.just("restart")),
    st.tuples(st.just("kill in compaction"), st.integers(1, 12)),
)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=st.lists(STEPS, min_size=4, max_size=25), judged_after=st.sampled_from((4, 250_000)))
async def test_against_a_map(steps: list[tuple[Any, ...]], judged_after: int) -> None:
    with patch.object(shrinking, "SHRUNK_RECORDS_MIN", judged_after):
        await compare_with_a_map(steps)


async def compare_with_a_map(steps: list[tuple[Any, ...]]) -> None:
    machine = Machine(repack=SMALL, tail_cache_bytes=0, segment_bytes=2048)
    try:
        await machine.open()
        topic = await CompactedTopic(machine).create()
        for number, (kind, *arguments) in enumerate(steps):
            if kind == "append":
                await topic.append(*arguments)
            elif kind == "transaction":
                await topic.in_transaction(f"t{number}", arguments[0], commit=arguments[1])
            elif kind == "wait":
                machine.clock.advance(*arguments)
            elif kind == "compact":
                await topic.compact()
                check_compacted(topic, await topic.contents())
            elif kind == "kill":
                await machine.kill()
                await machine.open()
            elif kind == "restart":
                await machine.restart()
            else:
                await killed_in_compaction(topic, *arguments)
            check_map(topic, await topic.contents())
        await topic.compact()
        check_compacted(topic, await topic.contents())
        check_map(topic, await topic.contents())
        await machine.restart()
        check_map(topic, await topic.contents())
    finally:
        await machine.kill()


async def killed_in_compaction(topic: CompactedTopic, commits: int) -> None:
    """End the process after some of the commits that repacking and compaction make."""
    topic.machine.clock.advance(20_000)
    log, left = topic.broker.log, commits
    propose = log.propose

    async def until_killed(command: Command) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise Closed("killed")
        return await propose(command)

    log.propose = until_killed  # type: ignore[method-assign]
    with suppress(Closed):
        while await repacker(topic.broker).step():
            await finished(topic.broker)
    await topic.machine.kill()
    await topic.machine.open()


def check_map(topic: CompactedTopic, found: list[Written]) -> None:
    """The records are some of those written, and give the same map as all of them."""
    written = {one.offset: one for one in topic.written}
    assert all(written[one.offset] == one for one in found)
    assert [one.offset for one in found] == sorted({one.offset for one in found})
    assert _as_map(found) == _as_map(topic.written)


def check_compacted(topic: CompactedTopic, found: list[Written]) -> None:
    below = [one.key for one in found if one.offset < topic.compacted_to]
    assert len(below) == len(set(below))
    later = [one for one in found if one.offset >= topic.compacted_to]
    assert later == [one for one in topic.written if one.offset >= topic.compacted_to]
    assert topic.broker.log.ledger.streams.records[topic.stream] == len(found)


def _as_map(records: list[Written]) -> dict[bytes, bytes]:
    found = {one.key: one.value for one in records}
    return {key: value for key, value in found.items() if value is not None}
