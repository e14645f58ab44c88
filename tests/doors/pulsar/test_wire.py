"""Frames that no client sends, over a real socket."""

from __future__ import annotations

import random
import struct
import zlib
from pathlib import Path

import httpx
import pulsar
import pytest
from confluent_kafka import Producer

from mainstem import limits
from mainstem.doors.pulsar.commands import PULSAR_CONSUMERS_MAX, PULSAR_PRODUCERS_MAX
from mainstem.doors.pulsar.errors import ServerError
from mainstem.doors.pulsar.messages import MessageMetadata
from mainstem.doors.pulsar.wire import InvalidFrame, parse_frame, payload_frame, simple_frame
from mainstem.testing.server import ServerProcess

from .conftest import connect
from .raw_client import RawClient


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack(">II", 1 << 30, 8),
        struct.pack(">II", 2, 8),
        struct.pack(">II", 12, 200) + b"x" * 8,
        simple_frame("flow", consumer_id=1, messagePermits=1),
        simple_frame("connect", client_version="a") * 2,
    ],
)
def test_what_is_not_the_protocol_closes_the_connection(server: ServerProcess, data: bytes) -> None:
    with RawClient(server) as raw:
        raw.socket.sendall(data)
        assert raw.closed()


def test_random_commands_do_no_harm(server: ServerProcess) -> None:
    chance = random.Random(7)
    for _ in range(40):
        with RawClient(server) as raw:
            raw.connect()
            body = bytes([8, chance.randrange(70)]) + chance.randbytes(chance.randrange(40))
            raw.socket.sendall(struct.pack(">II", len(body) + 4, len(body)) + body)
            raw.socket.sendall(simple_frame("ping"))
    client = connect(server)
    client.create_producer("alive").send(b"v")
    client.close()


def test_a_wrong_checksum_an_unknown_type_and_an_unknown_command_get_errors(server: ServerProcess) -> None:
    with RawClient(server) as raw:
        raw.connect()
        ready = raw.ask(simple_frame("producer", topic="checked", producer_id=1, request_id=1))
        assert ready.producer_success.producer_name
        metadata = MessageMetadata(producer_name=b"p", sequence_id=0, publish_time=1).SerializeToString()
        command = b"\x08\x06\x32\x04\x08\x01\x10\x05"  # SEND of producer 1, sequence 5
        damaged = bytearray(payload_frame(command, metadata, b"value"))
        damaged[-1] ^= 1
        answer = raw.ask(bytes(damaged))
        assert (answer.send_error.sequence_id, answer.send_error.error) == (5, 9)
        assert raw.ask(payload_frame(command, metadata, b"value")).send_receipt.sequence_id == 5
        answer = raw.ask(
            simple_frame(
                "subscribe", topic="checked", subscription="s", subType=9, consumer_id=1, request_id=2
            )
        )
        assert (answer.error.request_id, answer.error.error) == (2, 22)
        answer = raw.ask(simple_frame("success", request_id=3))
        assert (answer.error.request_id, answer.error.error) == (3, 22)


@pytest.mark.parametrize(
    ("kind", "most"), [("producer", PULSAR_PRODUCERS_MAX), ("subscribe", PULSAR_CONSUMERS_MAX)]
)
def test_a_connection_has_a_limit_of_producers_and_consumers(
    server: ServerProcess, kind: str, most: int
) -> None:
    fields: dict[str, object] = {"topic": f"many-{kind}s"}
    if kind == "subscribe":
        fields |= {"subscription": "s", "subType": 1, "durable": False}
    id_field = "producer_id" if kind == "producer" else "consumer_id"
    with RawClient(server) as raw:
        raw.connect()
        refused = None
        opened = 0
        for first in range(0, most + 100, 100):
            ids = range(first, first + 100)
            raw.socket.sendall(
                b"".join(simple_frame(kind, request_id=id + 1, **{id_field: id}, **fields) for id in ids)
            )
            for answer in (raw.receive() for _ in ids):
                if answer.HasField("error"):
                    refused = answer.error
                else:
                    opened += 1
        assert refused is not None
        assert refused.error == ServerError.NOT_ALLOWED
        assert "limit" in refused.message
        assert most <= opened < most + 100  # requests under way when the limit was reached


def test_records_of_kafka_in_compressed_batches_are_read(server: ServerProcess) -> None:
    kafka = Producer(
        {"bootstrap.servers": str(server.address("kafka")), "compression.type": "zstd", "linger.ms": 100}
    )
    for number in range(100):
        kafka.produce("packed", b"v%d" % number)
    kafka.flush()
    client = connect(server)
    reader = client.create_reader("packed", pulsar.MessageId.earliest)
    assert [reader.read_next(10_000).data() for _ in range(100)] == [b"v%d" % at for at in range(100)]
    client.close()


def test_single_messages_sent_together_are_stored_delivered_and_acknowledged_one_by_one(
    server: ServerProcess,
) -> None:
    payloads = [b"v%d" % number for number in range(200)]
    with RawClient(server) as raw:
        raw.connect()
        raw.producer("together", "p")
        # Those of a producer that does not exist are ignored, as those of one that was closed.
        frames = [raw.send_frame(number, payload, 7) for number, payload in enumerate(payloads)]
        frames += [raw.send_frame(number, payload) for number, payload in enumerate(payloads)]
        raw.socket.sendall(b"".join(frames))
        receipts = [raw.receive().send_receipt for _ in payloads]
        assert [one.sequence_id for one in receipts] == list(range(200))
        first = receipts[0].message_id.entryId
        assert [one.message_id.entryId for one in receipts] == list(range(first, first + 200))
        raw.subscribe("together", "s", 1)
        messages = [raw.message() for _ in payloads]
        assert [payload for _, payload in messages] == payloads
        ids = [message.message_id for message, _ in messages]
        assert ids == [one.message_id for one in receipts]
        assert not raw.ack(*ids[:150], *ids[160:]).HasField("error")
        # What is left comes to the next consumer, and nothing else does.
        raw.request("close_consumer", consumer_id=1)
        raw.subscribe("together", "s", 1, id=2)
        left = [raw.message()[0] for _ in range(10)]
        assert [message.message_id for message in left] == ids[150:160]
        raw.pong()
        assert not raw.messages


@pytest.mark.parametrize("type", [0, 1])  # individual, cumulative
def test_an_acknowledgement_of_what_does_not_exist_spoils_no_other_one(
    server: ServerProcess, type: int
) -> None:
    topic = f"spoiled-{type}"
    with RawClient(server) as raw:
        raw.connect()
        raw.producer(topic, "p")
        raw.send(0, b"first")
        raw.subscribe(topic, "s", 0)
        first = raw.message()[0].message_id
        wrong = {"ledgerId": first.ledgerId, "entryId": first.entryId + 1_000}  # of another partition, say
        raw.socket.sendall(
            simple_frame("ack", consumer_id=1, ack_type=type, message_id=[wrong], request_id=100)
            + simple_frame("ack", consumer_id=1, ack_type=type, message_id=[first], request_id=101)
        )
        answers = {one.request_id: one for one in (raw.receive().ack_response for _ in range(2))}
        assert answers[100].error == ServerError.NOT_ALLOWED
        assert not answers[101].HasField("error")


@pytest.mark.parametrize("count", [1, 2, 300])  # converted in Python, and by kernels
def test_the_offset_is_the_index_of_a_message(server: ServerProcess, count: int) -> None:
    topic = f"indexed-{count}"
    client = connect(server)
    producer = client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=60_000)
    for _ in range(3):
        producer.send_async(b"x", None)
    producer.flush()  # one entry
    client.close()
    with RawClient(server) as raw:
        raw.connect(supports_broker_entry_metadata=True)
        raw.producer(topic, "p")
        raw.socket.sendall(b"".join(raw.send_frame(number, b"%d" % number) for number in range(count)))
        for _ in range(count):
            assert raw.receive().HasField("send_receipt")
        raw.subscribe(topic, "s", 0)
        messages = [raw.message()[0].message_id.entryId for _ in range(1 + count)]
        assert messages == [0, *range(3, 3 + count)]
        assert raw.indexes == [2, *range(3, 3 + count)]  # of a batch, that of its last message


def test_what_is_decompressed_on_a_thread_is_not_overwritten_by_other_clients(server: ServerProcess) -> None:
    payloads = [random.Random(number).randbytes(20_000) * 50 for number in range(20)]
    with RawClient(server) as raw, RawClient(server) as other:
        for one, topic in ((raw, "expanding"), (other, "others")):
            one.connect()
            one.producer(topic, "p")
        noise = other.send_frame(0, b"\0" * 60_000)
        for number, payload in enumerate(payloads):
            metadata = MessageMetadata(
                producer_name=b"p", publish_time=1, compression=2, uncompressed_size=len(payload)
            )
            command = simple_frame("send", producer_id=1, sequence_id=number)[8:]
            frame = payload_frame(command, metadata.SerializeToString(), zlib.compress(payload))
            raw.socket.sendall(frame)
            other.socket.sendall(noise)
            for one in (raw, other):
                assert one.receive().HasField("send_receipt")
        raw.subscribe("expanding", "s", 0)
        found = [raw.message()[1] for _ in payloads]
        assert [zlib.decompress(one) for one in found] == payloads


def test_a_producer_without_a_schema_is_told_a_version_that_can_be_looked_up(server: ServerProcess) -> None:
    with RawClient(server) as raw:
        raw.connect()
        version = raw.producer("bytes", "p", schema={"name": "Bytes", "type": 0}).schema_version
        found = raw.request("get_schema", topic="bytes", schema_version=version).get_schema_response
        assert (found.schema.type, found.schema.HasField("schema_data")) == (0, True)
        assert raw.request("get_schema", topic="bytes").get_schema_response.HasField("error_code")


def test_a_consumer_is_told_whether_it_is_active_once_it_asks_for_messages(server: ServerProcess) -> None:
    failover = 2
    with RawClient(server) as raw, RawClient(server) as other:
        for one, consumer in ((raw, 1), (other, 2)):
            one.connect()
            subscribed = one.request(
                "subscribe", topic="active", subscription="s", subType=failover, consumer_id=consumer
            )
            assert subscribed.HasField("success")
            one.pong()
            assert one.active == []  # Go's client would drop it
        for one, consumer in ((raw, 1), (other, 2)):
            for _ in range(2):
                one.socket.sendall(simple_frame("flow", consumer_id=consumer, messagePermits=1))
            one.pong()
        assert (raw.active, other.active) == ([True], [False])
        raw.request("close_consumer", consumer_id=1)
        other.pong()
        assert other.active == [False, True]


def test_a_watcher_hears_of_topics_that_come_and_go(server: ServerProcess) -> None:
    with RawClient(server) as raw:
        raw.connect()
        raw.producer("seen-0", "p")
        found = raw.request(
            "watch_topic_list",
            watcher_id=7,
            namespace="public/default",
            topics_pattern="persistent://public/default/seen-.*",
        ).watch_topic_list_success
        assert list(found.topic) == ["persistent://public/default/seen-0"]
        with RawClient(server) as other:
            other.connect()
            other.producer("unseen", "p")
            other.producer("seen-1", "p", id=2)
        update = raw.receive().watch_topic_update
        assert (update.watcher_id, list(update.new_topics)) == (7, ["persistent://public/default/seen-1"])
        url = f"http://{server.address('http')}/admin/v2/persistent/public/default/seen-1"
        httpx.delete(url, params={"force": "true"}).raise_for_status()
        assert list(raw.receive().watch_topic_update.deleted_topics) == list(update.new_topics)
        answer = raw.ask(simple_frame("watch_topic_list_close", watcher_id=7, request_id=9))
        assert answer.success.request_id == 9


def test_a_client_renews_its_token_before_it_expires(tmp_path: Path) -> None:
    keys = {"MAINSTEM_API_KEYS": "secret-key"}
    with ServerProcess(tmp_path / "data", "--text", "off", "--kafka", "off", env=keys) as server:
        url, owner = f"http://{server.address('http')}", {"Authorization": "Bearer secret-key"}
        made = httpx.post(
            f"{url}/v0/keys",
            json={"name": "short", "scopes": "read+write", "ttl_ms": 6_000},
            headers=owner,
        )
        token = made.raise_for_status().json()["secret"].encode()
        with RawClient(server) as raw:
            connected = raw.ask(
                simple_frame(
                    "connect",
                    client_version="test",
                    protocol_version=21,
                    auth_method_name="token",
                    auth_data=token,
                    feature_flags={"supports_auth_refresh": True},
                )
            )
            assert connected.HasField("connected"), connected
            assert raw.receive().auth_challenge.challenge.auth_method_name == "token"
            raw.pong()
            # A token of somebody else does not renew this one.
            other = {"auth_method_name": "token", "auth_data": b"secret-key"}
            raw.socket.sendall(simple_frame("auth_response", client_version="test", response=other))
            assert raw.closed()


def test_text_that_is_not_utf_8_is_no_command() -> None:
    whole = simple_frame("lookup", request_id=1, topic="persistent://public/default/x")
    assert parse_frame(memoryview(whole)[4:]).command.lookup.topic.endswith("x")
    with pytest.raises(InvalidFrame):
        parse_frame(memoryview(whole.replace(b"default/x", b"default/\xff"))[4:])


def test_a_reader_that_is_refused_leaves_nothing_behind(server: ServerProcess) -> None:
    with RawClient(server) as raw:
        raw.connect()
        raw.producer("refused", "p")
        refused = raw.request(
            "subscribe",
            topic="refused",
            subscription="reader",
            subType=3,
            consumer_id=1,
            durable=False,
            keySharedMeta={"keySharedMode": 1, "hashRanges": [{"start": 5, "end": 1 << 20}]},
        )
        assert refused.HasField("error")
        url = f"http://{server.address('http')}/admin/v2/persistent/public/default/refused/stats"
        assert httpx.get(url).json()["subscriptions"] == {}


def test_a_reader_is_refused_the_name_of_a_durable_subscription(server: ServerProcess) -> None:
    with RawClient(server) as raw:
        raw.connect()
        raw.producer("named", "p")
        raw.send(0, b"old")
        raw.subscribe("named", "s", 0)
        assert raw.request("close_consumer", consumer_id=1).HasField("success")
        latest = {"ledgerId": (1 << 63) - 1, "entryId": (1 << 63) - 1}
        reader = {"topic": "named", "subType": 0, "durable": False, "start_message_id": latest}
        refused = raw.request("subscribe", subscription="s", consumer_id=2, **reader)
        assert refused.error.error == ServerError.NOT_ALLOWED
        assert raw.request("subscribe", subscription="r", consumer_id=2, **reader).HasField("success")
        raw.subscribe("named", "s", 0, id=3)


def test_an_exclusive_producer_does_not_choose_its_epoch(server: ServerProcess) -> None:
    with RawClient(server) as raw:
        raw.connect()
        exclusive = {"topic": "epochs", "producer_access_mode": 1}
        chosen = [{"topic_epoch": limits.OFFSET_MAX}, {"topic_epoch": 1 << 63}, {}]
        for got, fields in enumerate(chosen, 1):
            answer = raw.request("producer", producer_id=1, **exclusive, **fields)
            assert answer.producer_success.topic_epoch == got
            assert raw.request("close_producer", producer_id=1).HasField("success")
        again = raw.request("producer", producer_id=1, topic_epoch=3, **exclusive)
        assert again.producer_success.topic_epoch == 3


def test_a_durable_subscription_does_not_begin_where_a_reader_of_its_name_was_sent(
    server: ServerProcess,
) -> None:
    with RawClient(server) as raw:
        raw.connect()
        raw.producer("sent", "p")
        raw.send(0, b"old")
        reader = {"topic": "sent", "subscription": "s", "subType": 0, "durable": False, "consumer_id": 1}
        assert raw.request("subscribe", **reader).HasField("success")
        assert raw.request("seek", consumer_id=1, message_publish_time=0).HasField("close_consumer")
        assert raw.receive().HasField("success")
        durable = {**reader, "durable": True, "initialPosition": 0}  # the latest message
        assert raw.request("subscribe", **durable).HasField("success")
        raw.socket.sendall(simple_frame("flow", consumer_id=1, messagePermits=10))
        raw.send(1, b"new")
        assert raw.message()[1] == b"new"


@pytest.mark.parametrize("closes", [True, False])
def test_what_is_closed_or_repeated_while_it_is_created_leaves_nothing_behind(
    server: ServerProcess, *, closes: bool
) -> None:
    topic = f"opening-{closes}"  # creating it takes a while
    with RawClient(server) as raw:
        raw.connect()
        exclusive = {"topic": topic, "producer_id": 1, "producer_access_mode": 1}
        consuming = {"topic": f"{topic}-2", "subscription": "s", "consumer_id": 2, "subType": 0}
        raw.socket.sendall(
            simple_frame("producer", request_id=1, **exclusive)
            + simple_frame("subscribe", request_id=2, **consuming)
            + (
                simple_frame("close_producer", producer_id=1, request_id=3)
                + simple_frame("close_consumer", consumer_id=2, request_id=4)
                if closes
                else simple_frame("producer", request_id=3, **exclusive)
                + simple_frame("subscribe", request_id=4, **consuming)
            )
        )
        answers = [raw.receive() for _ in range(4)]
        failed = {one.error.request_id for one in answers if one.HasField("error")}
        assert len(failed) == 2
        if not closes:
            assert raw.request("close_producer", producer_id=1).HasField("success")
            assert raw.request("close_consumer", consumer_id=2).HasField("success")
        with RawClient(server) as other:
            other.connect()
            assert other.producer(topic, "other", producer_access_mode=1).producer_ready
            other.subscribe(f"{topic}-2", "s", 0)
