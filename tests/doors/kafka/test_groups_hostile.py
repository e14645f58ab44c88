"""Damaged and invalid group requests: the connection may close, the door and the groups stay."""

from __future__ import annotations

import asyncio
import logging
import random
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from kio.index import load_request_schema

from mainstem.doors.kafka.transport.registry import apis

from .conftest import KafkaStage
from .messages import make
from .wire import Wire, request_frame

S = timedelta(seconds=1)
_PARTITION = {
    "partition_index": 0,
    "committed_offset": 5,
    "committed_leader_epoch": 0,
    "committed_metadata": "m",
}
_WANTED = {"name": "t", "topic_id": UUID(int=1), "partition_indexes": (0, 1)}

_SHARED = {
    "partition_index": 0,
    "acknowledgement_batches": [{"first_offset": 0, "last_offset": 1, "acknowledge_types": (1, 2)}],
}

# By API key: a valid request.
REQUESTS: dict[int, dict[str, Any]] = {
    8: {
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "topics": [{"name": "t", "topic_id": UUID(int=1), "partitions": [_PARTITION]}],
    },
    9: {
        "groups": [{"group_id": "g", "topics": [_WANTED]}],
        "topics": [_WANTED],
    },
    10: {"key": "g", "key_type": 0, "coordinator_keys": ("g",)},
    11: {
        "session_timeout": 10 * S,
        "rebalance_timeout": 10 * S,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"metadata"}],
    },
    12: {"generation_id": 1, "member_id": "m"},
    13: {"member_id": "m", "members": [{"member_id": "m", "group_instance_id": "i"}]},
    14: {
        "generation_id": 1,
        "member_id": "m",
        "assignments": [{"member_id": "m", "assignment": b"assignment"}],
    },
    15: {"groups": ("g", "h"), "include_authorized_operations": True},
    16: {"states_filter": ("Stable",), "types_filter": ("classic",)},
    42: {"groups_names": ("g", "h")},
    47: {"topics": [{"name": "t", "partitions": [{"partition_index": 0}]}]},
    68: {
        "member_id": "m",
        "member_epoch": 0,
        "rebalance_timeout": 10 * S,
        "subscribed_topic_names": ("t",),
        "subscribed_topic_regex": "t.*",
        "topic_partitions": (),
    },
    69: {"group_ids": ("g",), "include_authorized_operations": False},
    76: {"member_id": "m", "member_epoch": 0, "rack_id": None, "subscribed_topic_names": ("t",)},
    77: {"group_ids": ("g",), "include_authorized_operations": False},
    78: {
        "member_id": "m",
        "share_session_epoch": 0,
        "max_wait": 0 * S,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "max_records": 10,
        "batch_size": 10,
        "topics": [{"topic_id": UUID(int=1), "partitions": [_SHARED]}],
        "forgotten_topics_data": [{"topic_id": UUID(int=1), "partitions": (1,)}],
    },
    79: {
        "member_id": "m",
        "share_session_epoch": 1,
        "topics": [{"topic_id": UUID(int=1), "partitions": [_SHARED]}],
    },
    90: {"groups": [{"group_id": "g", "topics": [{"topic_name": "t", "partitions": (0, 1)}]}]},
    91: {"topics": [{"topic_name": "t", "partitions": [{"partition_index": 0, "start_offset": 3}]}]},
    92: {"topics": [{"topic_name": "t"}]},
}
MUTATIONS = 40


def frames(key: int) -> list[bytes]:
    api = apis()[key]
    return [
        request_frame(make(load_request_schema(key, version), {"group_id": "g", **REQUESTS[key]}), 1)
        for version in range(api.first, api.last + 1)
    ]


def damaged(frame: bytes, chance: random.Random) -> bytes:
    """The frame with some bytes changed, or some missing; its length still fits."""
    body = bytearray(frame[4:])
    for _ in range(chance.randint(1, 4)):
        body[chance.randrange(8, len(body))] = chance.choice([0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)])
    if chance.random() < 0.3:
        del body[chance.randrange(8, len(body)) :]
    return len(body).to_bytes(4, "big") + bytes(body)


async def outcome(wire: Wire, frame: bytes) -> None:
    """A response, the end of the connection, or a wait for other members."""
    wire.send_raw(frame)
    try:
        async with asyncio.timeout(0.2):
            await wire.receive_raw()
    except (asyncio.IncompleteReadError, ConnectionError, TimeoutError):
        pass


@pytest.mark.parametrize("key", REQUESTS)
async def test_damaged_requests_are_answered_or_dropped_and_nothing_breaks(
    kafka: KafkaStage, key: int, caplog: pytest.LogCaptureFixture
) -> None:
    await kafka.broker.create_topic("t", partitions=2)
    chance = random.Random(key)
    whole = frames(key)
    with caplog.at_level(logging.ERROR):
        for _ in range(MUTATIONS):
            wire = await kafka.connect()
            await outcome(wire, damaged(chance.choice(whole), chance))
            await wire.close()
    assert [record.getMessage() for record in caplog.records] == []
    wire = await kafka.connect()
    answer = await wire.ask(make(load_request_schema(16, 0), {}))
    assert answer.error_code == 0
