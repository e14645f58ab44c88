"""What is planned, for whom, and when the broker deletes files."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mainstem import limits
from mainstem.api.lake import PartChange, PlanRequest
from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.broker.periodic_tasks import PeriodicTask
from mainstem.errors import InvalidInput, NotFound, StalePlan
from mainstem.ledger.config import TopicConfig
from mainstem.ledger.tables import CommitTables, CreateTable, TableCommit
from mainstem.tables.garbage import LAKE_GARBAGE_GRACE_MS, LAKE_LEASE_SLACK_MS
from mainstem.tables.planning import LAKE_RANGES_PER_LEASE_MAX
from mainstem.tables.record_locations import LogRange, RecordLocator
from tests.support.lake import Worker
from tests.support.machine import DIRECTORY, Machine


def worker(machine: Machine) -> Worker:
    assert machine.broker is not None
    assert machine.port is not None
    return Worker(machine.broker, machine.port)


async def fill(broker: Broker, name: str, batches: int = 3, **config: Any) -> None:
    await broker.create_topic(name, config=TopicConfig(**config), exist_ok=True)
    for number in range(batches):
        await broker.append_values(name, [b"%d" % number] * 4, keys=[b"k"] * 4)


async def planned(broker: Broker, **request: Any) -> list[tuple[str, str, int, int]]:
    plan = await broker.lake.plan(PlanRequest("test", **request))
    for task in plan.tasks:
        await broker.lake.release(task.stream, task.token)
    return [(task.kind, task.topic, task.sources.base, task.sources.end) for task in plan.tasks]


async def test_only_tables_and_compacted_logs_are_planned_unless_all_are(machine: Machine) -> None:
    broker = await machine.open()
    await fill(broker, "plain")
    await fill(broker, "table", table=True)
    await fill(broker, "compact", cleanup_policy="compact,delete")
    await fill(broker, "queue", type="queue", table=True)
    await fill(broker, "ephemeral", durability="ephemeral", table=True)
    every = await planned(broker)
    assert [topic for _, topic, _, _ in every] == ["compact", "plain", "table"]
    choosy = Broker(broker.log, BrokerOptions(DIRECTORY), machine.clock, machine.random)
    assert [topic for _, topic, _, _ in await planned(choosy)] == ["compact", "table"]
    assert [topic for _, topic, _, _ in await planned(choosy, topics=("table", "plain"))] == ["table"]


async def test_a_stream_is_leased_once_until_its_lease_expires(machine: Machine) -> None:
    broker = await machine.open()
    await fill(broker, "t")
    request = PlanRequest("one", lease_ms=10_000)
    (task,) = (await broker.lake.plan(request)).tasks
    assert (await broker.lake.plan(request)).tasks == ()
    machine.clock.advance(5_000)
    assert await broker.lake.extend(task.stream, task.token, 10_000) == machine.clock.now_ms() + 10_000
    machine.clock.advance(9_999)
    assert (await broker.lake.plan(request)).tasks == ()
    machine.clock.advance(1)
    (again,) = (await broker.lake.plan(request)).tasks
    assert again.token != task.token
    with pytest.raises(StalePlan):
        await broker.lake.extend(task.stream, task.token, 10_000)
    with pytest.raises(StalePlan):
        await broker.lake.publish(await worker(machine).work(task))
    await broker.lake.publish(await worker(machine).work(again))


async def test_one_lease_covers_several_ranges_that_are_published_in_order(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LAKE_TASK_BYTES", 300)
    broker = await machine.open()
    await fill(broker, "t", batches=20)
    tasks = (await broker.lake.plan(PlanRequest("test"))).tasks
    assert len(tasks) == LAKE_RANGES_PER_LEASE_MAX
    assert len({task.token for task in tasks}) == 1
    ends = [task.sources.end for task in tasks]
    assert [task.sources.base for task in tasks] == [0, *ends[:-1]]
    made = [await worker(machine).work(task) for task in tasks]
    with pytest.raises(StalePlan):
        await broker.lake.publish(made[1])
    for publication in made:
        await broker.lake.publish(publication)
    assert len(broker.log.ledger.tasks) == 0
    await worker(machine).run("materialise")
    assert broker.log.ledger.generations.frontier(0) == 80
    assert len(await broker.read("t", 0, max_records=100)) <= 100


async def test_small_ranges_wait_for_more_bytes_or_for_the_timeout(machine: Machine) -> None:
    broker = await machine.open()
    await fill(broker, "t")
    waits = {"wait_for_bytes": 10_000, "wait_for_ms": 5_000}
    assert await planned(broker, **waits) == []
    machine.clock.advance(4_999)
    assert await planned(broker, **waits) == []
    machine.clock.advance(1)
    assert await planned(broker, **waits) == [("materialise", "t", 0, 12)]
    assert await planned(broker, wait_for_bytes=10, wait_for_ms=10**9) == [("materialise", "t", 0, 12)]
    assert await planned(broker, least_records=13) == []


async def test_every_topic_gets_its_turn_when_plans_are_short(machine: Machine) -> None:
    broker = await machine.open()
    for name in "abcde":
        await fill(broker, name)
    seen = [await planned(broker, tasks_max=2) for _ in range(3)]
    assert [topic for plan in seen for _, topic, _, _ in plan] == ["a", "b", "c", "d", "e", "a"]


async def test_kinds_of_work_on_one_stream_alternate(machine: Machine) -> None:
    broker = await machine.open()
    work = worker(machine)
    for _ in range(8):
        await fill(broker, "t", batches=1)
        await work.run("materialise")
    await broker.log.streams.of(0).delete(0, ((1, 2),), 0)
    await fill(broker, "t", batches=1)
    kinds = []
    for _ in range(3):
        (task,) = await work.plan()
        await broker.lake.publish(await work.work(task))
        kinds.append(task.kind)
    assert kinds == ["rewrite", "merge", "materialise"]


async def test_young_records_are_not_compacted_and_clean_parts_are_left_alone(machine: Machine) -> None:
    broker = await machine.open()
    await fill(broker, "t", cleanup_policy="compact", min_compaction_lag_ms=60_000)
    work = worker(machine)
    await work.run("materialise")
    assert await planned(broker, kinds=("compact",)) == []
    machine.clock.advance(60_001)
    (task,) = await work.plan("compact")
    assert task.compact_before_ms == machine.clock.now_ms() - 60_000
    assert task.tombstones_before_ms == machine.clock.now_ms() - 86_400_000
    await broker.lake.publish(await work.work(task))
    assert await planned(broker, kinds=("compact",)) == []
    assert broker.partition("t").records == 1


async def test_a_compaction_ends_where_the_table_does_and_continues_once_more_is_published(
    machine: Machine,
) -> None:
    broker = await machine.open()
    await fill(broker, "t", batches=1, cleanup_policy="compact")
    work = worker(machine)
    await work.run("materialise")
    await broker.log.propose(CreateTable("default", "t", bytes(16), "m0", broker.topic("t").topic_id))
    await show(broker, 0, 4)
    await fill(broker, "t", batches=1, cleanup_policy="compact")
    await work.run("materialise")
    machine.clock.advance(1)
    assert await planned(broker, kinds=("compact",)) == [("compact", "t", 0, 4)]
    await show(broker, 4, 8)
    assert await planned(broker, kinds=("compact",)) == [("compact", "t", 0, 8)]


async def show(broker: Broker, base: int, end: int) -> None:
    """As a publisher that publishes one more part."""
    change = PartChange(0, (), ((base, end, 1),))
    commit = TableCommit("default", "t", bytes(16), f"m{base}", f"m{end}", (change,))
    await broker.log.propose(CommitTables((commit,)))


@pytest.mark.parametrize("wrong", [{"lease_ms": 1}, {"tasks_max": 0}, {"holder": "x" * 999}])
async def test_an_invalid_plan_request_is_refused(machine: Machine, wrong: dict[str, Any]) -> None:
    broker = await machine.open()
    with pytest.raises(InvalidInput):
        await broker.lake.plan(PlanRequest(**({"holder": "me"} | wrong)))


async def test_a_publication_to_a_deleted_topic_is_refused(machine: Machine) -> None:
    broker = await machine.open()
    await fill(broker, "t")
    work = worker(machine)
    (task,) = await work.plan()
    publication = await work.work(task)
    await broker.delete_topic("t")
    with pytest.raises(NotFound):
        await broker.lake.publish(publication)
    machine.clock.advance(limits.LAKE_ORPHAN_GRACE_MS + 1)
    assert (await broker.lake.collect()).files == 1


async def test_replaced_files_are_deleted_after_their_grace_period(machine: Machine) -> None:
    broker = await machine.open()
    await fill(broker, "t")
    work = worker(machine)
    await work.run()
    await broker.log.streams.of(0).delete(0, ((1, 2),), 0)
    (old,) = broker.log.ledger.generations.parts(0)[0].files
    await work.run("rewrite")
    assert (await broker.lake.collect()).files == 0
    machine.clock.advance(LAKE_GARBAGE_GRACE_MS - 1)
    assert (await broker.lake.collect()).files == 0
    assert await broker.objects.get(old.key)
    machine.clock.advance(1)
    assert (await broker.lake.collect()).files == 1
    assert broker.log.ledger.generations.garbage() == []
    assert old.key not in [one.key async for one in broker.objects.list("parts/")]


async def test_files_of_a_table_snapshot_stay(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = await machine.open()
    await fill(broker, "t")
    work = worker(machine)
    await work.run()
    await broker.log.streams.of(0).delete(0, ((1, 2),), 0)
    await work.run("rewrite")
    await broker.lake.collect()
    machine.clock.advance(LAKE_GARBAGE_GRACE_MS)
    monkeypatch.setattr(broker.log.ledger.tables, "protects", lambda topic, position: True)
    assert (await broker.lake.collect()).files == 0
    monkeypatch.setattr(broker.log.ledger.tables, "protects", lambda topic, position: False)
    assert (await broker.lake.collect()).files == 1


async def test_files_of_an_ended_task_are_deleted_once_its_lease_expires(machine: Machine) -> None:
    broker = await machine.open()
    await fill(broker, "t")
    work = worker(machine)
    (task,) = await work.plan()
    await work.work(task)  # and never publish
    machine.clock.advance(limits.LAKE_ORPHAN_GRACE_MS)
    await broker.lake.extend(task.stream, task.token, limits.LAKE_ORPHAN_GRACE_MS)
    assert (await broker.lake.collect()).files == 0
    machine.clock.advance(limits.LAKE_ORPHAN_GRACE_MS + LAKE_LEASE_SLACK_MS)
    assert (await broker.lake.collect()).files == 1
    assert len(broker.log.ledger.tasks) == 0
    with pytest.raises(StalePlan):
        await broker.lake.extend(task.stream, task.token, 10_000)


async def test_the_log_keeps_what_a_task_reads(machine: Machine) -> None:
    broker = await machine.open()
    await fill(broker, "t", batches=30)
    (task,) = await worker(machine).plan()
    await broker.trim("t", 100)
    broker = await machine.restart()
    broker = await machine.restart()
    assert machine.port is not None
    assert machine.port.objects()[0].number == 1  # truncated or not
    await worker(machine).work(task)
    await broker.lake.release(task.stream, task.token)
    await machine.restart()
    assert machine.port.objects()[0].number > 1


async def test_a_publication_needs_its_files_in_the_store(machine: Machine) -> None:
    broker = await machine.open()
    await fill(broker, "t")
    work = worker(machine)
    (task,) = await work.plan()
    publication = await work.work(task)
    (file,) = publication.parts[0].files
    data = await broker.objects.get(file.key)
    await broker.objects.delete(file.key)
    with pytest.raises(StalePlan, match="no bytes"):
        await broker.lake.publish(publication)
    await broker.objects.put(file.key, data[:-1])
    with pytest.raises(StalePlan, match=str(len(data))):
        await broker.lake.publish(publication)
    await broker.objects.put(file.key, data)
    assert await broker.lake.publish(publication) == 12


async def test_status_reports_progress(machine: Machine) -> None:
    broker = await machine.open()
    await fill(broker, "t")
    await fill(broker, "u")
    await worker(machine).run(topics=("t",))
    await fill(broker, "t", batches=1)
    assert len((await broker.lake.plan(PlanRequest("me", ("u",)))).tasks) == 1
    status = broker.lake.status()
    by_name = {topic.topic: topic.partitions[0] for topic in status.topics}
    t, u = by_name["t"], by_name["u"]
    assert (t.start, t.end, t.materialised_to, t.lag_records, t.parts, t.records) == (0, 16, 12, 4, 1, 12)
    assert t.file_bytes > 0
    assert t.generations == [1]
    assert (u.materialised_to, u.lag_records, u.parts) == (0, 12, 0)
    assert [(held.task, held.holder) for held in status.tasks] == [("parts/1", "me")]


async def test_a_partition_that_cannot_be_planned_is_named_and_the_others_are_planned(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await machine.open()
    for name in ("a", "hurt", "z"):
        await fill(broker, name)
    (hurt,) = broker.topic("hurt").streams
    logged = RecordLocator.logged

    async def poisoned(record_locator: RecordLocator, stream: int, base: int, end: int) -> LogRange:
        if stream == hurt:
            raise OverflowError("too far")
        return await logged(record_locator, stream, base, end)

    with monkeypatch.context() as poison:
        poison.setattr(RecordLocator, "logged", poisoned)
        plan = await broker.lake.plan(PlanRequest("test"))
        assert [task.topic for task in plan.tasks] == ["a", "z"]
        assert plan.problems == {"hurt": "OverflowError: too far"}
        assert (await broker.lake.plan(PlanRequest("test", topics=("a",)))).problems == {}
    plan = await broker.lake.plan(PlanRequest("test"))
    assert ([task.topic for task in plan.tasks], plan.problems) == (["hurt"], {})


async def test_a_round_that_raises_is_followed_by_another() -> None:
    again = asyncio.Event()
    rounds = 0

    async def work() -> None:
        nonlocal rounds
        rounds += 1
        if rounds == 1:
            raise OverflowError("too far")
        again.set()

    kept = PeriodicTask("test", 0.0, work)
    kept.start()
    await asyncio.wait_for(again.wait(), 10)
    await kept.stop()
