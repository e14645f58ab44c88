from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mainstem import limits
from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.broker.queues.jobs import JobReader
from mainstem.broker.queues.service import ClaimedJob, QueueCounts
from mainstem.broker.workers import JobWorker
from mainstem.errors import (
    InvalidInput,
    MainstemError,
    NotAQueue,
    PartitionNotFound,
    ReadOnly,
    TooLarge,
    TopicNotFound,
)
from mainstem.ledger.config import TopicConfig
from mainstem.records.building import build_batch
from tests.support.machine import Machine
from tests.support.waiting import until


async def queue(broker: Broker, *jobs: bytes, name: str = "q", **config: Any) -> None:
    settings: dict[str, Any] = {"type": "queue", "durability": "disk"} | config
    await broker.create_topic(name, config=TopicConfig(**settings))
    if jobs:
        await broker.append_values(name, jobs)


def offsets(jobs: list[ClaimedJob]) -> list[int]:
    return [job.offset for job in jobs]


async def test_a_job_is_a_leased_record(machine: Machine) -> None:
    broker = await machine.open()
    await queue(broker)
    await broker.append_values(
        "q", [b"v", None], keys=[b"k", None], headers=[[("meta", b"{}"), ("x", None)], []]
    )
    claims = await broker.queues.claim("q", "ann", limit=5, lease_ms=1_000)
    first, second = claims.jobs
    assert (first.offset, first.key, first.value) == (0, b"k", b"v")
    assert first.headers == (("meta", b"{}"), ("x", None))
    assert (second.offset, second.key, second.value, second.headers) == (1, None, None, ())
    assert first.deadline_ms == machine.clock.now_ms() + 1_000
    assert first.timestamp_ms == machine.clock.now_ms()
    assert (first.deliveries, claims.ready) == (1, 0)


async def test_names_that_are_not_queues_are_refused(machine: Machine) -> None:
    broker = await machine.open()
    await broker.create_topic("log")
    await queue(broker)
    queues = broker.queues
    for name, partition, error in (
        ("none", 0, TopicNotFound),
        ("log", 0, NotAQueue),
        ("q", 1, PartitionNotFound),
    ):
        for call in (
            queues.claim(name, "ann", partition=partition),
            queues.ack(name, "ann", [0], partition=partition),
            queues.nack(name, "ann", [0], partition=partition),
            queues.extend(name, "ann", [0], lease_ms=100, partition=partition),
            queues.state(name, partition),
        ):
            with pytest.raises(error):
                await call


async def test_invalid_arguments_are_refused(machine: Machine) -> None:
    broker = await machine.open()
    await queue(broker, b"1")
    for node in ("", "n" * 129):
        with pytest.raises(InvalidInput):
            await broker.queues.claim("q", node)
    with pytest.raises(TooLarge):
        await broker.queues.ack("q", "ann", list(range(limits.CLAIM_JOBS_MAX + 1)))
    with pytest.raises(InvalidInput):
        await broker.queues.ack("q", "ann", [0, 1], [7])


async def test_each_partition_is_its_own_queue(machine: Machine) -> None:
    broker = await machine.open()
    await broker.create_topic("q", partitions=2, config=TopicConfig(type="queue"))
    await broker.append_values("q", [b"a"], partition=1)
    assert not (await broker.queues.claim("q", "ann")).jobs
    assert (await broker.queues.claim("q", "ann", partition=1)).jobs[0].value == b"a"
    assert await broker.queues.state("q", 1) == QueueCounts(0, 1, 0)


async def test_counts_follow_the_clock_without_anybody_claiming(machine: Machine) -> None:
    broker = await machine.open()
    await queue(broker, b"1", b"2")
    await broker.queues.claim("q", "ann", limit=2, lease_ms=1_000)
    await broker.queues.nack("q", "ann", [0], delay_ms=2_000)
    assert await broker.queues.state("q") == QueueCounts(0, 1, 0)
    machine.clock.advance(1_001)
    assert await broker.queues.state("q") == QueueCounts(1, 0, 0)
    machine.clock.advance(999)
    assert await broker.queues.state("q") == QueueCounts(2, 0, 0)


@pytest.mark.parametrize("durable", [False, True])
async def test_leases_after_a_clean_stop_a_kill_and_a_power_loss(machine: Machine, durable: bool) -> None:
    broker = await machine.open()
    await queue(broker, b"1", b"2", durability="fsync", leases_durable=durable)
    deliveries = 0
    ends: list[Callable[[], object]] = [machine.close, machine.kill, machine.lose_power]
    for end in ends:
        deliveries += 1
        claims = await broker.queues.claim("q", "ann", lease_ms=1_000)
        assert [(job.offset, job.deliveries) for job in claims.jobs] == [(0, deliveries)]
        await end()  # type: ignore[misc]
        broker = await machine.open()
        if durable:
            assert await broker.queues.state("q") == QueueCounts(1, 1, 0)
            assert broker.queues.holds("q", 0, claims.jobs[0].token)
            machine.clock.advance(1_001)
        assert await broker.queues.state("q") == QueueCounts(2, 0, 0)
        if end == machine.lose_power and not durable:
            # The claim was answered once written: a crash may lose its delivery count.
            deliveries -= 1
    again = (await broker.queues.claim("q", "ann", limit=2)).jobs
    assert [job.deliveries for job in again] == [deliveries + 1, 1]


async def test_a_claim_of_durable_leases_waits_for_its_sync(machine: Machine) -> None:
    broker = await machine.open()
    await queue(broker, b"1", b"2", leases_durable=True)
    assert machine.port is not None
    await machine.port.hold_syncs()
    claiming = asyncio.create_task(broker.queues.claim("q", "ann"))
    await _written(broker)
    assert not claiming.done()
    machine.port.sync_gate.set()
    assert offsets((await claiming).jobs) == [0]


async def test_other_claims_and_acks_of_a_relaxed_queue_do_not_wait(machine: Machine) -> None:
    broker = await machine.open()
    await queue(broker, b"1", b"2")
    assert machine.port is not None
    await machine.port.hold_syncs()
    jobs = (await broker.queues.claim("q", "ann", limit=2)).jobs
    assert offsets(jobs) == [0, 1]
    assert (await broker.queues.ack("q", "ann", [0])).offsets == [0]
    assert (await broker.queues.nack("q", "ann", [1])).offsets == [1]
    machine.port.sync_gate.set()


async def test_an_ack_of_an_fsync_queue_waits_for_its_sync(machine: Machine) -> None:
    broker = await machine.open()
    await queue(broker, b"1", durability="fsync")
    await broker.queues.claim("q", "ann")
    assert machine.port is not None
    await machine.port.hold_syncs()
    acking = asyncio.create_task(broker.queues.ack("q", "ann", [0]))
    await _written(broker)
    assert not acking.done()
    machine.port.sync_gate.set()
    assert (await acking).offsets == [0]


async def test_a_job_is_not_leased_before_its_append_is_durable(machine: Machine) -> None:
    broker = await machine.open()
    await queue(broker, durability="fsync")
    assert machine.port is not None
    await machine.port.hold_syncs()
    appending = asyncio.create_task(broker.append_values("q", [b"1"]))
    await _written(broker)
    claiming = asyncio.create_task(broker.queues.claim("q", "ann"))
    await _written(broker)
    assert not claiming.done()
    machine.port.sync_gate.set()
    assert offsets((await claiming).jobs) == [0]
    await appending


async def _written(broker: Broker) -> None:
    """Wait until what was proposed is applied, synced or not."""
    position = broker.last_position
    await until(lambda: broker.last_position > position)


async def test_durable_leases_fail_closed(machine: Machine) -> None:
    broker = await machine.open()
    await queue(broker, b"1", leases_durable=True)
    machine.files.fail_next_fdatasync()
    with pytest.raises(ReadOnly):
        await broker.queues.claim("q", "ann")
    await machine.lose_power()
    broker = await machine.open()
    assert await broker.queues.state("q") == QueueCounts(1, 0, 0)


async def test_acknowledged_jobs_stay_deleted_after_a_power_cut(machine: Machine) -> None:
    broker = await machine.open()
    await queue(broker, *[b"%d" % n for n in range(20)], durability="fsync")
    jobs = (await broker.queues.claim("q", "ann", limit=20)).jobs
    await broker.queues.ack("q", "ann", [job.offset for job in jobs if job.offset % 3])
    await machine.lose_power()
    broker = await machine.open()
    again = (await broker.queues.claim("q", "ann", limit=20)).jobs
    assert [job.value for job in again] == [b"%d" % n for n in range(0, 20, 3)]


async def dead_letter_ready(broker: Broker) -> None:
    """One job that the next claim will dead-letter, with another after it."""
    await queue(broker, b"bad", b"good", max_deliveries=1, dead_letter="dead", durability="fsync")
    await broker.queues.claim("q", "ann")
    await broker.queues.nack("q", "ann", [0])


async def test_a_dead_letter_is_copied_once_whenever_the_power_fails(machine: Machine) -> None:
    broker = await machine.open()
    await broker.create_topic("dead", config=TopicConfig(durability="fsync"))
    await queue(broker, b"bad", max_deliveries=1, dead_letter="dead", durability="fsync")
    await broker.queues.claim("q", "ann")
    await broker.queues.nack("q", "ann", [0])
    for policy in ("lost", "kept", "torn"):
        claiming = asyncio.create_task(broker.queues.claim("q", "ann"))
        await _written(broker)  # the claim: the move is in progress
        await machine.lose_power(policy)
        await asyncio.gather(claiming, return_exceptions=True)
        broker = await machine.open()
    assert not (await broker.queues.claim("q", "ann")).jobs
    assert [record.value for record in await broker.read("dead", 0)] == [b"bad"]
    assert await broker.queues.state("q") == QueueCounts(0, 0, 1)


async def test_many_claims_at_once_move_a_dead_letter_once(machine: Machine) -> None:
    broker = await machine.open()
    await dead_letter_ready(broker)
    taken = await asyncio.gather(*[broker.queues.claim("q", f"w{n}") for n in range(10)])
    assert sorted(offsets([job for claims in taken for job in claims.jobs])) == [1]
    assert [record.value for record in await broker.read("dead", 0)] == [b"bad"]
    assert await broker.queues.state("q") == QueueCounts(0, 1, 1)
    assert broker.topic("dead").config.durability == "disk"


async def test_more_dead_letters_than_one_commit_moves(machine: Machine) -> None:
    broker = await machine.open()
    await queue(broker, *[b"%d" % n for n in range(250)], max_deliveries=1, dead_letter="dead")
    await broker.queues.claim("q", "ann", limit=250)
    await broker.queues.nack("q", "ann", list(range(250)))
    assert not (await broker.queues.claim("q", "ann", limit=250)).jobs
    moved: list[bytes | None] = []
    while records := await broker.read("dead", len(moved), max_records=300):
        moved += [record.value for record in records]
    assert moved == [b"%d" % n for n in range(250)]
    assert await broker.queues.state("q") == QueueCounts(0, 0, 250)


async def test_dead_letters_may_go_to_an_ephemeral_topic(machine: Machine) -> None:
    broker = await machine.open()
    await broker.create_topic("dead", config=TopicConfig(durability="ephemeral"))
    await dead_letter_ready(broker)
    await broker.queues.claim("q", "ann")
    assert [record.value for record in await broker.read("dead", 0)] == [b"bad"]
    assert (await broker.queues.state("q")).dead_lettered == 1


async def test_an_ephemeral_queue_keeps_the_same_rules_in_memory(machine: Machine) -> None:
    broker = await machine.open()
    await queue(broker, b"1", b"2", b"3", durability="ephemeral", max_deliveries=1, dead_letter="dead")
    commits = broker.last_position
    claims = await broker.queues.claim("q", "ann", limit=2, lease_ms=1_000)
    assert ([job.value for job in claims.jobs], claims.ready) == ([b"1", b"2"], 1)
    assert (await broker.queues.ack("q", "ann", [0], [claims.jobs[0].token])).offsets == [0]
    assert (await broker.queues.ack("q", "bob", [1])).skipped == [1]
    assert await broker.queues.state("q") == QueueCounts(1, 1, 0)
    assert broker.last_position == commits  # nothing of it is in the log
    machine.clock.advance(1_001)
    assert offsets((await broker.queues.claim("q", "bob", limit=5)).jobs) == [2]
    assert await broker.queues.state("q") == QueueCounts(0, 1, 1)
    assert [record.value for record in await broker.read("dead", 0)] == [b"2"]
    assert [record.offset for record in await broker.read("q", 2)] == [2]
    broker = await machine.restart()
    assert await broker.queues.state("q") == QueueCounts(0, 0, 0)
    await broker.append_values("q", [b"4"])
    assert [job.value for job in (await broker.queues.claim("q", "ann")).jobs] == [b"4"]
    await broker.delete_topic("q")
    await queue(broker, b"5", durability="ephemeral")
    assert [job.deliveries for job in (await broker.queues.claim("q", "ann", limit=9)).jobs] == [1]


async def test_a_worker_of_an_ephemeral_queue(machine: Machine) -> None:
    broker = await machine.open()
    await queue(broker, durability="ephemeral")
    async with JobWorker(broker.queues, "q", "ann") as worker:
        waiting = asyncio.create_task(worker.jobs())
        await asyncio.sleep(0)
        await broker.append_values("q", [b"1"])
        assert offsets(await waiting) == [broker.partition("q").start]
    assert await broker.queues.state("q") == QueueCounts(1, 0, 0)


async def test_damage_loses_only_the_jobs_of_its_batch(tmp_path: Path) -> None:
    broker = await Broker.open(BrokerOptions(tmp_path))
    await queue(broker, b"damaged" * 20, b"with it")
    await broker.append_values("q", [b"whole"])
    await broker.close()
    damage(tmp_path, b"damageddamaged")
    broker = await Broker.open(BrokerOptions(tmp_path))
    claims = await broker.queues.claim("q", "ann", limit=5)
    assert [job.value for job in claims.jobs] == [b"whole"]
    assert await broker.queues.state("q") == QueueCounts(0, 1, 0)
    await broker.close()


def damage(directory: Path, content: bytes) -> None:
    """Change the stored bytes that contain this."""
    for path in directory.rglob("*"):
        stored = path.read_bytes() if path.is_file() else b""
        if content in stored:
            path.write_bytes(stored.replace(content, content.upper(), 1))


async def test_deleted_records_are_not_jobs(machine: Machine) -> None:
    broker = await machine.open()
    await queue(broker, b"1", b"2", b"3")
    await broker.trim("q", 1)
    assert offsets((await broker.queues.claim("q", "ann", limit=5)).jobs) == [1, 2]


async def test_claims_read_evicted_records_from_disk(machine: Machine) -> None:
    broker = await machine.open()
    await queue(broker)
    for n in range(120):
        await broker.append_values("q", [b"%03d" % n * 30, b"%03d" % n * 40])
    broker = await machine.restart()
    seen = []
    while jobs := (await broker.queues.claim("q", "ann", limit=7)).jobs:
        await broker.queues.ack("q", "ann", offsets(jobs))
        seen += [(job.offset, job.value) for job in jobs]
    assert seen == [(at, b"%03d" % (at // 2) * (30 if at % 2 == 0 else 40)) for at in range(240)]


async def test_compressed_batches_and_single_ones_read_alike(machine: Machine) -> None:
    broker = await machine.open()
    await queue(broker)
    values = [b"%d" % n for n in range(100)]
    await broker.append("q", build_batch(values[:60], timestamps_ms=5, codec="zstd"))
    for value in values[60:]:
        await broker.append("q", build_batch([value], timestamps_ms=6, codec="gzip"))
    jobs = (await broker.queues.claim("q", "ann", limit=100)).jobs
    assert [job.value for job in jobs] == values
    assert {job.timestamp_ms for job in jobs} == {5, 6}


async def test_the_reader_keeps_a_bounded_number_of_bytes(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainstem.broker.queues.jobs.QUEUE_PIECES_BYTES_MAX", 200_000)
    broker = await machine.open()
    await queue(broker)
    for _ in range(40):
        await broker.append_values("q", [b"x" * 20_000])
    stream = broker.topic("q").streams[0]
    reader = JobReader(broker.streams)
    for at in range(40):
        found = await reader.read(stream, [at])
        assert found[0] is not None
        assert found[0].offset == at
        assert reader.cached_bytes <= 200_000 + 70_000
    reader.forget(stream)
    assert (reader.cached_bytes, len(reader)) == (0, 0)


async def test_gathered_claims_are_served_together(machine: Machine) -> None:
    broker = await machine.open()
    await queue(broker, *[b"x"] * 5, claim_jitter_ms=1)
    taken = await asyncio.gather(*[broker.queues.claim("q", f"w{n}", limit=9) for n in range(2)])
    assert [offsets(claims.jobs) for claims in taken] == [[0, 2, 4], [1, 3]]
    assert [claims.ready for claims in taken] == [0, 0]


async def test_a_gathered_claim_of_a_deleted_queue_is_refused(machine: Machine) -> None:
    broker = await machine.open()
    await queue(broker, b"1", claim_jitter_ms=5_000)
    claiming = [asyncio.create_task(broker.queues.claim("q", f"w{n}")) for n in range(3)]
    await asyncio.sleep(0)
    claiming[0].cancel()
    await machine.close()
    outcomes = await asyncio.gather(*claiming, return_exceptions=True)
    assert isinstance(outcomes[0], asyncio.CancelledError)
    assert all(isinstance(outcome, MainstemError) for outcome in outcomes[1:])


async def test_a_worker_is_refilled_and_returns_its_jobs_when_it_leaves(machine: Machine) -> None:
    broker = await machine.open()
    await queue(broker, b"1", b"2", b"3")
    async with JobWorker(broker.queues, "q", "ann", limit=2) as worker:
        assert offsets(await worker.jobs()) == [0, 1]
        waiting = asyncio.create_task(worker.jobs())
        await asyncio.sleep(0)
        assert not waiting.done()
        await broker.queues.ack("q", "ann", [1])
        assert offsets(await waiting) == [2]
    assert await broker.queues.state("q") == QueueCounts(2, 0, 0)


async def test_a_worker_wakes_for_appends_and_ends_with_its_queue(machine: Machine) -> None:
    broker = await machine.open()
    await queue(broker)
    async with JobWorker(broker.queues, "q", "ann", limit=2) as worker:
        waiting = asyncio.create_task(worker.jobs())
        await asyncio.sleep(0)
        await broker.append_values("q", [b"1"])
        assert offsets(await waiting) == [0]
        waiting = asyncio.create_task(worker.jobs())
        await asyncio.sleep(0)
        await broker.delete_topic("q")
        with pytest.raises(TopicNotFound):
            await waiting


async def test_a_worker_that_leaves_during_a_claim_leaves_no_lease(machine: Machine) -> None:
    broker = await machine.open()
    await queue(broker, b"1")
    assert machine.port is not None
    async with JobWorker(broker.queues, "q", "ann") as worker:
        machine.port.append_gate.clear()
        waiting = asyncio.create_task(worker.jobs())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        machine.port.append_gate.set()
    assert await broker.queues.state("q") == QueueCounts(1, 0, 0)


async def test_fifty_workers_with_nacks_and_expired_leases_complete_every_job_once(machine: Machine) -> None:
    broker = await machine.open()
    await queue(broker, *[b"%d" % n for n in range(1_000)])
    done: list[bytes | None] = []

    async def work(number: int) -> None:
        node = f"w{number}"
        while jobs := (await broker.queues.claim("q", node, limit=1 + number % 5)).jobs:
            given_up = [job for job in jobs if (job.offset + job.deliveries) % 7 == 0]
            if given_up:
                await broker.queues.nack("q", node, offsets(given_up), [job.token for job in given_up])
            kept = [job for job in jobs if job not in given_up]
            acked = await broker.queues.ack("q", node, offsets(kept), [job.token for job in kept])
            assert not acked.skipped
            done.extend(job.value for job in kept)

    await asyncio.gather(*[work(number) for number in range(50)])
    await work(0)
    assert sorted(done, key=lambda value: int(value or b"")) == [b"%d" % n for n in range(1_000)]
    assert broker.partition("q").records == 0
