"""DescribeLogDirs: the size of each partition, and the free space of its directory."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Collection
from pathlib import Path

from kio.schema.describe_log_dirs.v5.request import DescribeLogDirsRequest
from kio.schema.describe_log_dirs.v5.response import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from kio.schema.errors import ErrorCode
from kio.schema.types import TopicName
from kio.static.primitive import i32, i64

from mainstem import limits
from mainstem.broker.topics.service import Topic
from mainstem.doors.kafka.transport.api import Api, Call
from mainstem.doors.kafka.transport.context import KafkaContext
from mainstem.doors.kafka.transport.throttle import NO_THROTTLE

_UNKNOWN = -1


async def handle(call: Call, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    data_dir = call.context.broker.options.data_dir
    total, usable = await asyncio.to_thread(_room, data_dir)
    result = DescribeLogDirsResult(
        error_code=ErrorCode.none,
        log_dir=str(data_dir.absolute()),
        topics=await _topics(call.context, request),
        total_bytes=i64(total),
        usable_bytes=i64(usable),
    )
    return DescribeLogDirsResponse(throttle_time=NO_THROTTLE, error_code=ErrorCode.none, results=(result,))


def _room(data_dir: Path) -> tuple[int, int]:
    try:
        usage = shutil.disk_usage(data_dir)
    except OSError:
        return _UNKNOWN, _UNKNOWN
    return usage.total, usage.free


async def _topics(context: KafkaContext, request: DescribeLogDirsRequest) -> tuple[DescribeLogDirsTopic, ...]:
    wanted: dict[str, set[int]] | None = None
    if request.topics is not None:
        wanted = {}
        for asked in request.topics:
            wanted.setdefault(asked.topic, set()).update(asked.partitions)
    topics: list[DescribeLogDirsTopic] = []
    for topic in context.broker.streams.topics():
        if wanted is not None and topic.name not in wanted:
            continue
        partitions = range(len(topic.streams))
        some = partitions if wanted is None else sorted(wanted[topic.name].intersection(partitions))
        if (
            some and context.broker.streams.get(topic.name) is topic
        ):  # otherwise it was deleted or recreated meanwhile
            topics.append(_sizes(context, topic, some))
        if len(topics) % limits.KAFKA_CHANGES_AT_ONCE == 0:
            await asyncio.sleep(0)  # there may be many thousands
    return tuple(topics)


def _sizes(context: KafkaContext, topic: Topic, partitions: Collection[int]) -> DescribeLogDirsTopic:
    return DescribeLogDirsTopic(
        name=TopicName(topic.name), partitions=tuple(_size(context, topic, index) for index in partitions)
    )


def _size(context: KafkaContext, topic: Topic, partition: int) -> DescribeLogDirsPartition:
    return DescribeLogDirsPartition(
        partition_index=i32(partition),
        partition_size=i64(context.broker.partition(topic.name, partition).bytes),
        offset_lag=i64(0),
        is_future_key=False,
    )


API = Api(35, 1, 5, handle)
