"""Groups as real clients use them, against a real server process."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.cluster_server import server_process

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it reads its schemas in a deprecated way
    from kafka import KafkaConsumer
    from kafka.admin import KafkaAdminClient

pytestmark = pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning")

PROTOCOLS: dict[str, dict[str, object]] = {
    "range": {"partition.assignment.strategy": "range", "heartbeat.interval.ms": 200},
    "cooperative": {"partition.assignment.strategy": "cooperative-sticky", "heartbeat.interval.ms": 200},
    "consumer": {"group.protocol": "consumer"},
}
PATIENCE_S = 90.0


def quiet(error: KafkaError) -> None:
    """Broken connections are part of these tests."""


class Reader:
    """A confluent consumer that polls in its own thread."""

    def __init__(self, bootstrap: str, group: str, topic: str, **settings: object) -> None:
        known = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": True,
            "error_cb": quiet,
            "logger": None,
            "on_commit": self._on_commit,
        }
        settings = {name.replace("__", "."): value for name, value in settings.items()}
        self.values: list[bytes] = []
        self.rebalances = 0
        self.commits: dict[int, int] = {}  # partition → offset that the server has confirmed
        self.polls = 0
        self.topics: set[str] = set()
        self.partitions: set[int] = set()
        self._consumer = Consumer({k: v for k, v in {**known, **settings}.items() if v is not None})
        self._consumer.subscribe([topic], on_assign=self._on_assign)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.rebalances += 1

    def _on_commit(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        self.commits |= {
            part.partition: part.offset
            for part in partitions
            if error is None and part.error is None and part.offset >= 0
        }

    def _run(self) -> None:
        while not self._stop.is_set():
            message = self._consumer.poll(0.05)
            self.polls += 1
            # Only here: from another thread it may wait forever for a callback of this one.
            assigned = self._consumer.assignment()
            self.topics = {part.topic for part in assigned}
            self.partitions = {part.partition for part in assigned}
            if message is not None and message.error() is None:
                self.values.append(message.value() or b"")

    def close(self) -> None:
        if not self._stop.is_set():
            self._stop.set()
            self._thread.join()
            self._consumer.close()


def wait_until(true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    turn = threading.Event()
    while not true():
        assert time.monotonic() < deadline, f"in vain: {what}"
        turn.wait(0.02)


def told(reader: Reader) -> None:
    """Give it the time to learn what it was sent, even of a rebalance that gives it nothing new."""
    before = reader.polls
    wait_until(lambda: reader.polls >= before + 10, "it polls")


def shared(readers: list[Reader], partitions: int) -> bool:
    """Each has a share, and together they have every partition once."""
    shares = [reader.partitions for reader in readers]
    return all(shares) and sorted(n for share in shares for n in share) == list(range(partitions))


@pytest.fixture
def topic(bootstrap: str, request: pytest.FixtureRequest) -> str:
    name = request.node.name.replace("[", "-").replace("]", "")
    create(bootstrap, name, 4)
    return name


def create(bootstrap: str, name: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "error_cb": quiet})
    for future in admin.create_topics([NewTopic(name, partitions, 1)]).values():
        future.result()


def produce(bootstrap: str, topic: str, first: int, last: int, partitions: int = 4) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "error_cb": quiet})
    for number in range(first, last):
        producer.produce(topic, str(number).encode(), partition=number % partitions)
    assert producer.flush(PATIENCE_S) == 0


@pytest.fixture
def readers() -> Iterator[ExitStack]:
    """Closes what is entered."""
    with ExitStack() as stack:
        yield stack


def start(stack: ExitStack, *args: Any, **settings: object) -> Reader:
    reader = Reader(*args, **settings)
    stack.callback(reader.close)
    return reader


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_members_share_the_work_and_take_over_from_leaving_members(
    bootstrap: str, topic: str, readers: ExitStack, protocol: str
) -> None:
    settings = PROTOCOLS[protocol]
    produce(bootstrap, topic, 0, 200)
    first = start(readers, bootstrap, topic, topic, **settings)
    wait_until(lambda: first.partitions == {0, 1, 2, 3}, "the first reads all")
    second = start(readers, bootstrap, topic, topic, **settings)
    wait_until(lambda: shared([first, second], 4), "two share")
    produce(bootstrap, topic, 200, 400)
    wait_until(lambda: len(set(first.values + second.values)) == 400, "all is read")
    first.close()
    wait_until(lambda: second.partitions == {0, 1, 2, 3}, "the second takes over")
    produce(bootstrap, topic, 400, 500)
    wait_until(lambda: len(set(first.values + second.values)) == 500, "all is read")
    assert set(first.values + second.values) == {str(number).encode() for number in range(500)}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_group_continues_from_its_committed_offsets(
    bootstrap: str, topic: str, readers: ExitStack, protocol: str
) -> None:
    settings = PROTOCOLS[protocol]
    produce(bootstrap, topic, 0, 100)
    first = start(readers, bootstrap, topic, topic, **settings)
    wait_until(lambda: len(first.values) == 100, "all is read")
    first.close()  # commits
    produce(bootstrap, topic, 100, 150)
    second = start(readers, bootstrap, topic, topic, **settings)
    wait_until(lambda: len(second.values) == 50, "the rest is read")
    assert set(second.values) == {str(number).encode() for number in range(100, 150)}


KILLED = """
import sys
from confluent_kafka import Consumer
consumer = Consumer({"bootstrap.servers": sys.argv[1], "group.id": sys.argv[2], "session.timeout.ms": 1000,
                     "heartbeat.interval.ms": 200})
consumer.subscribe([sys.argv[2]], on_assign=lambda *_: print("assigned", flush=True))
while True:
    consumer.poll(0.1)
"""


def test_a_killed_member_is_replaced_after_its_session(
    bootstrap: str, topic: str, readers: ExitStack
) -> None:
    victim = subprocess.Popen(
        [sys.executable, "-c", KILLED, bootstrap, topic], stdout=subprocess.PIPE, text=True
    )
    with victim:
        try:
            assert victim.stdout is not None
            assert victim.stdout.readline() == "assigned\n"
            fast = {"heartbeat.interval.ms": 200}
            survivor = start(readers, bootstrap, topic, topic, **fast)
            wait_until(lambda: len(survivor.partitions) == 2, "two share")
        finally:
            victim.kill()
    wait_until(lambda: survivor.partitions == {0, 1, 2, 3}, "the survivor takes over")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_restarted_static_member_causes_no_rebalance(
    bootstrap: str, topic: str, readers: ExitStack, protocol: str
) -> None:
    settings = PROTOCOLS[protocol]
    other = start(readers, bootstrap, topic, topic, **settings, **{"group.instance.id": "other"})
    static = start(readers, bootstrap, topic, topic, **settings, **{"group.instance.id": "static"})
    wait_until(lambda: shared([other, static], 4), "two share")
    told(other)
    had, rebalances = static.partitions, other.rebalances
    static.close()  # a static member does not leave
    again = start(readers, bootstrap, topic, topic, **settings, **{"group.instance.id": "static"})
    wait_until(lambda: again.partitions == had, "it has its partitions again")
    told(other)
    assert other.rebalances == rebalances


async def test_three_kinds_of_clients_share_one_group(bootstrap: str, readers: ExitStack) -> None:
    topic = "three-kinds"
    await asyncio.to_thread(create, bootstrap, topic, 6)
    confluent = start(readers, bootstrap, topic, topic, **{"partition.assignment.strategy": "range"})
    await read_with_classic_clients(bootstrap, topic, confluent)
    await asyncio.to_thread(wait_until, lambda: len(confluent.partitions) == 6, "the last takes over")


async def read_with_classic_clients(bootstrap: str, topic: str, confluent: Reader) -> list[bytes]:
    """Members of aiokafka and kafka-python join, get their share, read 60 records with the other, and leave."""
    python = KafkaConsumer(topic, bootstrap_servers=bootstrap, group_id=topic, auto_offset_reset="earliest")
    aio = AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=topic,
        auto_offset_reset="earliest",
        partition_assignment_strategy=[RangePartitionAssignor],  # as the others do
    )
    values: list[bytes] = []
    stop = threading.Event()

    def poll_python() -> None:
        while not stop.is_set():
            for records in python.poll(timeout_ms=50).values():
                values.extend(record.value for record in records)

    polling = asyncio.create_task(asyncio.to_thread(poll_python))
    await aio.start()
    try:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                fetched = await aio.getmany(timeout_ms=50)
                values += [record.value for records in fetched.values() for record in records]
                shares = [
                    {part.partition for part in aio.assignment()},
                    {part.partition for part in python.assignment() or ()},
                    confluent.partitions,
                ]
                if all(shares) and sorted(n for share in shares for n in share) == list(range(6)):
                    break
            await asyncio.to_thread(produce, bootstrap, topic, 0, 60, 6)
            while len(set(values + confluent.values)) < 60:
                fetched = await aio.getmany(timeout_ms=50)
                values += [record.value for records in fetched.values() for record in records]
    finally:
        stop.set()
        await polling
        await asyncio.to_thread(python.close)
        await aio.stop()
    return values


@pytest.mark.parametrize("protocol", ["range", "cooperative"])
def test_clients_change_to_broker_side_assignment_and_back_one_by_one(
    bootstrap: str, topic: str, readers: ExitStack, protocol: str
) -> None:
    """The group never stops: there are always two members, which together read everything."""
    classic, consumer = PROTOCOLS[protocol], PROTOCOLS["consumer"]
    members = [start(readers, bootstrap, topic, topic, **classic) for _ in range(2)]
    everybody = list(members)
    sent = 0
    for settings in (None, consumer, consumer, classic, classic):
        if settings is not None:
            members.append(start(readers, bootstrap, topic, topic, **settings))
            everybody.append(members[-1])
            wait_until(lambda: shared(members, 4), "three share")
            produce(bootstrap, topic, sent, sent + 40)
            sent += 40
            members.pop(0).close()
        wait_until(lambda: shared(members, 4), "two share")
        produce(bootstrap, topic, sent, sent + 40)
        sent += 40
        wanted = {b"%d" % number for number in range(sent)}
        wait_until(
            lambda wanted=wanted: wanted == {value for one in everybody for value in one.values},  # type: ignore[misc]
            "all is read",
        )


async def test_classic_clients_of_other_kinds_share_a_group_with_broker_side_assignment(
    bootstrap: str, readers: ExitStack
) -> None:
    topic = "mixed-kinds"
    await asyncio.to_thread(create, bootstrap, topic, 6)
    confluent = start(readers, bootstrap, topic, topic, **PROTOCOLS["consumer"])
    await asyncio.to_thread(wait_until, lambda: len(confluent.partitions) == 6, "the first reads all")
    values = await read_with_classic_clients(bootstrap, topic, confluent)
    assert {*values, *confluent.values} == {b"%d" % number for number in range(60)}
    await asyncio.to_thread(wait_until, lambda: len(confluent.partitions) == 6, "the last takes over")


def committed(bootstrap: str, group: str, topic: str, partitions: int) -> list[int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "error_cb": quiet})
    try:
        wanted = [TopicPartition(topic, number) for number in range(partitions)]
        return [part.offset for part in consumer.committed(wanted, timeout=PATIENCE_S)]
    finally:
        consumer.close()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_members_and_offsets_survive_a_killed_server(
    tmp_path: Path, readers: ExitStack, protocol: str
) -> None:
    with server_process(tmp_path / "data") as server:
        address = str(server.address("kafka"))
        create(address, "t", 4)
        produce(address, "t", 0, 100)
        fast = {
            **PROTOCOLS[protocol],
            "auto.commit.interval.ms": 100,
            "reconnect.backoff.max.ms": 200,
        }
        both = [start(readers, address, "g", "t", **fast) for _ in range(2)]
        wait_until(lambda: shared(both, 4), "two share")
        wait_until(lambda: len(set(both[0].values + both[1].values)) == 100, "all is read")
        # The clients must know it: librdkafka repeats an unanswered commit, and may do so after a newer one.
        wait_until(
            lambda: both[0].commits | both[1].commits == dict.fromkeys(range(4), 25), "all is committed"
        )
        server.kill()
    with server_process(tmp_path / "data", "--kafka", address):
        assert committed(address, "g", "t", 4) == [25] * 4
        produce(address, "t", 100, 200)
        wait_until(lambda: len(set(both[0].values + both[1].values)) == 200, "the rest is read")
        wait_until(lambda: shared(both, 4), "two share again")
        times = Counter(both[0].values + both[1].values)
        assert all(times[b"%d" % number] == 1 for number in range(100)), "nothing committed was read twice"
        assert max(times.values()) == 1, "nothing was read twice"
        # Not left to the close: a client's last commit may be redirected, which the client does not follow any more.
        wait_until(lambda: committed(address, "g", "t", 4) == [50] * 4, "all is committed")
        for reader in both:
            reader.close()


def test_members_with_broker_side_assignment_continue_after_a_kill_without_a_commit(
    tmp_path: Path, readers: ExitStack
) -> None:
    with server_process(tmp_path / "data") as server:
        address = str(server.address("kafka"))
        create(address, "t", 4)
        quick = {**PROTOCOLS["consumer"], "enable.auto.commit": False, "reconnect.backoff.max.ms": 200}
        both = [start(readers, address, "g", "t", **quick) for _ in range(2)]
        wait_until(lambda: shared(both, 4), "two share")
        # Only now: a partition that is handed over without a commit is read again.
        produce(address, "t", 0, 100)
        wait_until(lambda: len(both[0].values + both[1].values) == 100, "all is read")
        shares, given = [reader.partitions for reader in both], [reader.rebalances for reader in both]
        server.kill()
    with server_process(tmp_path / "data", "--kafka", address):
        produce(address, "t", 100, 200)
        wait_until(lambda: len(set(both[0].values + both[1].values)) == 200, "the rest is read")
        assert len(both[0].values + both[1].values) == 200, "nothing was read twice"
        assert [reader.partitions for reader in both] == shares
        assert [reader.rebalances for reader in both] == given
        for reader in both:
            reader.close()


def test_an_administrator_describes_and_resets_groups(bootstrap: str, topic: str, readers: ExitStack) -> None:
    produce(bootstrap, topic, 0, 40)
    admin = AdminClient({"bootstrap.servers": bootstrap, "error_cb": quiet})
    reader = start(readers, bootstrap, topic, topic)
    wait_until(lambda: len(reader.values) == 40, "all is read")
    listed = admin.list_consumer_groups(states={ConsumerGroupState.STABLE}).result()
    assert topic in {group.group_id for group in listed.valid}
    described = admin.describe_consumer_groups([topic])[topic].result()
    assert described.state == ConsumerGroupState.STABLE
    [member] = described.members
    assert {part.partition for part in member.assignment.topic_partitions} == {0, 1, 2, 3}
    assert described.coordinator.port in [node.port for node in admin.list_topics().brokers.values()]
    with pytest.raises(KafkaException, match=r"not empty|NON_EMPTY"):
        admin.delete_consumer_groups([topic])[topic].result()
    moved = ConsumerGroupTopicPartitions(topic, [TopicPartition(topic, 0, 3)])
    [outcome] = admin.alter_consumer_group_offsets([moved])[topic].result().topic_partitions
    assert outcome.error is not None  # it has members
    reader.close()
    [outcome] = admin.alter_consumer_group_offsets([moved])[topic].result().topic_partitions
    assert outcome.error is None
    whole = ConsumerGroupTopicPartitions(topic)
    found = admin.list_consumer_group_offsets([whole])[topic].result().topic_partitions
    assert sorted((part.partition, part.offset) for part in found or []) == [
        (0, 3),
        (1, 10),
        (2, 10),
        (3, 10),
    ]
    again = start(readers, bootstrap, topic, topic)
    wait_until(lambda: len(again.values) == 7, "the seven records it was moved back by")
    again.close()
    admin.delete_consumer_groups([topic])[topic].result()
    listed = admin.list_consumer_groups().result()
    assert topic not in {group.group_id for group in listed.valid}


def test_an_administrator_describes_a_group_with_broker_side_assignment(
    bootstrap: str, topic: str, readers: ExitStack
) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "error_cb": quiet})
    reader = start(readers, bootstrap, topic, topic, **PROTOCOLS["consumer"])
    wait_until(lambda: len(reader.partitions) == 4, "it reads all")
    described = admin.describe_consumer_groups([topic])[topic].result()
    assert described.state == ConsumerGroupState.STABLE
    assert {part.partition for part in described.members[0].assignment.topic_partitions} == {0, 1, 2, 3}


def test_an_old_style_administrator_does_the_same(bootstrap: str, topic: str, readers: ExitStack) -> None:
    produce(bootstrap, topic, 0, 8)
    reader = start(readers, bootstrap, topic, topic)
    wait_until(lambda: len(reader.values) == 8, "all is read")
    reader.close()
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        assert topic in str(admin.list_groups())
        assert "Empty" in str(admin.describe_groups([topic]))
        offsets = admin.list_group_offsets(topic)
        kept = {part.partition: place.offset for part, place in offsets[topic].items()}
        assert kept == dict.fromkeys(range(4), 2)
        admin.delete_groups([topic])
        assert topic not in str(admin.list_groups())
    finally:
        admin.close()


def test_offsets_in_an_open_transaction_are_waited_for(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic, "error_cb": quiet})
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic, "error_cb": quiet})
    place = [TopicPartition(topic, 0)]
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        producer.init_transactions(PATIENCE_S)
        producer.begin_transaction()
        producer.produce(topic, b"out", partition=1)
        producer.send_offsets_to_transaction(
            [TopicPartition(topic, 0, 7)], consumer.consumer_group_metadata(), PATIENCE_S
        )
        with pytest.raises(KafkaException, match=r"TIMED_OUT|UNSTABLE"):
            consumer.committed(place, timeout=0.5)
        producer.commit_transaction(PATIENCE_S)
        assert [part.offset for part in consumer.committed(place, timeout=PATIENCE_S)] == [7]
    finally:
        consumer.close()


def test_a_reader_without_a_group_membership_commits(bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic, 0, 8)
    settings = {"bootstrap.servers": bootstrap, "group.id": topic, "error_cb": quiet}
    consumer = Consumer(settings)
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        place = TopicPartition(topic, 0, 1, metadata="half way")
        consumer.commit(offsets=[place], asynchronous=False)
        [found] = consumer.committed([TopicPartition(topic, 0)], timeout=PATIENCE_S)
        assert (found.offset, found.metadata) == (1, "half way")
    finally:
        consumer.close()


async def test_aiokafka_commits_and_continues(bootstrap: str, topic: str) -> None:
    await asyncio.to_thread(produce, bootstrap, topic, 0, 40)
    seen: list[bytes] = []
    for upto in (20, 40):
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=topic,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        await consumer.start()
        try:
            async with asyncio.timeout(PATIENCE_S):
                while len(seen) < upto:
                    seen.append((await consumer.getone()).value)
            await consumer.commit()
            places = [await consumer.committed(part) for part in consumer.assignment()]
            assert sum(place or 0 for place in places) == upto
        finally:
            await consumer.stop()
    assert sorted(map(int, seen)) == list(range(40))


def test_kafka_python_commits_and_continues(bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic, 0, 40)
    seen: list[bytes] = []
    for upto in (20, 40):
        consumer = KafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=topic,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            consumer_timeout_ms=int(PATIENCE_S * 1000),
        )
        try:
            while len(seen) < upto:
                seen.append(next(consumer).value)
            consumer.commit()
        finally:
            consumer.close()
    assert sorted(map(int, seen)) == list(range(40))


def test_a_pattern_is_matched_by_the_broker(bootstrap: str, readers: ExitStack) -> None:
    create(bootstrap, "pattern-1", 2)
    reader = start(readers, bootstrap, "by-pattern", "^pattern-[0-9]+$", **PROTOCOLS["consumer"])
    wait_until(lambda: reader.topics == {"pattern-1"}, "the first topic")
    create(bootstrap, "pattern-2", 3)
    create(bootstrap, "no-pattern-3", 3)
    wait_until(lambda: reader.topics == {"pattern-1", "pattern-2"}, "the second one")
