"""CreatePartitions: add partitions to topics. The number of partitions never falls."""

from __future__ import annotations

from functools import partial

from kio.schema.create_partitions.v3.request import CreatePartitionsRequest, CreatePartitionsTopic
from kio.schema.create_partitions.v3.response import CreatePartitionsResponse, CreatePartitionsTopicResult
from kio.schema.errors import ErrorCode
from kio.schema.types import TopicName

from mainstem import limits
from mainstem.doors.kafka.apis.assignments import check_assignments
from mainstem.doors.kafka.apis.bulk import DONE, ItemRefused, ItemResult, outcome_of, repeated, side_by_side
from mainstem.doors.kafka.transport.api import Api, Call
from mainstem.doors.kafka.transport.context import KafkaContext
from mainstem.doors.kafka.transport.throttle import NO_THROTTLE
from mainstem.errors import MainstemError


async def handle(call: Call, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    twice = repeated(topic.name for topic in request.topics)
    wanted = [topic for topic in request.topics if topic.name not in twice]
    results = await side_by_side(partial(_grow, call.context, dry_run=request.validate_only), wanted)
    refused = ItemResult(ErrorCode.invalid_request, "the request names this topic more than once")
    results += [_result(name, refused) for name in sorted(twice)]
    return CreatePartitionsResponse(throttle_time=NO_THROTTLE, results=tuple(results))


async def _grow(
    context: KafkaContext, wanted: CreatePartitionsTopic, *, dry_run: bool
) -> CreatePartitionsTopicResult:
    try:
        _check(context, wanted)
        await context.broker.add_partitions(wanted.name, wanted.count, dry_run=dry_run)
    except (MainstemError, ItemRefused) as error:
        return _result(wanted.name, outcome_of(error))
    return _result(wanted.name, DONE)


def _check(context: KafkaContext, wanted: CreatePartitionsTopic) -> None:
    present = context.broker.topic(wanted.name).partitions
    if not present < wanted.count <= limits.PARTITIONS_PER_TOPIC_MAX:
        raise ItemRefused(
            ErrorCode.invalid_partitions,
            f"topic {wanted.name!r} has {present} partitions: it can grow up to "
            f"{limits.PARTITIONS_PER_TOPIC_MAX}, not to {wanted.count}",
        )
    if wanted.assignments is None:
        return
    if len(wanted.assignments) != wanted.count - present:
        raise ItemRefused(
            ErrorCode.invalid_replica_assignment,
            f"{len(wanted.assignments)} assignments for {wanted.count - present} new partitions",
        )
    check_assignments((assigned.broker_ids for assigned in wanted.assignments), context.node_id)


def _result(name: TopicName, outcome: ItemResult) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(name=name, error_code=outcome.code, error_message=outcome.message)


API = Api(37, 0, 3, handle, fresh=True)
