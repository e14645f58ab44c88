"""TxnOffsetCommit: offsets of a group that take effect when the transaction commits."""

from __future__ import annotations

from collections.abc import Iterator

from kio.schema.errors import ErrorCode
from kio.schema.txn_offset_commit.v5.request import TxnOffsetCommitRequest
from kio.schema.txn_offset_commit.v5.response import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

from mainstem.broker.groups.offsets import OffsetToCommit
from mainstem.broker.transactions.service import ProducerStamp
from mainstem.doors.kafka.apis.committed_offsets import to_commit
from mainstem.doors.kafka.transport.api import Api, Call
from mainstem.doors.kafka.transport.errors import producer_code_of
from mainstem.doors.kafka.transport.throttle import NO_THROTTLE
from mainstem.errors import MainstemError, StaleMemberEpoch

_ABORTABLE_FROM = 4  # first version that knows TRANSACTION_ABORTABLE
_JOINS_FROM = 5  # first version before which no AddOffsetsToTxn is sent (transaction.version 2)


async def handle(call: Call, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
    offsets = [to_commit(topic.name, partition) for topic in request.topics for partition in topic.partitions]
    try:
        outcomes = await _commit(call, request, offsets)
    except MainstemError as error:
        outcomes = [error] * len(offsets)
    abortable = call.version >= _ABORTABLE_FROM
    return _answer(request, (_code(error, abortable=abortable) for error in outcomes))


def _code(error: MainstemError | None, *, abortable: bool) -> ErrorCode:
    """No version of this API has PRODUCER_FENCED or STALE_MEMBER_EPOCH: the latter is fatal to a Java producer, while
    ILLEGAL_GENERATION makes it abort and continue."""
    if error is None:
        return ErrorCode.none
    if isinstance(error, StaleMemberEpoch):
        return ErrorCode.illegal_generation
    return producer_code_of(error, fenced=False, abortable=abortable)


async def _commit(
    call: Call, request: TxnOffsetCommitRequest, offsets: list[OffsetToCommit]
) -> list[MainstemError | None]:
    """The error code of each offset; offsets without an error are accepted."""
    groups, transactions = call.context.groups, call.context.transactions
    await groups.check_commit(
        request.group_id,
        request.member_id,
        request.generation_id,
        request.group_instance_id,
        transactional=True,
    )
    stamp = ProducerStamp(request.transactional_id, request.producer_id, request.producer_epoch)
    streams = [groups.offsets.committable(offset) for offset in offsets]
    taken = [
        (stream, offset) for stream, offset in zip(streams, offsets, strict=True) if isinstance(stream, int)
    ]
    await transactions.commit_offsets(
        stamp,
        request.group_id,
        [offset.row(stream) for stream, offset in taken],
        [max(offset.leader_epoch, -1) for _, offset in taken],
        joins=call.version >= _JOINS_FROM,
    )
    return [None if isinstance(stream, int) else stream for stream in streams]


def _answer(request: TxnOffsetCommitRequest, codes: Iterator[ErrorCode]) -> TxnOffsetCommitResponse:
    """One code for each partition, in the order of the request."""
    topics = tuple(
        TxnOffsetCommitResponseTopic(
            name=topic.name,
            partitions=tuple(
                TxnOffsetCommitResponsePartition(
                    partition_index=partition.partition_index, error_code=next(codes)
                )
                for partition in topic.partitions
            ),
        )
        for topic in request.topics
    )
    return TxnOffsetCommitResponse(throttle_time=NO_THROTTLE, topics=topics)


API = Api(28, 0, 5, handle, coordinated=True)
