"""CreateTopics: create topics, or only validate the request.

Any replication factor is accepted: the store replicates the data, not the brokers. A client that asks for three
replicas gets a topic as durable as its class, and a response that reports one replica.
"""

from __future__ import annotations

from functools import lru_cache, partial
from uuid import UUID

from kio.schema.create_topics.v7.request import CreatableTopic, CreateTopicsRequest
from kio.schema.create_topics.v7.response import (
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsResponse,
)
from kio.schema.errors import ErrorCode
from kio.schema.types import TopicName
from kio.static.primitive import i8, i16, i32

from mainstem import limits
from mainstem.broker.topics import configs
from mainstem.broker.topics.service import TopicConfig
from mainstem.doors.kafka.apis.assignments import check_assignments
from mainstem.doors.kafka.apis.auto_create import check_name
from mainstem.doors.kafka.apis.bulk import ItemRefused, ItemResult, outcome_of, repeated, side_by_side
from mainstem.doors.kafka.apis.config_entries import SOURCES
from mainstem.doors.kafka.transport.api import Api, Call
from mainstem.doors.kafka.transport.context import KafkaContext
from mainstem.doors.kafka.transport.throttle import NO_THROTTLE
from mainstem.errors import InvalidConfig, MainstemError, TopicExists

_BY_DEFAULT = -1


async def handle(call: Call, request: CreateTopicsRequest) -> CreateTopicsResponse:
    twice = repeated(topic.name for topic in request.topics)
    wanted = [topic for topic in request.topics if topic.name not in twice]
    results = await side_by_side(partial(_create, call.context, dry_run=request.validate_only), wanted)
    refused = ItemResult(ErrorCode.invalid_request, "the request names this topic more than once")
    results += [_failed(name, refused) for name in sorted(twice)]
    return CreateTopicsResponse(throttle_time=NO_THROTTLE, topics=tuple(results))


async def _create(context: KafkaContext, wanted: CreatableTopic, *, dry_run: bool) -> CreatableTopicResult:
    try:
        check_name(wanted.name)
        if context.broker.streams.get(wanted.name) is not None:
            raise TopicExists(wanted.name)
        partitions = _partitions(context, wanted)
        config = _config(context, wanted)
        info = await context.broker.create_topic(
            wanted.name, partitions=partitions, config=config, dry_run=dry_run
        )
    except (MainstemError, ItemRefused) as error:
        return _failed(wanted.name, outcome_of(error))
    return CreatableTopicResult(
        name=wanted.name,
        topic_id=None if dry_run else UUID(bytes=info.topic_id),
        error_code=ErrorCode.none,
        error_message=None,
        num_partitions=i32(info.partitions),
        replication_factor=i16(1),
        configs=_config_entries(info.config, context.broker.namespaces.default_config(wanted.name)),
    )


def _failed(name: TopicName, outcome: ItemResult) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=name, topic_id=None, error_code=outcome.code, error_message=outcome.message, configs=()
    )


def _partitions(context: KafkaContext, wanted: CreatableTopic) -> int:
    if wanted.assignments:
        return _assigned_partitions(context, wanted)
    if wanted.replication_factor == 0 or wanted.replication_factor < _BY_DEFAULT:
        raise ItemRefused(
            ErrorCode.invalid_replication_factor,
            f"the replication factor is positive, or -1 for the default; not {wanted.replication_factor}",
        )
    if wanted.num_partitions == _BY_DEFAULT:
        return context.broker.namespaces.default_partitions(wanted.name, context.default_partitions)
    if not 1 <= wanted.num_partitions <= limits.PARTITIONS_PER_TOPIC_MAX:
        raise ItemRefused(
            ErrorCode.invalid_partitions,
            f"a topic has 1 to {limits.PARTITIONS_PER_TOPIC_MAX} partitions, or -1 for the default; not "
            f"{wanted.num_partitions}",
        )
    return wanted.num_partitions


def _assigned_partitions(context: KafkaContext, wanted: CreatableTopic) -> int:
    count = len(wanted.assignments)
    if wanted.num_partitions not in (_BY_DEFAULT, count) or wanted.replication_factor not in (_BY_DEFAULT, 1):
        raise ItemRefused(
            ErrorCode.invalid_request,
            "with an assignment by hand, the numbers of partitions and replicas are -1",
        )
    if sorted(assigned.partition_index for assigned in wanted.assignments) != list(range(count)):
        raise ItemRefused(
            ErrorCode.invalid_replica_assignment,
            f"an assignment of {count} partitions names each from 0 to {count - 1} once",
        )
    check_assignments((assigned.broker_ids for assigned in wanted.assignments), context.node_id)
    return count


def _config(context: KafkaContext, wanted: CreatableTopic) -> TopicConfig:
    settings: dict[str, str] = {}
    for entry in wanted.configs:
        if entry.value is None:
            raise InvalidConfig(f"{entry.name} needs a value")
        if entry.name in settings:
            raise InvalidConfig(f"{entry.name} is given more than once")
        settings[entry.name] = entry.value
    return configs.replaced(settings, context.broker.namespaces.default_config(wanted.name))


@lru_cache(maxsize=limits.KAFKA_DESCRIBED_CONFIGS_KEPT)
def _config_entries(config: TopicConfig, default: TopicConfig) -> tuple[CreatableTopicConfigs, ...]:
    return tuple(
        CreatableTopicConfigs(
            name=entry.setting.name,
            value=entry.value,
            read_only=False,
            config_source=i8(SOURCES[entry.source]),
            is_sensitive=False,
        )
        for entry in configs.entries(config, default)
    )


API = Api(19, 2, 7, handle)
