"""Clients that break the rules get an error, a close or a limit; the others notice nothing."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct

import pytest

from mainstem import limits
from mainstem.doors.budget import Budget
from mainstem.doors.text.connections import TextConnections
from mainstem.doors.text.service import TextService

from .conftest import Stage, TextStage, Wire


@pytest.mark.parametrize("length", [0, 65_537, 2**32 - 1])
async def test_an_invalid_length_is_answered_in_order_and_closes_the_connection(
    wire: Wire, length: int
) -> None:
    wire.send("REGISTER t", "PUT t x")
    wire.writer.write(struct.pack("<I", length) + b"whatever")
    wire.send("PUT t never")
    assert await wire.answers(3) == ["OK", "OK", "ERR invalid frame length"]
    assert await wire.ended()


async def test_a_client_that_sends_an_oversized_body_still_gets_the_error(wire: Wire) -> None:
    wire.writer.write(struct.pack("<I", 2**31) + b"x" * 4_000_000)
    assert await wire.receive() == b"ERR invalid frame length"
    assert await wire.ended()


async def test_nothing_after_an_invalid_length_is_executed(text: TextStage, wire: Wire) -> None:
    await wire.ask("REGISTER t")
    wire.writer.write(struct.pack("<I", 0))
    wire.send("PUT t never")
    assert await wire.receive() == b"ERR invalid frame length"
    other = await text.connect()
    assert await other.ask("GET t") == "EMPTY"


async def test_a_truncated_frame_changes_nothing(text: TextStage, wire: Wire) -> None:
    await wire.ask("REGISTER t")
    wire.writer.write(struct.pack("<I", 100) + b"PUT t half")
    wire.writer.write_eof()
    assert await wire.ended()
    other = await text.connect()
    assert await other.ask("GET t") == "EMPTY"


async def test_garbage_never_stops_the_door(text: TextStage) -> None:
    noise = random.Random(20)
    for _ in range(30):
        wire = await text.connect()
        wire.writer.write(noise.randbytes(noise.randrange(1, 2000)))
        wire.writer.write_eof()
        await asyncio.wait_for(wire.reader.read(), 30)
    assert await (await text.connect()).ask("REGISTER t") == "OK"


async def test_a_frame_may_come_byte_by_byte(wire: Wire) -> None:
    for byte in struct.pack("<I", 10) + b"REGISTER t":
        wire.writer.write(bytes([byte]))
        await wire.writer.drain()
        await asyncio.sleep(0)
    assert await wire.receive() == b"OK"


async def test_a_client_that_half_closes_still_gets_all_responses(wire: Wire) -> None:
    wire.send("REGISTER t", *(f"PUT t {number}" for number in range(5000)))
    wire.writer.write_eof()
    assert await wire.answers(5001) == ["OK"] * 5001
    assert await wire.ended()


async def test_puts_of_a_disconnected_client_are_kept_and_its_gets_consume_nothing(
    text: TextStage, wire: Wire
) -> None:
    await wire.ask("REGISTER t")
    gone = await text.connect()
    gone.send(*(f"PUT t {number}" for number in range(2000)), "GET t")
    await gone.writer.drain()
    assert await gone.receive() == b"OK"  # the first run is in progress or done
    gone.writer.transport.abort()
    await text.door.stop(30.0)
    # What was taken before it left is consumed, but never more than what it could have read.
    records = await text.broker.read("t", 0, max_records=5000)
    assert [record.value for record in records] == [b"%d" % number for number in range(len(records))]


async def test_too_many_connections_get_an_error(stage: Stage) -> None:
    async with stage.open(connections_max=2) as text:
        first, second = await text.connect(), await text.connect()
        assert await first.ask("REGISTER t") == "OK"
        assert await second.ask("REGISTER t") == "OK"
        third = await text.connect()
        assert await third.receive() == b"ERR too many connections"
        assert await third.ended()
        await first.close()
        while True:  # until the server notices that it closed
            fourth = await text.connect()
            if await fourth.ask("GET t") == "EMPTY":
                break


async def test_a_client_that_never_reads_is_bounded_and_disconnected(stage: Stage) -> None:
    async with stage.open(stall_s=0.3) as text:
        flood = struct.pack("<I", 7) + b"METRICS"
        loop = asyncio.get_running_loop()
        deaf = socket.socket()
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.setblocking(False)
        await loop.sock_connect(deaf, (text.address.host, text.address.port))
        sent = await asyncio.wait_for(_send_until_cut_off(loop, deaf, flood * 1000), 60)
        deaf.close()
        # Requests of a bounded pipeline and the kernel's buffers, not a gigabyte.
        assert sent < 64 * limits.MIB
        assert await (await text.connect()).ask("REGISTER t") == "OK"


async def _send_until_cut_off(loop: asyncio.AbstractEventLoop, client: socket.socket, data: bytes) -> int:
    sent = 0
    with contextlib.suppress(ConnectionError):
        while sent < limits.GIB:
            await loop.sock_sendall(client, data)
            sent += len(data)
    return sent


async def test_reading_pauses_while_too_many_requests_are_unanswered(
    text: TextStage, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    await wire.ask("REGISTER t")
    held = asyncio.Event()
    real = text.broker.append_values
    served = 0

    async def slow(topic: str, values: list[bytes]) -> object:
        nonlocal served
        await held.wait()
        served += len(values)
        return await real(topic, values)

    monkeypatch.setattr(text.broker, "append_values", slow)
    monkeypatch.setattr(TextService, "put", lambda *_: False)  # a PUT that arrives alone waits, too
    payload = "x" * 60_000
    wire.send(*[f"PUT t {payload}"] * 400)  # 24 MB
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(wire.writer.drain(), 0.5)  # the server accepts no more
    assert served == 0
    held.set()
    assert await wire.answers(400) == ["OK"] * 400
    assert served == 400


async def test_a_stop_answers_received_requests_and_refuses_new_clients(text: TextStage, wire: Wire) -> None:
    await wire.ask("REGISTER t")
    idle = await text.connect()
    assert await idle.ask("GET t") == "EMPTY"
    wire.send(*(f"PUT t {number}" for number in range(1000)))
    await wire.writer.drain()
    first = await wire.receive()
    stopping = asyncio.create_task(text.door.stop(30.0))
    rest = await wire.reader.read()
    await wire.close()
    assert await idle.ended()
    await idle.close()
    assert await stopping == 0
    assert first == b"OK"
    # Every response is for a record, and everything received was answered.
    answers = rest.count(b"\x02\0\0\0OK")
    assert len(rest) == answers * 6
    assert text.broker.partition("t").end == 1 + answers
    with pytest.raises(ConnectionRefusedError):
        await text.connect()


async def test_a_drain_disconnects_clients_that_do_not_finish() -> None:
    class Stubborn:
        aborted = False
        peer = "test"
        incomplete = False

        def unused_since(self) -> None:
            return None

        def finish(self) -> None:
            pass

        def abort(self) -> None:
            self.aborted = True

    connections = TextConnections(Budget(2), 2, idle_s=60)
    stubborn = Stubborn()
    assert connections.admit(stubborn)
    assert await connections.drain(0.01) == 1
    assert stubborn.aborted
