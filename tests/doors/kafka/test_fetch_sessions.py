"""Fetch sessions: a client names all partitions once, then those that change, and gets those that changed."""

from __future__ import annotations

import asyncio
import random
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from mainstem.broker.broker import Broker
from mainstem.doors.kafka.apis.fetch import API
from mainstem.records.decoding import decode_records

from .conftest import KafkaStage
from .requests import fetch
from .wire import Wire

VERSIONS = [7, 11, 12, 13, API.last]


class Session:
    """A client with one session over one topic. `taken`: the values read, by partition."""

    def __init__(self, wire: Wire, broker: Broker, version: int, *, isolation: int = 0) -> None:
        self.wire = wire
        self.version = version
        self.isolation = isolation
        self.topic: Any = UUID(bytes=broker.topic("t").topic_id) if version >= 13 else "t"
        self.id = self.epoch = 0
        self.taken: dict[int, list[bytes]] = {}

    async def ask(self, *places: tuple[int, int], **more: Any) -> dict[int, Any]:
        """The partitions of the answer, by number."""
        answer = await self.wire.ask(
            fetch(
                self.version,
                self.topic,
                *places,
                session=(self.id, self.epoch),
                isolation=self.isolation,
                rack="",
                **more,
            )
        )
        assert answer.error_code is ErrorCode.none, answer.error_code
        assert answer.session_id > 0
        assert self.id in (0, answer.session_id)
        self.id, self.epoch = answer.session_id, self.epoch + 1
        return {part.partition_index: part for topic in answer.responses for part in topic.partitions}

    def take(self, parts: dict[int, Any]) -> dict[int, int]:
        """Keep what came. Returns where each partition goes on."""
        reached = {}
        for number, part in parts.items():
            records = list(decode_records(part.records or b"")) if part.records else []
            self.taken.setdefault(number, []).extend(record[3] for record in records)
            if records:
                reached[number] = records[-1][0] + 1
        return reached


@pytest.mark.parametrize("version", VERSIONS)
async def test_later_answers_hold_what_changed(kafka: KafkaStage, wire: Wire, version: int) -> None:
    broker = kafka.broker
    await broker.create_topic("t", partitions=4)
    await broker.append_values("t", [b"a"], partition=1)
    session = Session(wire, broker, version)
    first = await session.ask(*((number, 0) for number in range(4)))
    assert sorted(first) == [0, 1, 2, 3]
    assert session.take(first) == {1: 1}
    assert await session.ask((1, 1)) == {}
    await broker.append_values("t", [b"b", b"c"], partition=2)
    assert session.take(await session.ask()) == {2: 2}
    again = await session.ask()  # the client did not move on: it gets the same records
    assert (sorted(again), again[2].high_watermark) == ([2], 2)
    assert await session.ask(forgotten=(2,)) == {}
    await broker.append_values("t", [b"d"], partition=2)
    await broker.append_values("t", [b"e"], partition=0)
    assert sorted(await session.ask()) == [0]
    assert session.take(await session.ask((0, 1), (2, 2))) == {2: 3}


@pytest.mark.parametrize("version", VERSIONS)
async def test_an_error_of_a_partition_lasts_as_long_as_its_cause(
    kafka: KafkaStage, wire: Wire, version: int
) -> None:
    broker = kafka.broker
    await broker.create_topic("t", partitions=2)
    session = Session(wire, broker, version)
    for _ in range(2):
        parts = await session.ask(*([(0, 1), (1, 1)] if not session.id else []))
        assert {part.error_code for part in parts.values()} == {ErrorCode.offset_out_of_range}
    await broker.append_values("t", [b"a", b"b"], partition=0)
    parts = await session.ask()
    assert (parts[0].error_code, parts[1].error_code) == (ErrorCode.none, ErrorCode.offset_out_of_range)
    assert session.take({0: parts[0]}) == {0: 2}
    await broker.delete_topic("t")
    parts = await session.ask()
    assert {part.error_code for part in parts.values()} == {ErrorCode.unknown_topic_or_partition}


async def test_a_waiting_request_of_a_session_wakes_up(kafka: KafkaStage, wire: Wire) -> None:
    await kafka.broker.create_topic("t", partitions=100)
    session = Session(wire, kafka.broker, API.last)
    await session.ask(*((number, 0) for number in range(100)))
    for number in (7, 93):
        asking = asyncio.create_task(session.ask(wait_ms=30_000))
        await asyncio.sleep(0.05)
        await kafka.broker.append_values("t", [b"x"], partition=number)
        parts = await asking
        assert list(parts) == [number]
        assert session.take(parts) == {number: 1}
        assert await session.ask((number, 1)) == {}


async def test_wrong_ids_and_epochs_are_refused_and_a_new_session_replaces_the_old(
    kafka: KafkaStage, wire: Wire
) -> None:
    await kafka.broker.create_topic("t", partitions=2)
    stale = await wire.ask(fetch(11, "t", (0, 0), session=(1234, 5)))
    assert (stale.error_code, stale.responses) == (ErrorCode.fetch_session_id_not_found, ())
    session = Session(wire, kafka.broker, 11)
    await session.ask((0, 0), (1, 0))
    skipped = await wire.ask(fetch(11, "t", session=(session.id, 2)))
    assert skipped.error_code is ErrorCode.invalid_fetch_session_epoch
    assert await session.ask() == {}
    opened = await wire.ask(fetch(11, "t", (0, 0), session=(session.id, 0), rack=""))
    assert (opened.error_code, len(opened.responses[0].partitions)) == (ErrorCode.none, 1)
    assert opened.session_id not in (0, session.id)
    assert kafka.door.context.session_partitions == 1
    closed = await wire.ask(fetch(11, "t", (0, 0), session=(opened.session_id, -1), rack=""))
    assert (closed.session_id, kafka.door.context.session_partitions) == (0, 0)


async def test_a_session_ends_with_its_connection(kafka: KafkaStage, wire: Wire) -> None:
    await kafka.broker.create_topic("t", partitions=3)
    other = await kafka.connect()
    session = Session(other, kafka.broker, API.last)
    await session.ask((0, 0), (2, 0))
    assert kafka.door.context.session_partitions == 2
    answer = await wire.ask(fetch(API.last, session.topic, session=(session.id, 1)))
    assert answer.error_code is ErrorCode.fetch_session_id_not_found
    await other.close()
    await wire.ask(fetch(API.last, session.topic, (0, 0)))
    assert kafka.door.context.session_partitions == 0


async def test_partitions_of_all_sessions_are_bounded(
    kafka: KafkaStage, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainstem.doors.kafka.apis.fetch_session.KAFKA_SESSION_PARTITIONS_MAX", 3)
    await kafka.broker.create_topic("t", partitions=4)
    many = await wire.ask(fetch(11, "t", *((number, 0) for number in range(4)), session=(0, 0), rack=""))
    assert (many.session_id, len(many.responses[0].partitions)) == (0, 4)
    few = await wire.ask(fetch(11, "t", (0, 0), (1, 0), session=(0, 0), rack=""))
    assert few.session_id > 0


async def test_a_topic_that_is_created_later_is_found(kafka: KafkaStage, wire: Wire) -> None:
    session = Session(wire, kafka.broker, 11)
    unknown = await session.ask((0, 0))
    assert unknown[0].error_code is ErrorCode.unknown_topic_or_partition
    await kafka.broker.create_topic("t")
    await kafka.broker.append_values("t", [b"a"])
    assert session.take(await session.ask()) == {0: 1}
    await kafka.broker.delete_topic("t")
    gone = await session.ask((0, 1))
    assert gone[0].error_code is ErrorCode.unknown_topic_or_partition


@pytest.mark.parametrize("seed", range(12))
async def test_a_session_reads_every_record_once_whatever_changes(
    kafka: KafkaStage, wire: Wire, seed: int
) -> None:
    """Random appends, pauses and limits: each partition's records arrive in order, none is missing."""
    dice = random.Random(seed)
    count = 12
    await kafka.broker.create_topic("t", partitions=count)
    session = Session(wire, kafka.broker, dice.choice(VERSIONS), isolation=dice.choice((0, 1)))
    written: dict[int, list[bytes]] = {number: [] for number in range(count)}
    offsets = dict.fromkeys(range(count), 0)
    paused: set[int] = set()
    moved = dict(offsets)
    for step in range(60):
        for number in dice.sample(range(count), dice.randrange(4)):
            values = [b"%d-%d-%d" % (number, step, index) for index in range(dice.randrange(1, 4))]
            await kafka.broker.append_values("t", values, partition=number)
            written[number] += values
        left: set[int] = set()
        if step and dice.random() < 0.3:
            left = {number for number in range(count) if dice.random() < 0.3} - paused
        back = {number for number in paused if step == 59 or dice.random() < 0.4}
        paused = (paused | left) - back
        wanted = {n: o for n, o in moved.items() if n not in paused} | {n: offsets[n] for n in back}
        parts = await session.ask(
            *wanted.items(),
            forgotten=sorted(left),
            max_bytes=dice.choice((1, 200, 1 << 20)),
            partition_max_bytes=dice.choice((1, 100, 1 << 20)),
        )
        assert not paused & set(parts)
        moved = session.take(parts)
        offsets |= moved
    for _ in range(200):
        moved = session.take(await session.ask(*moved.items()))
        offsets |= moved
        if not moved:
            break
    assert {n: v for n, v in session.taken.items() if v} == {n: v for n, v in written.items() if v}
