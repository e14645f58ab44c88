"""Kill -9 of server and client under the four types of subscriptions."""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from pathlib import Path

from mainstem.doors.pulsar.wire import simple_frame
from mainstem.testing.server import ServerProcess

from .conftest import connect
from .raw_client import RawClient

_TYPES = {0: "exclusive", 1: "shared", 2: "failover", 3: "key-shared"}
_KEYS = 5
_MESSAGES = 60
_FLAGS = ("--text", "off", "--kafka", "off")


def _publish(raw: RawClient, type: int, numbers: range) -> None:
    raw.producer(_TYPES[type], f"p{numbers.start}", id=10 + type)
    for number in numbers:
        receipt = raw.send(number, b"%d" % number, id=10 + type, key=b"k%d" % (number % _KEYS))
        assert receipt.HasField("send_receipt"), receipt


def _consume(raw: RawClient, type: int, first_id: int) -> None:
    for consumer in range(1 if type == 0 else 2):
        raw.subscribe(_TYPES[type], "s", type, id=first_id + consumer)


def _check_order_of_keys(numbers: list[int]) -> None:
    by_key: dict[int, list[int]] = defaultdict(list)
    for number in numbers:
        by_key[number % _KEYS].append(number)
    assert all(found == sorted(found) for found in by_key.values()), by_key


def test_the_four_types_lose_and_repeat_nothing_when_the_server_is_killed(tmp_path: Path) -> None:
    chosen = random.Random(1)
    acked: dict[int, set[int]] = {type: set() for type in _TYPES}
    unsure: dict[int, set[int]] = {type: set() for type in _TYPES}  # no receipt came before the kill
    with ServerProcess(tmp_path / "data", *_FLAGS) as server, RawClient(server) as raw:
        raw.connect()
        for type in _TYPES:
            _publish(raw, type, range(_MESSAGES))
            _consume(raw, type, 10 * type)
            got = [raw.message() for _ in range(_MESSAGES)]
            assert sorted(int(payload) for _, payload in got) == list(range(_MESSAGES))
            if type in (0, 2, 3):
                _check_order_of_keys([int(payload) for _, payload in got])
            for message, payload in chosen.sample(got, _MESSAGES // 2):
                assert not raw.ack(message.message_id, consumer=message.consumer_id).HasField("error")
                acked[type].add(int(payload))
            left = [one for one in got if int(one[1]) not in acked[type]]
            for message, payload in chosen.sample(left, 5):
                raw.socket.sendall(
                    simple_frame("ack", consumer_id=message.consumer_id, message_id=[message.message_id])
                )
                unsure[type].add(int(payload))
        server.kill()
    with ServerProcess(tmp_path / "data", *_FLAGS) as server, RawClient(server) as raw:
        raw.connect()
        for type in _TYPES:
            _publish(raw, type, range(_MESSAGES, _MESSAGES + _KEYS))
            _consume(raw, type, 10 * type)
            got = []
            while not {*range(_MESSAGES, _MESSAGES + _KEYS)} <= {*got}:
                got.append(int(raw.message()[1]))
            assert len(got) == len({*got})
            assert not acked[type] & {*got}
            assert {*range(_MESSAGES)} - acked[type] - unsure[type] <= {*got}
            if type != 1:
                _check_order_of_keys(got)


def test_messages_of_a_client_that_dies_go_to_another_one_in_the_order_of_their_keys(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", *_FLAGS) as server, RawClient(server) as raw:
        raw.connect()
        for type in (1, 2, 3):
            with RawClient(server) as dying:
                dying.connect()
                dying.subscribe(_TYPES[type], "s", type, id=1)
                _publish(raw, type, range(_MESSAGES))
                got = [dying.message() for _ in range(_MESSAGES)]
                assert [int(payload) for _, payload in got] == list(range(_MESSAGES))
                for message, _ in got[:: _KEYS + 1]:
                    dying.ack(message.message_id)
                _consume(raw, type, 10 * type)
            left = sorted({*range(_MESSAGES)} - {*range(0, _MESSAGES, _KEYS + 1)})
            again = [int(raw.message()[1]) for _ in left]
            assert sorted(again) == left
            if type != 1:
                _check_order_of_keys(again)


def test_the_epoch_of_exclusive_producers_rises_across_a_kill(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", *_FLAGS) as server, RawClient(server) as raw:
        raw.connect()
        assert raw.producer("t", "a", producer_access_mode=3).topic_epoch == 1
        with RawClient(server) as other:
            other.connect()
            assert other.producer("t", "b", producer_access_mode=3).topic_epoch == 2
        assert raw.receive().HasField("close_producer")
        server.kill()
    with ServerProcess(tmp_path / "data", *_FLAGS) as server, RawClient(server) as raw:
        raw.connect()
        refused = raw.request(
            "producer", topic="t", producer_id=1, producer_name="a", producer_access_mode=1, topic_epoch=1
        )
        assert refused.error.error == 25
        assert raw.producer("t", "b", id=2, producer_access_mode=1, topic_epoch=2).topic_epoch == 2


def test_messages_in_chunks_are_stored_whole_and_once_when_the_server_is_killed(tmp_path: Path) -> None:
    contents = [random.Random(number).randbytes(12_000_000) for number in range(4)]
    flags = (*_FLAGS, "--pulsar-deduplication", "true")
    first = ServerProcess(tmp_path / "data", *flags)
    with first:
        address = first.address("pulsar")
        client = connect(first)
        producer = client.create_producer("t", chunking_enabled=True, send_timeout_millis=0)
        assert producer.send(contents[0])
        stored = [threading.Event() for _ in contents]
        for number, content in enumerate(contents[1:], 1):
            producer.send_async(content, lambda *_, one=stored[number]: one.set())
        assert stored[1].wait(60)
        first.kill()  # in the middle of the others
    with ServerProcess(tmp_path / "data", *flags, "--pulsar", str(address)) as second:
        assert all(one.wait(60) for one in stored[2:])
        client.close()
        with RawClient(second) as raw:
            raw.connect()
            raw.producer("t", "last")
            assert raw.send(0, b"end").HasField("send_receipt")
            raw.subscribe("t", "s", 0)
            pieces = list(iter(lambda: raw.message()[1], b"end"))
    # Earlier chunks may be stored twice, and clients leave them out. The last one completes its message.
    for content in contents:
        found = [(content.find(piece), len(piece)) for piece in pieces if piece in content]
        ends = [start + size for start, size in found]
        assert ends.count(len(content)) == 1
        assert ends[-1] == len(content)
        assert sum(size for _, size in set(found)) == len(content)
