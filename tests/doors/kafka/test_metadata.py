"""Metadata and ApiVersions, by hand-made frames of every version."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest
from kio.index import load_response_schema
from kio.schema.errors import ErrorCode

from mainstem.broker.broker import Broker
from mainstem.doors.kafka.apis.metadata import API
from mainstem.doors.kafka.transport.registry import apis

from .conftest import KafkaStage, opened
from .requests import API_VERSIONS, metadata, module
from .wire import Wire, request_frame

VERSIONS = range(API.first, API.last + 1)


@pytest.mark.parametrize("version", VERSIONS)
async def test_every_version_returns_brokers_and_partitions(
    kafka: KafkaStage, wire: Wire, version: int
) -> None:
    info = await kafka.broker.create_topic("t", partitions=3)
    answer = await wire.ask(metadata(version, "t"))
    (broker,) = answer.brokers
    assert (broker.host, broker.port) == (kafka.address.host, kafka.address.port)
    (topic,) = answer.topics
    assert (topic.name, topic.error_code) == ("t", ErrorCode.none)
    assert [part.partition_index for part in topic.partitions] == [0, 1, 2]
    assert {part.leader_id for part in topic.partitions} == {broker.node_id}
    assert {part.replica_nodes for part in topic.partitions} == {(broker.node_id,)}
    if version >= 2:
        assert len(answer.cluster_id) == 22
    if version >= 7:
        assert {part.leader_epoch for part in topic.partitions} == {0}
    if version >= 10:
        assert topic.topic_id == uuid.UUID(bytes=info.topic_id)


@pytest.mark.parametrize("version", VERSIONS)
async def test_every_version_lists_all_topics(kafka: KafkaStage, wire: Wire, version: int) -> None:
    for name in ("b", "a", "c"):
        await kafka.broker.create_topic(name)
    answer = await wire.ask(metadata(version, all=True))
    assert [topic.name for topic in answer.topics] == ["a", "b", "c"]


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_requested_topic_is_created_if_the_client_wants(
    kafka: KafkaStage, wire: Wire, version: int
) -> None:
    if version >= 4:
        answer = await wire.ask(metadata(version, "new", create=False))
        assert answer.topics[0].error_code is ErrorCode.unknown_topic_or_partition
    answer = await wire.ask(metadata(version, "new"))
    assert [len(topic.partitions) for topic in answer.topics] == [1]
    assert kafka.broker.topic("new").partitions == 1


@pytest.mark.parametrize("version", [1, 9, 12])
async def test_an_invalid_name_is_an_error(kafka: KafkaStage, wire: Wire, version: int) -> None:
    answer = await wire.ask(metadata(version, "not a name", "good"))
    codes = {topic.name: topic.error_code for topic in answer.topics}
    assert codes == {"not a name": ErrorCode.invalid_topic_exception, "good": ErrorCode.none}


async def test_topics_are_found_by_id(kafka: KafkaStage, wire: Wire) -> None:
    info = await kafka.broker.create_topic("t")
    stranger = uuid.uuid4()
    answer = await wire.ask(metadata(12, uuid.UUID(bytes=info.topic_id), stranger))
    known, unknown = answer.topics
    assert (known.name, known.error_code) == ("t", ErrorCode.none)
    assert (unknown.topic_id, unknown.error_code) == (stranger, ErrorCode.unknown_topic_id)


async def test_an_id_counts_whatever_name_is_beside_it(kafka: KafkaStage, wire: Wire) -> None:
    info = await kafka.broker.create_topic("t")
    known, stranger = uuid.UUID(bytes=info.topic_id), uuid.uuid4()
    asked = metadata(12, known, stranger)
    asked = replace(asked, topics=tuple(replace(topic, name="") for topic in asked.topics))
    answer = await wire.ask(asked)
    assert [(topic.topic_id, topic.name, topic.error_code) for topic in answer.topics] == [
        (known, "t", ErrorCode.none),
        (stranger, None, ErrorCode.unknown_topic_id),
    ]


async def test_a_cached_response_is_dropped_when_topics_change(kafka: KafkaStage, wire: Wire) -> None:
    await kafka.broker.create_topic("t")
    for _ in range(2):
        assert len((await wire.ask(metadata(12, "t"))).topics[0].partitions) == 1
    await kafka.broker.add_partitions("t", 4)
    assert len((await wire.ask(metadata(12, "t"))).topics[0].partitions) == 4
    await kafka.broker.delete_topic("t")
    answer = await wire.ask(metadata(12, "t", create=False))
    assert answer.topics[0].error_code is ErrorCode.unknown_topic_or_partition


async def test_without_auto_creation_nothing_is_created(broker: Broker) -> None:
    async with opened(broker, auto_create=False) as stage:
        wire = await stage.connect()
        answer = await wire.ask(metadata(12, "t"))
        assert answer.topics[0].error_code is ErrorCode.unknown_topic_or_partition
    assert broker.topics() == []


async def test_the_cluster_id_survives_the_door(broker: Broker) -> None:
    seen = set()
    for _ in range(2):
        async with opened(broker) as stage:
            seen.add((await (await stage.connect()).ask(metadata(12))).cluster_id)
    assert len(seen) == 1


@pytest.mark.parametrize("version", range(5))
async def test_every_version_of_api_versions_returns_the_ranges(wire: Wire, version: int) -> None:
    schema = module(API_VERSIONS, version).ApiVersionsRequest
    fields = {"client_software_name": "test", "client_software_version": "1"} if version >= 3 else {}
    answer = await wire.ask(schema(**fields))
    assert answer.error_code is ErrorCode.none
    spoken = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}
    assert spoken == {key: (api.first, api.last) for key, api in apis().items()}
    if version >= 3:
        levels = {"group.version": 1, "share.version": 1, "streams.version": 1, "transaction.version": 2}
        final = [
            (one.name, one.min_version_level, one.max_version_level) for one in answer.finalized_features
        ]
        assert final == [(name, level, level) for name, level in levels.items()]
        assert answer.finalized_features_epoch == 0
        # Clients of version 3 fail on a feature level that starts at 0.
        supported = [(one.name, one.min_version, one.max_version) for one in answer.supported_features]
        assert supported == ([(name, 0, level) for name, level in levels.items()] if version >= 4 else [])


async def test_an_unknown_version_of_api_versions_is_answered_in_version_0_with_the_ranges(
    wire: Wire,
) -> None:
    frame = bytearray(request_frame(module(API_VERSIONS, 0).ApiVersionsRequest(), 77))
    frame[6:8] = (99).to_bytes(2, "big")
    wire.send_raw(bytes(frame))
    correlation, answer = await wire.receive(load_response_schema(API_VERSIONS, 0))
    assert (correlation, answer.error_code) == (77, ErrorCode.unsupported_version)
    assert len(answer.api_keys) == len(apis())
    assert await wire.ask(metadata(12))  # the connection stays open
