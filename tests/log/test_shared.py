"""Several brokers over one bucket: each applies the commits of all, in one order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from mainstem.broker.broker import Broker
from mainstem.errors import BrokerFenced, OutcomeUnknown, Stale, TopicFull, Unavailable
from mainstem.ledger.config import TopicConfig
from mainstem.log.log import LogOptions
from mainstem.log.write.follower import Follower
from tests.support.history import scan
from tests.support.memory_store import MemoryObjectStore

from .cell import Cell


class Brokers(Cell):
    def __init__(self) -> None:
        super().__init__(MemoryObjectStore())

    async def join(self, number: int) -> Broker:
        return await self.add(LogOptions(broker=number, shared=True))


@pytest.fixture
async def cell() -> AsyncIterator[Brokers]:
    made = Brokers()
    yield made
    await made.close()


async def test_what_one_broker_writes_another_reads(cell: Brokers) -> None:
    one, two = await cell.join(1), await cell.join(2)
    await one.create_topic("t")
    await one.append_values("t", [b"a", b"b"])
    await two.log.barrier()
    assert (await two.append_values("t", [b"c"])).base_offset == 2
    await one.log.barrier()
    for broker in (one, two):
        assert await scan(broker, "t") == ({0: b"a", 1: b"b", 2: b"c"}, [])
    assert one.log.ledger.digest() == two.log.ledger.digest()


async def test_brokers_that_write_concurrently_agree_on_every_offset(cell: Brokers) -> None:
    brokers = [await cell.join(number) for number in (1, 2, 3)]
    await brokers[0].create_topic("t")
    acked: dict[int, bytes] = {}

    async def write(broker: Broker, number: int) -> None:
        await broker.log.barrier()
        for turn in range(20):
            value = b"%d.%d" % (number, turn)
            base = (await broker.append_values("t", [value])).base_offset
            assert base not in acked
            acked[base] = value

    await asyncio.gather(*(write(broker, n) for n, broker in enumerate(brokers)))
    assert sorted(acked) == list(range(60))
    for broker in brokers:
        await broker.log.barrier()
        assert await scan(broker, "t") == (acked, [])
    assert len({broker.log.ledger.digest() for broker in brokers}) == 1


async def test_a_waiting_reader_is_woken_by_another_brokers_append(cell: Brokers) -> None:
    one, two = await cell.join(1), await cell.join(2)
    await one.create_topic("t")
    await two.log.barrier()
    waiting = asyncio.ensure_future(two.read("t", 0, max_wait_ms=10_000))
    await one.append_values("t", [b"news"])
    assert [record.value for record in await asyncio.wait_for(waiting, 30)] == [b"news"]


async def test_a_broker_that_joins_later_finds_everything(cell: Brokers) -> None:
    one = await cell.join(1)
    await one.create_topic("t")
    for number in range(10):
        await one.append_values("t", [b"%d" % number])
    await cell.leave(one)
    two = await cell.join(2)
    assert len((await scan(two, "t"))[0]) == 10


@pytest.mark.parametrize("trouble", [Unavailable("no answer"), Stale("too far behind")])
async def test_a_commit_in_the_log_is_not_reported_as_failed(
    cell: Brokers, monkeypatch: pytest.MonkeyPatch, trouble: Unavailable
) -> None:
    """A commit may be written while earlier commits of others cannot be read yet: repeating it would duplicate it."""
    one = await cell.join(1)
    await one.create_topic("t")

    async def fail(*_: object) -> None:
        raise trouble

    with monkeypatch.context() as broken:
        broken.setattr(Follower, "_reach", fail)
        with pytest.raises(OutcomeUnknown):
            await one.append_values("t", [b"written"])
    two = await cell.join(2)
    assert await scan(two, "t") == ({0: b"written"}, [])
    assert (await one.append_values("t", [b"next"])).base_offset == 1


async def test_a_replaced_broker_writes_nothing_more(cell: Brokers) -> None:
    one = await cell.join(1)
    await one.create_topic("t")
    again = await cell.join(1)
    with pytest.raises(BrokerFenced):
        await one.append_values("t", [b"late"])
    assert (await again.append_values("t", [b"new"])).base_offset == 0
    cell.brokers.remove(one)
    with pytest.raises(BrokerFenced):
        await one.close()


@pytest.mark.parametrize("appends", [1, 5, 80])
async def test_a_follower_finds_each_slice_of_a_commit_of_any_size(cell: Brokers, appends: int) -> None:
    """Between them are slices that the ledger refused: their bytes are in the log and nobody reads them."""
    one, two = await cell.join(1), await cell.join(2)
    await one.create_topic("t", partitions=3)
    await one.create_topic("full", config=TopicConfig(cap_records=1, discard="reject"))
    await one.append_values("full", [b"first"])
    writes, refused = [], []
    for number in range(appends):
        refused.append(one.append_values("full", [b"more %d" % number]))
        writes.append(one.append_values("t", [b"%d" % number] * (1 + number % 3), partition=number % 3))
    outcomes = await asyncio.gather(
        *(write for pair in zip(refused, writes, strict=True) for write in pair), return_exceptions=True
    )
    assert all(isinstance(outcome, TopicFull) for outcome in outcomes[::2])
    await two.log.barrier()
    for partition in range(min(3, appends)):
        found = await two.reads.records("t", 0, partition=partition, max_records=10_000)
        expected = [b"%d" % number for number in range(partition, appends, 3) for _ in range(1 + number % 3)]
        assert [record.value for record in found] == expected
    assert await scan(two, "full") == ({0: b"first"}, [])
