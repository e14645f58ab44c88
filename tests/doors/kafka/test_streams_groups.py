"""Streams groups on the wire (KIP-1071): heartbeats, descriptions, and what the other group APIs say of them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode

from mainstem.broker.access.options import AccessOptions
from mainstem.broker.access.rules import ALLOW, LITERAL, Operation, ResourceType
from mainstem.broker.broker import Broker
from mainstem.ledger.access_rules import AccessRule, PutAccessRules

from .conftest import KafkaStage, opened
from .messages import make
from .wire import Wire

NONE = ErrorCode.none
HEARTBEAT, DESCRIBE = 88, 89
OFFSET_COMMIT, OFFSET_FETCH, JOIN, DESCRIBE_CLASSIC, LIST, DELETE, DESCRIBE_CONFIGS = 8, 9, 11, 15, 16, 42, 32


def internal(name: str) -> dict[str, Any]:
    configs = [{"key": "cleanup.policy", "value": "compact"}]
    return {"name": name, "partitions": 0, "replication_factor": 3, "topic_configs": configs}


def subtopology(name: str, **fields: Any) -> dict[str, Any]:
    empty = ("source_topics", "source_topic_regex", "state_changelog_topics", "repartition_sink_topics")
    rest = ("repartition_source_topics", "copartition_groups")
    return {"subtopology_id": name, **dict.fromkeys((*empty, *rest), ()), **fields}


TOPOLOGY = {
    "epoch": 0,
    "subtopologies": [
        subtopology("0", source_topics=("t",), repartition_sink_topics=("g-words",)),
        subtopology(
            "1",
            state_changelog_topics=[internal("g-store")],
            repartition_source_topics=[internal("g-words")],
            copartition_groups=[
                {"source_topics": (), "source_topic_regex": (), "repartition_source_topics": (0,)}
            ],
        ),
    ],
}
UNCHANGED = {
    "topology": None,
    "active_tasks": None,
    "standby_tasks": None,
    "warmup_tasks": None,
    "rebalance_timeout": timedelta(milliseconds=-1),
    "process_id": None,
}


async def ask(wire: Wire, key: int, version: int, **fields: Any) -> Any:
    return await wire.ask(make(load_request_schema(key, version), fields))


async def beat(wire: Wire, **fields: Any) -> Any:
    joins = {
        "group_id": "g",
        "member_id": "m",
        "member_epoch": 0,
        "endpoint_information_epoch": -1,
        "rebalance_timeout": timedelta(seconds=10),
        "topology": TOPOLOGY,
        "active_tasks": (),
        "standby_tasks": (),
        "warmup_tasks": (),
        "process_id": "p",
        "user_endpoint": {"host": "h", "port": 8080},
        "client_tags": [{"key": "zone", "value": "z"}],
        "task_offsets": None,
        "task_end_offsets": None,
    }
    return await ask(wire, HEARTBEAT, 0, **{**joins, **fields})


def tasks(given: Any) -> dict[str, tuple[int, ...]]:
    return {one.subtopology_id: one.partitions for one in given}


async def describe(wire: Wire, *groups: str, operations: bool = False) -> Any:
    return (await ask(wire, DESCRIBE, 0, group_ids=groups, include_authorized_operations=operations)).groups


@pytest.fixture(autouse=True)
async def topic(broker: Broker) -> None:
    await broker.create_topic("t", partitions=2)


async def test_a_member_joins_stays_and_leaves(kafka: KafkaStage, wire: Wire) -> None:
    joined = await beat(wire)
    assert (joined.error_code, joined.error_message) == (NONE, None)
    assert (joined.member_id, joined.member_epoch, joined.status) == ("m", 1, ())
    assert joined.heartbeat_interval == timedelta(seconds=1)
    assert tasks(joined.active_tasks) == {"0": (0, 1), "1": (0, 1)}
    assert (joined.standby_tasks, joined.warmup_tasks) == ((), ())
    [at] = joined.partitions_by_user_endpoint
    assert (at.user_endpoint.host, at.user_endpoint.port) == ("h", 8080)
    reads = {(one.topic, one.partitions) for one in at.active_partitions}
    assert reads == {("t", (0, 1)), ("g-words", (0, 1))}
    assert kafka.broker.topic("g-store").config.cleanup_policy == "compact"
    assert len(kafka.broker.topic("g-words").streams) == 2
    owned = {
        "active_tasks": [
            {"subtopology_id": name, "partitions": numbers}
            for name, numbers in tasks(joined.active_tasks).items()
        ]
    }
    known = {"endpoint_information_epoch": joined.endpoint_information_epoch, "member_epoch": 1}
    for fields in ({**UNCHANGED, **owned, "standby_tasks": (), "warmup_tasks": ()}, UNCHANGED):
        again = await beat(wire, **{**known, **fields})
        assert (again.error_code, again.active_tasks) == (NONE, None)
        assert again.partitions_by_user_endpoint is None
    fenced = await beat(wire, **{**known, **UNCHANGED, "member_epoch": 7})
    assert fenced.error_code == ErrorCode.fenced_member_epoch
    left = await beat(wire, **{**known, **UNCHANGED, "member_epoch": -1})
    assert (left.error_code, left.member_epoch) == (NONE, -1)
    assert (await beat(wire, **known, **UNCHANGED)).error_code == ErrorCode.unknown_member_id


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"member_id": ""}, ErrorCode.invalid_request),
        ({"instance_id": "i"}, ErrorCode.invalid_request),
        ({"topology": None}, ErrorCode.invalid_request),
        ({"warmup_tasks": None}, ErrorCode.invalid_request),
        ({"task_offsets": [{"subtopology_id": "0", "partition": 0, "offset": 1}]}, ErrorCode.invalid_request),
        ({"topology": {"epoch": 0, "subtopologies": ()}}, ErrorCode.streams_invalid_topology),
        (
            {"topology": {"epoch": 0, "subtopologies": [subtopology("0", source_topic_regex=("t.*",))]}},
            ErrorCode.invalid_request,
        ),
        (
            {
                "topology": {
                    "epoch": 0,
                    "subtopologies": [
                        subtopology(
                            "0",
                            source_topics=("t",),
                            copartition_groups=[
                                {
                                    "source_topics": (5,),
                                    "source_topic_regex": (),
                                    "repartition_source_topics": (),
                                }
                            ],
                        )
                    ],
                }
            },
            ErrorCode.invalid_request,
        ),
    ],
)
async def test_what_is_not_supported_is_refused(wire: Wire, fields: dict[str, Any], code: ErrorCode) -> None:
    refused = await beat(wire, **fields)
    assert refused.error_code == code
    assert refused.error_message


async def test_a_group_is_described(wire: Wire) -> None:
    await beat(wire)
    known, missing = await describe(wire, "g", "nobody")
    assert (known.error_code, known.group_state) == (NONE, "Stable")
    assert (known.group_epoch, known.assignment_epoch, known.topology.epoch) == (1, 1, 0)
    first, second = known.topology.subtopologies
    assert (first.source_topics, first.repartition_sink_topics) == (("t",), ("g-words",))
    [store] = second.state_changelog_topics
    assert (store.name, store.partitions, store.replication_factor) == ("g-store", 2, 3)
    assert [(one.key, one.value) for one in store.topic_configs] == [("cleanup.policy", "compact")]
    [member] = known.members
    assert (member.member_id, member.process_id, member.client_id) == ("m", "p", "test")
    assert (member.user_endpoint.host, member.user_endpoint.port) == ("h", 8080)
    assert [(tag.key, tag.value) for tag in member.client_tags] == [("zone", "z")]
    for given in (member.assignment, member.target_assignment):
        assert tasks(given.active_tasks) == {"0": (0, 1), "1": (0, 1)}
    assert missing.error_code == ErrorCode.group_id_not_found


async def test_a_topology_whose_topics_are_missing_is_described_as_declared(wire: Wire) -> None:
    sources = {"source_topics": ("missing",), "state_changelog_topics": [internal("g-store")]}
    await beat(wire, topology={"epoch": 0, "subtopologies": [subtopology("0", **sources)]})
    [known] = await describe(wire, "g")
    assert known.group_state == "NotReady"
    [only] = known.topology.subtopologies
    [store] = only.state_changelog_topics
    assert (only.source_topics, store.name, store.partitions) == (("missing",), "g-store", 0)


async def test_a_client_that_only_asked_for_an_id_does_not_make_a_group_classic(wire: Wire) -> None:
    classic = {
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"m"}],
        "member_id": "",
    }
    times = {"session_timeout": timedelta(seconds=10), "rebalance_timeout": timedelta(seconds=10)}
    named = await ask(wire, JOIN, 9, group_id="g", **classic, **times)
    assert named.error_code == ErrorCode.member_id_required
    assert (await beat(wire)).error_code == NONE


async def test_the_other_apis_know_the_kind(wire: Wire) -> None:
    await beat(wire)
    listed = await ask(wire, LIST, 5, states_filter=(), types_filter=("streams",))
    [group] = listed.groups
    assert (group.group_id, group.protocol_type, group.group_state, group.group_type) == (
        "g",
        "streams",
        "Stable",
        "streams",
    )
    classic = await ask(wire, DESCRIBE_CLASSIC, 6, groups=("g",), include_authorized_operations=False)
    assert classic.groups[0].error_code == ErrorCode.group_id_not_found
    assert (await ask(wire, DELETE, 2, groups_names=("g",))).results[
        0
    ].error_code == ErrorCode.non_empty_group
    await beat(wire, **{**UNCHANGED, "member_epoch": -1})
    assert (await describe(wire, "g"))[0].group_state == "Empty"
    assert (await ask(wire, DELETE, 2, groups_names=("g",))).results[0].error_code == NONE
    assert (await describe(wire, "g"))[0].error_code == ErrorCode.group_id_not_found


async def test_a_member_commits_and_fetches_offsets_at_its_epoch(wire: Wire) -> None:
    await beat(wire)
    partition = {
        "partition_index": 0,
        "committed_offset": 5,
        "committed_leader_epoch": -1,
        "committed_metadata": "",
    }
    for epoch, code in ((1, NONE), (2, ErrorCode.stale_member_epoch)):
        committed = await ask(
            wire,
            OFFSET_COMMIT,
            9,
            group_id="g",
            generation_id_or_member_epoch=epoch,
            member_id="m",
            group_instance_id=None,
            topics=[{"name": "t", "partitions": [partition]}],
        )
        assert committed.topics[0].partitions[0].error_code == code
    for epoch, code in ((1, NONE), (2, ErrorCode.stale_member_epoch)):
        group = {"group_id": "g", "member_id": "m", "member_epoch": epoch, "topics": None}
        fetched = await ask(wire, OFFSET_FETCH, 9, groups=[group], require_stable=False)
        assert fetched.groups[0].error_code == code


async def test_settings_of_streams_groups(wire: Wire) -> None:
    resource = {"resource_type": 32, "resource_name": "g", "configuration_keys": None}
    answer = await ask(
        wire,
        DESCRIBE_CONFIGS,
        4,
        resources=[resource],
        include_synonyms=False,
        include_documentation=False,
    )
    found = {one.name: one.value for one in answer.results[0].configs if one.name.startswith("streams.")}
    assert found == {
        "streams.session.timeout.ms": "45000",
        "streams.heartbeat.interval.ms": "1000",
        "streams.num.standby.replicas": "0",
    }


async def test_internal_topics_are_created_with_the_rights_of_the_member(broker: Broker) -> None:
    def rule(kind: ResourceType, name: str, operation: Operation) -> AccessRule:
        return AccessRule(int(kind), name, LITERAL, "User:ANONYMOUS", "*", int(operation), ALLOW)

    async with opened(broker, access=AccessOptions(rules="on")) as stage:
        wire = await stage.connect()
        assert (await beat(wire)).error_code == ErrorCode.group_authorization_failed
        await broker.log.propose(PutAccessRules((rule(ResourceType.GROUP, "g", Operation.READ),)))
        assert (await beat(wire)).error_code == ErrorCode.topic_authorization_failed
        names = ("t", "g-words", "g-store")
        await broker.log.propose(
            PutAccessRules(tuple(rule(ResourceType.TOPIC, name, Operation.DESCRIBE) for name in names))
        )
        [status] = (await beat(wire)).status
        assert status.status_code == 3
        assert "g-store: the access rules" in status.status_detail
        create = (rule(ResourceType.TOPIC, name, Operation.CREATE) for name in names)
        await broker.log.propose(PutAccessRules(tuple(create)))
        assert (await beat(wire)).status == ()
