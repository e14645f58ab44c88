"""Every version of the group APIs, with hand-made frames: one whole group life cycle each."""

from __future__ import annotations

import struct
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode

from mainstem.broker.access.rules import Operation
from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.broker.groups.consumer_protocol import read_assignment
from mainstem.broker.groups.cursors import SHARED_CURSOR
from mainstem.broker.groups.options import GroupOptions
from mainstem.doors.kafka.transport.registry import apis

from .conftest import KafkaStage, opened
from .messages import make
from .wire import Wire

NONE = ErrorCode.none
S = timedelta(seconds=1)
OFFSET_COMMIT, OFFSET_FETCH, FIND, JOIN, HEARTBEAT, LEAVE, SYNC = 8, 9, 10, 11, 12, 13, 14
DESCRIBE, LIST, DELETE, OFFSET_DELETE, CONSUMER, CONSUMER_DESCRIBE = 15, 16, 42, 47, 68, 69
SHARE, SHARE_DESCRIBE, SHARE_FETCH, SHARE_ACKNOWLEDGE = 76, 77, 78, 79
STREAMS, STREAMS_DESCRIBE = 88, 89
SHARE_OFFSETS, ALTER_SHARE_OFFSETS, DELETE_SHARE_OFFSETS = 90, 91, 92

EXPECTED = {
    OFFSET_COMMIT: (2, 10),
    OFFSET_FETCH: (1, 10),
    FIND: (0, 6),
    JOIN: (0, 9),
    HEARTBEAT: (0, 4),
    LEAVE: (0, 5),
    SYNC: (0, 5),
    DESCRIBE: (0, 6),
    LIST: (0, 5),
    DELETE: (0, 2),
    OFFSET_DELETE: (0, 0),
    CONSUMER: (0, 1),
    CONSUMER_DESCRIBE: (0, 1),
    SHARE: (1, 1),
    SHARE_DESCRIBE: (1, 1),
    SHARE_FETCH: (1, 2),
    SHARE_ACKNOWLEDGE: (1, 2),
    STREAMS: (0, 0),
    STREAMS_DESCRIBE: (0, 0),
    SHARE_OFFSETS: (0, 1),
    ALTER_SHARE_OFFSETS: (0, 0),
    DELETE_SHARE_OFFSETS: (0, 0),
}

JOIN_FIELDS: dict[str, Any] = {
    "group_id": "g",
    "session_timeout": 10 * S,
    "rebalance_timeout": 10 * S,
    "member_id": "",
    "group_instance_id": None,
    "protocol_type": "consumer",
    "protocols": [{"name": "range", "metadata": b"m"}],
    "reason": None,
}


def versions(key: int) -> list[int]:
    first, last = EXPECTED[key]
    return list(range(first, last + 1))


async def ask(wire: Wire, api: int, version: int, **fields: Any) -> Any:
    return await wire.ask(make(load_request_schema(api, version), fields))


@pytest.fixture
async def kafka(tmp_path: Path) -> Any:
    broker = await Broker.open(BrokerOptions(tmp_path / "data", groups=GroupOptions(initial_delay_ms=0)))
    await broker.create_topic("t", partitions=3)
    async with opened(broker) as stage:
        yield stage
    await broker.close()


async def join(wire: Wire, version: int = 3, **fields: Any) -> Any:
    return await ask(wire, JOIN, version, **{**JOIN_FIELDS, **fields})


async def stable(wire: Wire, **fields: Any) -> Any:
    joined = await join(wire, **fields)
    synced = await ask(
        wire,
        SYNC,
        1,
        group_id="g",
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        assignments=[{"member_id": joined.member_id, "assignment": b"a"}],
    )
    assert synced.error_code == NONE
    return joined


def test_the_supported_versions() -> None:
    assert {key: (apis()[key].first, apis()[key].last) for key in EXPECTED} == EXPECTED


@pytest.mark.parametrize("version", versions(FIND))
async def test_this_broker_is_the_coordinator(kafka: KafkaStage, wire: Wire, version: int) -> None:
    answer = await ask(wire, FIND, version, key="g", coordinator_keys=("g", "h"), key_type=version % 2)
    found = answer.coordinators if version >= 4 else [answer]
    assert len(found) == (2 if version >= 4 else 1)
    for one in found:
        assert (one.error_code, one.host, one.port, one.node_id) == (NONE, "127.0.0.1", kafka.address.port, 1)


@pytest.mark.parametrize("version", [1, 3, 6])
async def test_a_coordinator_of_an_unknown_type_is_refused(wire: Wire, version: int) -> None:
    answer = await ask(wire, FIND, version, key="g", coordinator_keys=("g",), key_type=9)
    found = answer.coordinators[0] if version >= 4 else answer
    assert found.error_code == ErrorCode.invalid_request


@pytest.mark.parametrize("version", versions(JOIN))
async def test_a_member_joins(wire: Wire, version: int) -> None:
    joined = await join(wire, version)
    if version >= 4:
        assert joined.error_code == ErrorCode.member_id_required
        joined = await join(wire, version, member_id=joined.member_id)
    assert (joined.error_code, joined.generation_id, joined.protocol_name) == (NONE, 1, "range")
    assert joined.leader == joined.member_id
    assert joined.member_id.startswith("test-")
    assert [(member.member_id, member.metadata) for member in joined.members] == [(joined.member_id, b"m")]
    refused = await join(wire, version, member_id="stranger")
    assert refused.error_code == ErrorCode.unknown_member_id
    assert (refused.protocol_name, refused.generation_id) == (None if version >= 7 else "", -1)


@pytest.mark.parametrize("version", versions(JOIN)[5:])
async def test_a_restarted_static_leader_skips_the_assignment_from_version_nine_on(
    wire: Wire, version: int
) -> None:
    first = await stable(wire, version=version, group_instance_id="i")
    back = await join(wire, version, group_instance_id="i")
    assert (back.error_code, back.generation_id) == (NONE, first.generation_id)
    assert back.member_id != first.member_id
    assert getattr(back, "skip_assignment", False) is (version >= 9)
    assert (back.leader == back.member_id) is (version >= 9)


@pytest.mark.parametrize("version", versions(SYNC))
async def test_the_leader_sends_the_assignment(wire: Wire, version: int) -> None:
    joined = await join(wire)
    fields = {
        "group_id": "g",
        "generation_id": 1,
        "member_id": joined.member_id,
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [{"member_id": joined.member_id, "assignment": b"all"}],
    }
    synced = await ask(wire, SYNC, version, **fields)
    assert (synced.error_code, synced.assignment) == (NONE, b"all")
    refused = await ask(wire, SYNC, version, **{**fields, "generation_id": 7})
    assert (refused.error_code, refused.assignment) == (ErrorCode.illegal_generation, b"")


@pytest.mark.parametrize("left_out", ["protocol_type", "protocol_name"])
async def test_version_five_names_the_protocol_of_the_group(wire: Wire, left_out: str) -> None:
    joined = await join(wire)
    fields = {
        "group_id": "g",
        "generation_id": 1,
        "member_id": joined.member_id,
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [{"member_id": joined.member_id, "assignment": b"all"}],
    }
    refused = await ask(wire, SYNC, 5, **{**fields, left_out: None})
    assert (refused.error_code, refused.assignment) == (ErrorCode.inconsistent_group_protocol, b"")
    assert (await ask(wire, SYNC, 5, **fields)).assignment == b"all"


@pytest.mark.parametrize("version", versions(HEARTBEAT))
async def test_a_heartbeat_reports_errors(wire: Wire, version: int) -> None:
    joined = await stable(wire)
    for member_id, generation, instance, code in (
        (joined.member_id, 1, None, NONE),
        (joined.member_id, 2, None, ErrorCode.illegal_generation),
        ("x", 1, None, ErrorCode.unknown_member_id),
    ):
        answer = await ask(
            wire,
            HEARTBEAT,
            version,
            group_id="g",
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance,
        )
        assert answer.error_code == code


@pytest.mark.parametrize("version", versions(LEAVE))
async def test_members_leave(wire: Wire, version: int) -> None:
    joined = await stable(wire)
    fields = {
        "group_id": "g",
        "member_id": joined.member_id,
        "members": [
            {"member_id": joined.member_id, "group_instance_id": None, "reason": "done"},
            {"member_id": "x", "group_instance_id": None, "reason": None},
        ],
    }
    left = await ask(wire, LEAVE, version, **fields)
    assert left.error_code == NONE
    if version >= 3:
        assert [member.error_code for member in left.members] == [NONE, ErrorCode.unknown_member_id]
    again = await ask(wire, LEAVE, version, **{**fields, "members": fields["members"][:1]})
    code = again.members[0].error_code if version >= 3 else again.error_code
    assert code == ErrorCode.unknown_member_id


def commit_fields(*offsets: tuple[str, int, int], **fields: Any) -> dict[str, Any]:
    return {
        "group_id": "g",
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
        "retention_time": timedelta(milliseconds=-1),
        "topics": [
            {
                "name": topic,
                "partitions": [
                    {
                        "partition_index": partition,
                        "committed_offset": offset,
                        "committed_leader_epoch": 0,
                        "commit_timestamp": -1,
                        "committed_metadata": f"at {offset}",
                    }
                ],
            }
            for topic, partition, offset in offsets
        ],
        **fields,
    }


@pytest.mark.parametrize("version", versions(OFFSET_COMMIT)[:-1])
async def test_offsets_are_committed(kafka: KafkaStage, wire: Wire, version: int) -> None:
    answer = await ask(wire, OFFSET_COMMIT, version, **commit_fields(("t", 0, 5), ("t", 3, 5), ("x", 0, 5)))
    assert [topic.partitions[0].error_code for topic in answer.topics] == [
        NONE,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_or_partition,
    ]
    cursor = kafka.door.context.groups.committed("g", "t", 0)
    assert cursor is not None
    assert (cursor.offset, cursor.metadata) == (5, "at 5")
    assert cursor.leader_epoch == (0 if version >= 6 else -1)
    await stable(wire)
    fields = commit_fields(("t", 0, 6), ("x", 0, 6), ("t", 3, -7))
    refused = await ask(wire, OFFSET_COMMIT, version, **fields)
    assert [topic.partitions[0].error_code for topic in refused.topics] == [
        ErrorCode.unknown_member_id,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_or_partition,
    ]


@pytest.mark.parametrize("offset", [-1, -2, -(1 << 63)])
async def test_a_negative_offset_removes_the_committed_one(wire: Wire, offset: int) -> None:
    """kafkajs resets offsets so."""
    await ask(wire, OFFSET_COMMIT, 9, **commit_fields(("t", 0, 5), ("t", 1, 7)))
    answer = await ask(wire, OFFSET_COMMIT, 9, **commit_fields(("t", 0, offset)))
    assert answer.topics[0].partitions[0].error_code == NONE
    found = await ask(wire, OFFSET_FETCH, 7, group_id="g", topics=None, require_stable=False)
    assert [(row.partition_index, row.committed_offset) for row in found.topics[0].partitions] == [(1, 7)]


@pytest.mark.parametrize("version", versions(OFFSET_FETCH)[:-1])
async def test_offsets_are_fetched(wire: Wire, version: int) -> None:
    await ask(wire, OFFSET_COMMIT, 9, **commit_fields(("t", 0, 5), ("t", 2, 7)))
    wanted = [{"name": "t", "partition_indexes": (0, 1)}, {"name": "x", "partition_indexes": (0,)}]
    fields = {"group_id": "g", "topics": wanted, "require_stable": version % 2 == 1}
    group = {"group_id": "g", "member_id": None, "member_epoch": -1, "topics": wanted}
    answer = await ask(wire, OFFSET_FETCH, version, **fields, groups=[group, {**group, "group_id": "nobody"}])
    found = answer.groups[0] if version >= 8 else answer
    rows = [
        (topic.name, row.partition_index, row.committed_offset, row.metadata, row.error_code)
        for topic in found.topics
        for row in topic.partitions
    ]
    assert rows == [("t", 0, 5, "at 5", NONE), ("t", 1, -1, "", NONE), ("x", 0, -1, "", NONE)]
    if version >= 5:
        assert found.topics[0].partitions[0].committed_leader_epoch == 0
    if version >= 8:
        assert {row.committed_offset for row in answer.groups[1].topics[0].partitions} == {-1}


async def test_the_committed_leader_epoch_is_returned(wire: Wire) -> None:
    for epoch in (12, 0, -1):
        fields = commit_fields(("t", 0, 5))
        fields["topics"][0]["partitions"][0]["committed_leader_epoch"] = epoch
        await ask(wire, OFFSET_COMMIT, 9, **fields)
        asked = {"group_id": "g", "member_id": None, "member_epoch": -1, "topics": None}
        answer = await ask(wire, OFFSET_FETCH, 9, groups=[asked], require_stable=False)
        [partition] = answer.groups[0].topics[0].partitions
        assert (partition.committed_offset, partition.committed_leader_epoch) == (5, epoch)


@pytest.mark.parametrize("version", versions(OFFSET_FETCH)[1:-1])
async def test_all_offsets_of_a_group_are_fetched(wire: Wire, version: int) -> None:
    await ask(wire, OFFSET_COMMIT, 9, **commit_fields(("t", 2, 7), ("t", 0, 5)))
    group = {"group_id": "g", "member_id": None, "member_epoch": -1, "topics": None}
    answer = await ask(
        wire, OFFSET_FETCH, version, group_id="g", topics=None, require_stable=False, groups=[group]
    )
    found = answer.groups[0] if version >= 8 else answer
    assert [(row.partition_index, row.committed_offset) for row in found.topics[0].partitions] == [
        (0, 5),
        (2, 7),
    ]


async def test_version_ten_names_topics_by_their_id(kafka: KafkaStage, wire: Wire) -> None:
    topic, stranger = UUID(bytes=kafka.broker.topic("t").topic_id), UUID(int=7)
    partition = {"partition_index": 1, "committed_offset": 5, "committed_metadata": "m"}
    committed = await ask(
        wire,
        OFFSET_COMMIT,
        10,
        group_id="g",
        member_id="",
        topics=[{"topic_id": one, "partitions": [partition]} for one in (stranger, topic)],
    )
    assert [(one.topic_id, one.partitions[0].error_code) for one in committed.topics] == [
        (stranger, ErrorCode.unknown_topic_id),
        (topic, NONE),
    ]
    some = [{"topic_id": one, "partition_indexes": (0, 1)} for one in (stranger, topic)]
    groups = [{"group_id": "g", "topics": wanted} for wanted in (some, None)]
    fetched = await ask(wire, OFFSET_FETCH, 10, groups=groups, require_stable=True)
    rows = [
        (one.topic_id, row.partition_index, row.committed_offset, row.error_code)
        for group in fetched.groups
        for one in group.topics
        for row in one.partitions
    ]
    assert rows == [
        (topic, 0, -1, NONE),
        (topic, 1, 5, NONE),
        (stranger, 0, -1, ErrorCode.unknown_topic_id),
        (stranger, 1, -1, ErrorCode.unknown_topic_id),
        (topic, 1, 5, NONE),
    ]


async def test_the_id_of_a_deleted_topic_does_not_change_offsets_of_its_successor(
    kafka: KafkaStage, wire: Wire
) -> None:
    old = UUID(bytes=kafka.broker.topic("t").topic_id)
    await kafka.broker.delete_topic("t")
    await kafka.broker.create_topic("t")
    partition = {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}
    topics = [{"topic_id": old, "partitions": [partition]}]
    answer = await ask(wire, OFFSET_COMMIT, 10, group_id="g", member_id="", topics=topics)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.unknown_topic_id
    assert kafka.door.context.groups.committed("g", "t", 0) is None


async def test_a_member_fetches_offsets_at_its_epoch(wire: Wire) -> None:
    joined = await consumer(wire, 1)
    for epoch, code in ((joined.member_epoch, NONE), (99, ErrorCode.stale_member_epoch)):
        group = {"group_id": "g", "member_id": "m", "member_epoch": epoch, "topics": None}
        answer = await ask(wire, OFFSET_FETCH, 9, groups=[group], require_stable=False)
        assert answer.groups[0].error_code == code


@pytest.mark.parametrize("version", versions(LIST))
async def test_groups_are_listed(kafka: KafkaStage, wire: Wire, version: int) -> None:
    await kafka.broker.commit_offset(SHARED_CURSOR, "t", 3)  # not a group's
    await ask(wire, OFFSET_COMMIT, 9, **commit_fields(("t", 0, 5), group_id="offsets-only"))
    await stable(wire)
    await consumer(wire, 1, group_id="next")
    answer = await ask(wire, LIST, version, states_filter=(), types_filter=())
    assert [group.group_id for group in answer.groups] == ["g", "next", "offsets-only"]
    assert [group.protocol_type for group in answer.groups] == ["consumer", "consumer", ""]
    if version >= 4:
        answer = await ask(wire, LIST, version, states_filter=("stable",), types_filter=())
        assert [(group.group_id, group.group_state) for group in answer.groups] == [
            ("g", "Stable"),
            ("next", "Stable"),
        ]
    if version >= 5:
        answer = await ask(wire, LIST, version, states_filter=(), types_filter=("consumer",))
        assert [(group.group_id, group.group_type) for group in answer.groups] == [("next", "consumer")]


@pytest.mark.parametrize("version", versions(DESCRIBE))
async def test_groups_are_described(wire: Wire, version: int) -> None:
    await ask(wire, OFFSET_COMMIT, 9, **commit_fields(("t", 0, 5), group_id="offsets-only"))
    await stable(wire)
    answer = await ask(
        wire,
        DESCRIBE,
        version,
        groups=("g", "offsets-only", "nobody"),
        include_authorized_operations=True,
    )
    known, empty, missing = answer.groups
    [member] = known.members
    assert (known.group_state, known.protocol_type, known.protocol_data) == ("Stable", "consumer", "range")
    assert (member.client_id, member.client_host) == ("test", "/127.0.0.1")
    assert (member.member_metadata, member.member_assignment) == (b"m", b"a")
    assert (empty.error_code, empty.group_state) == (NONE, "Empty")
    assert missing.group_state == "Dead"
    assert missing.error_code == (ErrorCode.group_id_not_found if version >= 6 else NONE)
    if version >= 3:
        operations = {Operation(bit) for bit in range(31) if known.authorized_operations >> bit & 1}
        assert operations == {
            Operation.READ,
            Operation.DELETE,
            Operation.DESCRIBE,
            Operation.DESCRIBE_CONFIGS,
            Operation.ALTER_CONFIGS,
        }


@pytest.mark.parametrize("version", versions(DELETE))
async def test_groups_are_deleted(wire: Wire, version: int) -> None:
    await ask(wire, OFFSET_COMMIT, 9, **commit_fields(("t", 0, 5), group_id="old"))
    await stable(wire)
    answer = await ask(wire, DELETE, version, groups_names=("old", "g", "nobody"))
    assert [(result.group_id, result.error_code) for result in answer.results] == [
        ("old", NONE),
        ("g", ErrorCode.non_empty_group),
        ("nobody", ErrorCode.group_id_not_found),
    ]


async def test_a_group_of_a_client_that_only_asked_for_an_id_can_be_deleted(wire: Wire) -> None:
    named = await join(wire, 9)
    assert named.error_code == ErrorCode.member_id_required
    answer = await ask(wire, DELETE, 2, groups_names=("g",))
    assert [result.error_code for result in answer.results] == [NONE]
    assert (await join(wire, 9, member_id=named.member_id)).error_code == ErrorCode.unknown_member_id


async def test_single_offsets_are_deleted(wire: Wire) -> None:
    fields = {
        "group_id": "g",
        "topics": [
            {"name": "t", "partitions": [{"partition_index": 0}, {"partition_index": 9}]},
        ],
    }
    assert (await ask(wire, OFFSET_DELETE, 0, **fields)).error_code == ErrorCode.group_id_not_found
    await ask(wire, OFFSET_COMMIT, 9, **commit_fields(("t", 0, 5)))
    answer = await ask(wire, OFFSET_DELETE, 0, **fields)
    assert answer.error_code == NONE
    assert [row.error_code for row in answer.topics[0].partitions] == [
        NONE,
        ErrorCode.unknown_topic_or_partition,
    ]


async def test_offsets_are_deleted_of_a_group_whose_client_only_asked_for_an_id(wire: Wire) -> None:
    await ask(wire, OFFSET_COMMIT, 9, **commit_fields(("t", 0, 5)))
    assert (await join(wire, 9, protocol_type="connect")).error_code == ErrorCode.member_id_required
    topics = [{"name": "t", "partitions": [{"partition_index": 0}]}]
    answer = await ask(wire, OFFSET_DELETE, 0, group_id="g", topics=topics)
    assert answer.error_code == NONE
    assert [row.error_code for row in answer.topics[0].partitions] == [NONE]


async def consumer(wire: Wire, version: int, **fields: Any) -> Any:
    known = {
        "group_id": "g",
        "member_id": "m",
        "member_epoch": 0,
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout": 10 * S,
        "subscribed_topic_names": ("t",),
        "subscribed_topic_regex": None,
        "server_assignor": None,
        "topic_partitions": (),
    }
    return await ask(wire, CONSUMER, version, **{**known, **fields})


@pytest.mark.parametrize("version", versions(CONSUMER))
async def test_broker_side_assignment(kafka: KafkaStage, wire: Wire, version: int) -> None:
    joined = await consumer(wire, version)
    assert (joined.error_code, joined.member_id, joined.member_epoch) == (NONE, "m", 1)
    [topic] = joined.assignment.topic_partitions
    assert topic.topic_id == UUID(bytes=kafka.broker.topic("t").topic_id)
    assert topic.partitions == (0, 1, 2)
    unchanged = {
        "rebalance_timeout": timedelta(milliseconds=-1),
        "subscribed_topic_names": None,
        "topic_partitions": None,
    }
    unheard = await consumer(wire, version, member_epoch=1, **unchanged)
    assert (
        unheard.assignment == joined.assignment
    )  # until it reports its partitions, the response may have been lost
    reads = {**unchanged, "topic_partitions": [{"topic_id": topic.topic_id, "partitions": (0, 1, 2)}]}
    for fields in (reads, unchanged):
        assert (await consumer(wire, version, member_epoch=1, **fields)).assignment is None
    fenced = await consumer(wire, version, member_epoch=5, **unchanged)
    assert fenced.error_code == ErrorCode.fenced_member_epoch
    assert "join again" in fenced.error_message
    left = await consumer(wire, version, member_epoch=-1, **unchanged)
    assert (left.error_code, left.member_epoch) == (NONE, -1)
    assert left.heartbeat_interval == timedelta(0), "a member that has left sends no heartbeats"
    unsaid = await consumer(wire, version, topic_partitions=None)
    assert unsaid.error_code == ErrorCode.invalid_request, "a member that joins owns nothing, and says so"
    unsupported = await consumer(wire, version, server_assignor="mine")
    assert unsupported.error_code == ErrorCode.unsupported_assignor


@pytest.mark.parametrize("version", range(3, 6))
async def test_an_administrator_removes_a_static_member_from_a_group_that_the_broker_assigns(
    kafka: KafkaStage, wire: Wire, version: int
) -> None:
    assert (await consumer(wire, 1, instance_id="i")).error_code == NONE
    nobody, static = ({"member_id": "", "group_instance_id": name, "reason": None} for name in ("other", "i"))
    left = await ask(wire, LEAVE, version, group_id="g", members=[nobody, static])
    assert [member.error_code for member in left.members] == [ErrorCode.unknown_member_id, NONE]
    gone = await consumer(wire, 1, instance_id="i", member_epoch=1)
    assert gone.error_code == ErrorCode.unknown_member_id
    assert kafka.broker.log.ledger.consumer_groups.get("g") is None


async def test_a_subscription_by_pattern(wire: Wire) -> None:
    joined = await consumer(wire, 1, subscribed_topic_names=None, subscribed_topic_regex="t|u")
    assert len(joined.assignment.topic_partitions[0].partitions) == 3
    refused = await consumer(wire, 1, member_id="n", subscribed_topic_regex="(")
    assert refused.error_code == ErrorCode.invalid_regular_expression


@pytest.mark.parametrize("version", versions(CONSUMER_DESCRIBE))
async def test_groups_with_broker_side_assignment_are_described(wire: Wire, version: int) -> None:
    await consumer(wire, 1)
    answer = await ask(
        wire, CONSUMER_DESCRIBE, version, group_ids=("g", "nobody"), include_authorized_operations=False
    )
    known, missing = answer.groups
    [member] = known.members
    assert (known.group_state, known.group_epoch, known.assignment_epoch) == ("Stable", 1, 1)
    assert known.assignor_name == "uniform"
    assert (member.member_id, member.member_epoch, member.client_id) == ("m", 1, "test")
    assert member.subscribed_topic_regex == "", "Kafka's for no pattern"
    for part in (member.assignment, member.target_assignment):
        assert [(topic.topic_name, topic.partitions) for topic in part.topic_partitions] == [("t", (0, 1, 2))]
    if version >= 1:
        assert member.member_type == 1
    assert missing.error_code == ErrorCode.group_id_not_found


SUBSCRIBES = struct.pack(">hih1sii", 1, 1, 1, b"t", -1, 0)  # version, one topic, no user data, nothing owned


@pytest.mark.parametrize("version", versions(JOIN))
async def test_a_classic_member_joins_a_group_with_broker_side_assignment(wire: Wire, version: int) -> None:
    assert (await consumer(wire, 1)).error_code == NONE
    fields = {"protocols": [{"name": "range", "metadata": SUBSCRIBES}]}
    joined = await join(wire, version, **fields)
    if version >= 4:
        assert joined.error_code == ErrorCode.member_id_required
        joined = await join(wire, version, **fields, member_id=joined.member_id)
    assert (joined.error_code, joined.generation_id, joined.protocol_name) == (NONE, 2, "range")
    assert joined.leader != joined.member_id
    assert not joined.members
    place = {"group_id": "g", "member_id": joined.member_id, "group_instance_id": None}
    named = {"protocol_type": "consumer", "protocol_name": "range", "assignments": ()}
    synced = await ask(wire, SYNC, min(version, 5), **place, generation_id=2, **named)
    assert (synced.error_code, read_assignment(synced.assignment)) == (
        NONE,
        {},
    )  # the other has not revoked yet
    early = await ask(wire, HEARTBEAT, min(version, 4), **place, generation_id=2)
    assert early.error_code == NONE
    [topic] = (await consumer(wire, 1, member_epoch=1, topic_partitions=None)).assignment.topic_partitions
    kept = [{"topic_id": topic.topic_id, "partitions": topic.partitions}]
    assert (await consumer(wire, 1, member_epoch=1, topic_partitions=kept)).member_epoch == 2
    ready = await ask(wire, HEARTBEAT, min(version, 4), **place, generation_id=2)
    assert ready.error_code == ErrorCode.rebalance_in_progress
    again = await join(wire, version, **fields, member_id=joined.member_id)
    synced = await ask(wire, SYNC, min(version, 5), **place, generation_id=again.generation_id, **named)
    assigned = read_assignment(synced.assignment)
    assert assigned is not None
    assert sorted((*assigned["t"], *topic.partitions)) == [0, 1, 2]
    wrong = await ask(wire, HEARTBEAT, min(version, 4), **place, generation_id=9)
    assert wrong.error_code == ErrorCode.illegal_generation
    described = await ask(wire, CONSUMER_DESCRIBE, 1, group_ids=("g",), include_authorized_operations=False)
    assert {member.member_type for member in described.groups[0].members} == {0, 1}
    left = await consumer(wire, 1, member_epoch=-1, topic_partitions=None)
    assert left.error_code == NONE
    told = await ask(wire, HEARTBEAT, min(version, 4), **place, generation_id=again.generation_id)
    assert told.error_code == ErrorCode.rebalance_in_progress
    [listed] = (await ask(wire, LIST, 5, states_filter=(), types_filter=())).groups
    assert (listed.group_type, listed.group_state) == ("classic", "PreparingRebalance")


async def test_stopping_the_door_answers_a_member_that_waits_for_others(kafka: KafkaStage) -> None:
    first, second = await kafka.connect(), await kafka.connect()
    await stable(first)
    waiting = await kafka.connect()
    waiting.send(make(load_request_schema(JOIN, 3), JOIN_FIELDS))
    described = None
    while described is None or described.groups[0].group_state != "PreparingRebalance":
        described = await ask(second, DESCRIBE, 0, groups=("g",))
    await kafka.door.context.groups.stop()
    _, answer = await waiting.receive(load_response_schema(JOIN, 3))
    assert answer.error_code == ErrorCode.coordinator_not_available
