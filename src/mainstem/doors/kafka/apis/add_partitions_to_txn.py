"""AddPartitionsToTxn: a transaction is about to write to these partitions, all of them or none."""

from __future__ import annotations

from kio.schema.add_partitions_to_txn.v3.request import AddPartitionsToTxnRequest
from kio.schema.add_partitions_to_txn.v3.response import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from kio.schema.errors import ErrorCode

from mainstem.broker.transactions.service import ProducerStamp
from mainstem.doors.kafka.transport.api import Api, Call
from mainstem.doors.kafka.transport.errors import code_of, producer_code_of
from mainstem.doors.kafka.transport.throttle import NO_THROTTLE
from mainstem.errors import MainstemError, NotFound

_FENCED_FROM = 2  # first version that knows PRODUCER_FENCED

Codes = dict[tuple[str, int], ErrorCode]


async def handle(call: Call, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
    streams, codes = _resolve(call, request)
    if codes:
        # An unknown partition fails the whole request; the others are reported as not attempted.
        return _answer(request, codes, ErrorCode.operation_not_attempted)
    stamp = ProducerStamp(
        request.v3_and_below_transactional_id,
        request.v3_and_below_producer_id,
        request.v3_and_below_producer_epoch,
    )
    try:
        await call.context.transactions.add_partitions(stamp, streams)
    except MainstemError as error:
        return _answer(request, {}, producer_code_of(error, fenced=call.version >= _FENCED_FROM))
    return _answer(request, {}, ErrorCode.none)


def _resolve(call: Call, request: AddPartitionsToTxnRequest) -> tuple[list[int], Codes]:
    """The streams of the partitions, and the error codes of the partitions that do not exist."""
    streams: list[int] = []
    codes: Codes = {}
    for topic in request.v3_and_below_topics:
        for partition in topic.partitions:
            try:
                streams.append(call.context.broker.streams.of(topic.name, partition))
            except NotFound as error:
                codes[topic.name, partition] = code_of(error)
    return streams, codes


def _answer(
    request: AddPartitionsToTxnRequest, codes: Codes, otherwise: ErrorCode
) -> AddPartitionsToTxnResponse:
    results = tuple(
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=tuple(
                AddPartitionsToTxnPartitionResult(
                    partition_index=partition,
                    partition_error_code=codes.get((topic.name, partition), otherwise),
                )
                for partition in topic.partitions
            ),
        )
        for topic in request.v3_and_below_topics
    )
    return AddPartitionsToTxnResponse(throttle_time=NO_THROTTLE, results_by_topic_v3_and_below=results)


# Versions 4 and later are for brokers that forward requests of several producers.
API = Api(24, 0, 3, handle)
