"""Many connections that send large records ahead: what they append at once, and what is read from them."""

from __future__ import annotations

import asyncio
import struct

from mainstem import limits
from mainstem.address import Address
from mainstem.doors import budget as budgets
from mainstem.doors.budget import Budget
from mainstem.doors.text.door import TextDoor
from tests.support.machine import Machine
from tests.support.waiting import until

_CLIENTS, _AHEAD, _SIZE = 60, 12, 60 * limits.KIB


async def test_others_append_while_many_clients_send_ahead() -> None:
    machine = Machine()
    broker = await machine.open()
    await broker.create_topic("flooded")
    await broker.create_topic("other")
    budget = Budget()
    door = TextDoor(broker, budget=budget)
    bound = await door.start(Address("127.0.0.1", 0))
    port = machine.port
    assert port is not None
    port.append_gate.clear()
    body = b"PUT flooded " + bytes(_SIZE)
    writers = []
    try:
        for _ in range(_CLIENTS):
            _, writer = await asyncio.open_connection(bound.host, bound.port)
            writer.write((struct.pack("<I", len(body)) + body) * _AHEAD)
            writers.append(writer)
        await until(lambda: budget.appends.waited_for)
        # Nothing was written, so what was let in is all there: less than the commit path takes before others wait.
        appended = asyncio.create_task(broker.append_values("other", [b"small"]))
        await until(lambda: budget.received.total > limits.MIB)
        assert broker.log.waiting_appends.count == 0
        assert budget.appends.total <= budgets.APPEND_BYTES_MAX
        # A connection is read on only in its turn: at most two reads of it are held.
        assert budget.received.total <= _CLIENTS * 4 * limits.TEXT_FRAME_BYTES_MAX
        port.append_gate.set()
        await appended
        await until(lambda: broker.partition("flooded").records == _CLIENTS * _AHEAD)
        await until(lambda: budget.appends.total == 0)
    finally:
        port.append_gate.set()
        for writer in writers:
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for writer in writers))
        await door.stop(0.1)
        await machine.kill()


async def test_a_client_that_puts_one_by_one_is_read_while_others_wait_to_append() -> None:
    machine = Machine()
    broker = await machine.open()
    await broker.create_topic("other")
    budget = Budget()
    budget.appends.take("attacker", budgets.APPEND_BYTES_MAX)
    waits = budget.appends.ask("attacker", 1)
    assert waits is not None
    assert budget.appends.waited_for
    door = TextDoor(broker, budget=budget)
    bound = await door.start(Address("127.0.0.1", 0))
    reader, writer = await asyncio.open_connection(bound.host, bound.port)
    try:
        put = b"PUT other x"
        for _ in range(3):
            writer.write(struct.pack("<I", len(put)) + put)
            async with asyncio.timeout(10):
                assert await reader.readexactly(6) == struct.pack("<I", 2) + b"OK"
    finally:
        waits.cancel()
        writer.close()
        await writer.wait_closed()
        await door.stop(0.1)
        await machine.kill()
