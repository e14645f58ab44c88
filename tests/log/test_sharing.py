"""A broker in a shared log: expired epochs, overlapping uploads, records that linger, and maintenance."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence

import pytest

from mainstem import limits
from mainstem.broker.broker import Broker
from mainstem.errors import BrokerFenced, InvalidConfig, OffsetOutOfRange, StoreUnreachable, Unavailable
from mainstem.ledger.brokers import ExpireBroker, Heartbeat
from mainstem.ledger.config import TopicConfig
from mainstem.ledger.cursors import CommitOffsets
from mainstem.log.log import LogOptions
from mainstem.log.objects.maintenance import LogMaintenance
from mainstem.log.write import shared_writes
from mainstem.log.write.shared_writes import UPLOADS_IN_FLIGHT_MAX
from mainstem.log.write.sharing import Sharing
from mainstem.ports.commitlog.port import Buffer, LogObject
from mainstem.ports.commitlog.shared.bucket.commits import BUCKET_INLINE_BYTES_MAX
from mainstem.ports.commitlog.shared.bucket.log import BUCKET_OBJECT_COMMITS_MAX
from tests.support.history import scan
from tests.support.memory_store import MemoryObjectStore
from tests.support.waiting import until

from .cell import Cell

_LARGE = BUCKET_INLINE_BYTES_MAX + 1


class GatedStore(MemoryObjectStore):
    """A store whose payload puts wait until the test lets them through."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.gate.set()
        self.puts: list[str] = []
        self.waiting = 0
        self.away = False

    async def put(self, key: str, data: Buffer | Sequence[Buffer], *, if_absent: bool = False) -> bool:
        if self.away:
            raise StoreUnreachable("the store is away")
        self.puts.append(key)
        if "/wal/" in key:
            self.waiting += 1
            await self.gate.wait()
            self.waiting -= 1
        return await super().put(key, data, if_absent=if_absent)


class Brokers(Cell):
    store: GatedStore

    def __init__(self) -> None:
        super().__init__(GatedStore(), object_bytes=4_000, entries_kept_ms=0)
        self._processes = itertools.count()
        self.checkpoints: list[int] = []

    async def join(self, number: int | None, *, linger_ms: int = 0) -> Broker:
        options = LogOptions(
            broker=number,
            boot_id=f"process {next(self._processes)}",
            shared=True,
            linger_ms=linger_ms,
            checkpoint_every_bytes=4_000,
        )
        return await self.add(options)

    def sealed(self, broker: Broker) -> set[int]:
        """The objects that a broker knows to be sealed."""
        return {one.number for one in self.ports[broker].objects() if one.sealed}

    async def save_at(self, position: int) -> None:
        await super().save_at(position)
        self.checkpoints.append(position)


@pytest.fixture
async def cell() -> AsyncIterator[Brokers]:
    made = Brokers()
    yield made
    made.store.gate.set()
    made.store.away = False
    await made.close()


def sharing(broker: Broker) -> Sharing:
    assert broker.log.sharing is not None
    return broker.log.sharing


def upkeep(broker: Broker) -> LogMaintenance:
    return broker.log.upkeep()


async def expire(by: Broker, broker: Broker) -> bool:
    brokers = by.log.ledger.brokers
    await by.log.barrier()
    number = broker.log.broker
    gone = await by.log.propose(ExpireBroker(number, brokers.epoch(number), brokers.last_commit_id(number)))
    return bool(gone.gone)


async def test_brokers_without_a_number_get_one_each(cell: Brokers) -> None:
    joined = await asyncio.gather(*(cell.join(None) for _ in range(4)))
    assert sorted(broker.log.broker for broker in joined) == [1, 2, 3, 4]
    await joined[0].create_topic("t")
    for broker in joined:
        await broker.log.barrier()
        await broker.append_values("t", [b"x"])


async def test_an_expired_broker_is_refused_and_rejoins_with_a_new_epoch(cell: Brokers) -> None:
    one, two = await cell.join(1), await cell.join(2)
    await one.create_topic("t")
    epoch = two.log.epoch
    assert await expire(one, two)
    with pytest.raises(BrokerFenced):
        await two.log.propose(Heartbeat(2, epoch))
    assert sharing(two).expired
    await sharing(two).rejoin()
    assert two.log.epoch > epoch
    assert not sharing(two).expired
    assert (await two.append_values("t", [b"back"])).base_offset == 0
    await one.log.barrier()
    assert await scan(one, "t") == ({0: b"back"}, [])


async def test_writers_are_told_to_retry_while_their_broker_rejoins(cell: Brokers) -> None:
    one, two = await cell.join(1), await cell.join(2)
    await one.create_topic("t")
    assert await expire(one, two)
    await two.log.barrier()
    cell.store.away = True
    rejoining = asyncio.ensure_future(sharing(two).rejoin())
    with pytest.raises(Unavailable):
        await rejoining
    with pytest.raises(Unavailable):
        await two.append_values("t", [b"x"])
    cell.store.away = False
    await sharing(two).rejoin()
    assert (await two.append_values("t", [b"x"])).base_offset == 0


async def test_a_writer_that_lags_too_long_rejoins_before_it_writes(cell: Brokers) -> None:
    one = await cell.join(1)
    await one.create_topic("t")
    epoch = one.log.epoch
    cell.clock.advance(int(limits.BUCKET_STALE_S * 1000) + 1)
    with pytest.raises(Unavailable):
        await one.append_values("t", [b"stale"])
    assert sharing(one).expired
    await sharing(one).rejoin()
    assert one.log.epoch > epoch
    assert (await one.append_values("t", [b"fresh"])).base_offset == 0


async def test_a_broker_whose_number_another_process_took_stops(cell: Brokers) -> None:
    one = await cell.join(1)
    await cell.join(1)
    await one.log.barrier()
    assert not sharing(one).expired
    assert isinstance(sharing(one).failure, BrokerFenced)
    assert sharing(one).failed.is_set()


async def test_uploads_overlap_and_are_committed_in_the_order_they_started(cell: Brokers) -> None:
    one = await cell.join(1)
    await one.create_topic("t", config=TopicConfig(max_message_bytes=16 * limits.MIB))
    cell.store.gate.clear()
    writes = []
    for number in range(UPLOADS_IN_FLIGHT_MAX + 2):
        writes.append(asyncio.ensure_future(one.append_values("t", [b"%d" % number + bytes(_LARGE)])))
        await until(lambda: cell.store.waiting == min(len(writes), UPLOADS_IN_FLIGHT_MAX))
    assert not any(write.done() for write in writes)
    cell.store.gate.set()
    assert [(await write).base_offset for write in writes] == list(range(len(writes)))


async def test_records_linger_and_commands_do_not(cell: Brokers) -> None:
    one = await cell.join(1, linger_ms=60_000)
    await one.create_topic("t")
    first = asyncio.ensure_future(one.append_values("t", [b"a"]))
    second = asyncio.ensure_future(one.append_values("t", [b"b"]))
    await asyncio.sleep(0)
    entries = sum("/entries/" in key for key in cell.store.puts)
    assert not first.done()
    await one.log.propose(CommitOffsets("g", ((0, 0, ""),)))
    assert [(await first).base_offset, (await second).base_offset] == [0, 1]
    assert sum("/entries/" in key for key in cell.store.puts) == entries + 1  # all of it in one commit


async def test_topics_that_save_cost_share_commits_and_do_not_delay_others(
    cell: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_writes, "COST_LINGER_S", 3600.0)
    one = await cell.join(1)
    await one.create_topic("cheap", config=TopicConfig(wal_profile="cost"))
    await one.create_topic("quick")
    cheap = [asyncio.ensure_future(one.append_values("cheap", [b"%d" % number])) for number in range(3)]
    await asyncio.sleep(0)
    for number in range(2):
        assert (await one.append_values("quick", [b"x"])).base_offset == number
    assert not any(write.done() for write in cheap)
    entries = sum("/entries/" in key for key in cell.store.puts)
    await one.log.sync()
    assert [(await write).base_offset for write in cheap] == [0, 1, 2]
    assert sum("/entries/" in key for key in cell.store.puts) == entries + 1  # all of them in one commit


async def test_records_of_topics_that_save_cost_are_written_by_themselves(
    cell: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_writes, "COST_LINGER_S", 0.01)
    one = await cell.join(1)
    await one.create_topic("cheap", config=TopicConfig(wal_profile="cost"))
    assert (await asyncio.wait_for(one.append_values("cheap", [b"a"]), 30)).base_offset == 0


async def test_a_broker_that_closes_writes_what_waits_to_save_cost(
    cell: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_writes, "COST_LINGER_S", 3600.0)
    one, two = await cell.join(1), await cell.join(2)
    await one.create_topic("cheap", config=TopicConfig(wal_profile="cost"))
    write = asyncio.ensure_future(one.append_values("cheap", [b"a"]))
    await asyncio.sleep(0)
    await one.close()
    assert (await write).base_offset == 0
    await two.log.barrier()
    assert await scan(two, "cheap") == ({0: b"a"}, [])


async def test_records_wait_no_longer_than_the_linger(cell: Brokers) -> None:
    one = await cell.join(1, linger_ms=20)
    await one.create_topic("t")
    assert (await asyncio.wait_for(one.append_values("t", [b"a"]), 30)).base_offset == 0


async def test_all_classes_are_durable_and_none_is_ephemeral(cell: Brokers) -> None:
    one, two = await cell.join(1), await cell.join(2)
    await one.create_topic("t", config=TopicConfig(durability="memory"))
    await one.append_values("t", [b"a"])
    await two.log.barrier()
    assert await scan(two, "t") == ({0: b"a"}, [])
    with pytest.raises(InvalidConfig):
        await one.create_topic("e", config=TopicConfig(durability="ephemeral"))
    with pytest.raises(InvalidConfig):
        await one.alter_topic("t", TopicConfig(durability="ephemeral"))


async def test_one_broker_seals_for_all_and_another_takes_over(cell: Brokers) -> None:
    one, two = await cell.join(1), await cell.join(2)
    one.log.maintains = lambda: True
    await one.create_topic("t")
    values = {}
    for number in range(30):
        values[number] = b"%d" % number * 200
        await one.append_values("t", [values[number]])
    await two.log.barrier()
    keeping = {broker: upkeep(broker) for broker in (one, two)}
    await keeping[two].round()
    assert not cell.sealed(two)
    await keeping[one].round()
    assert cell.sealed(one)
    await keeping[two].round()
    assert cell.sealed(two) == cell.sealed(one)
    assert cell.checkpoints
    assert await scan(two, "t") == (values, [])

    one.log.maintains = lambda: False
    two.log.maintains = lambda: True
    await two.trim("t", 25)
    for number in range(30, 60):
        await two.append_values("t", [b"%d" % number * 200])
    for _ in range(3):
        await keeping[two].round()
    await one.log.barrier()
    await keeping[one].round()
    assert cell.sealed(two) == cell.sealed(one)
    assert min(cell.sealed(one)) > 1  # what nobody needs is deleted, for both
    for broker in (one, two):
        assert sorted((await scan(broker, "t"))[0]) == list(range(25, 60))
    three = await cell.join(3)
    assert sorted((await scan(three, "t"))[0]) == list(range(25, 60))
    await two.log.barrier()
    await three.log.barrier()
    assert two.log.ledger.digest() == three.log.ledger.digest()


async def test_waiting_for_a_position_times_out(cell: Brokers) -> None:
    one, two = await cell.join(1), await cell.join(2)
    await one.create_topic("t")
    position = one.log.ledger.position
    assert await sharing(two).reached(position, 10)
    assert two.log.ledger.topics.get("t") is not None
    assert not await sharing(two).reached(position + 1_000, 0.01)


async def test_a_missing_object_is_reported_as_lost_and_restoring_it_ends_the_loss(cell: Brokers) -> None:
    """As after a lifecycle rule of the bucket deleted an old object. The ledger does not record the loss."""
    one, two = await cell.join(1), await _without_memory(cell, 2)
    one.log.maintains = lambda: True
    await one.create_topic("t")
    for number in range(30):
        await one.append_values("t", [b"%d" % number * 200])
    await two.log.barrier()
    await upkeep(one).round()
    await upkeep(two).round()
    whole = await scan(two, "t")
    part = min(key for key in cell.store.objects if key.startswith("log/objects/"))
    taken = cell.store.objects.pop(part)
    values, lost = await scan(two, "t")
    assert lost[0][0] == 0
    assert sorted({*values, *(offset for first, end in lost for offset in range(first, end))}) == list(
        range(30)
    )
    assert values.items() < whole[0].items()
    cell.store.objects[part] = taken
    assert await scan(two, "t") == whole


async def test_a_reader_of_a_lagging_broker_is_told_to_retry_where_another_deleted_an_object(
    cell: Brokers,
) -> None:
    one, two = await cell.join(1), await _without_memory(cell, 2)
    one.log.maintains = lambda: True
    await one.create_topic("t")
    for number in range(30):
        await one.append_values("t", [b"%d" % number * 200])
    await two.log.barrier()
    for broker in (one, two):
        await upkeep(broker).round()
    await two.log.background.give_up_chores()  # it stops following
    await one.trim("t", 25)
    for number in range(30, 60):
        await one.append_values("t", [b"%d" % number * 200])
    for _ in range(3):
        await upkeep(one).round()
    assert min(cell.sealed(one)) > 1
    with pytest.raises(Unavailable, match="try again"):
        await two.fetch("t", 0, max_bytes=2_000)
    await two.log.barrier()
    with pytest.raises(OffsetOutOfRange):
        await two.fetch("t", 0, max_bytes=2_000)


async def _without_memory(cell: Brokers, number: int) -> Broker:
    """A broker that reads from the store instead of memory."""
    options = LogOptions(broker=number, boot_id=f"process of {number}", shared=True, tail_cache_bytes=0)
    return await cell.add(options)


async def test_many_small_commits_make_a_checkpoint_due(cell: Brokers) -> None:
    """Each costs a starting broker a request: by size alone, weeks of heartbeats would be replayed."""
    keeping = upkeep(await cell.join(1))
    commits = BUCKET_OBJECT_COMMITS_MAX
    objects = [LogObject(n + 1, n * commits, (n + 1) * commits, 0, sealed=True) for n in range(4)]
    keeping.following_sealed = lambda: objects  # type: ignore[method-assign]
    assert keeping.due_boundary(0, limits.CHECKPOINT_EVERY_BYTES) == 4 * commits
    objects.pop()
    assert keeping.due_boundary(0, limits.CHECKPOINT_EVERY_BYTES) is None


async def test_garbage_is_deleted_from_a_quiet_log(cell: Brokers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mainstem.log.objects.maintenance.CHECKPOINT_HURRIED_S", 0.0)
    one = await cell.add(LogOptions(broker=1, boot_id="process", shared=True))
    one.log.maintains = lambda: True
    await one.create_topic("t")
    for number in range(30):
        await one.append_values("t", [b"%d" % number * 200])
    keeping = upkeep(one)
    await keeping.round()
    stored = cell.sealed(one)
    assert len(stored) > 1
    await one.trim("t", 30)
    for _ in range(8):
        await one.log.propose(Heartbeat(1, one.log.epoch))
        await keeping.round()
    assert not stored & cell.sealed(one)
    made = len(cell.checkpoints)
    for _ in range(4):
        await one.log.propose(Heartbeat(1, one.log.epoch))
        await keeping.round()
    assert len(cell.checkpoints) == made  # no checkpoint is due early any more


async def test_an_object_that_vanished_with_its_seal_is_missing_for_a_broker_that_joins(
    cell: Brokers,
) -> None:
    one = await cell.join(1)
    one.log.maintains = lambda: True
    await one.create_topic("t")
    for number in range(60):
        await one.append_values("t", [b"%d" % number * 200])
    for _ in range(4):
        await upkeep(one).round()
    assert cell.checkpoints
    first = f"/{min(cell.sealed(one)):020d}-"
    for key in [key for key in cell.store.objects if first in key and "/entries/" not in key]:
        del cell.store.objects[key]
    two = await _without_memory(cell, 2)
    ((start, end),) = two.log.missing.ranges[two.stream("t")]
    values, lost = await scan(two, "t")
    assert lost == [(start, end)]
    assert sorted(values) == list(range(end, 60))
    assert two.partition("t").records == 60 - (end - start)
