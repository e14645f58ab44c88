"""Transactions of the second version (KIP-890), by hand-made frames: a write adds its partition, every end returns
another epoch, and late writes are fenced."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from mainstem.broker.broker import Broker
from tests.support.cluster_server import server_process

from .conftest import KafkaStage
from .requests import fetch, metadata
from .transactional import DESCRIBE, INIT, Client, milliseconds
from .wire import Wire

OK, FENCED = ErrorCode.none, ErrorCode.invalid_producer_epoch
ABORTABLE = ErrorCode.transaction_abortable


@pytest.fixture
async def client(kafka: KafkaStage, wire: Wire) -> Client:
    await kafka.broker.create_topic("t", partitions=2)
    client = Client(wire)
    assert await client.init(6) is OK
    return client


async def values(broker: Broker, partition: int = 0) -> list[bytes | None]:
    """The committed values."""
    return [record.value for record in await broker.read("t", 0, partition=partition)]


def name_of(broker: Broker, version: int) -> str | uuid.UUID:
    return uuid.UUID(bytes=broker.streams.topic("t").topic_id) if version >= 13 else "t"


@pytest.mark.parametrize("version", [12, 13])
async def test_a_write_adds_its_partition(kafka: KafkaStage, client: Client, version: int) -> None:
    topic = name_of(kafka.broker, version)
    for sequence in range(3):  # the second and third look just like the one before, which is the fast path
        assert await client.produce(topic, sequence, b"%d" % sequence, version=version) == (OK, sequence)
    assert await client.produce(topic, 0, b"other", version=version, partition=1) == (OK, 0)
    assert await values(kafka.broker) == []
    assert await client.finish(True) == (OK, client.producer, 1)
    assert await values(kafka.broker) == [b"0", b"1", b"2"]
    assert await values(kafka.broker, 1) == [b"other"]
    assert await client.produce(topic, 0, b"next", version=version) == (OK, 4)
    assert await client.finish(False) == (OK, client.producer, 2)
    assert await values(kafka.broker) == [b"0", b"1", b"2"]


async def test_a_late_batch_of_a_transaction_that_ended_is_fenced(kafka: KafkaStage, client: Client) -> None:
    await client.produce("t", 0, b"x")
    late = client.copy()
    late.wire = await kafka.connect()
    await client.finish(False)
    for sequence in (1, 2):  # the slow path, then the fast one
        assert await late.produce("t", sequence, b"late") == (FENCED, -1)
    assert await late.produce("t", 0, b"late", partition=1) == (FENCED, -1)
    assert await late.offsets(3, 5) is FENCED
    assert await client.finish(True) == (ErrorCode.invalid_txn_state, -1, -1)  # it began nothing
    assert await client.produce("t", 0, b"y") == (OK, 2)


@pytest.mark.parametrize(
    ("version", "code"),
    [(3, ErrorCode.invalid_txn_state), (10, ErrorCode.invalid_txn_state), (11, ABORTABLE)],
)
async def test_older_versions_must_add_their_partitions_first(
    client: Client, version: int, code: ErrorCode
) -> None:
    for _ in range(2):
        assert await client.produce("t", 0, b"x", version=version) == (code, -1)
    assert await client.add(0) == [OK]
    assert await client.produce("t", 0, b"x", version=version) == (OK, 0)


async def test_committing_offsets_adds_the_group(kafka: KafkaStage, client: Client) -> None:
    assert await client.offsets(3, 4) is ABORTABLE
    assert await client.offsets(3, 5) is OK
    assert kafka.broker.committed("g", "t") is None
    assert (await client.finish(True))[0] is OK
    assert kafka.broker.committed("g", "t") == 3
    assert await client.offsets(9, 5) is OK
    assert (await client.finish(False))[0] is OK
    assert kafka.broker.committed("g", "t") == 3


async def test_a_retried_end_gets_the_same_response(client: Client) -> None:
    await client.produce("t", 0, b"x")
    before = client.copy()
    answer = await client.finish(True)
    assert answer == (OK, before.producer, 1)
    assert await before.copy().finish(True) == answer
    assert await before.copy().finish(False) == (ErrorCode.invalid_txn_state, -1, -1)
    await client.produce("t", 0, b"y")
    assert await before.finish(True) == (ErrorCode.producer_fenced, -1, -1)


async def test_an_empty_abort_fences(client: Client) -> None:
    before = client.copy()
    assert await client.finish(True) == (ErrorCode.invalid_txn_state, -1, -1)
    assert await client.finish(False) == (OK, before.producer, 1)
    assert await before.produce("t", 0, b"late") == (FENCED, -1)
    assert await Client(client.wire, "other").finish(False) == (ErrorCode.invalid_producer_id_mapping, -1, -1)


async def test_a_producer_that_timed_out_aborts_and_continues(kafka: KafkaStage, client: Client) -> None:
    await client.produce("t", 0, b"x")
    assert await kafka.broker.transactions.abort("tx")
    assert await client.produce("t", 1, b"y") == (FENCED, -1)
    assert await client.finish(False) == (OK, client.producer, 1)
    assert await client.produce("t", 0, b"z") == (OK, 2)
    await client.finish(True)
    assert await values(kafka.broker) == [b"z"]


async def test_a_restarted_producer_fences_the_previous_one(kafka: KafkaStage, client: Client) -> None:
    await client.produce("t", 0, b"x")
    zombie = client.copy()
    assert await client.init(5) is OK
    assert await zombie.produce("t", 1, b"y") == (FENCED, -1)
    assert await zombie.finish(True) == (ErrorCode.producer_fenced, -1, -1)
    assert await values(kafka.broker) == []


async def test_a_producer_cannot_join_the_transaction_of_another_id(client: Client) -> None:
    thief = Client(client.wire, "thief")
    await thief.init()
    thief.producer, thief.epoch = client.producer, client.epoch
    assert await thief.produce("t", 0, b"x") == (ErrorCode.invalid_producer_id_mapping, -1)
    assert await client.finish(True) == (ErrorCode.invalid_txn_state, -1, -1)


async def test_two_phase_commit_is_refused_unless_it_is_enabled(client: Client) -> None:
    refused = ErrorCode.transactional_id_authorization_failed
    assert await client.init(6, enable2_pc=True) is refused
    assert await client.init(6, keep_prepared_txn=True) is refused
    assert client.epoch == 0


async def test_a_kept_transaction_survives_a_kill_and_is_completed(tmp_path: Path) -> None:
    data, flags = tmp_path / "data", ("--kafka-two-phase-commit", "true")
    prepared: list[tuple[int, int]] = []
    async with killed(data, *flags) as wire:
        await wire.ask(metadata(9, "t", create=True))
        for name in ("a", "b"):
            client = Client(wire, name)
            assert await client.init(6, enable2_pc=True, timeout_ms=1) is OK
            assert await client.produce("t", 0, name.encode()) == (OK, len(prepared))
            prepared.append((client.producer, client.epoch))
    async with killed(data, *flags) as wire:
        described = await Client(wire, "a").ask(DESCRIBE, 0, transactional_ids=("a",))
        [state] = described.transaction_states
        assert (state.transaction_state, state.transaction_timeout // timedelta(milliseconds=1)) == (
            "Ongoing",
            2**31 - 1,
        )
        for name, (producer, epoch), commit in zip("ab", prepared, (True, False), strict=True):
            client = Client(wire, name)
            timeout = milliseconds(1)
            started = await client.ask(
                INIT, 6, transaction_timeout=timeout, enable2_pc=True, keep_prepared_txn=True
            )
            assert (started.error_code, started.producer_epoch) == (OK, epoch + 1)
            assert (started.ongoing_txn_producer_id, started.ongoing_txn_producer_epoch) == (producer, epoch)
            client.producer, client.epoch = started.producer_id, started.producer_epoch
            assert await client.produce("t", 0, b"more") == (ABORTABLE, -1)
            assert (await client.finish(commit))[0] is OK
            assert await client.produce("t", 0, b"next") == (OK, 3 if commit else 6)
            assert (await client.finish(True))[0] is OK
        fetched = await wire.ask(fetch(4, "t", (0, 0), isolation=1))
        found = fetched.responses[0].partitions[0]
        assert [(row.producer_id, row.first_offset) for row in found.aborted_transactions] == [
            (prepared[1][0], 1)
        ]


async def test_kills_between_write_end_and_response_change_nothing(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with killed(data) as wire:
        client = Client(wire)
        assert await client.init() is OK
        assert await client.produce("t", 0, b"x") == (OK, 0)
    before = client.copy()
    async with killed(data) as wire:
        client.wire = wire
        assert await client.produce("t", 0, b"x") == (OK, 0)  # a retry: it is there already
        answer = await client.finish(True)
        assert answer == (OK, before.producer, 1)
    async with killed(data) as wire:
        client.wire = before.wire = wire
        assert await before.produce("t", 1, b"late") == (FENCED, -1)
        assert await before.finish(True) == answer
        assert await client.produce("t", 0, b"y") == (OK, 2)


@asynccontextmanager
async def killed(data: Path, *flags: str) -> AsyncIterator[Wire]:
    """A connection to a server that is killed in the end."""
    with server_process(data, *flags) as server:
        wire = await Wire.connect(server.address("kafka"))
        yield wire
        server.kill()
        await wire.close()
