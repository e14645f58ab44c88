"""The contract of the text door, request by request."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import time

import pytest

from mainstem.errors import NoSpace
from mainstem.ledger.config import TopicConfig

from .conftest import Stage, TextStage, Wire


async def test_register_put_get_and_the_end(wire: Wire) -> None:
    assert await wire.ask("REGISTER events") == "OK"
    assert await wire.ask("REGISTER events") == "OK"
    assert await wire.ask("GET events") == "EMPTY"
    assert await wire.ask("PUT events hello  big world") == "OK"
    assert await wire.ask("GET events") == "OK hello  big world"
    assert await wire.ask("GET events") == "EMPTY"


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        ("PUT nowhere x", "ERR unknown topic nowhere"),
        ("GET nowhere", "ERR unknown topic nowhere"),
        ("STATE nowhere", "ERR unknown topic nowhere"),
        ("PUT no/name x", "ERR unknown topic no/name"),
        ("PUT nowhere", "ERR PUT requires a payload"),
        ("REGISTER", "ERR REGISTER requires a topic"),
        ("DROP x", "ERR unknown command"),
        (b"\xc3\x28", "ERR invalid utf-8"),
    ],
)
async def test_error_texts_are_exact_and_the_connection_stays_open(
    wire: Wire, request_: str | bytes, answer: str
) -> None:
    assert await wire.ask(request_) == answer
    assert await wire.ask("REGISTER t") == "OK"


@pytest.mark.parametrize("name", ["no//name", "..", "ü", "x" * 256])
async def test_an_invalid_name_is_refused_with_the_reason(wire: Wire, name: str) -> None:
    answer = await wire.ask(f"REGISTER {name}")
    assert answer.startswith("ERR ")
    assert "letters, digits" in answer


async def test_every_byte_of_utf8_comes_back(wire: Wire) -> None:
    await wire.ask("REGISTER t")
    payload = "".join(map(chr, [*range(9), *range(0x1C, 0x20), 0x7F, 0xE9, 0x2713, 0x1F600])) + "."
    assert await wire.ask(f"PUT t {payload}") == "OK"
    assert await wire.ask("GET t") == f"OK {payload}"


async def test_the_largest_payload_comes_back(wire: Wire) -> None:
    await wire.ask("REGISTER t")
    payload = "x" * (65_536 - len("PUT t "))
    assert await wire.ask(f"PUT t {payload}") == "OK"
    assert await wire.ask("GET t") == f"OK {payload}"


async def test_values_of_another_door_are_returned_unchanged(text: TextStage, wire: Wire) -> None:
    await text.broker.create_topic("t")
    await text.broker.append_values("t", [b"\xff\x00raw", None], keys=[b"k", None])
    wire.send("GET t", "GET t", "GET t")
    assert [await wire.receive() for _ in range(3)] == [b"OK \xff\x00raw", b"OK ", b"EMPTY"]


async def test_get_reads_every_partition(text: TextStage, wire: Wire) -> None:
    await text.broker.create_topic("t", partitions=3)
    for partition in range(3):
        await text.broker.append_values("t", [b"%d" % partition], partition=partition)
    wire.send(*["GET t"] * 5)
    assert sorted(await wire.answers(5)) == ["EMPTY", "EMPTY", "OK 0", "OK 1", "OK 2"]


async def test_state_counts_segments(stage: Stage) -> None:
    async with stage.open(segment_entries=3, broker_id=5) as text:
        wire = await text.connect()
        await wire.ask("REGISTER t")
        assert json.loads(await wire.ask("STATE t")) == {
            "current_segment": 1,
            "leader_node": 5,
            "last_sealed_entry_offset": 0,
            "sealed_segments": {},
            "segment_leaders": {"1": 5},
        }
        wire.send(*["PUT t x"] * 7)
        await wire.answers(7)
        state = json.loads(await wire.ask("STATE t"))
        assert state["current_segment"] == 3
        assert state["sealed_segments"] == {"1": 3, "2": 3}
        assert state["last_sealed_entry_offset"] == 6
        assert state["segment_leaders"] == {"1": 5, "2": 5, "3": 5}


async def test_metrics_show_one_leader_and_a_growing_log(wire: Wire) -> None:
    before = json.loads(await wire.ask("METRICS"))
    await wire.ask("REGISTER t")
    after = json.loads(await wire.ask("METRICS"))
    assert after["current_leader"] == 1
    assert after["state"] == "Leader"
    assert after["membership_config"]["membership"]["configs"] == [[1]]
    assert list(after["membership_config"]["membership"]["nodes"]) == ["1"]
    assert list(after["replication"]) == ["1"]
    assert after["last_log_index"] > before["last_log_index"]


async def test_ten_thousand_pipelined_puts_are_stored_in_order_by_few_commits(
    text: TextStage, wire: Wire
) -> None:
    await wire.ask("REGISTER t")
    before = text.broker.last_position
    wire.send(*(f"PUT t {number}" for number in range(10_000)))
    assert await wire.answers(10_000) == ["OK"] * 10_000
    assert text.broker.last_position - before < 500
    wire.send(*["GET t"] * 10_001)
    assert await wire.answers(10_001) == [*(f"OK {number}" for number in range(10_000)), "EMPTY"]


async def test_responses_keep_the_order_of_mixed_requests(wire: Wire) -> None:
    wire.send(
        "REGISTER a", "REGISTER b", "GET a", "PUT a 1", "PUT b 2", "PUT none 3", "PUT a 4", "PUT a", "x"
    )
    wire.send("GET a", "GET a", "GET b", "GET a", b"\xff", "PUT b 5", "GET b")
    expected = "OK,OK,EMPTY,OK,OK,ERR unknown topic none,OK,ERR PUT requires a payload,ERR unknown command"
    expected += ",OK 1,OK 4,OK 2,EMPTY,ERR invalid utf-8,OK,OK 5"
    assert await wire.answers(16) == expected.split(",")


async def test_two_readers_never_get_the_same_entry(text: TextStage, wire: Wire) -> None:
    await wire.ask("REGISTER t")
    wire.send(*(f"PUT t {number}" for number in range(1000)))
    await wire.answers(1000)

    async def drain(pipelined: int) -> list[str]:
        reader = await text.connect()
        found: list[str] = []
        while True:
            reader.send(*["GET t"] * pipelined)
            answers = await reader.answers(pipelined)
            found += [answer for answer in answers if answer != "EMPTY"]
            if "EMPTY" in answers:
                return found

    taken = [one for found in await asyncio.gather(*map(drain, [1, 1, 7, 100])) for one in found]
    assert sorted(taken) == sorted(f"OK {number}" for number in range(1000))


async def test_a_full_topic_that_rejects_accepts_exactly_what_fits(text: TextStage, wire: Wire) -> None:
    await text.broker.create_topic(
        "t", config=TopicConfig(durability="disk", cap_records=150, discard="reject")
    )
    wire.send(*(f"PUT t {number}" for number in range(400)))
    answers = await wire.answers(400)
    assert answers[:150] == ["OK"] * 150
    assert {answer[:4] for answer in answers[150:]} == {"ERR "}
    wire.send(*["GET t"] * 151)
    assert await wire.answers(151) == [*(f"OK {number}" for number in range(150)), "EMPTY"]


async def test_only_an_oversized_payload_is_refused(text: TextStage, wire: Wire) -> None:
    await text.broker.create_topic("t", config=TopicConfig(durability="disk", max_message_bytes=1000))
    payloads = [str(number) * 150 for number in range(9)]
    payloads[4] = "x" * 2000
    wire.send(*(f"PUT t {payload}" for payload in payloads))
    answers = await wire.answers(9)
    assert answers[4].startswith("ERR ")
    assert "max.message.bytes" in answers[4]
    assert [answer for answer in answers if answer == "OK"] == ["OK"] * 8
    wire.send(*["GET t"] * 9)
    del payloads[4]
    assert await wire.answers(9) == [*(f"OK {payload}" for payload in payloads), "EMPTY"]


async def test_a_refusal_by_the_broker_is_returned_and_the_connection_stays_open(
    text: TextStage, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    await wire.ask("REGISTER t")

    def full(*_: object, **__: object) -> None:
        raise NoSpace("no space left for data: free some")

    with monkeypatch.context() as patched:
        patched.setattr(text.broker.appends, "append", full)
        assert await wire.ask("PUT t x") == "ERR no space left for data: free some"
    assert await wire.ask("PUT t y") == "OK"
    assert await wire.ask("GET t") == "OK y"


async def test_a_bug_is_answered_and_logged_and_the_connection_stays_open(
    text: TextStage, wire: Wire, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await wire.ask("REGISTER t")

    async def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a bug")

    with monkeypatch.context() as patched:
        patched.setattr(text.broker, "take", broken)
        wire.send("GET t", "GET t")
        assert await wire.answers(2) == ["ERR internal error"] * 2
    assert "request failed" in caplog.text
    assert await wire.ask("GET t") == "EMPTY"


async def test_length_and_body_in_two_writes_are_not_held_up(stage: Stage) -> None:
    """Without TCP_NODELAY, the second write waits for the first to be acknowledged: 40 ms, if the server lets it."""
    async with stage.open() as text:

        def ask(count: int) -> float:
            with socket.create_connection((text.address.host, text.address.port), timeout=30) as client:
                begun = time.monotonic()
                for _ in range(count):
                    client.sendall(struct.pack("<I", len(b"REGISTER t")))
                    client.sendall(b"REGISTER t")
                    (length,) = struct.unpack("<I", client.recv(4, socket.MSG_WAITALL))
                    assert client.recv(length, socket.MSG_WAITALL) == b"OK"
                return time.monotonic() - begun

        assert await asyncio.to_thread(ask, 60) < 60 * 0.04 * 0.6
