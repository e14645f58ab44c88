"""The transaction APIs in every version, by hand-made frames: codes, fencing, and what Fetch returns."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode
from kio.schema.fetch.v11.request import FetchPartition, FetchRequest, FetchTopic
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i8, i32, i64

from mainstem import limits
from mainstem.broker.groups.consumer_member import ConsumerHeartbeat
from mainstem.records.header import walk

from .conftest import KafkaStage
from .messages import make
from .transactional import (
    DESCRIBE,
    LIST,
    PRODUCERS,
    WRITE_MARKERS,
    Client,
    milliseconds,
)
from .wire import Wire


@pytest.fixture
async def client(kafka: KafkaStage, wire: Wire) -> Client:
    await kafka.broker.create_topic("t", partitions=2)
    return Client(wire)


async def fetch(wire: Wire, offset: int, isolation: int) -> Any:
    part = FetchPartition(
        partition=i32(0),
        fetch_offset=i64(offset),
        partition_max_bytes=i32(1 << 20),
        current_leader_epoch=i32(-1),
    )
    request = FetchRequest(
        replica_id=BrokerId(-1),
        max_wait=milliseconds(0),
        min_bytes=i32(0),
        max_bytes=i32(1 << 20),
        isolation_level=i8(isolation),
        session_id=i32(0),
        session_epoch=i32(-1),
        topics=(FetchTopic(topic=TopicName("t"), partitions=(part,)),),
        forgotten_topics_data=(),
        rack_id="",
    )
    return (await wire.ask(request)).responses[0].partitions[0]


def offsets_in(part: Any) -> list[int]:
    return [header.base_offset for header in walk(part.records or b"")]


@pytest.mark.parametrize("version", range(7))
async def test_every_producer_gets_its_own_id(client: Client, version: int) -> None:
    ids = set()
    for id in (None, None, "a", "b"):
        one = Client(client.wire, id)
        assert await one.init(version) is ErrorCode.none
        assert one.epoch == 0
        ids.add(one.producer)
    assert len(ids) == 4
    again = Client(client.wire, "a")
    assert await again.init(version) is ErrorCode.none
    assert again.epoch == 1


async def test_an_idempotent_producer_may_ask_with_any_timeout(client: Client) -> None:
    one = Client(client.wire, None)
    assert await one.init(timeout_ms=-1) is ErrorCode.none
    assert (
        await one.init(timeout_ms=(1 << 31) - 1, producer_id=one.producer, producer_epoch=0) is ErrorCode.none
    )


@pytest.mark.parametrize("timeout_ms", [0, -1, limits.TRANSACTION_TIMEOUT_MS_MAX + 1])
async def test_timeouts_out_of_range_are_refused(client: Client, timeout_ms: int) -> None:
    assert await client.init(timeout_ms=timeout_ms) is ErrorCode.invalid_transaction_timeout


async def test_half_an_identity_and_an_empty_id_are_refused(client: Client) -> None:
    assert await client.init(producer_id=3) is ErrorCode.invalid_request
    assert await Client(client.wire, "").init() is ErrorCode.invalid_request


async def test_an_epoch_that_is_not_the_latest_is_fenced(client: Client) -> None:
    await client.init()
    stale = {"producer_id": client.producer, "producer_epoch": 0}
    await client.init()
    await client.init()
    assert await client.init(3, **stale) is ErrorCode.invalid_producer_epoch
    assert await client.init(4, **stale) is ErrorCode.producer_fenced
    assert await client.init(producer_id=client.producer, producer_epoch=client.epoch) is ErrorCode.none


@pytest.mark.parametrize("version", range(4))
async def test_partitions_are_added_all_or_none(client: Client, version: int) -> None:
    await client.init()
    assert await client.add(0, 1, version=version) == [ErrorCode.none] * 2
    assert await client.add(0, 7, version=version) == [
        ErrorCode.operation_not_attempted,
        ErrorCode.unknown_topic_or_partition,
    ]
    assert await client.add(0, topic="none", version=version) == [ErrorCode.unknown_topic_or_partition]
    assert await Client(client.wire, "other").add(0, version=version) == [
        ErrorCode.invalid_producer_id_mapping
    ]
    zombie = Client(client.wire)
    zombie.producer, zombie.epoch = client.producer, client.epoch
    await client.init()
    fenced = ErrorCode.producer_fenced if version >= 2 else ErrorCode.invalid_producer_epoch
    assert await zombie.add(0, version=version) == [fenced]
    assert await zombie.add_group(version=version) is fenced
    assert await zombie.end(True, version=version) is fenced


@pytest.mark.parametrize("version", range(5))
async def test_ending_a_transaction_depends_on_its_state(client: Client, version: int) -> None:
    assert await client.end(True, version) is ErrorCode.invalid_producer_id_mapping
    await client.init()
    assert await client.end(True, version) is ErrorCode.invalid_txn_state
    await client.add(0)
    assert await client.end(True, version) is ErrorCode.none
    assert await client.end(True, version) is ErrorCode.none
    assert await client.end(False, version) is ErrorCode.invalid_txn_state


@pytest.mark.parametrize("version", range(5))
async def test_offsets_count_once_committed(kafka: KafkaStage, client: Client, version: int) -> None:
    await client.init()
    uncovered = ErrorCode.transaction_abortable if version >= 4 else ErrorCode.invalid_txn_state
    assert await client.offsets(3, version) is uncovered
    assert await client.add_group(version=version) is ErrorCode.none
    assert await client.offsets(3, version) is ErrorCode.none
    assert await client.offsets(3, version, topic="none") is ErrorCode.unknown_topic_or_partition
    assert await client.offsets(3, version, partition=5) is ErrorCode.unknown_topic_or_partition
    assert kafka.broker.committed("g", "t") is None
    assert await client.end(True) is ErrorCode.none
    assert kafka.broker.committed("g", "t") == 3
    zombie = Client(client.wire)
    zombie.producer, zombie.epoch = client.producer, client.epoch
    await client.init()
    assert await zombie.offsets(4, version) is ErrorCode.invalid_producer_epoch


async def test_offsets_of_an_unknown_member_are_refused(client: Client) -> None:
    await client.init()
    await client.add_group()
    code = await client.offsets(3, member_id="nobody", generation_id=4)
    assert code in (ErrorCode.unknown_member_id, ErrorCode.illegal_generation)


@pytest.mark.parametrize("version", [3, 5])
async def test_offsets_of_a_member_with_an_old_epoch_are_an_illegal_generation(
    kafka: KafkaStage, client: Client, version: int
) -> None:
    """Producers know no stale epochs: Java's would fail for good."""
    joined = await kafka.door.context.groups.consumer_heartbeat(
        ConsumerHeartbeat(group="g", member_id="m", epoch=0, rebalance_ms=1_000, topics=frozenset({"t"}))
    )
    await client.init()
    await client.add_group()
    old = {"member_id": "m", "generation_id": joined.epoch + 1}
    assert await client.offsets(3, version, **old) is ErrorCode.illegal_generation
    assert await client.offsets(3, version, **old | {"generation_id": joined.epoch}) is ErrorCode.none


async def test_fetch_returns_the_last_stable_offset_and_aborted_transactions(
    kafka: KafkaStage, client: Client
) -> None:
    await client.init()
    await kafka.broker.append_values("t", [b"plain"])
    await client.add(0)
    await kafka.broker.append("t", client.batch(0, b"x", b"y"))
    open_part = await fetch(client.wire, 0, 1)
    assert (open_part.high_watermark, open_part.last_stable_offset) == (3, 1)
    assert offsets_in(open_part) == [0]
    assert open_part.aborted_transactions == ()
    uncommitted = await fetch(client.wire, 0, 0)
    assert offsets_in(uncommitted) == [0, 1]
    assert uncommitted.aborted_transactions is None
    assert offsets_in(await fetch(client.wire, 1, 1)) == []
    await client.end(False)
    part = await fetch(client.wire, 0, 1)
    assert (part.high_watermark, part.last_stable_offset) == (4, 4)
    assert offsets_in(part) == [0, 1, 3]
    assert [(one.producer_id, one.first_offset) for one in part.aborted_transactions] == [
        (client.producer, 1)
    ]
    assert offsets_in(await fetch(client.wire, 3, 1)) == [3]
    assert (await fetch(client.wire, 4, 1)).aborted_transactions == ()


EVERY_TRANSACTION: dict[str, Any] = {"state_filters": (), "producer_id_filters": (), "duration_filter": -1}


async def test_transactions_are_listed_and_described(kafka: KafkaStage, client: Client) -> None:
    await client.init()
    await Client(client.wire, "idle").init()
    await client.add(1)
    await kafka.broker.append("t", client.batch(0, b"x", b"y"), 1)
    listed = await client.ask(LIST, 1, **EVERY_TRANSACTION)
    assert [(one.transactional_id, one.transaction_state) for one in listed.transaction_states] == [
        ("idle", "Empty"),
        ("tx", "Ongoing"),
    ]
    narrow = await client.ask(
        LIST, 0, state_filters=("Ongoing", "Odd"), producer_id_filters=(client.producer,)
    )
    assert [one.transactional_id for one in narrow.transaction_states] == ["tx"]
    assert narrow.unknown_state_filters == ("Odd",)
    long = await client.ask(LIST, 1, state_filters=(), producer_id_filters=(), duration_filter=10_000_000)
    assert long.transaction_states == ()
    for pattern, ids in (("t.", ["tx"]), ("t", []), ("", ["idle", "tx"]), (None, ["idle", "tx"])):
        named = await client.ask(LIST, 2, transactional_id_pattern=pattern, **EVERY_TRANSACTION)
        assert [one.transactional_id for one in named.transaction_states] == ids, pattern
    wrong = await client.ask(LIST, 2, transactional_id_pattern="(", **EVERY_TRANSACTION)
    assert (wrong.error_code, wrong.transaction_states) == (ErrorCode.invalid_regular_expression, ())
    [state] = (await client.ask(DESCRIBE, 0, transactional_ids=("tx",))).transaction_states
    assert (state.error_code, state.transaction_state) == (ErrorCode.none, "Ongoing")
    assert (state.producer_id, state.producer_epoch) == (client.producer, 0)
    assert [(one.topic, one.partitions) for one in state.topics] == [("t", (1,))]
    answer = await client.ask(PRODUCERS, 0, topics=({"name": "t", "partition_indexes": (0, 1, 9)},))
    none, one, unknown = answer.topics[0].partitions
    assert none.active_producers == ()
    [producer] = one.active_producers
    assert (producer.producer_id, producer.last_sequence, producer.current_txn_start_offset) == (
        client.producer,
        1,
        0,
    )
    [batch] = (await kafka.broker.streams.read(kafka.broker.stream("t", 1), 0, 1)).batches
    assert producer.last_timestamp == next(walk(batch)).max_timestamp
    assert unknown.error_code is ErrorCode.unknown_topic_or_partition


@pytest.mark.parametrize("version", [1, 2])
async def test_clients_cannot_write_markers(client: Client, version: int) -> None:
    marker = {
        "producer_id": 1,
        "producer_epoch": 0,
        "transaction_result": False,
        "topics": ({"name": "t", "partition_indexes": (0,)},),
        "coordinator_epoch": 0,
    }
    answer = await client.ask(WRITE_MARKERS, version, markers=(marker,))
    [result] = answer.markers[0].topics[0].partitions
    assert result.error_code is ErrorCode.cluster_authorization_failed


async def test_an_unused_id_is_not_found(client: Client) -> None:
    await client.init()
    request = make(load_request_schema(DESCRIBE, 0), {"transactional_ids": ("none", "tx")})
    client.wire.send(request)
    answer = await client.wire.receive_raw()
    # Header and throttle time, then two states: code, id, state, timeout, and -1 for no start yet.
    assert answer[9:10] == b"\x03"
    assert answer[10:18] == struct.pack(">h", ErrorCode.transactional_id_not_found) + b"\x05none\x01"
    assert answer[18:40] == struct.pack(">iqqh", 0, -1, -1, -1)
    assert answer[42:53] == struct.pack(">h", 0) + b"\x03tx\x06Empty"
    assert answer[53:65] == struct.pack(">iq", 60_000, -1)
