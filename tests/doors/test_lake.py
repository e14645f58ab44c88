"""Every door reads the same records while they move to Parquet and the log's files are deleted."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from mainstem.api.lake import PlanRequest, TaskKind
from mainstem.client.broker import BrokerClient
from mainstem.errors import OffsetOutOfRange, StalePlan
from mainstem.tables.parts.materialise import materialise
from mainstem.testing.server import ServerProcess
from tests.support.text import TextClient

_RECORDS = 400
_FLAGS = (
    "--lake-topics",
    "all",
    "--segment-bytes",
    "64KiB",
    "--checkpoint-every-bytes",
    "64KiB",
    "--tail-cache-bytes",
    "0",
)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path / "data", *_FLAGS) as running:
        yield running


def http(server: ServerProcess) -> httpx.Client:
    return httpx.Client(base_url=f"http://{server.address('http')}", timeout=60)


def lake(server: ServerProcess) -> BrokerClient:
    return BrokerClient(f"http://{server.address('http')}")


def work(broker: BrokerClient, *kinds: TaskKind, topics: tuple[str, ...] = ()) -> int:
    """Do all work that is due. Returns the number of tasks."""
    done = 0
    asked = kinds or ("materialise", "rewrite", "merge", "compact")
    while tasks := broker.plan(PlanRequest("test", topics, asked)).tasks:
        for task in tasks:
            broker.publish(materialise(task))
        done += len(tasks)
    return done


def produce(server: ServerProcess, topic: str, first: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": str(server.address("kafka")), "linger.ms": 1})
    for number in range(first, first + count):
        producer.produce(
            topic,
            value=b"%d-" % number + b"v" * 300,
            key=b"k%d" % (number % 7) if number % 3 else None,
            headers=[("h", b"%d" % number)],
            timestamp=1_700_000_000_000 + number * 60_000,
        )
        if number % 20 == 19:
            producer.flush(30)
    assert producer.flush(30) == 0


def consume(
    server: ServerProcess, topic: str, start: int, end: int, isolation: str = "read_committed"
) -> list[tuple[Any, ...]]:
    """With librdkafka, from an offset to an end."""
    consumer = Consumer(
        {
            "bootstrap.servers": str(server.address("kafka")),
            "group.id": "g",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "check.crcs": True,
        }
    )
    found: list[tuple[Any, ...]] = []
    try:
        consumer.assign([TopicPartition(topic, 0, start)])
        while True:
            message = consumer.poll(30)
            assert message is not None
            error = message.error()
            if error is not None:
                assert error.name() == "_PARTITION_EOF", error
                break
            offset = message.offset()
            if offset is None or offset >= end:
                break
            found.append(
                (
                    offset,
                    message.timestamp(),
                    message.key(),
                    message.value(),
                    message.headers(),
                )
            )
    finally:
        consumer.close()
    return found


def diff(client: httpx.Client, topic: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    at = 0
    while True:
        body = {"from_seq": at, "limit": 97, "include_tags": True}
        page = client.post(f"/v0/topics/{topic}/diff", json=body).json()
        assert page["tombstone"] is None
        found += page["records"]
        at = page["next_from_seq"]
        if page["caught_up"]:
            return found


def drop_the_log(server: ServerProcess, client: httpx.Client, broker: BrokerClient) -> None:
    """Continue until every present file of the log is deleted: checkpoints have to pass it first."""
    folder = server.ports_file.parent / "data" / "wal"
    last = max(path.name for path in folder.iterdir())
    deadline = time.monotonic() + 90
    while min(path.name for path in folder.iterdir()) <= last:
        assert time.monotonic() < deadline, "the files of the log stay"
        for _ in range(4):
            client.post("/v0/topics/filler", json={"records": [{"data": "x" * 8_000}] * 4}).raise_for_status()
        work(broker, "materialise")
        broker.collect()


def test_kafka_and_http_read_the_same_before_and_after_every_step(server: ServerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": str(server.address("kafka"))})
    admin.create_topics([NewTopic("t", 1)])["t"].result(30)
    produce(server, "t", 0, _RECORDS)
    with http(server) as client, lake(server) as broker:
        client.post(
            "/v0/topics/h",
            json={"records": [{"data": {"n": n}, "tag": f"k{n % 5}", "meta": {"m": n}} for n in range(300)]},
        ).raise_for_status()
        by_kafka, by_http = consume(server, "t", 0, _RECORDS), diff(client, "h")
        starts = (0, 1, 19, 20, 133, 250, _RECORDS - 1)

        def same() -> None:
            assert consume(server, "t", 0, _RECORDS) == by_kafka
            for start in starts:
                assert consume(server, "t", start, _RECORDS) == by_kafka[start:]
            assert diff(client, "h") == by_http

        assert len(by_kafka) == _RECORDS
        assert len(by_http) == 300
        tasks = broker.plan(PlanRequest("test", ("t",))).tasks
        publications = [materialise(task) for task in tasks]
        same()  # the files exist, and nothing is published
        for publication in publications:
            broker.publish(publication)
            same()
        with pytest.raises(StalePlan):
            broker.extend(publications[0].stream, publications[0].token, 10_000)
        work(broker)
        same()
        drop_the_log(server, client, broker)
        same()
        assert server.kill() != 0
    with ServerProcess(server.ports_file.parent / "data", *_FLAGS) as again, http(again) as client:
        assert consume(again, "t", 0, _RECORDS) == by_kafka
        assert diff(client, "h") == by_http


def test_a_reader_sees_no_gap_and_no_error_while_records_move(server: ServerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": str(server.address("kafka"))})
    admin.create_topics([NewTopic("t", 1)])["t"].result(30)
    stop = threading.Event()
    faults: list[BaseException] = []
    rounds = [0, 0]

    def read_over_and_over(number: int) -> None:
        try:
            while not stop.is_set():
                found = consume(server, "t", 0, _RECORDS * 4)
                offsets = [one[0] for one in found]
                assert offsets == list(range(len(offsets)))
                assert all(one[3].startswith(b"%d-" % (one[0] % _RECORDS)) for one in found)
                rounds[number] += 1
        except BaseException as fault:  # noqa: BLE001 - told below
            faults.append(fault)

    with http(server) as client, lake(server) as broker:
        readers = [threading.Thread(target=read_over_and_over, args=(number,)) for number in range(2)]
        for reader in readers:
            reader.start()
        try:
            for _ in range(4):
                produce(server, "t", 0, _RECORDS)
                work(broker)
            drop_the_log(server, client, broker)
        finally:
            stop.set()
            for reader in readers:
                reader.join(60)
    assert not faults
    assert min(rounds) >= 1


@pytest.mark.slow
def test_committed_records_read_the_same_and_aborted_ones_are_left_out(
    server: ServerProcess,
) -> None:
    admin = AdminClient({"bootstrap.servers": str(server.address("kafka"))})
    admin.create_topics([NewTopic("t", 1)])["t"].result(30)
    producer = Producer({"bootstrap.servers": str(server.address("kafka")), "transactional.id": "x"})
    producer.init_transactions(30)
    for number in range(12):
        producer.begin_transaction()
        for record in range(5):
            producer.produce("t", value=b"%d-%d" % (number, record))
        producer.flush(30)  # else aborted records are never sent
        if number % 3 == 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
    with http(server) as client, lake(server) as broker:
        before = consume(server, "t", 0, 10**9)
        assert len(before) == 40
        work(broker)
        assert consume(server, "t", 0, 10**9) == before
        drop_the_log(server, client, broker)
        for start in (0, 3, 5, 6, 17, 30, 70):
            assert consume(server, "t", start, 10**9) == [one for one in before if one[0] >= start]
        state = client.get("/v0/lake/status").json()
        topic = next(one for one in state["topics"] if one["topic"] == "t")
        assert topic["partitions"][0]["records"] == 40
        assert topic["partitions"][0]["materialised_to"] == 72


@pytest.mark.parametrize("cache", [(), ("--tail-cache-bytes", "64MiB")])
def test_records_after_a_part_that_ends_with_an_abort_are_read(
    tmp_path: Path, cache: tuple[str, ...]
) -> None:
    """The marker of the abort is in no part: clients must not extend the abort over later records."""
    with ServerProcess(tmp_path / "data", *_FLAGS, *cache) as server, lake(server) as broker:
        admin = AdminClient({"bootstrap.servers": str(server.address("kafka"))})
        admin.create_topics([NewTopic("t", 1)])["t"].result(30)
        producer = Producer({"bootstrap.servers": str(server.address("kafka")), "transactional.id": "x"})
        producer.init_transactions(30)

        def transaction(number: int, *, commit: bool) -> None:
            producer.begin_transaction()
            for record in range(5):
                producer.produce("t", value=b"%d-%d" % (number, record))
            producer.flush(30)  # else aborted records are never sent
            (producer.commit_transaction if commit else producer.abort_transaction)(30)

        transaction(0, commit=True)
        transaction(1, commit=False)
        work(broker)
        transaction(2, commit=True)
        transaction(3, commit=False)
        transaction(4, commit=True)
        everything = [*range(5), *range(12, 17), *range(24, 29)]
        for start in (0, 3, 5, 6, 8, 11, 12, 18):
            read = consume(server, "t", start, 10**9)
            assert [one[0] for one in read] == [offset for offset in everything if offset >= start]
        transaction(5, commit=False)
        work(broker)
        assert reached(server, "t") == 36  # the end, although no part holds anything of the last transaction


def reached(server: ServerProcess, topic: str) -> int:
    """The position of a client that has read everything and knows that it is at the end."""
    consumer = Consumer(
        {
            "bootstrap.servers": str(server.address("kafka")),
            "group.id": "at the end",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            message = consumer.poll(1.0)
            error = message and message.error()
            if message and error and error.code() == KafkaError._PARTITION_EOF:
                return int(message.offset())
        raise AssertionError("a client does not get to the end")
    finally:
        consumer.close()


@pytest.mark.slow
def test_the_text_door_takes_the_same_records_from_parts(server: ServerProcess) -> None:
    with TextClient(server.address("text")) as text, http(server) as client, lake(server) as broker:
        text.ask("REGISTER q")
        for number in range(120):
            assert (text.ask(f"PUT q value {number} {'x' * 200}") or "").startswith("OK")
        first = [text.ask("GET q") for _ in range(40)]
        assert "value 39" in (first[-1] or "")
        work(broker)
        second = [text.ask("GET q") for _ in range(40)]
        drop_the_log(server, client, broker)
        third = [text.ask("GET q") for _ in range(40)]
        taken = [answer or "" for answer in (*first, *second, *third)]
        assert [f"value {number} " in answer for number, answer in enumerate(taken)] == [True] * 120


def test_deleted_records_leave_the_files_and_readers_continue(server: ServerProcess) -> None:
    with http(server) as client, lake(server) as broker:
        client.post(
            "/v0/topics/h", json={"records": [{"data": n, "tag": f"k{n % 4}"} for n in range(200)]}
        ).raise_for_status()
        work(broker)
        assert client.post("/v0/topics/h/delete", json={"match": "k1"}).status_code == 200
        left = diff(client, "h")
        assert len(left) == 150
        assert work(broker) == 1  # the rewrite
        assert diff(client, "h") == left
        status = client.get("/v0/lake/status").json()
        topic = next(one for one in status["topics"] if one["topic"] == "h")
        assert topic["partitions"][0]["records"] == 150


def test_batch_reads_return_where_to_continue(server: ServerProcess) -> None:
    with http(server) as client, lake(server) as broker:
        client.post("/v0/topics/h", json={"records": [{"data": n} for n in range(50)]}).raise_for_status()
        before = client.get("/v0/topics/h/batches?from=10")
        assert before.headers["mainstem-next-offset"] == "50"
        work(broker)
        after = client.get("/v0/topics/h/batches?from=10")
        assert (after.headers["mainstem-start-offset"], after.headers["mainstem-end-offset"]) == ("0", "50")
        assert after.headers["mainstem-next-offset"] == "50"
        assert after.headers["content-type"] == "application/octet-stream"
        at_end = client.get("/v0/topics/h/batches?from=50&wait_ms=10")
        assert (at_end.status_code, at_end.content) == (200, b"")
        past = client.get("/v0/topics/h/batches?from=51")
        detail = past.json()["error"]["detail"]
        assert (past.status_code, detail["start"], detail["end"]) == (416, 0, 50)
        with pytest.raises(OffsetOutOfRange):
            broker.sources("h", 0, 51, 60)
        sources = broker.sources("h", 0, 10, 20)
        assert (sources.base, sources.end, len(sources.parts), sources.wal) == (10, 20, 1, ())


def _publications(*bodies: object) -> dict[str, Any]:
    return {"publications": list(bodies)}


def test_each_publication_is_refused_by_itself(shared: ServerProcess) -> None:
    wrong = [
        {"stream": 0, "token": 1, "sources": [], "parts": []},
        {"stream": 10**12, "token": 1, "sources": [], "parts": [[0, 1, 1, [], 0]]},
        {"stream": 10**30, "token": 1, "sources": [], "parts": [[0, 10**30, 1, [], 0]]},
    ]
    with http(shared) as client:
        answer = client.post("/v0/lake/publish", json=_publications(*wrong))
    assert answer.status_code == 200, answer.text
    codes = [result["error"]["code"] for result in answer.json()["results"]]
    assert codes == ["not_found", "not_found", "invalid_request"]


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("plan", {}, 400),
        ("plan", {"holder": "x", "lease_ms": 1}, 400),
        ("plan", {"holder": "x", "tasks_max": 0}, 400),
        ("plan", {"holder": "x", "kinds": ["magic"]}, 400),
        ("publish", {"stream": 0, "token": 1, "sources": [], "parts": []}, 400),
        ("publish", _publications({"stream": 0, "token": 1, "sources": [], "parts": [["x"]]}), 400),
        ("extend", {"stream": 0, "token": 1, "lease_ms": 10_000}, 409),
        ("extend", {"stream": -5, "token": 10**30, "lease_ms": 10_000}, 400),
        ("extend", {"stream": 10**30, "token": 1, "lease_ms": 10**30}, 400),
        ("release", {"stream": 0, "token": 1}, 200),
        ("sources", {"topic": "none", "from": 0, "to": 1}, 404),
        ("sources", {"topic": "none", "from": -1, "to": 1}, 400),
        ("sources", {"topic": "none", "from": 10**40, "to": 1}, 400),
        ("collect", {}, 200),
    ],
)
def test_invalid_requests_are_refused(
    shared: ServerProcess, path: str, body: dict[str, Any], status: int
) -> None:
    with http(shared) as client:
        answer = client.post(f"/v0/lake/{path}", json=body)
        assert answer.status_code == status, answer.text


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("lake") / "data", *_FLAGS) as running:
        yield running
