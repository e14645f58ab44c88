"""Older objects of a local log are in an object store: nothing is lost on the way, and the disk is bounded."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import pytest

from mainstem import limits
from mainstem.broker.broker import Broker
from mainstem.broker.routers.service import RouterSettings
from mainstem.errors import (
    InvalidConfig,
    MainstemError,
    RecordsLost,
    StoreUnreachable,
    Throttled,
    Unavailable,
)
from mainstem.ledger.tiers import Tier
from mainstem.log.objects.repack.plan import RepackOptions
from mainstem.log.objects.tiering import TIER_GRACE_MS, HotRetention
from mainstem.ports.commitlog.local.cold import TIERS
from mainstem.ports.commitlog.local.layout import COLD
from mainstem.ports.commitlog.port import LogObject
from tests.support.files import Policy, SimulatedCrash
from tests.support.history import History, scan
from tests.support.lanes import step_instead_of_threads
from tests.support.machine import DIRECTORY
from tests.support.memory_store import MemoryObjectStore
from tests.support.tiers import TieredMachine
from tests.support.waiting import finished, until
from tests.support.workload import Workload


@pytest.fixture
async def machine() -> AsyncIterator[TieredMachine]:
    machine = TieredMachine()
    yield machine
    machine.bucket.before = None
    await machine.kill()


def local(machine: TieredMachine) -> list[LogObject]:
    assert machine.tiered is not None
    return [one for one in machine.tiered.local_objects() if one.sealed]


def cold(machine: TieredMachine) -> list[int]:
    assert machine.tiered is not None
    return [one.number for one in machine.tiered.objects() if one.cold]


def tiers(machine: TieredMachine) -> list[Tier]:
    assert machine.log is not None
    return list(machine.log.ledger.tiers)


async def keys(bucket: MemoryObjectStore) -> list[str]:
    return [one.key async for one in bucket.list()]


async def write(broker: Broker, first: int, count: int) -> None:
    for number in range(first, first + count):
        await broker.append_values("t", [b"%06d" % number + b"." * 200])
        await finished(broker)


async def settled(machine: TieredMachine) -> None:
    """Wait until the disk holds only what it should."""
    await until(lambda: len(local(machine)) <= machine.hot.retain_segments)


async def values(broker: Broker) -> list[int]:
    found, lost = await scan(broker, "t")
    assert not lost
    return [int(found[offset][:6]) for offset in sorted(found)]


async def filled(machine: TieredMachine, count: int = 150) -> Broker:
    broker = await machine.open()
    await broker.create_topic("t")
    await write(broker, 0, count)
    await settled(machine)
    return broker


async def test_older_objects_are_read_from_the_store_and_the_disk_keeps_the_newest(
    machine: TieredMachine,
) -> None:
    broker = await filled(machine)
    assert len(cold(machine)) > 3
    assert await values(broker) == list(range(150))
    await write(broker, 150, 30)
    broker = await machine.restart()
    assert await values(broker) == list(range(180))
    await write(broker, 180, 40)  # past a checkpoint of this run
    await settled(machine)
    await machine.kill()
    assert await values(await machine.open()) == list(range(220))
    assert len(cold(machine)) > 4


async def test_an_unreachable_store_fails_only_the_reads_of_cold_objects(
    machine: TieredMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainstem.log.objects.tiering.TIER_EVERY_S", 0.001)
    broker = await filled(machine)
    start, end = min(cold(machine)), broker.partition("t").end

    async def away(call: str, key: str) -> None:
        raise StoreUnreachable(f"{call} {key}: away on purpose")

    machine.bucket.before = away
    with pytest.raises(Unavailable):
        await broker.read("t", 0)
    assert (await broker.read("t", end - 1))[0].value == b"%06d" % 149 + b"." * 200
    await write(broker, 150, 60)
    # They cannot be uploaded: the disk keeps all of them.
    assert len(local(machine)) > machine.hot.retain_segments
    broker = await machine.restart()  # the files on disk are enough to start
    with pytest.raises(Unavailable):
        await broker.read("t", 0)
    machine.bucket.before = None
    assert machine.log is not None
    assert machine.log.tiering is not None
    await machine.log.tiering.round()
    await write(broker, 210, 40)  # past a checkpoint of this run
    await settled(machine)
    assert await values(broker) == list(range(250))
    assert min(cold(machine)) == start


async def test_a_routed_topic_is_unavailable_and_not_lost_while_its_store_is_unreachable(
    machine: TieredMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy has no bytes of its own: it reads those of its source."""
    monkeypatch.setattr("mainstem.log.objects.tiering.TIER_EVERY_S", 0.001)
    broker = await machine.open()
    await broker.create_topic("t")
    await broker.routers.put("copying", RouterSettings("t", "copy"))
    await write(broker, 0, 150)
    await broker.routers.drain("copy")
    await settled(machine)

    async def away(call: str, key: str) -> None:
        raise StoreUnreachable(f"{call} {key}: away on purpose")

    machine.bucket.before = away
    broker = await machine.restart()  # nothing is in memory
    for _ in range(2):
        with pytest.raises(Unavailable):
            await broker.read("copy", 0)
    end = broker.partition("copy").end
    assert end == 150
    assert (await broker.read("copy", end - 1))[0].value == b"%06d" % 149 + b"." * 200
    await write(broker, 150, 1)  # the source continues, and so do its copies
    await broker.routers.drain("copy")
    assert broker.partition("copy").end == 151
    machine.bucket.before = None
    found, lost = await scan(broker, "copy")
    assert not lost
    assert [int(found[offset][:6]) for offset in sorted(found)] == list(range(151))


async def test_reads_of_the_store_are_bounded_and_do_not_delay_reads_of_the_disk(
    machine: TieredMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await filled(machine)
    monkeypatch.setattr("mainstem.log.read.object_reads.STORE_READS_MAX", 0)
    with pytest.raises(Throttled):
        await broker.read("t", 0)
    assert await broker.read("t", 149)


async def test_an_object_that_the_store_lost_loses_only_its_own_records(machine: TieredMachine) -> None:
    broker = await filled(machine)
    lost = cold(machine)[2]
    (key,) = [key for key in await keys(machine.bucket) if f"/{lost:020d}-" in key]
    content = await machine.bucket.get(key)
    await machine.bucket.delete(key)
    found, ranges = await scan(broker, "t")
    missing = {offset for first, end in ranges for offset in range(first, end)}
    assert missing
    assert missing | found.keys() == set(range(150))
    assert not missing & found.keys()
    with pytest.raises(RecordsLost, match="missing"):
        await broker.read("t", min(missing))
    await machine.bucket.put(key, content)  # restored from the bucket's versions
    assert await values(broker) == list(range(150))


async def test_garbage_is_deleted_from_the_store_after_a_grace_period(machine: TieredMachine) -> None:
    broker = await filled(machine)
    assert machine.log is not None
    assert machine.log.tiering is not None
    gone = cold(machine)[:3]

    def leaving(machine: TieredMachine) -> list[int]:
        """Of the older half: a newer object may hold only records about the others, which nobody needs."""
        assert machine.log is not None
        return [tier.object for tier in machine.log.ledger.tiers.leaving() if tier.object < 10]

    held = broker.log.stored_objects(spans=True).objects
    spans = next(one.spans for one in held if one.number == gone[-1])
    assert spans is not None
    await broker.trim("t", int(spans["end"][0]))
    await machine.log.collect()
    await machine.log.tiering.round()
    assert leaving(machine) == gone
    assert set(gone) <= {int(key.split("/")[2][:20]) for key in await keys(machine.bucket) if "-" in key}
    await machine.kill()  # between the two
    await machine.open()
    machine.clock.advance(TIER_GRACE_MS)
    assert machine.log is not None
    assert machine.log.tiering is not None
    with machine.log.store_copies.one():  # as a backup does that names them
        await machine.log.tiering.round()
        assert leaving(machine) == gone
    await machine.log.tiering.round()
    assert not leaving(machine)
    assert not any(f"/{number:020d}-" in key for key in await keys(machine.bucket) for number in gone)
    assert cold(machine)
    assert min(cold(machine)) > gone[-1]


async def test_lost_and_damaged_notes_are_restored_from_the_store(machine: TieredMachine) -> None:
    await filled(machine)
    numbers = cold(machine)
    await machine.close()
    folder = DIRECTORY / COLD
    names = machine.files.listdir(folder)
    machine.files.unlink(folder / names[0])
    file = machine.files.open(folder / names[1], write=True)
    file.pwritev([b"\xff"], 100)
    file.close()
    assert await values(await machine.open()) == list(range(150))
    assert cold(machine)[: len(numbers)] == numbers


async def test_another_store_than_before_is_refused(machine: TieredMachine) -> None:
    await filled(machine)
    await machine.close()
    right, machine.bucket = machine.bucket, MemoryObjectStore()
    with pytest.raises(InvalidConfig, match="name the store that holds them"):
        await machine.open()
    machine.bucket = right
    await machine.close()
    assert await values(await machine.open()) == list(range(150))


async def test_a_store_of_another_log_is_refused(machine: TieredMachine) -> None:
    await filled(machine)
    other = TieredMachine()
    other.bucket = machine.bucket
    with pytest.raises(InvalidConfig, match="its own prefix"):
        await other.open()
    await other.kill()


async def test_an_object_missing_in_the_store_is_uploaded_again_before_the_disk_drops_it(
    machine: TieredMachine,
) -> None:
    machine.hot = HotRetention(retain_bytes=0, retain_segments=100)
    broker = await machine.open()
    await broker.create_topic("t")
    await write(broker, 0, 100)
    assert machine.log is not None
    assert machine.log.tiering is not None
    await machine.log.tiering.round()
    assert len([one for one in tiers(machine) if machine.log.ledger.tiers.stored(one.object)]) > 5
    assert not cold(machine)
    await machine.close()
    machine.bucket = MemoryObjectStore()  # as after a restore without the old store
    machine.hot = HotRetention(retain_bytes=0, retain_segments=2)
    broker = await machine.open()
    await write(broker, 100, 40)  # past checkpoints of this run
    await settled(machine)
    assert len(cold(machine)) > 5
    assert await values(broker) == list(range(140))


async def test_repacked_objects_are_deleted_from_the_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mainstem.log.objects.repack.repacker.REPACK_EVERY_S", 0.01)
    monkeypatch.setattr("mainstem.log.objects.tiering.TIER_EVERY_S", 0.01)
    machine = TieredMachine(repack=RepackOptions(after_objects=3, least_bytes=0, bytes_per_s=0, grace_s=0))
    try:
        broker = await filled(machine, 200)
        assert machine.log is not None
        log = machine.log
        await until(lambda: log.ledger.repacked.frontier > 3)
        await write(broker, 200, 60)  # past checkpoints
        await settled(machine)
        await log.collect()
        leaving = {tier.token for tier in log.ledger.tiers.leaving()}
        assert leaving
        assert all(one.number >= log.ledger.repacked.frontier for one in local(machine))
        assert await values(broker) == list(range(260))
        machine.clock.advance(TIER_GRACE_MS)
        assert log.tiering is not None
        await log.tiering.round()
        await until(lambda: leaving.isdisjoint(tier.token for tier in tiers(machine)))
        assert not any(token.hex() in key for key in await keys(machine.bucket) for token in leaving)
        assert await values(await machine.restart()) == list(range(260))
    finally:
        await machine.kill()


def test_the_disk_keeps_the_newest_by_bytes_and_by_count() -> None:
    objects = [LogObject(number, 0, 0, 10, sealed=True) for number in range(1, 6)]

    def kept(hot: HotRetention) -> int:
        return len(objects) - len(hot.cold(objects))

    assert kept(HotRetention(0, 0)) == 5
    assert kept(HotRetention(0, 2)) == 2
    assert kept(HotRetention(30, 0)) == 3
    assert kept(HotRetention(30, 2)) == 2
    assert kept(HotRetention(29, 4)) == 2
    assert kept(HotRetention(5, 0)) == 0


@pytest.mark.parametrize("crash_seed", range(2))
async def test_a_crash_at_any_call_loses_nothing_and_leaves_nothing_unknown(
    monkeypatch: pytest.MonkeyPatch, crash_seed: int, chaos: bool
) -> None:
    monkeypatch.setattr(limits, "DIGEST_EVERY_COMMITS", 4)
    calls, step = 20 + crash_seed, 1 if chaos else 23
    while await _crashes_after(monkeypatch, calls, crash_seed):
        calls += step


async def _crashes_after(monkeypatch: pytest.MonkeyPatch, calls: int, seed: int) -> bool:
    """One run that ends after `calls` calls, and a check of what it left. False if the run ended before."""
    step_instead_of_threads(monkeypatch, seed)
    machine, history = TieredMachine(HotRetention(0, 1)), History()
    machine.files.crash_after(calls)
    crashed = True
    with contextlib.suppress(SimulatedCrash, MainstemError):
        broker = await machine.open()
        await Workload(history, seed).run(broker, 40)
        await machine.close()
        crashed = False
    policies: tuple[Policy, ...] = ("lost", "kept", "torn")
    policy = policies[(calls + seed) % 3]
    await machine.crash(policy, seed)
    broker = await machine.open()
    await history.check(broker, all_written_survived=policy == "kept")
    assert crashed or cold(machine)  # a complete run must have tiered something
    known = {f"/{tier.object:020d}-{tier.token.hex()}/" for tier in tiers(machine)}
    for key in [key for key in await keys(machine.bucket) if key.startswith(TIERS)]:
        assert key.endswith("/owner") or any(part in key for part in known), key
    await history.check(await machine.restart(), all_written_survived=True)
    await machine.close()
    return crashed


async def test_an_object_whose_note_and_stored_bytes_are_lost_is_missing_and_the_log_opens(
    machine: TieredMachine,
) -> None:
    broker = await filled(machine)
    stream = broker.stream("t")
    number = cold(machine)[0]
    assert machine.tiered is not None
    (note,) = [path for path in machine.tiered.cold.note_paths() if f"{number:020d}" in path.name]
    await machine.close()
    machine.files.unlink(note)
    for key in await keys(machine.bucket):
        if f"/{number:020d}-" in key:
            await machine.bucket.delete(key)
    broker = await machine.open()
    ((start, end),) = broker.log.missing.ranges[stream]
    with pytest.raises(RecordsLost) as loss:
        await broker.read("t", start)
    assert (loss.value.start, loss.value.end, loss.value.reason) == (start, end, "missing")
    assert (await broker.read("t", end))[0].offset == end
