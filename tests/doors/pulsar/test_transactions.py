"""Transactions: messages and acknowledgements that take effect together, or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from mainstem.testing.server import ServerProcess

from .raw_client import RawClient

_EXCLUSIVE, _SHARED, _FAILOVER, _KEY_SHARED = range(4)
_CONFLICT, _NOT_FOUND, _INVALID = 23, 24, 21


@pytest.fixture
def raw(server: ServerProcess) -> Iterator[RawClient]:
    with RawClient(server) as client:
        client.connect()
        yield client


def _committed(server: ServerProcess, topic: str, count: int) -> list[bytes]:
    """What a Kafka consumer reads that waits for transactions to end."""
    consumer = Consumer(
        {
            "bootstrap.servers": str(server.address("kafka")),
            "group.id": f"reader of {topic}",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[bytes] = []
    while len(found) < count:
        found += [message.value() for message in consumer.consume(count, 0.2)]
    found += [message.value() for message in consumer.consume(1, 0.2)]
    consumer.close()
    return found


def test_clients_find_the_coordinator(raw: RawClient) -> None:
    topic = "persistent://pulsar/system/transaction_coordinator_assign"
    assert raw.request("partitioned_metadata", topic=topic).partitioned_metadata_response.partitions == 1
    found = raw.request("lookup", topic=f"{topic}-partition-0").lookup_response
    assert found.brokerServiceUrl.startswith("pulsar://")
    assert not raw.request("tc_client_connect", tc_id=0).tc_client_connect_response.HasField("error")


@pytest.mark.parametrize("count", [1, 40])
def test_messages_appear_when_their_transaction_commits(
    raw: RawClient, server: ServerProcess, count: int
) -> None:
    topic = f"txn-{count}"
    raw.producer(topic, "p")
    raw.subscribe(topic, "s", _SHARED)
    kept, dropped = raw.begin(), raw.begin()
    for transaction in (kept, dropped):
        added = raw.request("add_partition_to_txn", partitions=[topic], **transaction)
        assert not added.add_partition_to_txn_response.HasField("error")
    for number in range(count):
        assert raw.send(3 * number, b"kept %d" % number, **kept).HasField("send_receipt")
        assert raw.send(3 * number + 1, b"dropped %d" % number, **dropped).HasField("send_receipt")
        assert raw.send(3 * number + 2, b"plain %d" % number).HasField("send_receipt")
    raw.pong()
    assert not raw.messages
    assert not raw.end(dropped, commit=False).HasField("error")
    assert not raw.end(kept, commit=True).HasField("error")
    wanted = [text % at for at in range(count) for text in (b"kept %d", b"plain %d")]
    assert [raw.message()[1] for _ in wanted] == wanted
    assert _committed(server, topic, len(wanted)) == wanted
    assert raw.send(1000, b"late", **kept).send_error.error == _NOT_FOUND


def test_the_end_of_a_transaction_can_be_repeated_but_not_changed(raw: RawClient) -> None:
    transaction = raw.begin()
    for _ in range(2):
        assert not raw.end(transaction, commit=True).HasField("error")
    assert raw.end(transaction, commit=False).error == _INVALID
    assert raw.end({"txnid_least_bits": 1 << 40}, commit=True).error == _NOT_FOUND


@pytest.mark.parametrize("type", [_EXCLUSIVE, _SHARED, _FAILOVER, _KEY_SHARED])
def test_acknowledgements_count_when_their_transaction_commits(raw: RawClient, type: int) -> None:
    topic = f"acks-{type}"
    raw.producer(topic, "p")
    for number in range(4):
        raw.send(number, b"%d" % number)
    raw.subscribe(topic, "s", type)
    ids = [raw.message()[0].message_id for _ in range(4)]
    kept, dropped, other = raw.begin(), raw.begin(), raw.begin()
    assert not raw.ack(ids[0], ids[2], **kept).HasField("error")
    assert not raw.ack(ids[1], **dropped).HasField("error")
    assert raw.ack(ids[2], **other).error == _CONFLICT
    assert not raw.end(kept, commit=True).HasField("error")
    assert not raw.messages
    assert not raw.end(dropped, commit=False).HasField("error")
    again = {raw.message()[1] for _ in range(2 if type in (_EXCLUSIVE, _FAILOVER) else 1)}
    assert again == ({b"1", b"3"} if type in (_EXCLUSIVE, _FAILOVER) else {b"1"})
    assert raw.ack(ids[0], **raw.begin()).error == _CONFLICT  # it is acknowledged


def test_a_cumulative_acknowledgement_is_taken_back_if_its_transaction_aborts(raw: RawClient) -> None:
    raw.producer("cumulative", "p")
    for number in range(4):
        raw.send(number, b"%d" % number)
    raw.subscribe("cumulative", "s", _EXCLUSIVE)
    ids = [raw.message()[0].message_id for _ in range(4)]
    transaction = raw.begin()
    assert not raw.ack(ids[2], type=1, **transaction).HasField("error")
    assert raw.ack(ids[1], **raw.begin()).error == _CONFLICT
    raw.end(transaction, commit=False)
    assert [raw.message()[1] for _ in range(4)] == [b"0", b"1", b"2", b"3"]


def test_a_transaction_that_nobody_ends_is_aborted(raw: RawClient) -> None:
    raw.producer("late", "p")
    raw.send(0, b"first")
    raw.subscribe("late", "s", _SHARED)
    message_id = raw.message()[0].message_id
    transaction = raw.begin(timeout_ms=100)
    raw.ack(message_id, **transaction)
    assert raw.message()[1] == b"first"
    assert raw.end(transaction, commit=True).error == _INVALID


def test_an_open_transaction_survives_a_kill(tmp_path: Path) -> None:
    flags = ("--text", "off")
    with ServerProcess(tmp_path / "data", *flags) as server, RawClient(server) as raw:
        raw.connect()
        raw.producer("t", "p")
        for number in range(3):
            raw.send(number, b"%d" % number)
        raw.subscribe("t", "s", _SHARED)
        ids = [raw.message()[0].message_id for _ in range(3)]
        kept, dropped = raw.begin(), raw.begin()
        raw.ack(ids[0], **kept)
        raw.ack(ids[1], **dropped)
        raw.send(3, b"3", **kept)
        server.kill()
    with ServerProcess(tmp_path / "data", *flags) as server, RawClient(server) as raw:
        raw.connect()
        raw.producer("t", "p")
        raw.subscribe("t", "s", _SHARED)
        assert raw.message()[1] == b"2"
        raw.send(4, b"4", **kept)
        assert not raw.messages
        assert not raw.end(kept, commit=True).HasField("error")
        assert [raw.message()[1] for _ in range(2)] == [b"3", b"4"]
        raw.end(dropped, commit=False)
        assert raw.message()[1] == b"1"
