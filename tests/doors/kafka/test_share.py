"""Share groups, by hand-made frames: members, sessions, locks, acknowledgements, and administration."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode

from mainstem.broker.access.options import AccessOptions
from mainstem.broker.access.rules import ALLOW, LITERAL, Operation, ResourceType
from mainstem.broker.broker import Broker
from mainstem.broker.transactions.service import ProducerStamp
from mainstem.ledger.access_rules import AccessRule, PutAccessRules
from mainstem.ledger.rates import AlterRate, RateEntity
from mainstem.records.building import build_batch
from tests.support.waiting import until

from .conftest import KafkaStage, opened
from .messages import make
from .shares import (
    ACCEPT,
    ACKNOWLEDGE,
    DESCRIBE,
    FETCH,
    GAP,
    HEARTBEAT,
    REJECT,
    RELEASE,
    RENEW,
    Sharer,
    ask,
    earliest,
)
from .wire import Wire, request_frame

NONE = ErrorCode.none
_OPENING = {
    "group_id": "g",
    "member_id": "hasty",
    "share_session_epoch": 0,
    "max_wait": timedelta(seconds=20),
    "min_bytes": 1,
    "max_records": 1,
    "batch_size": 1,
    "topics": (),
    "forgotten_topics_data": (),
}


@pytest.fixture
async def kafka(broker: Broker) -> Any:
    """Ten records in each of two partitions, and a group that starts with the first."""
    await broker.create_topic("t", partitions=2)
    for partition in range(2):
        await broker.append_values("t", [b"%d" % number for number in range(10)], partition=partition)
    await earliest(broker)
    async with opened(broker) as stage:
        yield stage


@pytest.fixture
async def sharer(kafka: KafkaStage, wire: Wire) -> Sharer:
    return Sharer(wire, kafka.broker)


def _offsets(got: list[tuple[int, int]]) -> list[int]:
    return [offset for offset, _ in got]


def _only(answer: Any) -> Any:
    (topic,) = answer.responses
    (part,) = topic.partitions
    return part


# Members


async def _beat(wire: Wire, member: str, epoch: int, topics: tuple[str, ...] | None = None) -> Any:
    return await ask(
        wire, HEARTBEAT, 1, group_id="g", member_id=member, member_epoch=epoch, subscribed_topic_names=topics
    )


def _assigned(answer: Any) -> set[int] | None:
    if answer.assignment is None:
        return None
    return {number for topic in answer.assignment.topic_partitions for number in topic.partitions}


async def test_members_join_share_partitions_stay_and_leave(kafka: KafkaStage, wire: Wire) -> None:
    first = await _beat(wire, "a", 0, ("t",))
    assert (first.error_code, first.member_id, _assigned(first)) == (NONE, "a", {0, 1})
    assert _assigned(await _beat(wire, "a", first.member_epoch)) is None
    third = [await _beat(wire, name, 0, ("t",)) for name in "bc"][-1]
    again = await _beat(wire, "a", first.member_epoch)
    assert again.member_epoch == third.member_epoch
    seen = [_assigned(again), _assigned(third), _assigned(await _beat(wire, "b", 0, ("t",)))]
    assert all(seen)  # three members, two partitions: each has one
    assert set().union(*(parts or set() for parts in seen)) == {0, 1}
    described = await ask(wire, DESCRIBE, 1, group_ids=("g", "h"), include_authorized_operations=True)
    group, missing = described.groups
    assert (group.error_code, group.group_state, group.assignor_name) == (NONE, "Stable", "simple")
    assert sorted(member.member_id for member in group.members) == ["a", "b", "c"]
    assert missing.error_code == ErrorCode.group_id_not_found
    for name in "abc":
        assert (await _beat(wire, name, -1)).member_epoch == -1
    assert (await _beat(wire, "a", again.member_epoch)).error_code == ErrorCode.unknown_member_id


async def test_a_member_with_another_epoch_is_fenced_and_rejoins(kafka: KafkaStage, wire: Wire) -> None:
    joined = await _beat(wire, "a", 0, ("t",))
    assert (await _beat(wire, "a", joined.member_epoch + 5)).error_code == ErrorCode.fenced_member_epoch
    assert _assigned(await _beat(wire, "a", 0, ("t",))) == {0, 1}


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"member_id": ""}, ErrorCode.invalid_request),
        ({"member_epoch": -2}, ErrorCode.invalid_request),
        ({"subscribed_topic_names": ()}, ErrorCode.invalid_request),
        ({"rack_id": ""}, ErrorCode.invalid_request),
        ({"group_id": ""}, ErrorCode.invalid_group_id),
        ({"member_epoch": 3}, ErrorCode.unknown_member_id),
    ],
)
async def test_an_invalid_heartbeat_is_refused(
    kafka: KafkaStage, wire: Wire, fields: dict[str, Any], code: ErrorCode
) -> None:
    plain = {"group_id": "g", "member_id": "m", "member_epoch": 0, "subscribed_topic_names": ("t",)}
    answer = await ask(wire, HEARTBEAT, 1, **{**plain, **fields})
    assert answer.error_code == code


async def test_a_group_has_one_type_at_a_time(kafka: KafkaStage, wire: Wire) -> None:
    await _beat(wire, "a", 0, ("t",))
    consumer = {"member_id": "m", "member_epoch": 0, "topic_partitions": (), "subscribed_topic_names": ("t",)}
    beat = {"group_id": "g", "rebalance_timeout": timedelta(seconds=10), **consumer}
    assert (await ask(wire, 68, 1, **beat)).error_code == ErrorCode.group_id_not_found
    await _beat(wire, "a", -1)
    assert (await ask(wire, 68, 1, **beat)).error_code == NONE
    assert (await _beat(wire, "a", 0, ("t",))).error_code == ErrorCode.group_id_not_found


async def test_a_client_that_only_asked_for_an_id_does_not_make_a_group_classic(wire: Wire) -> None:
    classic = {
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"m"}],
        "member_id": "",
    }
    times = {"session_timeout": timedelta(seconds=10), "rebalance_timeout": timedelta(seconds=10)}
    named = await ask(wire, 11, 9, group_id="g", **classic, **times)
    assert named.error_code == ErrorCode.member_id_required
    assert (await _beat(wire, "a", 0, ("t",))).error_code == NONE
    again = await ask(wire, 11, 9, group_id="g", **{**classic, "member_id": named.member_id}, **times)
    assert again.error_code == ErrorCode.inconsistent_group_protocol


async def test_share_groups_are_listed_and_deleted(kafka: KafkaStage, sharer: Sharer, wire: Wire) -> None:
    await sharer.take()
    listed = await ask(wire, 16, 5, states_filter=(), types_filter=("share",))
    assert [(row.group_id, row.group_type, row.group_state) for row in listed.groups] == [
        ("g", "share", "Empty")
    ]
    await _beat(wire, "a", 0, ("t",))
    assert (await ask(wire, 42, 2, groups_names=("g",))).results[0].error_code == ErrorCode.non_empty_group
    await _beat(wire, "a", -1)
    assert (await ask(wire, 42, 2, groups_names=("g",))).results[0].error_code == NONE
    assert not kafka.broker.shares.has("g")


# Fetching and acknowledging


@pytest.mark.parametrize("version", [1, 2])
async def test_records_go_to_one_member_and_accepted_ones_are_never_delivered_again(
    kafka: KafkaStage, version: int
) -> None:
    one = Sharer(await kafka.connect(), kafka.broker, member="one", version=version)
    two = Sharer(await kafka.connect(), kafka.broker, member="two", version=version)
    got = await one.take(records=4)
    if version == 1:  # whole batches, whatever was requested
        assert got == [(offset, 1) for offset in range(10)]
        assert await two.take(records=4) == []
        assert (await one.acknowledge((0, 4, ACCEPT), (5, 9, RELEASE))).error_code == NONE
        assert await two.take() == [(offset, 2) for offset in range(5, 10)]
        return
    assert got == [(offset, 1) for offset in range(4)]
    assert await two.take(records=2) == [(4, 1), (5, 1)]
    assert await one.take((0, 1, ACCEPT), (2, 2, RELEASE), (3, 3, REJECT), records=2) == [(2, 2), (6, 1)]
    assert await two.take((4, 5, ACCEPT), records=10) == [(7, 1), (8, 1), (9, 1)]


async def test_acknowledgements_of_acquired_records_are_all_or_nothing(
    kafka: KafkaStage, sharer: Sharer
) -> None:
    await sharer.take(records=4)
    other = Sharer(await kafka.connect(), kafka.broker, member="other")
    await other.take(records=2)
    for told in ([(0, 4, ACCEPT)], [(4, 5, ACCEPT)], [(0, 0, ACCEPT), (8, 8, ACCEPT)]):
        part = _only(await sharer.acknowledge(*told))
        assert part.error_code == ErrorCode.invalid_record_state
    assert _only(await sharer.acknowledge((0, 3, ACCEPT))).error_code == NONE
    assert _only(await sharer.acknowledge((0, 3, ACCEPT))).error_code == ErrorCode.invalid_record_state
    part = _only(await sharer.fetch((9, 9, ACCEPT), records=1))
    assert part.acknowledge_error_code == ErrorCode.invalid_record_state
    assert [run.first_offset for run in part.acquired_records] == [6]  # it still gets more records


async def test_a_partition_of_which_the_group_read_nothing_is_not_acknowledged(
    kafka: KafkaStage, wire: Wire
) -> None:
    sharer = Sharer(wire, kafka.broker, group="new")
    assert (await sharer.fetch(max_bytes=0)).error_code == NONE
    part = _only(await sharer.acknowledge((0, 0, ACCEPT)))
    assert part.error_code == ErrorCode.unknown_topic_or_partition


@pytest.mark.parametrize(
    "batch",
    [
        {"first_offset": 1, "last_offset": 0, "acknowledge_types": (1,)},
        {"first_offset": -1, "last_offset": 0, "acknowledge_types": (1,)},
        {"first_offset": 0, "last_offset": 3, "acknowledge_types": (1, 2)},
        {"first_offset": 0, "last_offset": 0, "acknowledge_types": ()},
        {"first_offset": 0, "last_offset": 0, "acknowledge_types": (5,)},
        {"first_offset": 0, "last_offset": 0, "acknowledge_types": (-1,)},
        {"first_offset": 0, "last_offset": (1 << 63) - 1, "acknowledge_types": (1,)},
        {"first_offset": 0, "last_offset": (1 << 62), "acknowledge_types": (0,)},
    ],
)
async def test_invalid_acknowledgements_change_nothing(
    kafka: KafkaStage, sharer: Sharer, batch: dict[str, Any]
) -> None:
    await sharer.take(records=4)
    before = kafka.broker.log.ledger.shares.digest
    topics = [
        {"topic_id": sharer.topic, "partitions": [{"partition_index": 0, "acknowledgement_batches": [batch]}]}
    ]
    part = _only(await sharer.acknowledge(topics=topics))
    assert part.error_code in (ErrorCode.invalid_request, ErrorCode.invalid_record_state)
    assert kafka.broker.log.ledger.shares.digest == before


async def test_types_by_record_gaps_and_renewals(kafka: KafkaStage, sharer: Sharer) -> None:
    await sharer.take(records=4)
    batch = {"first_offset": 0, "last_offset": 3, "acknowledge_types": (ACCEPT, GAP, RELEASE, RENEW)}
    topics = [
        {"topic_id": sharer.topic, "partitions": [{"partition_index": 0, "acknowledgement_batches": [batch]}]}
    ]
    sharer.version = 1
    assert (
        _only(await sharer.acknowledge(topics=topics)).error_code == ErrorCode.invalid_request
    )  # no RENEW yet
    sharer.version = 2
    answer = await sharer.acknowledge(topics=topics, is_renew_ack=True)
    assert _only(answer).error_code == NONE
    assert answer.acquisition_lock_timeout.total_seconds() == 30
    assert await sharer.take(records=2) == [(2, 2), (4, 1)]
    assert _only(await sharer.acknowledge((2, 4, ACCEPT))).error_code == NONE


# Sessions


async def test_a_sessions_epoch_rises(kafka: KafkaStage, sharer: Sharer) -> None:
    assert (await sharer.fetch(epoch=3)).error_code == ErrorCode.share_session_not_found
    assert (await sharer.acknowledge(epoch=1)).error_code == ErrorCode.share_session_not_found
    assert (await sharer.fetch((0, 0, ACCEPT), epoch=0)).error_code == ErrorCode.invalid_request
    assert (await sharer.fetch(epoch=0, records=1)).error_code == NONE
    assert (await sharer.fetch(epoch=2)).error_code == ErrorCode.invalid_share_session_epoch
    assert (
        await sharer.acknowledge((0, 0, ACCEPT), epoch=0)
    ).error_code == ErrorCode.invalid_share_session_epoch
    assert (await sharer.acknowledge((0, 0, ACCEPT), epoch=1)).error_code == NONE
    assert (await sharer.fetch(epoch=2, records=1)).error_code == NONE
    assert (await sharer.fetch(epoch=-1)).error_code == NONE
    assert (await sharer.fetch(epoch=3)).error_code == ErrorCode.share_session_not_found
    for fields in ({"group_id": None}, {"group_id": ""}):
        assert (await sharer.fetch(epoch=0, **fields)).error_code == ErrorCode.invalid_group_id
    assert (await sharer.fetch(epoch=0, member_id="")).error_code == ErrorCode.unknown_member_id


async def test_a_session_remembers_its_partitions_until_they_are_forgotten(
    kafka: KafkaStage, sharer: Sharer
) -> None:
    answer = await sharer.fetch(partitions=(0, 1), records=4)
    assert sum(len(topic.partitions) for topic in answer.responses) == 1  # one is enough for now
    seen = set()
    for _ in range(6):
        answer = await sharer.fetch(records=4)
        seen |= {part.partition_index for topic in answer.responses for part in topic.partitions}
    assert seen == {0, 1}
    await kafka.broker.append_values("t", [b"more"], partition=1)
    assert (await sharer.fetch(forget=(1,))).responses == ()
    assert _only(await sharer.fetch(partitions=(1,))).partition_index == 1


async def test_a_closed_session_and_a_lost_connection_release_records_as_delivered(kafka: KafkaStage) -> None:
    leaver = Sharer(await kafka.connect(), kafka.broker, member="leaver")
    assert await leaver.take(records=1) == [(0, 1)]
    assert (await leaver.fetch((0, 0, RENEW), epoch=-1)).error_code == NONE
    share = kafka.broker.shares.of_group("g")[0]
    for deliveries in range(2, 6):
        vanisher = Sharer(await kafka.connect(), kafka.broker, member="vanisher")
        assert await vanisher.take(records=1) == [(0, deliveries)]
        await vanisher.wire.close()
        await until(lambda: not share.leases.leased)
    last = Sharer(await kafka.connect(), kafka.broker, member="last")
    assert await last.take(records=1) == [(1, 1)]  # the first was delivered five times: it is archived


async def test_a_fetch_of_no_bytes_returns_no_records(sharer: Sharer) -> None:
    answer = await sharer.fetch(max_bytes=0)
    assert (answer.error_code, answer.responses) == (NONE, ())
    assert _offsets(await sharer.take(records=1)) == [0]


async def test_every_session_of_a_connection_ends_with_it(kafka: KafkaStage) -> None:
    wire = await kafka.connect()
    for number in range(5):
        await Sharer(wire, kafka.broker, member=f"m{number}").take(records=2)
    sharer = Sharer(wire, kafka.broker, member="m0")
    await sharer.take()  # instead of its old one
    wire.send_raw(
        request_frame(make(load_request_schema(FETCH, 2), _OPENING), 9)
    )  # and one that is not waited for
    await wire.close()
    share = kafka.broker.shares.of_group("g")[0]
    await until(lambda: not kafka.door.open_connections)
    await until(lambda: not share.leases.leased)
    assert len(kafka.door.context.share_sessions) == 0


async def test_a_fetch_waits_for_new_and_released_records(kafka: KafkaStage, sharer: Sharer) -> None:
    other = Sharer(await kafka.connect(), kafka.broker, member="other")
    assert len(await other.take()) == 10
    waiting = asyncio.create_task(sharer.take(wait_ms=20_000))
    await until(lambda: kafka.broker.log.visibility.watched > 0)
    await other.acknowledge((3, 3, RELEASE))
    assert await waiting == [(3, 2)]
    waiting = asyncio.create_task(sharer.take(wait_ms=20_000))
    await until(lambda: kafka.broker.log.visibility.watched > 0)
    await kafka.broker.append_values("t", [b"new"])
    assert await waiting == [(10, 1)]


async def test_a_waiting_fetch_delays_nothing_else_and_ends_with_the_door(
    kafka: KafkaStage, wire: Wire
) -> None:
    sharer = Sharer(wire, kafka.broker, group="latest")  # it starts at the end: there is nothing
    waiting = asyncio.create_task(sharer.fetch(wait_ms=20_000))
    await until(lambda: kafka.broker.log.visibility.watched > 0)
    assert await kafka.door.stop(15.0) == 0
    assert (await waiting).responses == ()


async def test_locks_expire(kafka: KafkaStage, sharer: Sharer) -> None:
    await kafka.broker.shares.change_settings("g", [("share.record.lock.duration.ms", "1000")], [])
    other = Sharer(await kafka.connect(), kafka.broker, member="other")
    assert len(await other.take()) == 10
    assert await sharer.take(wait_ms=20_000, records=2) == [(0, 2), (1, 2)]
    assert _only(await other.acknowledge((0, 0, ACCEPT))).error_code == ErrorCode.invalid_record_state


async def test_missing_partitions_are_named(kafka: KafkaStage, sharer: Sharer) -> None:
    part = _only(await sharer.fetch(partitions=(7,)))
    assert part.error_code == ErrorCode.unknown_topic_or_partition
    assert _only(await sharer.acknowledge((0, 0, ACCEPT), partition=7)).error_code == part.error_code
    await kafka.broker.delete_topic("t")
    assert _only(await sharer.fetch()).error_code == ErrorCode.unknown_topic_id
    assert _only(await sharer.acknowledge((0, 0, ACCEPT))).error_code == ErrorCode.unknown_topic_id


async def test_the_number_of_records_in_flight_is_bounded(kafka: KafkaStage, sharer: Sharer) -> None:
    await kafka.broker.shares.change_settings("g", [("share.partition.max.record.locks", "3")], [])
    assert _offsets(await sharer.take()) == [0, 1, 2]
    assert await sharer.take() == []
    assert _offsets(await sharer.take((1, 1, ACCEPT))) == [3]


async def test_open_and_aborted_transactions(kafka: KafkaStage, wire: Wire) -> None:
    broker = kafka.broker
    await broker.shares.change_settings("g", [("share.isolation.level", "read_committed")], [])
    await earliest(broker, "careless")
    careful, careless = Sharer(wire, broker), Sharer(wire, broker, group="careless")
    assert len(await careful.take()) == len(await careless.take()) == 10
    stream = broker.streams.of("t", 0)
    stamp = ProducerStamp("id", *await broker.transactions.initialise("id", 60_000))
    await broker.transactions.add_partitions(stamp, [stream])
    written = build_batch(
        [b"x", b"y"],
        timestamps_ms=1,
        producer=stamp.producer,
        producer_epoch=stamp.epoch,
        base_sequence=0,
        transactional=True,
    )
    await broker.append("t", written)
    assert await careful.take() == []
    assert _offsets(await careless.take()) == [10, 11]
    await broker.transactions.end(stamp, commit=False)
    await broker.append_values("t", [b"after"])
    assert _offsets(await careful.take()) == [13]
    assert _offsets(await careless.take((10, 10, ACCEPT), (11, 11, RELEASE))) == [11, 13]
    await earliest(broker, "late")
    assert _offsets(await Sharer(wire, broker, group="late").take()) == [*range(12), 13]
    await broker.shares.change_settings("late", [("share.isolation.level", "read_committed")], [])
    await broker.shares.release("late", "m")
    assert _offsets(await Sharer(wire, broker, group="late").take()) == [*range(10), 13]


# What an administrator asks


async def test_settings_of_groups_are_described_changed_and_checked(kafka: KafkaStage, wire: Wire) -> None:
    async def alter(*configs: tuple[str, int, str | None], dry_run: bool = False) -> int:
        rows = [{"name": name, "config_operation": how, "value": value} for name, how, value in configs]
        resource = {"resource_type": 32, "resource_name": "g", "configs": rows}
        answer = await ask(wire, 44, 1, resources=[resource], validate_only=dry_run)
        return int(answer.responses[0].error_code)

    async def described() -> dict[str, tuple[str, int]]:
        asked = {"resource_type": 32, "resource_name": "g", "configuration_keys": None}
        answer = await ask(wire, 32, 4, resources=[asked], include_synonyms=True, include_documentation=True)
        return {row.name: (row.value, row.config_source) for row in answer.results[0].configs}

    reset, lock = "share.auto.offset.reset", "share.record.lock.duration.ms"
    assert (await described())[reset] == ("earliest", 8)
    assert (await described())[lock] == ("30000", 5)
    assert await alter((reset, 1, None), (lock, 0, "5000"), dry_run=True) == 0
    assert (await described())[lock] == ("30000", 5)
    assert await alter((reset, 1, None), (lock, 0, "5000")) == 0
    assert (await described())[reset] == ("latest", 5)
    assert (await described())[lock] == ("5000", 8)
    for bad in (
        (lock, 0, "5"),
        (lock, 0, "soon"),
        (reset, 0, "middle"),
        ("share.colour", 0, "red"),
        (lock, 2, "1"),
    ):
        assert await alter(bad) == ErrorCode.invalid_config
    assert await alter(("share.colour", 1, None)) == 0
    resource = {"resource_type": 32, "resource_name": "g", "configs": [{"name": reset, "value": "earliest"}]}
    answer = await ask(wire, 33, 2, resources=[resource], validate_only=False)
    assert answer.responses[0].error_code == NONE
    assert (await described())[lock] == ("30000", 5)
    listed = await ask(wire, 74, 1, resource_types=(32,))
    assert [row.resource_name for row in listed.config_resources] == ["g"]


async def test_offsets_of_a_share_group_are_described_altered_and_deleted(
    kafka: KafkaStage, sharer: Sharer, wire: Wire
) -> None:
    async def described(topics: Any = None) -> list[tuple[int, int, int, int]]:
        answer = await ask(wire, 90, 1, groups=[{"group_id": "g", "topics": topics}])
        return [
            (part.partition_index, part.start_offset, part.lag, int(part.error_code))
            for topic in answer.groups[0].topics
            for part in topic.partitions
        ]

    await sharer.take(records=4)
    await sharer.acknowledge((0, 1, ACCEPT), (3, 3, ACCEPT))
    assert await described() == [(0, 2, 7, 0)]
    asked = [{"topic_name": "t", "partitions": (1, 5)}, {"topic_name": "none", "partitions": (0,)}]
    assert await described(asked) == [(1, -1, -1, 0), (5, -1, -1, 3), (0, -1, -1, 3)]
    await _beat(wire, "a", 0, ("t",))
    parts = [{"partition_index": 0, "start_offset": 8}, {"partition_index": 9, "start_offset": 0}]
    moves = {"group_id": "g", "topics": [{"topic_name": "t", "partitions": parts}]}
    assert (await ask(wire, 91, 0, **moves)).error_code == ErrorCode.non_empty_group
    await _beat(wire, "a", -1)
    answer = await ask(wire, 91, 0, **moves)
    assert [part.error_code for part in answer.responses[0].partitions] == [NONE, 3]
    assert await described() == [(0, 8, 2, 0)]
    assert await sharer.take() == [(8, 1), (9, 1)]
    await kafka.broker.create_topic("unread")
    topics = [{"topic_name": name} for name in ("unread", "t", "none")]
    forgotten = await ask(wire, 92, 0, group_id="g", topics=topics)
    assert [topic.error_code for topic in forgotten.responses] == [3, NONE, 3]
    assert await described() == []
    assert (await ask(wire, 92, 0, group_id="g", topics=[])).error_code == ErrorCode.group_id_not_found


async def test_access_rules_apply_to_share_groups(broker: Broker) -> None:
    await broker.create_topic("t")
    await broker.append_values("t", [b"a", b"b"])
    await earliest(broker)

    def rule(kind: ResourceType, name: str, operation: Operation) -> AccessRule:
        return AccessRule(kind, name, LITERAL, "User:ANONYMOUS", "*", operation, ALLOW)

    async with opened(broker, access=AccessOptions(rules="on")) as kafka:
        sharer = Sharer(await kafka.connect(), broker)
        assert (await sharer.fetch()).error_code == ErrorCode.group_authorization_failed
        await broker.log.propose(PutAccessRules((rule(ResourceType.GROUP, "g", Operation.READ),)))
        assert _only(await sharer.fetch()).error_code == ErrorCode.topic_authorization_failed
        part = _only(await sharer.acknowledge((0, 0, ACCEPT)))
        assert part.error_code == ErrorCode.topic_authorization_failed
        topics = PutAccessRules((rule(ResourceType.TOPIC, "t", Operation.READ),))
        await broker.log.propose(topics)
        assert _offsets(await sharer.take()) == [0, 1]
        foreign = {"group_id": "h"}
        for api in (FETCH, ACKNOWLEDGE):
            call = sharer.fetch if api == FETCH else sharer.acknowledge
            assert (await call(**foreign)).error_code == ErrorCode.group_authorization_failed


async def test_share_fetches_count_against_the_consumers_quota(kafka: KafkaStage, sharer: Sharer) -> None:
    await kafka.broker.append_values("t", [b"x" * 5000])
    limit = AlterRate(RateEntity(None, "test"), (("consumer_byte_rate", 100.0),))
    await kafka.broker.rates.alter(limit)
    assert (await sharer.fetch(records=10)).throttle_time.total_seconds() == 0
    assert (await sharer.fetch(records=10)).throttle_time.total_seconds() > 1
