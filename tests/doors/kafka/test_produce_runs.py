"""Requests that a client sends without waiting: those of one partition are appended together."""

from __future__ import annotations

import asyncio
import random
import struct
import uuid
from collections.abc import Sequence
from typing import Any

import pytest
from kio.index import load_response_schema
from kio.schema.errors import ErrorCode

from mainstem.doors.kafka.apis.lone_batch import LoneBatches
from mainstem.ledger.config import TopicConfig
from mainstem.records.building import build_batch
from tests.support.batches import TIME_MS, batch, produced

from .conftest import KafkaStage
from .requests import produce
from .test_produce import only_part, topic_of
from .wire import Wire, decode, request_frame


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of requests of each run."""
    found: list[int] = []
    answers = LoneBatches.answers

    def noted(alike: LoneBatches, run: Any, base: int) -> list[bytes]:
        made = answers(alike, run, base)
        found.append(len(made))
        return made

    monkeypatch.setattr(LoneBatches, "answers", noted)
    return found


async def sent_ahead(wire: Wire, version: int, requests: Sequence[object]) -> list[Any]:
    """The part of each response to requests that arrive in one piece; the first one arrives before them."""
    found: list[Any] = []
    for first, last in ((0, 1), (1, len(requests))):
        numbered = list(enumerate(requests))[first:last]
        wire.send_raw(b"".join(request_frame(request, number) for number, request in numbered))
        for number, _ in numbered:
            answer = await wire.receive_raw()
            assert struct.unpack_from(">i", answer) == (number,)
            found.append(
                only_part(decode(load_response_schema(0, version), answer[5 if version >= 9 else 4 :]))
            )
    return found


@pytest.mark.parametrize("version", [8, 9, 13])
@pytest.mark.parametrize("durability", ["disk", "fsync"])
async def test_every_request_of_a_run_gets_its_own_offset(
    kafka: KafkaStage, wire: Wire, runs: list[int], version: int, durability: Any
) -> None:
    topic = await topic_of(kafka.broker, "t", version, config=TopicConfig(durability=durability))
    chance = random.Random(version)
    groups = [[b"%d" % chance.randrange(10**6)] * chance.randint(1, 4) for _ in range(200)]
    parts = await sent_ahead(wire, version, [produce(version, topic, batch(*values)[0]) for values in groups])
    assert {part.error_code for part in parts} == {ErrorCode.none}
    ends = [sum(map(len, groups[:number])) for number in range(len(groups))]
    assert [part.base_offset for part in parts] == ends
    records = await kafka.broker.read("t", 0, max_records=1_000)
    assert [record.value for record in records] == [value for values in groups for value in values]
    assert [record.offset for record in records] == list(range(len(records)))
    assert sum(runs) > 100
    assert max(runs) <= 64


async def test_a_refused_batch_does_not_refuse_others_of_the_run(
    kafka: KafkaStage, wire: Wire, runs: list[int]
) -> None:
    await kafka.broker.create_topic("t", partitions=2, config=TopicConfig(max_message_bytes=5_000))
    slices: list[bytes] = [bytes(batch(b"%d" % number)[0]) for number in range(12)]
    slices[5] = slices[5][:-1] + b"!"  # its checksum does not match
    slices[8] = bytes(batch(b"x" * 6_000)[0])
    requests = [produce(9, "t", one, partitions=[0]) for one in slices]
    requests[10] = produce(9, "t", slices[10], partitions=[7])
    parts = await sent_ahead(wire, 9, requests)
    codes = {number: part.error_code for number, part in enumerate(parts) if part.error_code}
    assert codes == {
        5: ErrorCode.corrupt_message,
        8: ErrorCode.message_too_large,
        10: ErrorCode.unknown_topic_or_partition,
    }
    kept = [number for number in range(12) if number not in codes]
    assert [record.value for record in await kafka.broker.read("t", 0)] == [b"%d" % number for number in kept]
    assert [parts[number].base_offset for number in kept] == list(range(9))


async def test_requests_in_a_pipeline_keep_their_order_whatever_they_are(
    kafka: KafkaStage, wire: Wire, runs: list[int]
) -> None:
    """Of two partitions, with and without a producer id, with batches of all sizes."""
    await kafka.broker.create_topic("t", partitions=2)
    chance = random.Random(7)
    expected: list[list[bytes]] = [[], []]
    requests: list[object] = []
    bases: list[int] = []
    sequence = 0
    for number in range(300):
        index = chance.random() < 0.1
        value = b"%d " % number * chance.choice((1, 1, 1, 3_000))
        if chance.random() < 0.1:
            index = False
            records = produced(77, sequence, value)
            sequence += 1
        else:
            records = build_batch([value], timestamps_ms=TIME_MS)
        bases.append(len(expected[index]))
        expected[index].append(value)
        requests.append(produce(9, "t", records, partitions=[int(index)]))
    parts = await sent_ahead(wire, 9, requests)
    assert {part.error_code for part in parts} == {ErrorCode.none}
    assert [part.base_offset for part in parts] == bases
    for index, values in enumerate(expected):
        read: list[bytes | None] = []
        while len(read) < len(values):
            read += [record.value for record in await kafka.broker.read("t", len(read), partition=index)]
        assert read == values
    assert runs


@pytest.mark.parametrize(
    "config",
    [
        TopicConfig(cap_records=5, discard="reject"),
        TopicConfig(compression_type="gzip"),
        TopicConfig(timestamp_type="LogAppendTime"),
    ],
)
async def test_topics_that_look_at_each_batch_get_no_runs(
    kafka: KafkaStage, wire: Wire, runs: list[int], config: TopicConfig
) -> None:
    await kafka.broker.create_topic("t", config=config)
    parts = await sent_ahead(wire, 9, [produce(9, "t", batch(b"x")[0]) for _ in range(8)])
    fitting = 5 if config.cap_records else 8
    assert [part.base_offset for part in parts] == [*range(fitting), *[-1] * (8 - fitting)]
    assert not runs


async def test_a_run_to_a_topic_that_was_made_again_is_for_the_new_one(kafka: KafkaStage, wire: Wire) -> None:
    await kafka.broker.create_topic("t")
    request = produce(9, "t", batch(b"x")[0])
    assert [part.base_offset for part in await sent_ahead(wire, 9, [request] * 4)] == [0, 1, 2, 3]
    await kafka.broker.delete_topic("t")
    await kafka.broker.create_topic("t")
    assert [part.base_offset for part in await sent_ahead(wire, 9, [request] * 4)] == [0, 1, 2, 3]


async def _received(wire: Wire, responses: int) -> None:
    for _ in range(responses):
        await wire.receive_raw()


async def test_a_batch_does_not_go_on_behind_its_request(kafka: KafkaStage) -> None:
    """Not into what the server received from another client before, nor into the next request."""
    await kafka.broker.create_topic("t")
    frames = [request_frame(produce(8, "t", batch(b"%d" % number)[0]), number) for number in range(3)]
    cut = struct.pack(">i", len(frames[2]) - 14) + frames[2][4:-10]
    for pieces in ([frames[1], cut], [frames[1], cut, frames[2][-10:]]):
        before = kafka.broker.partition("t").end
        other, wire = await kafka.connect(), await kafka.connect()
        await sent_ahead(other, 8, [produce(8, "t", batch(b"%d" % number)[0]) for number in range(3)])
        wire.send_raw(frames[0])
        await wire.receive_raw()
        other.send_raw(b"".join(frames[1:]))
        for _ in frames[1:]:
            await other.receive_raw()
        wire.send_raw(b"".join(pieces))
        with pytest.raises(asyncio.IncompleteReadError):  # it is closed
            await _received(wire, len(pieces))
        assert kafka.broker.partition("t").end == before + 7


async def test_requests_of_a_run_are_counted_each(kafka: KafkaStage, wire: Wire, runs: list[int]) -> None:
    name = uuid.uuid4().hex
    await kafka.broker.create_topic(name)
    await sent_ahead(wire, 9, [produce(9, name, batch(b"x")[0]) for _ in range(30)])
    assert runs
    assert kafka.door.metrics.of(0).count == 30
    assert sum(kafka.door.metrics.of(0).latencies) == 30
