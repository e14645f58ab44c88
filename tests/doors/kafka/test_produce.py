"""Produce, by hand-made frames of every version."""

from __future__ import annotations

import struct
import uuid
from typing import Any

import pytest
from kio.index import load_response_schema
from kio.schema.errors import ErrorCode

from mainstem.broker.broker import Broker
from mainstem.doors.kafka.apis.lone_batch import LoneBatches
from mainstem.doors.kafka.apis.produce import API
from mainstem.ledger.config import TopicConfig
from mainstem.records.building import build_batch
from tests.support.batches import batch, produced

from .conftest import KafkaStage, opened
from .requests import metadata, produce
from .wire import Wire, decode, request_frame

SPOKEN_BY_LIBRARY = range(3, API.last + 1)


async def topic_of(broker: Broker, name: str, version: int, **options: object) -> str | uuid.UUID:
    """How a version names the topic; creates the topic."""
    info = await broker.create_topic(name, **options)
    return uuid.UUID(bytes=info.topic_id) if version >= 13 else name


def only_part(answer: object) -> object:
    (topic,) = answer.responses
    (part,) = topic.partition_responses
    return part


@pytest.mark.parametrize("version", SPOKEN_BY_LIBRARY)
async def test_every_version_appends_and_answers_the_offset(
    kafka: KafkaStage, wire: Wire, version: int
) -> None:
    topic = await topic_of(kafka.broker, "t", version, partitions=2)
    first, _ = batch(b"a", b"b")
    second, _ = batch(b"c")
    answer = await wire.ask(produce(version, topic, first, second))
    (named,) = answer.responses
    assert (named.topic_id if version >= 13 else named.name) == topic
    assert [(part.index, part.error_code, part.base_offset) for part in named.partition_responses] == [
        (0, ErrorCode.none, 0),
        (1, ErrorCode.none, 0),
    ]
    again, _ = batch(b"d")
    assert only_part(await wire.ask(produce(version, topic, again))).base_offset == 2
    records = await kafka.broker.read("t", 0)
    assert [record.value for record in records] == [b"a", b"b", b"d"]


@pytest.mark.parametrize("version", [8, 12, 13])
async def test_each_partition_has_its_own_error(kafka: KafkaStage, wire: Wire, version: int) -> None:
    topic = await topic_of(kafka.broker, "t", version, config=TopicConfig(max_message_bytes=200))
    good, _ = batch(b"good")
    large, _ = batch(b"x" * 300)
    torn = bytearray(good)
    torn[-1] ^= 1
    old = bytearray(good)
    old[16] = 1
    unknown = bytearray(good)
    unknown[16] = 9
    sent = (good, large, torn, old, unknown, None, b"", good)
    answer = await wire.ask(produce(version, topic, *sent, partitions=[0] * 7 + [7]))
    codes = [part.error_code for part in answer.responses[0].partition_responses]
    assert codes == [
        ErrorCode.none,
        ErrorCode.message_too_large,
        ErrorCode.corrupt_message,
        ErrorCode.unsupported_for_message_format,
        ErrorCode.corrupt_message,
        ErrorCode.invalid_record,
        ErrorCode.invalid_record,
        ErrorCode.unknown_topic_or_partition,
    ]
    messages = [part.error_message for part in answer.responses[0].partition_responses]
    assert messages[0] is None
    assert all(messages[1:])
    assert kafka.broker.partition("t").end == 1


async def test_a_duplicate_answers_the_original_offset_and_is_not_stored_again(
    kafka: KafkaStage, wire: Wire
) -> None:
    await kafka.broker.create_topic("t")
    await kafka.broker.append_values("t", [b"before"])
    for _ in range(3):
        part = only_part(await wire.ask(produce(9, "t", produced(7, 0, b"a", b"b"))))
        assert (part.error_code, part.base_offset) == (ErrorCode.none, 1)
    assert kafka.broker.partition("t").end == 3


async def test_gaps_and_old_epochs_of_a_producer_are_refused(kafka: KafkaStage, wire: Wire) -> None:
    await kafka.broker.create_topic("t")
    assert not only_part(await wire.ask(produce(9, "t", produced(7, 0, b"a", epoch=1)))).error_code
    gap = only_part(await wire.ask(produce(9, "t", produced(7, 5, b"b", epoch=1))))
    assert gap.error_code is ErrorCode.out_of_order_sequence_number
    zombie = only_part(await wire.ask(produce(9, "t", produced(7, 1, b"c", epoch=0))))
    assert zombie.error_code is ErrorCode.invalid_producer_epoch


@pytest.mark.parametrize("requests", [1, 3])
async def test_an_unknown_producer_continues_with_its_sequence(
    kafka: KafkaStage, wire: Wire, requests: int
) -> None:
    """As after its topic was recreated: clients cannot recover otherwise, some fail for good."""
    await kafka.broker.create_topic("t")
    producer, _ = await kafka.broker.transactions.new_producer()
    for sequence in range(requests):
        assert not only_part(await wire.ask(produce(9, "t", produced(producer, sequence, b"a")))).error_code
    await kafka.broker.delete_topic("t")
    await kafka.broker.create_topic("t")
    next_one = produce(9, "t", produced(producer, requests, b"b"))
    for _ in range(2):
        part = only_part(await wire.ask(next_one))
        assert (part.error_code, part.base_offset) == (ErrorCode.none, 0)
    gap = only_part(await wire.ask(produce(9, "t", produced(producer, requests + 2, b"d"))))
    stranger = only_part(await wire.ask(produce(9, "t", produced(producer + 1, 1, b"e"))))
    assert {gap.error_code, stranger.error_code} == {ErrorCode.out_of_order_sequence_number}


async def test_acks_0_gets_no_response_but_the_records_are_there(kafka: KafkaStage, wire: Wire) -> None:
    await kafka.broker.create_topic("t")
    slice, _ = batch(b"quiet")
    wire.send(produce(9, "t", slice, acks=0))
    answer = await wire.ask(metadata(12, "t"))  # the next response is that of the next request
    assert answer.topics[0].name == "t"
    assert [record.value for record in await kafka.broker.read("t", 0, max_wait_ms=5000)] == [b"quiet"]


async def test_invalid_acks_are_refused(kafka: KafkaStage, wire: Wire) -> None:
    await kafka.broker.create_topic("t")
    slice, _ = batch(b"a")
    part = only_part(await wire.ask(produce(9, "t", slice, acks=2)))
    assert part.error_code is ErrorCode.invalid_required_acks
    assert kafka.broker.partition("t").end == 0


async def test_a_missing_topic_is_created(kafka: KafkaStage, wire: Wire) -> None:
    one, _ = batch(b"one")
    two, _ = batch(b"two")
    wire.send(produce(9, "fresh", one))
    answer = await wire.ask_next(produce(9, "fresh", two))
    assert [only_part(part).base_offset for part in answer] == [0, 1]
    assert [record.value for record in await kafka.broker.read("fresh", 0)] == [b"one", b"two"]


async def test_without_auto_creation_an_unknown_topic_is_an_error(broker: Broker) -> None:
    slice, _ = batch(b"a")
    async with opened(broker, auto_create=False) as stage:
        wire = await stage.connect()
        part = only_part(await wire.ask(produce(9, "nowhere", slice)))
        assert part.error_code is ErrorCode.unknown_topic_or_partition
        part = only_part(await wire.ask(produce(13, uuid.uuid4(), slice)))
        assert part.error_code is ErrorCode.unknown_topic_id


async def test_a_topic_with_an_invalid_name_is_not_created(kafka: KafkaStage, wire: Wire) -> None:
    slice, _ = batch(b"a")
    part = only_part(await wire.ask(produce(9, "no spaces please", slice)))
    assert part.error_code is ErrorCode.unknown_topic_or_partition


async def test_log_append_time_is_returned_and_stored(kafka: KafkaStage, wire: Wire) -> None:
    await kafka.broker.create_topic("t", config=TopicConfig(timestamp_type="LogAppendTime"))
    slice, _ = batch(b"a", times=1000)
    part = only_part(await wire.ask(produce(9, "t", slice)))
    (record,) = await kafka.broker.read("t", 0)
    assert part.log_append_time is not None
    assert int(part.log_append_time.timestamp() * 1000) == record.timestamp_ms > 1000


async def test_the_log_start_offset_is_returned(kafka: KafkaStage, wire: Wire) -> None:
    await kafka.broker.create_topic("t")
    await kafka.broker.append_values("t", [b"a", b"b", b"c"])
    await kafka.broker.trim("t", 2)
    slice, _ = batch(b"d")
    part = only_part(await wire.ask(produce(9, "t", slice)))
    assert (part.base_offset, part.log_start_offset) == (3, 2)


async def test_pipelined_produces_are_answered_in_order(kafka: KafkaStage, wire: Wire) -> None:
    await kafka.broker.create_topic("t")
    answers = await wire.ask_next(*(produce(9, "t", batch(b"%d" % i)[0]) for i in range(200)))
    assert [only_part(answer).base_offset for answer in answers] == list(range(200))
    values = [record.value for record in await kafka.broker.read("t", 0, max_records=200)]
    assert values == [b"%d" % i for i in range(200)]


async def test_a_request_larger_than_the_receive_buffer_arrives_whole(kafka: KafkaStage, wire: Wire) -> None:
    await kafka.broker.create_topic("t", config=TopicConfig(max_message_bytes=8 << 20))
    value = bytes(4 << 20)
    slice, _ = batch(value)
    small, _ = batch(b"small")
    wire.send(produce(9, "t", slice))
    answers = await wire.ask_next(produce(9, "t", small))
    assert [only_part(answer).base_offset for answer in answers] == [0, 1]
    (record,) = await kafka.broker.read("t", 0, max_records=1)
    assert record.value == value


@pytest.mark.parametrize("version", [8, 9, 13])
async def test_consecutive_batches_are_each_checked(kafka: KafkaStage, wire: Wire, version: int) -> None:
    """Requests with the same prefix are not parsed again, but every batch of them is checked and placed."""
    topic = await topic_of(kafka.broker, "t", version, partitions=3)
    good, _ = batch(b"good")
    torn = bytearray(good)
    torn[-1] ^= 1
    answers = await wire.ask_next(
        produce(version, topic, good, partitions=[2]),
        produce(version, topic, good, partitions=[1]),
        produce(version, topic, torn, partitions=[1]),
        produce(version, topic, None, partitions=[1]),
        produce(version, topic, good, partitions=[9]),
        produce(version, topic, produced(5, 3, b"gap"), partitions=[1]),
        produce(version, topic, good, good, partitions=[0, 2]),
        produce(version, topic, good, partitions=[1]),
    )
    found = [
        [(part.index, part.error_code, part.base_offset) for part in answer.responses[0].partition_responses]
        for answer in answers
    ]
    assert found == [
        [(2, ErrorCode.none, 0)],
        [(1, ErrorCode.none, 0)],
        [(1, ErrorCode.corrupt_message, -1)],
        [(1, ErrorCode.invalid_record, -1)],
        [(9, ErrorCode.unknown_topic_or_partition, -1)],
        [(1, ErrorCode.out_of_order_sequence_number, -1)],
        [(0, ErrorCode.none, 0), (2, ErrorCode.none, 1)],
        [(1, ErrorCode.none, 1)],
    ]
    refused = [answers[at].responses[0].partition_responses[0].error_message for at in (2, 4, 5)]
    assert all(refused)


@pytest.mark.parametrize("version", [7, 8, 9, 13])
async def test_only_requests_like_the_previous_one_use_the_fast_path(
    kafka: KafkaStage, wire: Wire, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = await topic_of(kafka.broker, "t", version)
    other = await topic_of(kafka.broker, "other", version)
    short: list[bool] = []
    serve = LoneBatches.serve

    def noted(alike: LoneBatches, *request: Any) -> bool:
        short.append(serve(alike, *request))
        return short[-1]

    monkeypatch.setattr(LoneBatches, "serve", noted)
    slice, _ = batch(b"x")
    asked = [(topic, "a"), (topic, "a"), (topic, "a"), (other, "a"), (other, "a"), (other, None), (other, "")]
    bases = []
    for number, (name, client) in enumerate(asked):
        wire.send_raw(request_frame(produce(version, name, slice), number, client))
        answer = await wire.receive_raw()
        assert struct.unpack_from(">i", answer) == (number,)
        head = 5 if version >= 9 else 4
        found = decode(load_response_schema(0, version), answer[head:])
        bases.append(only_part(found).base_offset)
    assert bases == [0, 1, 2, 0, 1, 2, 3]
    assert short == ([] if version < 8 else [True, True, False, True, False, False])


async def test_consecutive_batches_notice_that_their_topic_changed(kafka: KafkaStage, wire: Wire) -> None:
    await kafka.broker.create_topic("t")
    slice, _ = batch(b"x" * 500)
    for _ in range(2):
        assert not only_part(await wire.ask(produce(9, "t", slice))).error_code
    await kafka.broker.alter_topic("t", TopicConfig(durability="disk", max_message_bytes=100))
    part = only_part(await wire.ask(produce(9, "t", slice)))
    assert part.error_code is ErrorCode.message_too_large
    await kafka.broker.delete_topic("t")
    part = only_part(await wire.ask(produce(9, "t", slice)))  # recreated
    assert (part.error_code, part.base_offset) == (ErrorCode.none, 0)


async def test_a_failure_with_acks_0_closes_the_connection(kafka: KafkaStage, wire: Wire) -> None:
    await kafka.broker.create_topic("t")
    wire.send(produce(9, "t", b"junk", acks=0))
    assert await wire.ended()


HOUR_MS = 3_600_000


@pytest.mark.parametrize("version", [7, 8, 9, 13])
@pytest.mark.parametrize("partitions", [[0], [0, 1]])  # one batch may take the fast path
async def test_records_that_are_too_old_or_too_new_are_refused_by_number(
    kafka: KafkaStage, wire: Wire, version: int, partitions: list[int]
) -> None:
    config = TopicConfig(timestamp_before_max_ms=HOUR_MS, timestamp_after_max_ms=HOUR_MS)
    topic = await topic_of(kafka.broker, "t", version, partitions=2, config=config)
    now = kafka.broker.clock.now_ms()

    def sent(*times: int) -> object:
        values = [b"v"] * len(times)
        records = bytes(build_batch(values, timestamps_ms=[now + time if time else -1 for time in times]))
        return produce(version, topic, *([records] * len(partitions)), partitions=partitions)

    answers = await wire.ask_next(
        sent(1, -HOUR_MS // 2, HOUR_MS // 2),
        sent(-2 * HOUR_MS, 1, 2, -2 * HOUR_MS),
        sent(1, 2, 2 * HOUR_MS),
        sent(0, 1),  # without a time
        sent(1),
    )
    parts = [part for answer in answers for part in answer.responses[0].partition_responses]
    codes = [part.error_code for part in parts[:: len(partitions)]]
    refused = ErrorCode.invalid_timestamp
    assert codes == [ErrorCode.none, refused, refused, ErrorCode.none, ErrorCode.none]
    if version >= 8:
        named = [[row.batch_index for row in part.record_errors] for part in parts[:: len(partitions)]]
        assert named == [[], [0, 3], [2], [], []]
        old, new = parts[len(partitions)], parts[2 * len(partitions)]
        assert "message.timestamp.before.max.ms" in old.error_message
        assert "message.timestamp.after.max.ms" in new.record_errors[0].batch_index_error_message
    assert len(await kafka.broker.read("t", 0)) == 6


async def test_append_times_are_not_compared(kafka: KafkaStage, wire: Wire) -> None:
    config = TopicConfig(timestamp_before_max_ms=1, timestamp_type="LogAppendTime")
    topic = await topic_of(kafka.broker, "t", 9, config=config)
    old, _ = batch(b"old", times=1)
    assert only_part(await wire.ask(produce(9, topic, old))).error_code == ErrorCode.none


async def test_records_without_a_key_in_a_compacted_topic_are_refused_by_number(
    kafka: KafkaStage, wire: Wire
) -> None:
    topic = await topic_of(kafka.broker, "t", 9, config=TopicConfig(cleanup_policy="compact"))
    records = bytes(build_batch([b"v"] * 4, keys=[b"k", None, b"k", None], timestamps_ms=1))
    part = only_part(await wire.ask(produce(9, topic, records)))
    assert part.error_code == ErrorCode.invalid_record
    assert [row.batch_index for row in part.record_errors] == [1, 3]
    many = bytes(build_batch([b"v"] * 1_000, timestamps_ms=1))
    part = only_part(await wire.ask(produce(9, topic, many)))
    assert [row.batch_index for row in part.record_errors] == list(range(100))
