from __future__ import annotations

import asyncio

import pytest

from mainstem.broker.broker import Broker
from mainstem.errors import TopicFull
from mainstem.ledger.config import TopicConfig
from tests.support.history import scan
from tests.support.machine import Machine
from tests.support.waiting import finished, until


async def _opened(machine: Machine, **config: object) -> Broker:
    broker = await machine.open()
    await broker.create_topic("t", config=TopicConfig(**config))  # type: ignore[arg-type]
    return broker


async def _offsets(broker: Broker) -> list[int]:
    return list((await scan(broker, "t"))[0])


async def test_time_retention_deletes_slices_that_are_entirely_old(machine: Machine) -> None:
    broker = await _opened(machine, retention_ms=1000)
    for _ in range(5):
        await broker.append_values("t", [b"x"] * 2)
        machine.clock.advance(400)
    # Written at 0, 400, 800, 1200 and 1600; it is 2000 now, so records older than 1000 are deleted.
    assert await broker.enforce_retention() == 1
    assert await _offsets(broker) == [6, 7, 8, 9]
    assert await broker.enforce_retention() == 0
    machine.clock.advance(10_000)
    assert await broker.enforce_retention() == 1
    assert await _offsets(broker) == []
    assert (await broker.append_values("t", [b"y"])).base_offset == 10


async def test_time_retention_keeps_older_records_only_in_the_slice_of_a_younger_one(
    machine: Machine,
) -> None:
    broker = await _opened(machine, retention_ms=1000)
    now = machine.clock.now_ms()
    for times in ([now - 5000, now], [now - 9000, now - 9000], [now, now - 9000], [now - 2000]):
        await broker.append_values("t", [b"x"] * len(times), timestamps_ms=times)
    await broker.enforce_retention()
    assert await _offsets(broker) == [0, 1, 2, 3, 4, 5, 6]  # the first slice holds a young record
    await broker.trim("t", 2)
    await broker.enforce_retention()
    assert await _offsets(broker) == [4, 5, 6]


async def test_size_retention_keeps_the_newest_slices_that_fit(machine: Machine) -> None:
    broker = await _opened(machine, retention_bytes=1000)
    for _ in range(40):
        await broker.append_values("t", [b"." * 100])
    size = len((await broker.fetch("t", 0, max_bytes=1)).batches[0])
    assert await broker.enforce_retention() == 1
    fit = 1000 // size
    assert await _offsets(broker) == list(range(40 - fit, 40))
    assert await broker.enforce_retention() == 0


async def test_size_retention_spans_more_objects_than_the_index_cache_holds(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainstem.log.read.index.INDEX_MEMORY_BYTES", 0, raising=False)
    broker = await _opened(machine)
    for _ in range(400):
        await broker.append_values("t", [b"." * 100])
    size = len((await broker.fetch("t", 0, max_bytes=1)).batches[0])
    await broker.alter_topic("t", TopicConfig(retention_bytes=200 * size))
    async with asyncio.timeout(30):
        assert await broker.enforce_retention() == 1
    assert await _offsets(broker) == list(range(200, 400))


async def test_disabled_or_compacting_retention_deletes_nothing(machine: Machine) -> None:
    broker = await _opened(machine)
    await broker.create_topic("c", config=TopicConfig(retention_ms=1, cleanup_policy="compact"))
    for name in ("t", "c"):
        await broker.append_values(name, [b"x"] * 3, keys=[b"k"] * 3)
    machine.clock.advance(10**9)
    assert await broker.enforce_retention() == 0
    assert broker.partition("c").records == 3


async def test_a_ttl_expires_records_one_by_one(machine: Machine) -> None:
    broker = await _opened(machine, ttl_ms=1000)
    for _ in range(10):
        await broker.append_values("t", [b"x"])
        machine.clock.advance(100)
    machine.clock.advance(350)
    assert await broker.enforce_retention() == 1
    # Now is 1350, so what was written before 350 is expired: 0, 100, 200 and 300.
    assert await _offsets(broker) == [4, 5, 6, 7, 8, 9]
    assert broker.partition("t").records == 6


@pytest.mark.parametrize("records", [1, 3, 10])
async def test_a_cap_in_records_is_exact_after_every_append(machine: Machine, records: int) -> None:
    broker = await _opened(machine, cap_records=records)
    end = 0
    for count in (1, 2, 5, 1, 12, 1, 1):
        await broker.append_values("t", [b"x"] * count)
        end += count
        assert await _offsets(broker) == list(range(max(0, end - records), end))
        assert broker.partition("t").records == min(end, records)


async def test_a_cap_in_bytes_counts_values(machine: Machine) -> None:
    broker = await _opened(machine, cap_bytes=100)
    for _ in range(10):
        await broker.append_values("t", [b"x" * 30])
    assert await _offsets(broker) == [7, 8, 9]
    await broker.append_values("t", [b"x" * 90])
    assert await _offsets(broker) == [10]


async def test_a_full_topic_that_rejects_refuses_appends(machine: Machine) -> None:
    broker = await _opened(machine, cap_records=3, discard="reject")
    await broker.append_values("t", [b"x"] * 2)
    with pytest.raises(TopicFull):
        await broker.append_values("t", [b"x"] * 2)
    await broker.append_values("t", [b"x"])
    with pytest.raises(TopicFull):
        await broker.append_values("t", [b"x"])
    await broker.trim("t", 2)
    assert (await broker.append_values("t", [b"x"] * 2)).base_offset == 3


async def test_a_tighter_cap_evicts_at_once_and_survives_a_restart(machine: Machine) -> None:
    broker = await _opened(machine)
    await broker.append_values("t", [b"x"] * 10)
    await broker.alter_topic("t", TopicConfig(cap_records=4))
    assert await _offsets(broker) == [6, 7, 8, 9]
    assert await _offsets(await machine.restart()) == [6, 7, 8, 9]


async def _fill(broker: Broker, name: str, slices: int) -> None:
    for _ in range(slices):
        await broker.append_values(name, [b"." * 300])
        await finished(broker)


async def test_dead_objects_are_deleted_once_no_checkpoint_needs_them(
    machine: Machine,
) -> None:
    broker = await _opened(machine)
    port = machine.port
    assert port is not None
    await broker.create_topic("doomed")
    await _fill(broker, "t", 40)
    await _fill(broker, "doomed", 40)
    assert sum(object.sealed for object in port.objects()) > 5
    before = [object.number for object in port.objects()]
    await broker.trim("t", broker.partition("t").end - 1)
    await broker.delete_topic("doomed")
    await _fill(broker, "t", 60)  # two more checkpoints, both past the dead objects
    await broker.log.collect()
    after = [object.number for object in port.objects()]
    assert len([number for number in before if number not in after]) > 3
    assert (await scan(broker, "t"))[1] == []
    assert len(await _offsets(broker)) == 61
    await machine.kill()
    broker = await machine.open()
    assert len(await _offsets(broker)) == 61


async def test_one_live_record_keeps_its_object(machine: Machine) -> None:
    broker = await _opened(machine)
    await broker.create_topic("quiet")
    await broker.append_values("quiet", [b"still here"])
    for _ in range(5):
        await _fill(broker, "t", 30)
        await broker.trim("t", broker.partition("t").end)
    await machine.restart()
    broker = await machine.restart()
    assert (await scan(broker, "quiet"))[0] == {0: b"still here"}


async def test_concurrent_truncations_collect_each_object_once(machine: Machine) -> None:
    broker = await _opened(machine)
    port = machine.port
    assert port is not None
    for name in "abcdef":
        await broker.create_topic(name)
    for _ in range(40):
        for name in "abcdef":
            await broker.append_values(name, [b"." * 100])
            await finished(broker)
    objects = len(port.objects())
    await asyncio.gather(*(broker.trim(name, 40) for name in "abcdef"))
    await _fill(broker, "t", 60)
    await asyncio.gather(*(broker.log.collect() for _ in range(5)))
    assert len(port.objects()) < objects


async def test_retention_runs_by_itself(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mainstem.broker.topics.retention.RETENTION_EVERY_S", 0.0)
    broker = await _opened(machine, retention_ms=1000)
    await broker.append_values("t", [b"x"])
    machine.clock.advance(5000)
    broker.retention.rounds.start()
    await until(lambda: broker.partition("t").start == 1)
