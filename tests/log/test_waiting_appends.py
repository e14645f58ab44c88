"""Who appends first when the commit path is saturated."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from statistics import median, quantiles

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstem import limits
from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.ledger.config import TopicConfig
from mainstem.log.write.waiting import WaitingAppends
from tests.support.machine import Machine
from tests.support.waiting import settle

_ROW = st.tuples(st.integers(0, 4), st.integers(-3, 3))  # stream and priority


@given(st.lists(st.one_of(_ROW, st.none()), max_size=200))
def test_streams_keep_their_order_and_nobody_waits_for_ever(steps: list[tuple[int, int] | None]) -> None:
    """None admits one append; a row adds one."""
    waiting = WaitingAppends()
    present: list[tuple[int, int, int]] = []  # (number, stream, priority)
    admitted: list[int] = []
    turns = reached = 0
    turn_of: dict[int, int] = {}  # of the streams that wait
    for number, step in enumerate([*steps, *[None] * len(steps)]):
        if step is not None:
            stream, priority = step
            present.append((number, stream, priority))
            turn_of.setdefault(stream, reached)
            waiting.add(stream, priority, lambda number=number: admitted.append(number), 0.0)
        elif present:
            turns += 1
            firsts = {stream: (number, stream, priority) for number, stream, priority in reversed(present)}
            expected = (
                min(present)
                if turns % limits.OLDEST_FIRST_EVERY == 0
                else max(firsts.values(), key=lambda one: (one[2], -turn_of[one[1]], -one[0]))
            )
            stream = expected[1]
            reached = max(reached, turn_of[stream])
            turn_of[stream] += 1
            if sum(one[1] == stream for one in present) == 1:
                del turn_of[stream]
            waiting.pop(0.0)()
            assert admitted[-1] == expected[0]
            present.remove(expected)
        assert waiting.count == len(present)


def test_a_stream_with_thousands_of_appends_does_not_delay_another() -> None:
    waiting = WaitingAppends()
    admitted: list[str] = []
    for _ in range(5_000):
        waiting.add(1, 0, lambda: admitted.append("flood"), 0.0, 8_000)
    for _ in range(100):
        waiting.pop(0.0)()
    for _ in range(3):
        waiting.add(2, 0, lambda: admitted.append("other"), 0.0, 100)
    for _ in range(10):
        waiting.pop(0.0)()
    assert admitted[100:110].count("other") == 3
    for stream, size in ((2, 8_000), (3, 4_000)):
        for _ in range(5_000):
            waiting.add(stream, 0, lambda stream=stream: admitted.append(str(stream)), 0.0, size)
    del admitted[:]
    for _ in range(400):
        waiting.pop(0.0)()
    shares = [admitted.count(name) for name in ("flood", "2", "3")]
    assert shares[2] == pytest.approx(200, abs=30)  # twice as often as those of twice the size
    assert shares[0] == pytest.approx(100, abs=30)


async def test_a_topic_of_high_priority_is_written_first(machine: Machine) -> None:
    broker = await machine.open()
    for name, priority in (("low", -5), ("plain", None), ("high", 5)):
        await broker.create_topic(
            name, config=TopicConfig(priority=priority, max_message_bytes=32 * limits.MIB)
        )
    port = machine.port
    assert port is not None
    port.append_gate.clear()
    fill = asyncio.ensure_future(broker.append_values("low", [b"x" * limits.MIB] * 18))
    done: list[str] = []

    async def append(name: str) -> None:
        await broker.append_values(name, [b"y" * limits.MIB] * 7)
        done.append(name)

    tasks = []
    for name in ("low", "plain", "high", "low", "high"):
        tasks.append(asyncio.ensure_future(append(name)))
        await settle()
    port.append_gate.set()
    await asyncio.gather(fill, *tasks)
    assert done == ["high", "high", "plain", "low", "low"]


async def test_high_priority_stays_fast_on_a_saturated_broker(tmp_path: Path) -> None:
    """Real files: low priority writes as fast as the disk takes it, high priority a record now and then."""
    broker = await Broker.open(BrokerOptions(tmp_path, segment_bytes=64 * limits.MIB))
    await broker.create_topic("low", config=TopicConfig(priority=-100))
    await broker.create_topic("high", config=TopicConfig(priority=100))
    payload = [b"x" * 1_000_000]
    low: list[float] = []
    high: list[float] = []
    stopping = asyncio.Event()

    async def flood() -> None:
        while not stopping.is_set():
            began = time.monotonic()
            await broker.append_values("low", payload)
            low.append(time.monotonic() - began)

    flooding = [asyncio.ensure_future(flood()) for _ in range(96)]
    for _ in range(60):
        await asyncio.sleep(0.02)
        began = time.monotonic()
        await broker.append_values("high", [b"now"])
        high.append(time.monotonic() - began)
    stopping.set()
    await asyncio.gather(*flooding)
    waited = {
        labels[0][1]: value
        for metric in broker.log.waiting_appends.published()
        for labels, value in metric.samples
        if metric.name == "mainstem_saturated_appends_total"
    }
    await broker.close()
    assert waited["low"] > 96  # it was saturated, and low priority is not starved
    assert len(low) > 96
    assert median(high) < median(low) / 2
    assert quantiles(high, n=100)[98] < max(low)
