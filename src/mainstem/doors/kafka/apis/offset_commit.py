"""OffsetCommit: store the offsets of a group. Versions up to 9 name topics; later versions use ids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from kio.index import load_request_schema
from kio.schema.errors import ErrorCode
from kio.schema.offset_commit.v9.request import OffsetCommitRequest, OffsetCommitRequestPartition
from kio.schema.offset_commit.v9.response import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kio.schema.offset_commit.v10 import request as by_id
from kio.schema.offset_commit.v10 import response as by_id_answer

from mainstem.broker.groups.offsets import OffsetToCommit
from mainstem.doors.kafka.apis.committed_offsets import to_commit
from mainstem.doors.kafka.apis.topic_ids import name_of
from mainstem.doors.kafka.transport.api import Api, Call
from mainstem.doors.kafka.transport.errors import code_of, group_code_of
from mainstem.doors.kafka.transport.throttle import NO_THROTTLE
from mainstem.doors.kafka.transport.versions import bridge, convert
from mainstem.errors import MainstemError, NotFound

_KEY = 8
_FIRST, _LAST = 2, 10
_FIRST_BY_ID = 10


async def handle(
    call: Call, request: OffsetCommitRequest | by_id.OffsetCommitRequest
) -> OffsetCommitResponse | by_id_answer.OffsetCommitResponse:
    if isinstance(request, by_id.OffsetCommitRequest):
        rows = [
            _row(name, partition)
            for topic in request.topics
            for name in (name_of(call, topic.topic_id),)
            for partition in topic.partitions
        ]
        return _answer_by_id(request, iter(await _codes(call, request, rows)))
    rows = [_row(topic.name, partition) for topic in request.topics for partition in topic.partitions]
    return _answer(request, iter(await _codes(call, request, rows)))


def _row(
    name: str | None, partition: OffsetCommitRequestPartition | by_id.OffsetCommitRequestPartition
) -> OffsetToCommit | None:
    """None if the topic's id is unknown."""
    return None if name is None else to_commit(name, partition)


async def _codes(
    call: Call,
    request: OffsetCommitRequest | by_id.OffsetCommitRequest,
    rows: Sequence[OffsetToCommit | None],
) -> list[ErrorCode]:
    """One row per partition."""
    try:
        outcomes = await call.context.groups.commit(
            request.group_id,
            [row for row in rows if row is not None],
            member_id=request.member_id,
            generation=request.generation_id_or_member_epoch,
            instance_id=request.group_instance_id,
        )
    except MainstemError as error:
        return [_unknown(call, row) or group_code_of(error) for row in rows]
    codes = iter([ErrorCode.none if error is None else group_code_of(error) for error in outcomes])
    return [ErrorCode.unknown_topic_id if row is None else next(codes) for row in rows]


def _unknown(call: Call, row: OffsetToCommit | None) -> ErrorCode | None:
    """The error of a partition that does not exist, whatever the group says."""
    if row is None:
        return ErrorCode.unknown_topic_id
    found = call.context.groups.offsets.committable(row)
    return code_of(found) if isinstance(found, NotFound) else None


def _answer(request: OffsetCommitRequest, codes: Iterator[ErrorCode]) -> OffsetCommitResponse:
    topics = tuple(
        OffsetCommitResponseTopic(
            name=topic.name,
            partitions=tuple(
                OffsetCommitResponsePartition(
                    partition_index=partition.partition_index, error_code=next(codes)
                )
                for partition in topic.partitions
            ),
        )
        for topic in request.topics
    )
    return OffsetCommitResponse(throttle_time=NO_THROTTLE, topics=topics)


def _answer_by_id(
    request: by_id.OffsetCommitRequest, codes: Iterator[ErrorCode]
) -> by_id_answer.OffsetCommitResponse:
    topics = tuple(
        by_id_answer.OffsetCommitResponseTopic(
            topic_id=topic.topic_id,
            partitions=tuple(
                by_id_answer.OffsetCommitResponsePartition(
                    partition_index=partition.partition_index, error_code=next(codes)
                )
                for partition in topic.partitions
            ),
        )
        for topic in request.topics
    )
    return by_id_answer.OffsetCommitResponse(throttle_time=NO_THROTTLE, topics=topics)


# Versions with topic names convert to the newest such version: a name cannot be converted to an id here.
for _version in range(_FIRST, _FIRST_BY_ID):
    bridge(
        load_request_schema(_KEY, _version),
        by_id.OffsetCommitRequest,
        partial(convert, target=OffsetCommitRequest),
    )

API = Api(_KEY, _FIRST, _LAST, handle, coordinated=True)
