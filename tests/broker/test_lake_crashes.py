"""A power loss after every few calls that change the disk, while records move to parts and bytes are deleted."""

from __future__ import annotations

import contextlib

import pytest

from mainstem import limits
from mainstem.broker.broker import Broker
from mainstem.broker.read import Record
from mainstem.errors import MainstemError, OffsetOutOfRange, RecordsLost
from mainstem.tables.garbage import LAKE_GARBAGE_GRACE_MS
from tests.support.files import Policy, SimulatedCrash
from tests.support.lake import Worker
from tests.support.machine import Machine

_POLICIES: tuple[Policy, ...] = ("lost", "kept", "torn")


class Story:
    """The promises so far: the value of every acknowledged record, and what was deleted on request."""

    def __init__(self) -> None:
        self.values: dict[int, bytes] = {}
        self.asked_to_go: set[int] = set()  # may be deleted
        self.gone: set[int] = set()  # are deleted, as the broker confirmed
        self.finished = False

    async def tell(self, machine: Machine) -> None:
        broker = await machine.open()
        await broker.create_topic("t", exist_ok=True)
        for number in range(10):
            await self._append(broker, number)
            if number % 3 == 2:
                await _worker(machine).run("materialise")
        await self._delete(broker, range(5, 9))
        await _worker(machine).run()
        await self._trim(broker, 13)
        await broker.lake.collect()
        machine.clock.advance(LAKE_GARBAGE_GRACE_MS)
        await broker.lake.collect()
        broker = await machine.restart()
        await _worker(machine).run("rewrite", "materialise")
        broker = await machine.restart()
        await broker.lake.collect()
        await self._append(broker, 10)
        self.finished = True

    async def _append(self, broker: Broker, number: int) -> None:
        values = [b"%d-%d-" % (number, i) + b"x" * 300 for i in range(4)]
        appended = await broker.append_values(
            "t", values, timestamps_ms=[number * 1000 + i for i in range(4)]
        )
        self.values.update(zip(range(appended.base_offset, appended.base_offset + 4), values, strict=True))

    async def _delete(self, broker: Broker, offsets: range) -> None:
        self.asked_to_go |= set(offsets)
        await broker.log.streams.of(0).delete(0, ((offsets.start, offsets.stop),), 0)
        self.gone |= set(offsets)

    async def _trim(self, broker: Broker, offset: int) -> None:
        self.asked_to_go |= set(range(offset))
        await broker.trim("t", offset)
        self.gone |= set(range(offset))

    async def check(self, broker: Broker) -> None:
        records, lost = await _everything(broker)
        found = {record.offset: record.value for record in records}
        acked = self.values.keys() - self.asked_to_go
        assert (
            not acked & lost
        )  # a torn write that nobody was told about may be lost, and is reported as lost
        for offset, value in self.values.items():
            if offset in self.gone:
                assert offset not in found
            elif offset not in self.asked_to_go:
                assert found[offset] == value
        start, end = broker.log.streams.of(0).bounds(0)
        for offset in sorted(set(range(start, end)) - lost):
            if lost and min((one for one in lost if one > offset), default=end) < min(
                (one for one in found if one >= offset), default=end
            ):
                continue  # the next result of a reader is the loss
            records = await broker.read("t", offset, max_records=1, max_bytes=1)
            expected = min((one for one in found if one >= offset), default=None)
            assert [record.offset for record in records] == ([] if expected is None else [expected])


def _worker(machine: Machine) -> Worker:
    assert machine.broker is not None
    assert machine.port is not None
    return Worker(machine.broker, machine.port)


async def _everything(broker: Broker) -> tuple[list[Record], set[int]]:
    """Every record, and the offsets that are lost."""
    found: list[Record] = []
    lost: set[int] = set()
    at = broker.log.streams.of(0).bounds(0)[0]
    while True:
        try:
            records = await broker.read("t", at, max_records=1000)
        except RecordsLost as loss:
            lost |= set(range(loss.start, loss.end))
            at = loss.end
            continue
        except OffsetOutOfRange as moved:
            at = moved.start
            continue
        if not records:
            return found, lost
        found += records
        at = records[-1].offset + 1


async def _clean_up(machine: Machine) -> None:
    """Finish the work, let every grace period pass, and find no unreferenced file."""
    broker = machine.broker
    assert broker is not None
    machine.clock.advance(limits.LAKE_ORPHAN_GRACE_MS + 600_000)
    await broker.lake.collect()
    await _worker(machine).run()
    await broker.lake.collect()
    machine.clock.advance(limits.LAKE_ORPHAN_GRACE_MS + 600_000)
    await broker.lake.collect()
    stored = {one.key async for one in broker.objects.list("parts/")}
    parts = broker.log.ledger.generations.parts(0)
    assert stored == {file.key for part in parts for file in part.files}
    assert broker.log.ledger.generations.garbage() == []
    assert len(broker.log.ledger.tasks) == 0


async def _crash_and_check(calls: int, policy: Policy) -> bool:
    """Whether the story ended before the power loss."""
    machine, story = Machine(segment_bytes=2048), Story()
    machine.files.crash_after(calls)
    with contextlib.suppress(SimulatedCrash, MainstemError):
        await story.tell(machine)
    finished = story.finished
    await machine.lose_power(policy, calls)
    broker = await machine.open()
    if not story.values and "t" not in [info.name for info in broker.topics()]:
        await machine.close()
        return finished
    await story.check(broker)
    await _clean_up(machine)
    await story.check(broker)
    await story.check(await machine.restart())
    await machine.close()
    return finished


async def test_without_a_crash_only_the_log_and_replaced_files_are_deleted() -> None:
    machine, story = Machine(segment_bytes=2048), Story()
    await story.tell(machine)
    assert story.finished
    assert machine.broker is not None
    assert machine.port is not None
    assert machine.port.objects()[0].number > 3  # the first files of the log are gone
    await story.check(machine.broker)
    await _clean_up(machine)
    await story.check(machine.broker)
    await machine.close()


@pytest.mark.parametrize("calls", [40, 95, 140, 170, 205, 240, 290, 340, 390])
async def test_power_losses_now_and_then(calls: int) -> None:
    await _crash_and_check(calls, _POLICIES[calls % 3])


@pytest.mark.slow
@pytest.mark.parametrize("policy", _POLICIES)
async def test_power_losses_after_every_few_calls(policy: Policy) -> None:
    calls = 10
    while not await _crash_and_check(calls, policy):
        calls += 11
