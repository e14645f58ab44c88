"""How repacking shares the machine: the event loop, busy writers, and a debt that slows writes down."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from mainstem import limits
from mainstem.log.objects.repack.repacker import REPACK_HELD_BACK_S, REPACK_HELD_BACK_S_MAX
from tests.support.machine import Machine
from tests.support.waiting import finished

from .repacking import SMALL, repack_all, repacker, write_two


async def test_many_streams_do_not_block_the_event_loop(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counts, for each turn of the loop, the repacker's ledger look-ups of single streams."""
    streams, at_once = 400, 16
    broker = await machine.open()
    await broker.create_topic("wide", partitions=streams)
    for _ in range(5):
        await asyncio.gather(
            *(broker.append_values("wide", [b"x" * 40], partition=at) for at in range(streams))
        )
        await finished(broker)
    monkeypatch.setattr(limits, "REPACK_STREAMS_AT_ONCE", at_once)
    ledger, turn, asked = broker.log.ledger, 0, Counter[tuple[str, int]]()

    def counted(owner: Any, name: str) -> None:
        ask = getattr(owner, name)

        def counting(*arguments: Any) -> Any:
            asked[name, turn] += 1
            return ask(*arguments)

        monkeypatch.setattr(owner, name, counting)

    class CountedSet(set[int]):
        def __contains__(self, stream: object) -> bool:
            asked["touched", turn] += 1
            return super().__contains__(stream)

    counted(ledger.streams, "holes")
    counted(ledger.generations, "serves")
    transactions = ledger.streams.transactions
    monkeypatch.setattr(transactions, "touched", CountedSet(transactions.touched))
    repacking = asyncio.ensure_future(repack_all(broker))
    while not repacking.done():
        turn += 1
        await asyncio.sleep(0)
    await repacking
    assert sum(count for (name, _), count in asked.items() if name == "holes") >= streams
    assert max(asked.values()) <= 2 * at_once  # a little more where a turn also finds objects to delete
    monkeypatch.undo()
    for stream in broker.topic("wide").streams[::37]:
        assert broker.log.streams.of(stream).bounds(stream) == (0, 5)
        at = 0
        while at < 5:
            at = (await broker.log.streams.of(stream).read(stream, at, 1000)).next_offset


async def test_repacking_yields_to_heavy_writes_until_the_debt_is_too_large(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.repack = replace(SMALL, bytes_per_s=1 << 40)
    broker = await machine.open()
    await write_two(broker, 120)
    working = repacker(broker)
    monkeypatch.setattr(
        "mainstem.log.objects.repack.repacker.REPACK_GIVES_WAY_BYTES_PER_S", -1
    )  # every write counts as heavy
    machine.clock.advance(1_000)
    monkeypatch.setattr("mainstem.log.objects.repack.repacker.REPACK_GIVES_WAY_S", 0.001)
    monkeypatch.setattr(
        "mainstem.log.objects.repack.repacker.REPACK_DEBT_OBJECTS_MAX", 2 * (working.debt_objects + 1)
    )
    step = asyncio.ensure_future(working.step())
    done, _ = await asyncio.wait([step], timeout=0.1)
    assert not done
    assert working.counts.copied_bytes == 0
    monkeypatch.setattr(
        "mainstem.log.objects.repack.repacker.REPACK_DEBT_OBJECTS_MAX", 2 * working.debt_objects
    )
    assert await step
    assert working.counts.copied_bytes > 0


async def test_debt_slows_writes_down_until_it_is_paid(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainstem.log.objects.repack.repacker.REPACK_DEBT_OBJECTS_MAX", 3)
    machine.repack = replace(SMALL, on=True, after_objects=2)
    broker = await machine.open()
    broker.log.maintains = lambda: False  # repacking does not keep up
    await write_two(broker, 100)
    beyond = repacker(broker).debt_objects - 3
    assert beyond > 0
    assert broker.log.held_back_s == pytest.approx(min(beyond * REPACK_HELD_BACK_S, REPACK_HELD_BACK_S_MAX))
    machine.repack = replace(SMALL, on=True)
    broker = await machine.restart()
    await repack_all(broker)
    assert broker.log.held_back_s == 0.0


async def test_too_little_data_to_repack_does_not_slow_writes(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainstem.log.objects.repack.repacker.REPACK_DEBT_OBJECTS_MAX", 3)
    machine.repack = replace(SMALL, on=True, after_objects=2, least_bytes=1 << 40)
    broker = await machine.open()
    await write_two(broker, 100)
    sealed = sum(held.sealed for held in machine.commit_log.objects())
    assert sealed > 6
    assert repacker(broker).debt_objects == 0
    assert broker.log.held_back_s == 0.0
    monkeypatch.setattr("mainstem.log.objects.repack.plan.REPACK_SMALL_OBJECTS_MAX", 2)
    assert repacker(broker).debt_objects > 3
