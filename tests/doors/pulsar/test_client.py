"""Apache Pulsar's client against a real server."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import httpx
import pulsar
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from mainstem.testing.server import ServerProcess
from tests.support.certificates import make_certificates

from .conftest import connect

_WAIT_MS = 10_000
_EARLIEST = pulsar.InitialPosition.Earliest


def _name() -> str:
    return f"t-{uuid.uuid4().hex}"


def _receive(consumer: pulsar.Consumer, count: int) -> list[pulsar.Message]:
    return [consumer.receive(_WAIT_MS) for _ in range(count)]


def _at_end(consumer: pulsar.Consumer) -> bool:
    try:
        consumer.receive(200)
    except pulsar.Timeout:
        return True
    return False


@pytest.mark.parametrize("count", [5, 100])
def test_a_batch_comes_back_with_the_ids_that_its_producer_got(client: pulsar.Client, count: int) -> None:
    name, sent = _name(), []
    producer = client.create_producer(
        name, batching_max_publish_delay_ms=60_000, compression_type=pulsar.CompressionType.ZSTD
    )
    for number in range(count):
        producer.send_async(
            b"v%d" % number,
            lambda _, id: sent.append(id),
            properties={"p": str(number)},
            partition_key=f"k{number}",
            event_timestamp=number + 1,
        )
    producer.flush()
    alone = client.create_producer(name, batching_enabled=False).send(b"last")
    consumer = client.subscribe(name, "s", initial_position=_EARLIEST)
    got = _receive(consumer, count + 1)
    assert [one.data() for one in got] == [b"v%d" % number for number in range(count)] + [b"last"]
    assert [one.message_id() for one in got] == [*sent, alone]
    assert got[3].properties() == {"p": "3"}
    assert (got[3].partition_key(), got[3].event_timestamp(), got[3].redelivery_count()) == ("k3", 4, 0)


def test_the_metrics_count_what_is_delivered(client: pulsar.Client, server: ServerProcess) -> None:
    def counted() -> tuple[float, float]:
        url = f"http://{server.address('http')}/v0/metrics"
        rows = dict(line.rsplit(" ", 1) for line in httpx.get(url).text.splitlines() if line[0] != "#")
        prefix = "mainstem_pulsar_deliver"
        return float(rows[f"{prefix}ies_total"]), float(rows[f"{prefix}ed_bytes_total"])

    name, (entries, size) = _name(), counted()
    for batched in (True, False):
        producer = client.create_producer(name, batching_enabled=batched)
        for _ in range(3):
            producer.send(b"x" * 100)
    _receive(client.subscribe(name, "s", initial_position=_EARLIEST), 6)
    assert counted()[0] - entries == 6
    assert counted()[1] - size >= 600


def test_the_end_of_a_topic_disconnects_no_client(client: pulsar.Client, server: ServerProcess) -> None:
    """This client closes its connection at commands that it does not know."""

    def accepted() -> str:
        text = httpx.get(f"http://{server.address('http')}/v0/metrics").text
        return next(
            row for row in text.splitlines() if row.startswith("mainstem_pulsar_connections_accepted")
        )

    name = _name()
    client.create_producer(name).send(b"last")
    consumer = client.subscribe(name, "s", initial_position=_EARLIEST)
    before = accepted()
    terminate = f"http://{server.address('http')}/admin/v2/persistent/public/default/{name}/terminate"
    httpx.post(terminate).raise_for_status()
    consumer.acknowledge(_receive(consumer, 1)[0])
    for _ in range(5):  # it has everything, and is told so before each of these answers
        consumer.seek(pulsar.MessageId.earliest)
        consumer.acknowledge(_receive(consumer, 1)[0])
    assert accepted() == before


def test_topics_are_the_same_through_kafka(client: pulsar.Client, server: ServerProcess) -> None:
    name = _name()
    bootstrap = {"bootstrap.servers": str(server.address("kafka"))}
    kafka = Producer(bootstrap)
    for number in range(4):
        kafka.produce(name, b"kafka%d" % number, key=b"k", headers={"h": b"x"})
    kafka.flush()
    producer = client.create_producer(name, batching_max_publish_delay_ms=60_000)
    for number in range(3):
        producer.send_async(b"pulsar%d" % number, None, partition_key="p", properties={"a": "b"})
    producer.flush()
    consumer = client.subscribe(
        name, "s", consumer_type=pulsar.ConsumerType.Shared, initial_position=_EARLIEST
    )
    got = _receive(consumer, 7)
    positions = [one.message_id().entry_id() + max(one.message_id().batch_index(), 0) for one in got]
    assert positions == list(range(7))
    assert (got[0].data(), got[0].partition_key(), got[0].properties()) == (b"kafka0", "k", {"h": "x"})
    reader = Consumer({**bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    reader.assign([TopicPartition(name, 0, 0)])
    records = []
    while len(records) < 7:
        records += reader.consume(7 - len(records), 10)
    reader.close()
    assert [(one.offset(), one.value()) for one in records] == [
        (at, one.data()) for at, one in enumerate(got)
    ]
    assert (records[6].key(), records[6].headers()[-1]) == (b"p", ("a", b"b"))


def test_nothing_acknowledged_comes_again_and_nothing_else_is_lost_after_kill(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", "--text", "off", "--kafka", "off") as server:
        client = connect(server)
        producer = client.create_producer("t", batching_max_publish_delay_ms=5)
        consumer = client.subscribe(
            "t", "s", consumer_type=pulsar.ConsumerType.Shared, batch_index_ack_enabled=True
        )
        ids = [producer.send(b"v%d" % number) for number in range(10)]
        for number in range(10, 20):
            producer.send_async(b"v%d" % number, None)
        producer.flush()
        for message in _receive(consumer, 20):
            if int(message.data()[1:]) % 3 == 0:
                consumer.acknowledge(message)
        consumer.close()  # which sends acknowledgements that the client still collects
        server.kill()
        client.shutdown()
    with ServerProcess(tmp_path / "data", "--text", "off", "--kafka", "off") as server:
        client = connect(server)
        consumer = client.subscribe("t", "s", consumer_type=pulsar.ConsumerType.Shared)
        left = _receive(consumer, 13)
        assert sorted(int(one.data()[1:]) for one in left) == [at for at in range(20) if at % 3]
        assert all(one.message_id() in ids for one in left if int(one.data()[1:]) < 10)
        assert _at_end(consumer)
        client.close()


def test_a_returned_message_comes_again_and_is_counted(client: pulsar.Client) -> None:
    name = _name()
    consumer = client.subscribe(
        name, "s", consumer_type=pulsar.ConsumerType.Shared, negative_ack_redelivery_delay_ms=50
    )
    client.create_producer(name).send(b"v")
    for count in range(3):
        message = consumer.receive(_WAIT_MS)
        assert message.redelivery_count() == count
        consumer.negative_acknowledge(message)


def test_the_messages_of_a_closed_consumer_go_to_another_one(client: pulsar.Client) -> None:
    name = _name()
    kind = pulsar.ConsumerType.Shared
    first = client.subscribe(name, "s", consumer_type=kind)
    producer = client.create_producer(name, batching_enabled=False)
    for number in range(6):
        producer.send(b"v%d" % number)
    held = _receive(first, 6)
    first.acknowledge(held[0])
    second = client.subscribe(name, "s", consumer_type=kind)
    first.close()
    assert sorted(one.data() for one in _receive(second, 5)) == sorted(one.data() for one in held[1:])
    assert _at_end(second)


def test_an_exclusive_subscription_takes_one_consumer(client: pulsar.Client) -> None:
    name = _name()
    consumer = client.subscribe(name, "s")
    with pytest.raises(pulsar.ConsumerBusy):
        client.subscribe(name, "s")
    consumer.unsubscribe()
    client.subscribe(name, "s").close()


def test_readers_and_seek_find_their_place(client: pulsar.Client) -> None:
    name = _name()
    producer = client.create_producer(name, batching_enabled=False)
    ids = [producer.send(b"v%d" % number) for number in range(6)]
    reader = client.create_reader(name, ids[2])
    assert reader.read_next(_WAIT_MS).data() == b"v3"
    reader.seek(pulsar.MessageId.earliest)
    assert [reader.read_next(_WAIT_MS).data() for _ in range(6)] == [b"v%d" % at for at in range(6)]
    assert not reader.has_message_available()
    for inclusive, first in ((True, b"v2"), (False, b"v3")):
        reader = client.create_reader(name, ids[2], start_message_id_inclusive=inclusive)
        assert reader.read_next(_WAIT_MS).data() == first
    consumer = client.subscribe(name, "s", start_message_id_inclusive=True)
    consumer.seek(ids[4])
    assert consumer.receive(_WAIT_MS).data() == b"v4"
    assert consumer.get_last_message_id() == ids[5]


def test_a_second_exclusive_producer_is_fenced_or_fences(client: pulsar.Client) -> None:
    name = _name()
    mode = pulsar.ProducerAccessMode
    first = client.create_producer(name, access_mode=mode.Exclusive)
    with pytest.raises(pulsar.ProducerFenced):
        client.create_producer(name, access_mode=mode.Exclusive)
    with pytest.raises(pulsar.ProducerFenced):
        client.create_producer(name, producer_name=first.producer_name(), access_mode=mode.Exclusive)
    with pytest.raises(pulsar.ProducerBusy):
        client.create_producer(name)
    second = client.create_producer(name, access_mode=mode.ExclusiveWithFencing)
    second.send(b"v")
    with pytest.raises((pulsar.ProducerFenced, pulsar.AlreadyClosed)):
        first.send(b"v")


def test_a_large_message_travels_in_chunks(client: pulsar.Client) -> None:
    name, value = _name(), bytes(range(256)) * 24_000
    consumer = client.subscribe(name, "s")
    producer = client.create_producer(name, chunking_enabled=True, batching_enabled=False)
    producer.send(value)
    assert consumer.receive(_WAIT_MS).data() == value


def test_a_name_with_a_cluster_is_refused(client: pulsar.Client) -> None:
    with pytest.raises(pulsar.NotAllowedError):
        client.create_producer("persistent://tenant/cluster/namespace/topic")


def _ask(server: ServerProcess, method: str, path: str, body: str | None = None) -> object:
    request = Request(f"http://{server.address('http')}{path}", method=method)
    request.add_header("Content-Type", "application/json")
    with urlopen(request, None if body is None else body.encode(), timeout=10) as answer:
        data = answer.read()
    return json.loads(data) if data else None


def _refused(server: ServerProcess, method: str, path: str) -> tuple[int, dict[str, str]]:
    with pytest.raises(HTTPError) as error:
        _ask(server, method, path)
    with error.value as answer:
        return answer.code, json.loads(answer.read())


def test_the_admin_api_creates_shows_and_deletes(client: pulsar.Client, server: ServerProcess) -> None:
    name = _name()
    topic = f"/admin/v2/persistent/shop/orders/{name}"
    _ask(server, "PUT", "/admin/v2/namespaces/shop/orders")
    _ask(server, "PUT", f"{topic}/partitions", "3")
    assert _ask(server, "GET", f"{topic}/partitions") == {"partitions": 3, "deleted": False}
    full = f"persistent://shop/orders/{name}"
    assert client.get_topic_partitions(full) == [f"{full}-partition-{at}" for at in range(3)]
    consumer = client.subscribe(full, "s", consumer_type=pulsar.ConsumerType.Shared)
    producer = client.create_producer(full)
    for number in range(6):
        producer.send(b"v%d" % number)
    assert len({one.data() for one in _receive(consumer, 6)}) == 6
    assert _ask(server, "GET", f"{topic}/subscriptions") == ["s"]
    assert _ask(server, "GET", "/admin/v2/namespaces/shop") == ["shop/orders"]
    stats = _ask(server, "GET", f"/admin/v2/persistent/shop/orders/{name}-partition-0/stats")
    assert isinstance(stats, dict)
    assert stats["subscriptions"]["s"]["type"] == "Shared"
    code, body = _refused(server, "DELETE", f"{topic}/partitions")
    assert (code, list(body)) == (412, ["reason"])
    consumer.close()
    producer.close()
    _ask(server, "POST", f"{topic}/subscription/s/skip_all")
    _ask(server, "DELETE", f"{topic}/subscription/s")
    _ask(server, "DELETE", f"{topic}/partitions")
    assert _refused(server, "GET", f"{topic}/stats")[0] == 404
    assert _refused(server, "GET", "/admin/v2/worker/cluster")[0] == 404


def test_a_token_is_needed_where_access_is_restricted(tmp_path: Path) -> None:
    keys = {"MAINSTEM_API_KEYS": "secret-key"}
    with ServerProcess(tmp_path / "data", "--text", "off", "--kafka", "off", env=keys) as server:
        for authentication in (None, pulsar.AuthenticationToken("wrong")):
            refused = connect(server, authentication=authentication, operation_timeout_seconds=1)
            with pytest.raises(pulsar.PulsarException):
                refused.create_producer("t")
            refused.close()
        client = connect(server, authentication=pulsar.AuthenticationToken("secret-key"))
        client.create_producer("t").send(b"v")
        client.close()
        _check_rights_of_the_admin_api(server)


def _check_rights_of_the_admin_api(server: ServerProcess) -> None:
    """Keys that may only read change nothing, and keys of a namespace nothing outside it."""
    url, owner = f"http://{server.address('http')}", {"Authorization": "Bearer secret-key"}
    httpx.put(f"{url}/v0/namespaces/shop", json={}, headers=owner).raise_for_status()

    def key(**asked: object) -> dict[str, str]:
        found = httpx.post(f"{url}/v0/keys", json=asked, headers=owner)
        return {"Authorization": f"Bearer {found.raise_for_status().json()['secret']}"}

    reader = key(name="reader", scopes="read")
    bound = key(name="bound", scopes="read+write+delete+admin", namespace="shop")
    changes = (
        ("PUT", "/admin/v2/namespaces/other/space"),
        ("DELETE", "/admin/v2/namespaces/public/default"),
        ("PUT", "/admin/v2/persistent/public/default/new"),
        ("DELETE", "/admin/v2/persistent/public/default/t"),
        ("POST", "/admin/v2/persistent/public/default/t/subscription/s/skip_all"),
    )
    for method, path in changes:
        for headers, expected in (({}, {401}), (reader, {403, 404})):
            answer = httpx.request(method, url + path, headers=headers)
            assert answer.status_code in expected, (method, path, answer.text)
        answer = httpx.request(method, url + path, headers=bound)  # public/default is its own namespace
        assert answer.status_code in ({204} if path.endswith("/new") else {403, 404, 412}), (
            method,
            path,
            answer.text,
        )
    listed = httpx.get(f"{url}/admin/v2/persistent/public/default", headers=owner)
    assert {name.rpartition("/")[2] for name in listed.json()} == {"t", "__audit"}


def test_a_certificate_names_the_client(tmp_path: Path) -> None:
    files = make_certificates(tmp_path)
    tls = ("--pulsar-tls-cert", str(files / "server.pem"), "--pulsar-tls-key", str(files / "server.key"))
    flags = (*tls, "--pulsar-tls-ca", str(files / "ca.pem"), "--text", "off", "--kafka", "off")
    names = ("--kafka-super-users", "CN=pump-7,O=Plant\\, North")
    with ServerProcess(tmp_path / "data", *flags, *names) as server:
        url = f"pulsar+ssl://{server.address('pulsar')}"
        shown = {"logger": pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null")}
        trusted = {"tls_trust_certs_file_path": str(files / "ca.pem"), "operation_timeout_seconds": 20}
        certificate = pulsar.AuthenticationTLS(str(files / "client.pem"), str(files / "client.key"))
        client = pulsar.Client(url, authentication=certificate, **trusted, **shown)
        client.create_producer("t").send(b"v")
        client.close()
        trusted["operation_timeout_seconds"] = 1
        anonymous = pulsar.Client(url, **trusted, **shown)
        with pytest.raises(pulsar.PulsarException):
            anonymous.create_producer("t")
        anonymous.close()
