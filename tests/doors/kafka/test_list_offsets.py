"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords, by hand-made frames of every version."""

from __future__ import annotations

from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from kio.static.primitive import i32, i64

from mainstem.broker.diff import DiffQuery
from mainstem.doors.kafka.apis.delete_records import API as DELETE_RECORDS_API
from mainstem.doors.kafka.apis.list_offsets import API
from mainstem.doors.kafka.apis.offset_for_leader_epoch import API as EPOCH_END_API
from mainstem.ledger.config import TopicConfig
from mainstem.ledger.streams import MarkLost

from .conftest import KafkaStage
from .requests import DELETE_RECORDS, EPOCH_END, list_offsets, made, module, ms
from .wire import Wire

LATEST, EARLIEST, OF_LATEST_TIME, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5


def places(answer: Any) -> list[tuple[int, int]]:
    (topic,) = answer.topics
    assert {part.error_code for part in topic.partitions} == {ErrorCode.none}
    return [(part.offset, part.timestamp) for part in topic.partitions]


@pytest.mark.parametrize("version", range(API.first, API.last + 1))
async def test_every_version_finds_ends_and_times(kafka: KafkaStage, wire: Wire, version: int) -> None:
    await kafka.broker.create_topic("t", partitions=2)
    await kafka.broker.append_values("t", [b"a", b"b"], timestamps_ms=[1000, 3000])
    await kafka.broker.append_values("t", [b"c", b"d"], timestamps_ms=[2000, 2500])
    await kafka.broker.trim("t", 1)
    wanted = [LATEST, EARLIEST, 1500, 2600, 9999]
    found = places(await wire.ask(list_offsets(version, "t", *((0, time) for time in wanted), (1, LATEST))))
    assert found == [(4, -1), (1, -1), (1, 3000), (1, 3000), (-1, -1), (0, -1)]


async def test_the_record_of_the_latest_time(kafka: KafkaStage, wire: Wire) -> None:
    await kafka.broker.create_topic("t")
    ask = list_offsets(9, "t", (0, OF_LATEST_TIME), (0, EARLIEST_LOCAL), (0, LATEST_TIERED))
    assert places(await wire.ask(ask))[0] == (-1, -1)
    await kafka.broker.append_values("t", [b"a", b"b"], timestamps_ms=[1000, 9000])
    await kafka.broker.append_values("t", [b"c", b"d"], timestamps_ms=[2000, 2500])
    assert places(await wire.ask(ask)) == [(1, 9000), (0, -1), (-1, -1)]
    await kafka.broker.trim("t", 2)
    assert places(await wire.ask(ask)) == [(3, 2500), (2, -1), (-1, -1)]


async def test_times_are_found_across_many_log_files(kafka: KafkaStage, wire: Wire) -> None:
    await kafka.broker.create_topic("t", config=TopicConfig(max_message_bytes=1 << 20))
    for index in range(30):
        await kafka.broker.append_values("t", [bytes(200_000)], timestamps_ms=[1000 + 10 * (index ^ 1)])
    found = places(await wire.ask(list_offsets(8, "t", (0, 1105), (0, OF_LATEST_TIME), (0, 1290))))
    assert found == [(10, 1110), (28, 1290), (28, 1290)]


async def test_errors_are_by_partition(kafka: KafkaStage, wire: Wire) -> None:
    await kafka.broker.create_topic("t")
    answer = await wire.ask(list_offsets(8, "t", (0, LATEST), (3, LATEST)))
    codes = [part.error_code for part in answer.topics[0].partitions]
    assert codes == [ErrorCode.none, ErrorCode.unknown_topic_or_partition]
    answer = await wire.ask(list_offsets(8, "t", (0, LATEST), epoch=4))
    assert answer.topics[0].partitions[0].error_code is ErrorCode.unknown_leader_epoch


@pytest.mark.parametrize(
    ("time", "first"), [(OF_LATEST_TIME, 7), (EARLIEST_LOCAL, 8), (LATEST_TIERED, 9), (-6, 11), (-77, None)]
)
async def test_a_time_without_a_meaning_in_the_version_is_refused(
    kafka: KafkaStage, wire: Wire, time: int, first: int | None
) -> None:
    await kafka.broker.create_topic("t")
    known = []
    for version in range(API.first, API.last + 1):
        answer = await wire.ask(list_offsets(version, "t", (0, time)))
        (part,) = answer.topics[0].partitions
        if part.error_code is ErrorCode.none:
            known.append(version)
        else:
            assert part.error_code is ErrorCode.unsupported_version
    assert known == ([] if first is None else list(range(first, API.last + 1)))


def epoch_end(version: int, topic: str, *wanted: tuple[int, int, int]) -> Any:
    """`wanted` are (partition, current epoch, epoch)."""
    classes = module(EPOCH_END, version)
    parts = tuple(
        made(
            classes.OffsetForLeaderPartition,
            partition=i32(partition),
            current_leader_epoch=i32(current),
            leader_epoch=i32(epoch),
        )
        for partition, current, epoch in wanted
    )
    return made(
        classes.OffsetForLeaderEpochRequest,
        topics=(classes.OffsetForLeaderTopic(topic=topic, partitions=parts),),
    )


@pytest.mark.parametrize("version", range(EPOCH_END_API.first, EPOCH_END_API.last + 1))
async def test_the_only_epoch_ends_at_the_end(kafka: KafkaStage, wire: Wire, version: int) -> None:
    await kafka.broker.create_topic("t")
    await kafka.broker.append_values("t", [b"a", b"b"])
    answer = await wire.ask(epoch_end(version, "t", (0, 0, 0), (0, -1, 3), (0, 5, 0), (9, 0, 0)))
    found = [(part.error_code, part.leader_epoch, part.end_offset) for part in answer.topics[0].partitions]
    assert found == [
        (ErrorCode.none, 0, 2),
        (ErrorCode.none, -1, -1),
        (ErrorCode.unknown_leader_epoch, -1, -1),
        (ErrorCode.unknown_topic_or_partition, -1, -1),
    ]


async def test_a_loss_among_deleted_records_is_still_reported(kafka: KafkaStage, wire: Wire) -> None:
    broker = kafka.broker
    topic = await broker.create_topic("t")
    await broker.append_values("t", [b"%d" % number for number in range(8)])
    await broker.log.propose(MarkLost(topic.streams[0], 2, 4))
    classes = module(DELETE_RECORDS, DELETE_RECORDS_API.last)
    partition = classes.DeleteRecordsPartition(partition_index=i32(0), offset=i64(6))
    wanted = (classes.DeleteRecordsTopic(name="t", partitions=(partition,)),)
    await wire.ask(classes.DeleteRecordsRequest(topics=wanted, timeout=ms(1000)))
    assert broker.partition("t", 0).start == 6
    for seen, told in ((0, True), (3, True), (4, False)):  # how far a reader had come by then
        page = await broker.diffs.read(topic, DiffQuery(from_seq=seen))
        assert (page.tombstone is not None) is told
        assert page.tombstone is None or page.tombstone.reason == "lost"


@pytest.mark.parametrize("version", range(DELETE_RECORDS_API.first, DELETE_RECORDS_API.last + 1))
async def test_deleted_records_move_the_start(kafka: KafkaStage, wire: Wire, version: int) -> None:
    await kafka.broker.create_topic("t", partitions=2)
    await kafka.broker.append_values("t", [b"a", b"b", b"c"])
    await kafka.broker.append_values("t", [b"z"], partition=1)
    classes = module(DELETE_RECORDS, version)
    wanted = tuple(
        classes.DeleteRecordsPartition(partition_index=i32(partition), offset=i64(offset))
        for partition, offset in ((0, 2), (1, -1), (0, 99), (7, 0))
    )
    topic = classes.DeleteRecordsTopic(name="t", partitions=wanted)
    answer = await wire.ask(classes.DeleteRecordsRequest(topics=(topic,), timeout=ms(1000)))
    found = [(part.error_code, part.low_watermark) for part in answer.topics[0].partitions]
    assert found == [
        (ErrorCode.none, 2),
        (ErrorCode.none, 1),
        (ErrorCode.offset_out_of_range, -1),
        (ErrorCode.unknown_topic_or_partition, -1),
    ]
    assert kafka.broker.partition("t", 0).start == 2
    assert kafka.broker.partition("t", 1).start == 1


async def test_records_of_a_compacted_topic_cannot_be_deleted_by_offset(
    kafka: KafkaStage, wire: Wire
) -> None:
    classes = module(DELETE_RECORDS, DELETE_RECORDS_API.last)
    for policy, code in (("compact", ErrorCode.policy_violation), ("compact,delete", ErrorCode.none)):
        name = f"t-{len(policy)}"
        await kafka.broker.create_topic(name, config=TopicConfig(cleanup_policy=policy))
        await kafka.broker.append_values(name, [b"a", b"b"], keys=[b"k", b"k"])
        wanted = classes.DeleteRecordsPartition(partition_index=i32(0), offset=i64(1))
        topic = classes.DeleteRecordsTopic(name=name, partitions=(wanted,))
        answer = await wire.ask(classes.DeleteRecordsRequest(topics=(topic,), timeout=ms(1000)))
        assert answer.topics[0].partitions[0].error_code is code
        assert kafka.broker.partition(name).start == (0 if code else 1)
