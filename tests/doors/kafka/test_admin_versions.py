"""Every version of every admin API accepts a plain request, and the message library can read the response."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from kio.index import load_request_schema

from mainstem.doors.kafka.transport.registry import apis

from .conftest import KafkaStage
from .messages import make
from .wire import request_frame

_TIMEOUT = timedelta(seconds=1)
_ACL = {
    "resource_type": 2,
    "resource_name": "t",
    "principal": "User:a",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}
_ACL_FILTER = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}
_NEW_TOPIC = {
    "name": "new",
    "num_partitions": 2,
    "replication_factor": 3,
    "assignments": (),
    "configs": [{"name": "retention.ms", "value": "5"}],
}
_RETENTION = {"name": "retention.ms", "value": "5", "config_operation": 0}

# By API key: a request, and the field of the response with a row for each requested thing (and how many).
REQUESTS: dict[int, tuple[dict[str, Any], str, int]] = {
    19: ({"topics": [_NEW_TOPIC], "timeout": _TIMEOUT, "validate_only": False}, "topics", 1),
    20: (
        {"topics": [{"name": "t", "topic_id": None}], "topic_names": ("t",), "timeout": _TIMEOUT},
        "responses",
        1,
    ),
    29: (_ACL_FILTER, "resources", 0),
    30: ({"creations": [_ACL]}, "results", 1),
    31: ({"filters": [_ACL_FILTER]}, "filter_results", 1),
    32: (
        {
            "resources": [
                {"resource_type": 2, "resource_name": "t", "configuration_keys": None},
                {"resource_type": 4, "resource_name": "1", "configuration_keys": None},
            ],
            "include_synonyms": True,
            "include_documentation": True,
        },
        "results",
        2,
    ),
    33: (
        {
            "resources": [{"resource_type": 2, "resource_name": "t", "configs": [_RETENTION]}],
            "validate_only": False,
        },
        "responses",
        1,
    ),
    34: (
        {"dirs": [{"path": "/elsewhere", "topics": [{"name": "t", "partitions": (0,)}]}]},
        "results",
        1,
    ),
    35: ({"topics": None}, "results", 1),
    37: (
        {
            "topics": [{"name": "t", "count": 3, "assignments": None}],
            "timeout": _TIMEOUT,
            "validate_only": False,
        },
        "results",
        1,
    ),
    43: (
        {"election_type": 0, "topic_partitions": [{"topic": "t", "partitions": (0,)}], "timeout": _TIMEOUT},
        "replica_election_results",
        1,
    ),
    44: (
        {
            "resources": [{"resource_type": 2, "resource_name": "t", "configs": [_RETENTION]}],
            "validate_only": False,
        },
        "responses",
        1,
    ),
    45: (
        {
            "topics": [{"name": "t", "partitions": [{"partition_index": 0, "replicas": (2,)}]}],
            "timeout": _TIMEOUT,
            "allow_replication_factor_change": True,
        },
        "responses",
        1,
    ),
    46: ({"topics": None, "timeout": _TIMEOUT}, "topics", 0),
    48: ({"components": (), "strict": False}, "entries", 0),
    49: (
        {
            "entries": [
                {
                    "entity": [{"entity_type": "user", "entity_name": None}],
                    "ops": [{"key": "producer_byte_rate", "value": 1.0, "remove": False}],
                }
            ],
            "validate_only": False,
        },
        "entries",
        1,
    ),
    50: ({"users": [{"name": "a"}]}, "results", 1),
    51: ({"deletions": [{"name": "a", "mechanism": 1}], "upsertions": ()}, "results", 1),
    55: (
        {"topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]},
        "topics",
        1,
    ),
    60: (
        {
            "include_cluster_authorized_operations": True,
            "endpoint_type": 1,
            "include_fenced_brokers": True,
        },
        "brokers",
        1,
    ),
    74: ({"resource_types": (2,)}, "config_resources", 1),
    75: ({"topics": (), "response_partition_limit": 10, "cursor": None}, "topics", 1),
}

# Answered with an error in every version: this server does not have the feature.
_REFUSED = {29: 54, 30: 54, 31: 54, 34: 57, 43: 84, 45: 39, 50: 91, 51: 91}


def _cases() -> list[tuple[int, int]]:
    table = apis()
    return [(key, version) for key in REQUESTS for version in range(table[key].first, table[key].last + 1)]


def _codes(message: Any) -> list[int]:
    """Every error code in a response, however deep."""
    if isinstance(message, tuple):
        return [code for item in message for code in _codes(item)]
    found: list[int] = []
    for name in getattr(message, "__dataclass_fields__", ()):
        value = getattr(message, name)
        found += [int(value)] if name == "error_code" else _codes(value)
    return found


@pytest.mark.parametrize(("key", "version"), _cases())
async def test_a_plain_request_is_answered_in_its_own_version(
    kafka: KafkaStage, key: int, version: int
) -> None:
    await kafka.broker.create_topic("t")
    wire = await kafka.connect()
    values, rows, count = REQUESTS[key]
    answer = await wire.ask(make(load_request_schema(key, version), values))
    if key == 74 and version == 0:
        count = 0  # client metrics only
    assert len(getattr(answer, rows)) == count
    assert {code for code in _codes(answer) if code} == ({_REFUSED[key]} if key in _REFUSED else set())


@pytest.mark.parametrize("key", REQUESTS)
async def test_a_request_cut_short_ends_its_connection_and_changes_nothing(
    kafka: KafkaStage, key: int
) -> None:
    before = await kafka.broker.create_topic("t")
    frame = request_frame(make(load_request_schema(key, apis()[key].last), REQUESTS[key][0]), 1)
    whole = len(frame) - 4
    for length in range(whole - 1, 8, -max(1, whole // 24)):
        wire = await kafka.connect()
        wire.send_raw(length.to_bytes(4, "big") + frame[4 : 4 + length])
        assert await wire.ended()
    assert kafka.broker.topics() == [before]
    assert await (await kafka.connect()).ask(make(load_request_schema(60, 0), REQUESTS[60][0]))


async def test_described_partitions_hold_empty_lists_where_the_java_client_takes_no_null(
    kafka: KafkaStage,
) -> None:
    await kafka.broker.create_topic("t")
    wire = await kafka.connect()
    answer = await wire.ask(make(load_request_schema(75, 0), REQUESTS[75][0]))
    (partition,) = answer.topics[0].partitions
    assert partition.eligible_leader_replicas == ()
    assert partition.last_known_elr == ()
