"""Topics and their settings through hand-made frames: what is done, what is refused, and with which code."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode

from mainstem import limits
from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.broker.broker_settings import BROKER_SETTINGS
from mainstem.broker.groups.settings import GROUP_SETTINGS
from mainstem.doors.kafka.apis.bulk import KAFKA_ERROR_MESSAGE_CHARS_MAX
from mainstem.doors.kafka.apis.describe_topic_partitions import KAFKA_DESCRIBED_PARTITIONS_MAX
from mainstem.doors.kafka.security.options import KafkaSecurity
from mainstem.doors.kafka.transport.api import KAFKA_CONTROL_REQUEST_BYTES_MAX
from mainstem.doors.kafka.transport.registry import apis
from mainstem.ledger.ledger import Ledger

from .conftest import KafkaStage, opened
from .messages import make
from .requests import metadata
from .wire import Wire, request_class

CREATE, DELETE, GROW, DESCRIBE, ALTER, EDIT = 19, 20, 37, 32, 33, 44
TOPIC, BROKER, LOGGER = 2, 4, 8
SET, REMOVE, APPEND, SUBTRACT = range(4)


async def _ask(wire: Wire, key: int, **values: Any) -> Any:
    newest = request_class(key, apis()[key].last)
    return await wire.ask(make(newest, {"timeout": timedelta(seconds=1), "validate_only": False} | values))


def _topic(name: str, partitions: int = 1, factor: int = 1, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": factor,
        "assignments": (),
        "configs": (),
    } | more


def _settings(settings: dict[str, str | None]) -> list[dict[str, str | None]]:
    return [{"name": name, "value": value} for name, value in settings.items()]


async def _create(wire: Wire, *topics: dict[str, Any], validate_only: bool = False) -> list[Any]:
    answer = await _ask(wire, CREATE, topics=topics, validate_only=validate_only)
    return list(answer.topics)


async def _edit(wire: Wire, *edits: tuple[str, int, str | None], topic: str = "t", **more: Any) -> Any:
    rows = [{"name": name, "config_operation": operation, "value": value} for name, operation, value in edits]
    resource = {"resource_type": TOPIC, "resource_name": topic, "configs": rows}
    return (await _ask(wire, EDIT, resources=[resource], **more)).responses[0]


async def _described(wire: Wire, *names: str, topic: str = "t") -> dict[str, Any]:
    resource = {"resource_type": TOPIC, "resource_name": topic, "configuration_keys": names or None}
    answer = await _ask(
        wire, DESCRIBE, resources=[resource], include_synonyms=True, include_documentation=True
    )
    assert answer.results[0].error_code is ErrorCode.none
    return {row.name: row for row in answer.results[0].configs}


# Creating


async def test_a_created_topic_is_there_with_its_id_and_settings(wire: Wire, broker: Broker) -> None:
    (made,) = await _create(wire, _topic("t", 3, configs=_settings({"retention.ms": "5", "segment.ms": "9"})))
    assert made.error_code is ErrorCode.none
    info = broker.topic("t")
    assert (info.partitions, info.config.retention_ms) == (3, 5)
    assert made.topic_id == UUID(bytes=info.topic_id)
    assert (made.num_partitions, made.replication_factor) == (3, 1)
    shown = {row.name: (row.value, row.config_source) for row in made.configs}
    assert shown["retention.ms"] == ("5", 1)
    assert shown["segment.ms"] == ("9", 1)
    assert shown["mainstem.durability"] == ("disk", 4)  # the server's default
    assert shown["retention.bytes"] == ("-1", 5)


@pytest.mark.parametrize("factor", [-1, 1, 3, 100])
async def test_any_replication_factor_is_accepted(wire: Wire, broker: Broker, factor: int) -> None:
    (made,) = await _create(wire, _topic("t", -1, factor))
    assert (made.error_code, made.replication_factor) == (ErrorCode.none, 1)
    assert broker.topic("t").partitions == 1


async def test_the_default_number_of_partitions_is_the_doors(broker: Broker) -> None:
    async with opened(broker, default_partitions=4) as stage:
        (made,) = await _create(await stage.connect(), _topic("t", -1, -1))
    assert made.num_partitions == broker.topic("t").partitions == 4


async def test_a_name_longer_than_kafka_allows_is_refused(wire: Wire, broker: Broker) -> None:
    longest, longer = await _create(wire, _topic("n" * 249), _topic("n" * 250))
    assert (longest.error_code, longer.error_code) == (ErrorCode.none, ErrorCode.invalid_topic_exception)
    assert [topic.name for topic in broker.topics()] == ["n" * 249]


async def test_validating_creates_nothing(wire: Wire, broker: Broker) -> None:
    good, bad, there = await _create(
        wire,
        _topic("good", 2, configs=_settings({"retention.ms": "5"})),
        _topic("bad", configs=_settings({"retention": "5"})),
        _topic("broken name"),
        validate_only=True,
    )
    assert (good.error_code, good.topic_id, good.num_partitions) == (ErrorCode.none, None, 2)
    assert bad.error_code is ErrorCode.invalid_config
    assert there.error_code is ErrorCode.invalid_topic_exception
    assert broker.topics() == []
    await broker.create_topic("good")
    (good,) = await _create(wire, _topic("good"), validate_only=True)
    assert good.error_code is ErrorCode.topic_already_exists


@pytest.mark.parametrize(
    ("wanted", "code", "message"),
    [
        (_topic(""), ErrorCode.invalid_topic_exception, "invalid topic name"),
        (_topic("."), ErrorCode.invalid_topic_exception, "invalid topic name"),
        (_topic("a b"), ErrorCode.invalid_topic_exception, "invalid topic name"),
        (_topic("ü"), ErrorCode.invalid_topic_exception, "invalid topic name"),
        (_topic("x" * 30_000), ErrorCode.invalid_topic_exception, "invalid topic name"),
        (_topic("t", 0), ErrorCode.invalid_partitions, "not 0"),
        (_topic("t", -2), ErrorCode.invalid_partitions, "not -2"),
        (_topic("t", 2**31 - 1), ErrorCode.invalid_partitions, "1 to 10000 partitions"),
        (_topic("t", 1, 0), ErrorCode.invalid_replication_factor, "not 0"),
        (_topic("t", 1, -2), ErrorCode.invalid_replication_factor, "not -2"),
        (_topic("t", configs=_settings({"retention.mss": "5"})), ErrorCode.invalid_config, "did you mean"),
        (_topic("t", configs=_settings({"retention.ms": "soon"})), ErrorCode.invalid_config, "whole number"),
        (_topic("t", configs=_settings({"retention.ms": None})), ErrorCode.invalid_config, "needs a value"),
        (
            _topic("t", configs=[*_settings({"retention.ms": "1"}), *_settings({"retention.ms": "2"})]),
            ErrorCode.invalid_config,
            "more than once",
        ),
        (
            _topic("t", -1, -1, assignments=[{"partition_index": 0, "broker_ids": (1, 2)}]),
            ErrorCode.invalid_replica_assignment,
            "served by broker 1",
        ),
        (
            _topic("t", -1, -1, assignments=[{"partition_index": 1, "broker_ids": (1,)}]),
            ErrorCode.invalid_replica_assignment,
            "from 0 to 0 once",
        ),
        (
            _topic("t", 2, 2, assignments=[{"partition_index": 0, "broker_ids": (1,)}]),
            ErrorCode.invalid_request,
            "are -1",
        ),
    ],
)
async def test_invalid_topics_are_refused_with_a_reason(
    wire: Wire, broker: Broker, wanted: dict[str, Any], code: ErrorCode, message: str
) -> None:
    refused, made = await _create(wire, wanted, _topic("other"))
    assert refused.error_code is code
    assert message in refused.error_message
    assert made.error_code is ErrorCode.none, "the other topics of the request are made"
    assert [info.name for info in broker.topics()] == ["other"]


async def test_a_manual_assignment_to_this_broker_is_accepted(wire: Wire, broker: Broker) -> None:
    assignments = [{"partition_index": index, "broker_ids": (1,)} for index in (1, 0, 2)]
    (made,) = await _create(wire, _topic("t", -1, -1, assignments=assignments))
    assert (made.error_code, broker.topic("t").partitions) == (ErrorCode.none, 3)


async def test_a_topic_named_twice_in_a_request_is_not_created(wire: Wire, broker: Broker) -> None:
    other, twice = await _create(wire, _topic("twice"), _topic("other"), _topic("twice", 2))
    assert (twice.name, twice.error_code) == ("twice", ErrorCode.invalid_request)
    assert (other.name, other.error_code) == ("other", ErrorCode.none)
    assert [info.name for info in broker.topics()] == ["other"]


@pytest.mark.parametrize(
    "wanted",
    [_topic("t", 0), _topic("t", 1, 0), _topic("t", configs=_settings({"retention.ms": "soon"}))],
)
async def test_a_topic_that_exists_is_named_before_anything_else(
    wire: Wire, broker: Broker, wanted: dict[str, Any]
) -> None:
    await broker.create_topic("t")
    (refused,) = await _create(wire, wanted)
    assert refused.error_code is ErrorCode.topic_already_exists


async def test_an_existing_topic_is_not_changed(wire: Wire, broker: Broker) -> None:
    await broker.create_topic("t", partitions=2)
    (refused,) = await _create(wire, _topic("t", 5))
    assert refused.error_code is ErrorCode.topic_already_exists
    assert broker.topic("t").partitions == 2


async def test_many_topics_in_one_request_are_all_created(wire: Wire, broker: Broker) -> None:
    count = limits.KAFKA_CHANGES_AT_ONCE * 2 + 1
    made = await _create(wire, *(_topic(f"t{index}") for index in range(count)))
    assert {result.error_code for result in made} == {ErrorCode.none}
    assert [result.name for result in made] == [f"t{index}" for index in range(count)]
    assert len(broker.topics()) == count


# Deleting and growing


async def test_topics_are_deleted_by_name_and_by_id(wire: Wire, broker: Broker) -> None:
    by_id = UUID(bytes=(await broker.create_topic("by-id")).topic_id)
    await broker.create_topic("by-name")
    nobody = UUID(int=5)
    answer = await _ask(
        wire,
        DELETE,
        topics=[
            {"name": "by-name", "topic_id": None},
            {"name": None, "topic_id": by_id},
            {"name": "none", "topic_id": None},
            {"name": None, "topic_id": nobody},
            {"name": None, "topic_id": None},
            {"name": "by-name", "topic_id": by_id},
        ],
    )
    outcomes = {(row.name, row.topic_id): row.error_code for row in answer.responses}
    assert outcomes["by-id", by_id] is ErrorCode.none
    assert [code for (name, id), code in outcomes.items() if name == "by-name" and id != by_id] == [
        ErrorCode.none
    ]
    assert outcomes["none", None] is ErrorCode.unknown_topic_or_partition
    assert outcomes[None, nobody] is ErrorCode.unknown_topic_id
    assert outcomes[None, None] is ErrorCode.invalid_request
    assert outcomes["by-name", by_id] is ErrorCode.invalid_request
    assert broker.topics() == []


async def test_a_topic_to_delete_named_twice_stays(wire: Wire, broker: Broker) -> None:
    await broker.create_topic("t")
    answer = await _ask(wire, DELETE, topics=[{"name": "t", "topic_id": None}] * 2)
    assert [row.error_code for row in answer.responses] == [ErrorCode.invalid_request]
    assert broker.topic("t")


async def test_a_recreated_topic_has_another_id(wire: Wire, broker: Broker) -> None:
    (first,) = await _create(wire, _topic("t"))
    await _ask(wire, DELETE, topics=[{"name": "t", "topic_id": None}])
    (second,) = await _create(wire, _topic("t"))
    assert first.topic_id != second.topic_id
    answer = await _ask(wire, DELETE, topics=[{"name": None, "topic_id": first.topic_id}])
    assert answer.responses[0].error_code is ErrorCode.unknown_topic_id
    assert broker.topic("t")


@pytest.mark.parametrize(
    ("count", "assignments", "code"),
    [
        (2, None, ErrorCode.invalid_partitions),
        (1, None, ErrorCode.invalid_partitions),
        (0, None, ErrorCode.invalid_partitions),
        (-1, None, ErrorCode.invalid_partitions),
        (limits.PARTITIONS_PER_TOPIC_MAX + 1, None, ErrorCode.invalid_partitions),
        (4, [{"broker_ids": (1,)}], ErrorCode.invalid_replica_assignment),
        (3, [{"broker_ids": (7,)}], ErrorCode.invalid_replica_assignment),
        (3, [{"broker_ids": (1,)}], ErrorCode.none),
        (4, None, ErrorCode.none),
    ],
)
async def test_partitions_are_added_and_never_removed(
    wire: Wire, broker: Broker, count: int, assignments: Any, code: ErrorCode
) -> None:
    await broker.create_topic("t", partitions=2)
    wanted = {"name": "t", "count": count, "assignments": assignments}
    for validate_only in (True, False):
        assert broker.topic("t").partitions == 2
        answer = await _ask(wire, GROW, topics=[wanted], validate_only=validate_only)
        assert answer.results[0].error_code is code
    assert broker.topic("t").partitions == (2 if code else count)


async def test_partitions_of_unknown_and_repeated_topics_are_refused(wire: Wire, broker: Broker) -> None:
    await broker.create_topic("t")
    rows = [{"name": name, "count": 2, "assignments": None} for name in ("t", "none", "t")]
    answer = await _ask(wire, GROW, topics=rows)
    assert {row.name: row.error_code for row in answer.results} == {
        "none": ErrorCode.unknown_topic_or_partition,
        "t": ErrorCode.invalid_request,
    }
    assert broker.topic("t").partitions == 1


# Settings


async def test_a_setting_is_shown_with_type_source_synonyms_and_documentation(
    wire: Wire, broker: Broker
) -> None:
    await _create(wire, _topic("t", configs=_settings({"retention.ms": "5", "mainstem.durability": "fsync"})))
    rows = await _described(wire)
    retention = rows["retention.ms"]
    assert (retention.value, retention.config_source, retention.config_type) == ("5", 1, 5)
    assert not retention.read_only
    assert not retention.is_sensitive
    assert [(s.name, s.value, s.source) for s in retention.synonyms] == [
        ("retention.ms", "5", 1),
        ("log.retention.ms", "-1", 5),
    ]
    assert [(s.value, s.source) for s in rows["mainstem.durability"].synonyms] == [
        ("fsync", 1),
        ("disk", 4),
        ("fsync", 5),
    ]
    assert rows["cleanup.policy"].config_type == 7
    assert "compact keeps the newest record of each key" in rows["cleanup.policy"].documentation
    assert "without effect" in rows["segment.index.bytes"].documentation
    assert rows["preallocate"].config_type == 1


async def test_only_the_requested_settings_are_shown(wire: Wire, broker: Broker) -> None:
    await broker.create_topic("t")
    assert list(await _described(wire, "retention.ms", "none")) == ["retention.ms"]


async def test_a_brokers_settings_are_shown_and_read_only(wire: Wire) -> None:
    resources = [
        {"resource_type": kind, "resource_name": name, "configuration_keys": None}
        for kind, name in (
            (BROKER, "1"),
            (BROKER, ""),
            (BROKER, "2"),
            (LOGGER, "1"),
            (TOPIC, "none"),
            (99, ""),
        )
    ]
    answer = await _ask(wire, DESCRIBE, resources=resources, include_synonyms=False)
    mine, all_brokers, *refused = answer.results
    rows = {row.name: row for row in mine.configs}
    changeable = {f"group.{name}" for name in GROUP_SETTINGS}
    assert rows["auto.create.topics.enable"].value == "true"
    assert rows["num.partitions"].value == "1"
    assert rows["log.retention.ms"].value == "-1"
    fixed = {name: row for name, row in rows.items() if name not in changeable | BROKER_SETTINGS.keys()}
    assert {(row.read_only, row.config_source) for row in fixed.values()} == {(True, 4)}
    assert {(rows[name].read_only, rows[name].config_source) for name in BROKER_SETTINGS} == {(False, 4)}
    assert {(rows[name].read_only, rows[name].config_source) for name in changeable} == {(False, 5)}
    assert (all_brokers.error_code, all_brokers.configs) == (ErrorCode.none, ())
    assert [row.error_code for row in refused] == [
        ErrorCode.invalid_request,
        ErrorCode.invalid_request,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.invalid_request,
    ]


async def test_topics_with_the_same_settings_are_distinguished_and_changes_are_seen(
    wire: Wire, broker: Broker
) -> None:
    await broker.create_topic("t")
    await broker.create_topic("other")
    before = await _described(wire)
    assert await _described(wire, topic="other") == before
    await _edit(wire, ("retention.ms", SET, "5"))
    assert (await _described(wire))["retention.ms"].value == "5"
    assert await _described(wire, topic="other") == before


async def test_a_resource_requested_twice_is_described_once(wire: Wire, broker: Broker) -> None:
    await broker.create_topic("t")
    resource = {"resource_type": TOPIC, "resource_name": "t", "configuration_keys": None}
    answer = await _ask(wire, DESCRIBE, resources=[resource] * 1000, include_synonyms=False)
    assert len(answer.results) == 1


async def test_a_request_that_would_take_too_much_memory_ends_its_connection(kafka: KafkaStage) -> None:
    await kafka.broker.create_topic("t")
    names = tuple(str(index) * 50 for index in range(KAFKA_CONTROL_REQUEST_BYTES_MAX // 50))
    resource = {"resource_type": TOPIC, "resource_name": "t", "configuration_keys": names}
    wire = await kafka.connect()
    wire.send(make(request_class(DESCRIBE, 4), {"resources": [resource]}))
    assert await wire.ended()
    assert await _described(await kafka.connect())


async def test_unknown_topics_fill_pages_too(wire: Wire) -> None:
    names = [{"name": f"none-{index:05}"} for index in range(KAFKA_DESCRIBED_PARTITIONS_MAX + 5)]
    answer = await _ask(wire, 75, topics=names, response_partition_limit=2**31 - 1, cursor=None)
    assert len(answer.topics) == KAFKA_DESCRIBED_PARTITIONS_MAX
    cursor = {"topic_name": answer.next_cursor.topic_name, "partition_index": 0}
    rest = await _ask(wire, 75, topics=names, response_partition_limit=2**31 - 1, cursor=cursor)
    assert (len(rest.topics), rest.next_cursor) == (5, None)


@pytest.mark.parametrize(("key", "version"), [(DESCRIBE, 1), (GROW, 0), (ALTER, 0), (EDIT, 0), (CREATE, 2)])
async def test_a_name_of_the_protocols_maximum_length_is_refused_with_a_reason(
    wire: Wire, key: int, version: int
) -> None:
    name = "x" * 32767
    resource = {"resource_type": TOPIC, "resource_name": name, "configs": (), "configuration_keys": None}
    values = {
        "resources": [resource],
        "topics": [{"count": 2} | _topic(name, assignments=() if key == CREATE else None)],
        "timeout": timedelta(seconds=1),
        "validate_only": False,
    }
    answer = await wire.ask(make(request_class(key, version), values))
    (row,) = next(
        value for name in ("results", "responses", "topics") if (value := getattr(answer, name, ()))
    )
    assert row.error_code in (ErrorCode.unknown_topic_or_partition, ErrorCode.invalid_topic_exception)
    assert 0 < len(row.error_message) <= KAFKA_ERROR_MESSAGE_CHARS_MAX


async def test_single_settings_change_and_the_others_stay(wire: Wire, broker: Broker) -> None:
    await _create(wire, _topic("t", configs=_settings({"retention.ms": "5", "segment.ms": "9"})))
    outcome = await _edit(wire, ("retention.bytes", SET, "7"), ("segment.ms", REMOVE, None))
    assert outcome.error_code is ErrorCode.none
    config = broker.topic("t").config
    assert (config.retention_ms, config.retention_bytes, config.inert) == (5, 7, ())
    assert (await _edit(wire, ("cleanup.policy", APPEND, "compact"))).error_code is ErrorCode.none
    assert broker.topic("t").config.cleanup_policy == "delete,compact"
    assert (await _edit(wire, ("cleanup.policy", SUBTRACT, "delete"))).error_code is ErrorCode.none
    assert broker.topic("t").config.cleanup_policy == "compact"
    for policy in ("compact,delete", "delete,compact", ""):
        assert (await _edit(wire, ("cleanup.policy", SET, policy))).error_code is ErrorCode.none
        assert broker.topic("t").config.cleanup_policy == policy


async def test_removing_a_setting_that_does_not_exist_changes_nothing(wire: Wire, broker: Broker) -> None:
    before = await broker.create_topic("t")
    assert (await _edit(wire, ("other.setting", REMOVE, None))).error_code is ErrorCode.none
    assert broker.topic("t") == before
    outcome = await _edit(wire, ("other.setting", REMOVE, "1"), ("retention.bytes", SET, "7"))
    assert outcome.error_code is ErrorCode.none
    assert broker.topic("t").config.retention_bytes == 7
    unknown = await _edit(wire, ("other.setting", REMOVE, None), topic="u")
    assert unknown.error_code is ErrorCode.unknown_topic_or_partition


async def test_all_settings_are_replaced_at_once(wire: Wire, broker: Broker) -> None:
    await _create(wire, _topic("t", configs=_settings({"retention.ms": "5", "segment.ms": "9"})))
    resource = {
        "resource_type": TOPIC,
        "resource_name": "t",
        "configs": _settings({"retention.bytes": "7"}),
    }
    answer = await _ask(wire, ALTER, resources=[resource])
    assert answer.responses[0].error_code is ErrorCode.none
    config = broker.topic("t").config
    assert (config.retention_ms, config.retention_bytes, config.inert) == (-1, 7, ())
    assert config.durability == "disk"


@pytest.mark.parametrize(
    ("edits", "code"),
    [
        ([("retention.mss", SET, "1")], ErrorCode.invalid_config),
        ([("retention.ms", SET, "soon")], ErrorCode.invalid_config),
        ([("retention.ms", SET, None)], ErrorCode.invalid_request),
        ([("retention.ms", APPEND, "1")], ErrorCode.invalid_config),
        ([("cleanup.policy", SET, "delete,shred")], ErrorCode.invalid_config),
        ([("retention.ms", 4, "1")], ErrorCode.invalid_request),
        ([("retention.ms", -1, "1")], ErrorCode.invalid_request),
        ([("retention.ms", SET, "1"), ("retention.ms", SET, "2")], ErrorCode.invalid_request),
        ([("retention.bytes", SET, "1"), ("retention.ms", SET, "x")], ErrorCode.invalid_config),
        ([("mainstem.type", SET, "queue")], ErrorCode.invalid_config),
        ([("mainstem.durability", SET, "ephemeral")], ErrorCode.invalid_config),
        ([("", SET, "1")], ErrorCode.invalid_config),
    ],
)
@pytest.mark.parametrize("validate_only", [True, False])
async def test_a_wrong_change_of_settings_changes_nothing(
    wire: Wire,
    broker: Broker,
    edits: list[tuple[str, int, str | None]],
    code: ErrorCode,
    validate_only: bool,
) -> None:
    before = await broker.create_topic("t")
    outcome = await _edit(wire, *edits, validate_only=validate_only)
    assert outcome.error_code is code
    assert outcome.error_message
    assert broker.topic("t") == before


async def test_validating_a_change_of_settings_changes_nothing(wire: Wire, broker: Broker) -> None:
    before = await broker.create_topic("t")
    outcome = await _edit(wire, ("retention.ms", SET, "5"), validate_only=True)
    assert outcome.error_code is ErrorCode.none
    resource = {"resource_type": TOPIC, "resource_name": "t", "configs": _settings({"retention.ms": "5"})}
    answer = await _ask(wire, ALTER, resources=[resource], validate_only=True)
    assert answer.responses[0].error_code is ErrorCode.none
    assert broker.topic("t") == before


@pytest.mark.parametrize("key", [ALTER, EDIT])
async def test_settings_of_anything_but_a_topic_cannot_be_changed(
    wire: Wire, broker: Broker, key: int
) -> None:
    await broker.create_topic("t")
    row = {"name": "retention.ms", "config_operation": SET, "value": "5"}
    kinds = [(BROKER, "1"), (LOGGER, "1"), (0, ""), (TOPIC, "none"), (TOPIC, "t"), (TOPIC, "t")]
    resources = [{"resource_type": kind, "resource_name": name, "configs": [row]} for kind, name in kinds]
    answer = await _ask(wire, key, resources=resources)
    assert [response.error_code for response in answer.responses] == [
        ErrorCode.invalid_request if key == ALTER else ErrorCode.invalid_config,
        ErrorCode.invalid_request,
        ErrorCode.invalid_request,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.invalid_request,
        ErrorCode.invalid_request,
    ]
    assert broker.topic("t").config.retention_ms == -1


async def test_changes_made_at_the_same_time_are_all_kept(kafka: KafkaStage) -> None:
    await kafka.broker.create_topic("t")
    wires = [await kafka.connect() for _ in range(4)]
    names = ("retention.ms", "retention.bytes", "mainstem.cap.records", "segment.ms")
    await asyncio.gather(*(_edit(wire, (name, SET, "77")) for wire, name in zip(wires, names, strict=True)))
    rows = await _described(wires[0])
    assert {rows[name].value for name in names} == {"77"}


async def test_topics_and_settings_are_there_after_a_restart(tmp_path: Path) -> None:
    options = BrokerOptions(tmp_path / "data")
    broker = await Broker.open(options)
    async with opened(broker) as stage:
        wire = await stage.connect()
        await _create(wire, _topic("t", 3, configs=_settings({"segment.ms": "9"})), _topic("gone"))
        await _edit(wire, ("compression.type", SET, "zstd"))
        await _ask(wire, DELETE, topics=[{"name": "gone", "topic_id": None}])
        before = broker.topic("t")
    await broker.close()
    broker = await Broker.open(options)
    async with opened(broker) as stage:
        assert broker.topics() == [before]
        rows = await _described(await stage.connect())
        assert (rows["segment.ms"].value, rows["compression.type"].value) == ("9", "zstd")
        assert rows["compression.type"].config_source == 1
    await broker.close()


# The cluster


async def test_the_cluster_is_this_broker(kafka: KafkaStage, wire: Wire) -> None:
    answer = await _ask(
        wire, 60, include_cluster_authorized_operations=True, endpoint_type=1, include_fenced_brokers=False
    )
    (node,) = answer.brokers
    assert (node.broker_id, node.host, node.port) == (1, kafka.address.host, kafka.address.port)
    assert answer.cluster_id == kafka.door.context.cluster_id
    assert answer.controller_id == 1
    assert answer.cluster_authorized_operations == 0b1111110100000
    for kind, code in (
        (2, ErrorCode.mismatched_endpoint_type),
        (9, ErrorCode.unsupported_endpoint_type),
    ):
        answer = await _ask(
            wire,
            60,
            include_cluster_authorized_operations=False,
            endpoint_type=kind,
            include_fenced_brokers=False,
        )
        assert answer.error_code is code


async def test_pages_of_partitions_give_every_partition_once(wire: Wire, broker: Broker) -> None:
    sizes = {"a": 3, "b": 1, "c": 4, "d": 2}
    for name, partitions in sizes.items():
        await broker.create_topic(name, partitions=partitions)
    for limit in (1, 2, 3, 4, 5, 100):
        seen: list[tuple[str, int]] = []
        cursor: dict[str, Any] | None = None
        while True:
            answer = await _ask(wire, 75, topics=(), response_partition_limit=limit, cursor=cursor)
            page = [(topic.name, row.partition_index) for topic in answer.topics for row in topic.partitions]
            assert 0 < len(page) <= limit
            seen += page
            if answer.next_cursor is None:
                break
            cursor = {
                "topic_name": answer.next_cursor.topic_name,
                "partition_index": answer.next_cursor.partition_index,
            }
        assert seen == [(name, index) for name, count in sizes.items() for index in range(count)]


async def test_a_cursor_survives_its_topic(wire: Wire, broker: Broker) -> None:
    for name in ("a", "c"):
        await broker.create_topic(name)
    answer = await _ask(
        wire,
        75,
        topics=(),
        response_partition_limit=0,
        cursor={"topic_name": "b", "partition_index": 2**31 - 1},
    )
    assert [(topic.name, len(topic.partitions)) for topic in answer.topics] == [("c", 1)]
    answer = await _ask(
        wire, 75, topics=[{"name": "none"}, {"name": "a"}], response_partition_limit=10, cursor=None
    )
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [
        ("a", ErrorCode.none),
        ("none", ErrorCode.unknown_topic_or_partition),
    ]


async def test_a_log_directory_reports_the_size_of_each_partition(wire: Wire, broker: Broker) -> None:
    await broker.create_topic("t", partitions=2)
    await broker.create_topic("other")
    await broker.append_values("t", [b"x" * 1000], partition=1)
    (directory,) = (await _ask(wire, 35, topics=None)).results
    sizes = {
        (topic.name, row.partition_index): row.partition_size
        for topic in directory.topics
        for row in topic.partitions
    }
    assert sizes[("t", 1)] >= 1000
    assert sizes[("t", 0)] == sizes[("other", 0)] == 0
    assert 0 < directory.usable_bytes < directory.total_bytes
    asked = [{"topic": "t", "partitions": (1, 7)}, {"topic": "none", "partitions": (0,)}]
    (directory,) = (await _ask(wire, 35, topics=asked)).results
    assert [
        (topic.name, [row.partition_index for row in topic.partitions]) for topic in directory.topics
    ] == [("t", [1])]


async def test_resources_with_settings_are_listed_by_type(wire: Wire, broker: Broker) -> None:
    await broker.create_topic("t")
    listed = await _ask(wire, 74, resource_types=())
    assert [(row.resource_type, row.resource_name) for row in listed.config_resources] == [
        (TOPIC, "t"),
        (BROKER, "1"),
    ]
    assert (await _ask(wire, 74, resource_types=(16, 32))).config_resources == ()
    assert (await _ask(wire, 74, resource_types=(99,))).error_code is ErrorCode.unsupported_version


async def _edit_broker(
    wire: Wire, broker: str, *edits: tuple[str, int, str | None], **more: Any
) -> ErrorCode:
    rows = [{"name": name, "config_operation": operation, "value": value} for name, operation, value in edits]
    resource = {"resource_type": BROKER, "resource_name": broker, "configs": rows}
    code: ErrorCode = (await _ask(wire, EDIT, resources=[resource], **more)).responses[0].error_code
    return code


async def _broker_rows(wire: Wire, broker: str) -> dict[str, tuple[str, int]]:
    resource = {"resource_type": BROKER, "resource_name": broker, "configuration_keys": None}
    answer = await _ask(wire, DESCRIBE, resources=[resource], include_synonyms=True)
    return {row.name: (row.value, row.config_source) for row in answer.results[0].configs}


async def test_broker_settings_change_at_run_time(wire: Wire, broker: Broker) -> None:
    auto, count, lock = "auto.create.topics.enable", "num.partitions", "group.share.record.lock.duration.ms"
    assert await _edit_broker(wire, "1", (count, SET, "3"), validate_only=True) is ErrorCode.none
    assert await _broker_rows(wire, "") == {}
    assert await _edit_broker(wire, "", (count, SET, "3"), (auto, SET, "False")) is ErrorCode.none
    changed = {auto: ("false", 3), count: ("3", 3)}
    assert await _broker_rows(wire, "") == changed
    assert changed.items() <= (await _broker_rows(wire, "1")).items()
    (made,) = await _create(wire, _topic("t", -1))
    assert made.num_partitions == 3
    await wire.ask(metadata(9, "missing", create=True))
    assert [topic.name for topic in broker.topics()] == ["t"]
    for wrong in ((count, SET, "0"), (auto, SET, "no"), (count, APPEND, "1"), (lock, SET, "1")):
        code = await _edit_broker(wire, "1", (auto, REMOVE, None), wrong)
        assert code in (ErrorCode.invalid_config, ErrorCode.invalid_request)
        assert await _broker_rows(wire, "") == changed  # all of a request, or nothing
    again = Ledger.decode(broker.log.ledger.encode())
    assert (again.digest(), again.broker_settings.get(count)) == (broker.log.ledger.digest(), "3")
    back = ((auto, REMOVE, None), (count, REMOVE, None), (lock, SET, "2000"))
    assert await _edit_broker(wire, "1", *back) is ErrorCode.none
    assert await _broker_rows(wire, "") == {lock: ("2000", 3)}
    await wire.ask(metadata(9, "missing", create=True))
    assert broker.topic("missing").partitions == 1


async def test_the_cleanup_policy_keeps_its_order_and_may_be_empty(wire: Wire) -> None:
    await _create(wire, _topic("t"))
    for policy in ("compact,delete", "delete,compact", "", "compact"):
        assert (await _edit(wire, ("cleanup.policy", SET, policy))).error_code is ErrorCode.none
        assert (await _described(wire, "cleanup.policy"))["cleanup.policy"].value == policy


async def test_the_lifetime_of_a_login_is_shown(broker: Broker) -> None:
    async with opened(broker, security=KafkaSecurity(reauthenticate_ms=5_000)) as stage:
        rows = await _broker_rows(await stage.connect(), "1")
    assert rows["connections.max.reauth.ms"] == ("5000", 4)


async def test_scram_credentials_may_be_stored_before_clients_authenticate(
    wire: Wire, broker: Broker
) -> None:
    upsertion = {
        "name": "eve",
        "mechanism": 1,
        "iterations": 4096,
        "salt": b"s",
        "salted_password": b"p" * 32,
    }
    request = make(load_request_schema(51, 0), {"deletions": (), "upsertions": [upsertion]})
    [result] = (await wire.ask(request)).results
    assert (result.user, result.error_code) == ("eve", ErrorCode.none)
    asked = make(load_request_schema(50, 0), {"users": [{"name": "eve"}]})
    [described] = (await wire.ask(asked)).results
    assert [(one.mechanism, one.iterations) for one in described.credential_infos] == [(1, 4096)]


def test_apis_without_support_are_not_offered() -> None:
    """Clients learn from ApiVersions that delegation tokens and client metrics are missing."""
    tokens, telemetry = {38, 39, 40, 41}, {71, 72}
    assert not apis().keys() & (tokens | telemetry)
