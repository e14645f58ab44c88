"""The driver's loop against a real server, with tasks done in this process instead of on Spark."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import numpy as np
import pytest

from mainstem.api.lake import LakeStatus, PlanRequest, Task, WalExtents
from mainstem.client.broker import BrokerClient
from mainstem.errors import StalePlan, Unreachable
from mainstem.log.read.extents import EXTENT
from mainstem.spark.driver.driver import Driver, DriverOptions
from mainstem.spark.driver.jobs import TaskOutcome
from mainstem.tables.parts.object_readers import local_path
from mainstem.testing.server import ServerProcess
from tests.support.driver import done_here

from .conftest import Broker

WAIT_S = 120.0


class Watched:
    """Progress that tests look at."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []
        self._changed = threading.Condition()

    def event(self, name: str, **fields: object) -> None:
        with self._changed:
            self.events.append((name, fields))
            self._changed.notify_all()

    def status(self, status: LakeStatus) -> None:
        self.event("status")

    def close(self) -> None: ...

    def named(self, name: str) -> list[dict[str, Any]]:
        return [fields for event, fields in self.events if event == name]

    def wait_for(self, name: str) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.named(name), WAIT_S), self.events


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A server whose every topic is made into files."""
    directory = tmp_path_factory.mktemp("lake") / "data"
    with ServerProcess(directory, "--text", "off", "--lake-topics", "all") as process:
        found = Broker(process)
        with found.client:
            yield found


@pytest.fixture
def broker_calls(lake: Broker) -> Iterator[BrokerClient]:
    with BrokerClient(lake.url) as calls:
        yield calls


def _driver(
    calls: BrokerClient,
    topic: str,
    run: Callable[[Sequence[Task]], list[TaskOutcome]] = done_here,
    **options: Any,
) -> tuple[Driver, Watched]:
    progress = Watched()
    chosen = {"wait_for_bytes": 0, "wait_for_ms": 0, **options}
    driver = Driver(calls, run, DriverOptions(holder=f"test {topic}", topics=(topic,), **chosen), progress)
    return driver, progress


def _read(broker: Broker, topic: str, partition: int = 0) -> list[tuple[Any, ...]]:
    """Every record, as the HTTP door gives it."""
    found, seq = [], 0
    while True:
        page = broker.ask(
            "POST", f"/v0/topics/{topic}/diff?partition={partition}", {"from_seq": seq, "limit": 1000}
        )
        found += [tuple(sorted(record.items(), key=str)) for record in page["records"]]
        if page["caught_up"]:
            return [msgspec.json.encode(record) for record in found]
        seq = page["next_from_seq"]


def _fill(broker: Broker, topic: str, partition: int = 0, batches: int = 5) -> None:
    for number in range(batches):
        broker.write(
            topic,
            *(b'{"n": %d}' % (number * 10 + i) for i in range(10)),
            partition=partition,
            keys=[b"key-%d" % i for i in range(10)],
            headers=[[("h", b"%d" % i), ("h", None)] if i % 2 else [] for i in range(10)],
            times=[1_700_000_000_000 + 40_000_000 * i for i in range(10)],
        )


def _progress(calls: BrokerClient, topic: str) -> Any:
    return next(one for one in calls.status().topics if one.topic == topic)


def test_a_pass_makes_files_of_every_partition_and_readers_see_no_difference(
    lake: Broker, broker_calls: BrokerClient, topic: str
) -> None:
    lake.create(topic, partitions=3)
    for partition in range(3):
        _fill(lake, topic, partition)
    lake.ask("POST", f"/v0/topics/{topic}/delete", {"match": "key-3"})
    before = [_read(lake, topic, partition) for partition in range(3)]
    driver, progress = _driver(broker_calls, topic)
    driver_status = driver.run_once()
    assert driver_status.records == sum(map(len, before))
    assert {fields["partition"] for fields in progress.named("published")} == {0, 1, 2}
    reached = _progress(broker_calls, topic)
    assert reached.lag_records == 0
    assert [partition.materialised_to for partition in reached.partitions] == [50, 50, 50]
    assert [_read(lake, topic, partition) for partition in range(3)] == before


def test_a_second_pass_finds_nothing_and_newer_records_take_another(
    lake: Broker, broker_calls: BrokerClient, topic: str
) -> None:
    lake.create(topic)
    _fill(lake, topic)
    driver, progress = _driver(broker_calls, topic)
    driver.run_once()
    driver.run_once()
    assert len(progress.named("published")) == 1
    _fill(lake, topic, batches=1)
    driver.run_once()
    assert [(f["base"], f["end"]) for f in progress.named("published")] == [(0, 50), (50, 60)]


def test_deleted_records_leave_the_files_too(lake: Broker, broker_calls: BrokerClient, topic: str) -> None:
    lake.create(topic)
    _fill(lake, topic)
    driver, progress = _driver(broker_calls, topic)
    driver.run_once()
    lake.ask("POST", f"/v0/topics/{topic}/delete", {"match": "key-7"})
    before = _read(lake, topic)
    driver.run_once()
    assert [f["kind"] for f in progress.named("published")] == ["materialise", "rewrite"]
    assert progress.named("published")[1]["records"] == 45 == len(before)
    assert _read(lake, topic) == before


def test_a_task_that_fails_is_reported_for_its_topic_and_the_others_go_on(
    lake: Broker, broker_calls: BrokerClient, topic: str
) -> None:
    good, bad = f"{topic}-good", f"{topic}-bad"
    for name in (good, bad):
        lake.create(name)
        _fill(lake, name)

    def half(tasks: Sequence[Task]) -> list[TaskOutcome]:
        return [
            TaskOutcome(task, None, "the disk is made of cheese", 0.1)
            if task.topic == bad
            else done_here([task])[0]
            for task in tasks
        ]

    progress = Watched()
    options = DriverOptions(holder=topic, topics=(good, bad), wait_for_bytes=0, wait_for_ms=0)
    driver = Driver(broker_calls, half, options, progress)
    driver_status = driver.run_once()
    assert [f["topic"] for f in progress.named("published")] == [good]
    assert [f["topic"] for f in progress.named("failed")] == [bad]
    assert driver_status.failing()[0].error == "the disk is made of cheese"
    (heard,) = [one for one in broker_calls.status().drivers if one.report.holder == topic]
    assert [(f.topic, f.failures) for f in heard.report.failing] == [(bad, 1)]
    assert f'mainstem_lake_tasks_failed_total{{driver="{topic}"}} 1' in lake.client.get("/v0/metrics").text
    assert not any(task.task.endswith(f"/{bad}") for task in broker_calls.status().tasks)
    driver, progress = _driver(broker_calls, bad)
    driver.run_once()
    assert len(progress.named("published")) == 1


def test_a_failing_stream_is_left_alone_for_a_while(
    lake: Broker, broker_calls: BrokerClient, topic: str
) -> None:
    lake.create(topic)
    _fill(lake, topic)
    attempts: list[int] = []

    def fails(tasks: Sequence[Task]) -> list[TaskOutcome]:
        attempts.append(len(tasks))
        return [TaskOutcome(task, None, "no", 0.1) for task in tasks]

    driver, _ = _driver(broker_calls, topic, fails)
    driver.round()
    driver.round()
    assert attempts == [1]


def test_a_lease_is_kept_while_the_work_takes_longer(
    lake: Broker, broker_calls: BrokerClient, topic: str
) -> None:
    lake.create(topic)
    _fill(lake, topic)
    seen: list[Any] = []
    pace = threading.Event()

    def slow(tasks: Sequence[Task]) -> list[TaskOutcome]:
        first = broker_calls.status()
        deadline = next(task for task in first.tasks if task.holder == f"test {topic}").deadline_ms
        while True:  # until the lease would have run out, and was extended at least once
            now = broker_calls.status()
            held = [task for task in now.tasks if task.holder == f"test {topic}"]
            if not held or (now.now_ms > deadline and held[0].deadline_ms > deadline):
                break
            pace.wait(0.05)
        seen.append(held)
        seen.append(broker_calls.plan(PlanRequest("another", (topic,))).tasks)
        return done_here(tasks)

    driver, progress = _driver(broker_calls, topic, slow, lease_ms=3_000)
    driver.run_once()
    held, given_to_another = seen
    assert held
    assert given_to_another == ()
    assert len(progress.named("published")) == 1


def test_work_whose_lease_another_driver_took_is_refused_and_nothing_is_there_twice(
    lake: Broker, broker_calls: BrokerClient, topic: str
) -> None:
    lake.create(topic)
    _fill(lake, topic)
    before = _read(lake, topic)
    (late,) = broker_calls.plan(PlanRequest("late", (topic,), lease_ms=100)).tasks
    made = done_here([late])
    driver, progress = _driver(broker_calls, topic)
    while not progress.named("published"):  # at once, or once the lease has run out
        driver.run_once()
    assert made[0].publication is not None
    with pytest.raises(StalePlan):
        broker_calls.publish(made[0].publication)
    assert _read(lake, topic) == before
    assert _progress(broker_calls, topic).partitions[0].records == len(before)


def test_a_topic_deleted_meanwhile_fails_alone(lake: Broker, broker_calls: BrokerClient, topic: str) -> None:
    gone, kept = f"{topic}-a", f"{topic}-b"
    for name in (gone, kept):
        lake.create(name)
        _fill(lake, name)

    def deleted(tasks: Sequence[Task]) -> list[TaskOutcome]:
        outcomes = done_here(tasks)
        assert lake.client.delete(f"/v0/topics/{gone}").is_success
        return outcomes

    progress = Watched()
    options = DriverOptions(holder=topic, topics=(gone, kept), wait_for_bytes=0, wait_for_ms=0)
    Driver(broker_calls, deleted, options, progress).round()
    assert [f["topic"] for f in progress.named("failed")] == [gone]
    assert [f["topic"] for f in progress.named("published")] == [kept]


def test_tables_that_fail_do_not_keep_records_from_becoming_files(
    lake: Broker, broker_calls: BrokerClient, topic: str
) -> None:
    lake.create(topic)
    _fill(lake, topic)

    def broken(broker: BrokerClient) -> NoReturn:
        raise ValueError("no such catalog")

    progress = Watched()
    options = DriverOptions(holder=topic, topics=(topic,))
    driver_status = Driver(broker_calls, done_here, options, progress, publish_tables=broken).run_once()
    assert driver_status.records == 50
    assert driver_status.tables_error == "ValueError: no such catalog"
    assert progress.named("tables failed") == [{"error": "ValueError: no such catalog"}]


def test_publishing_twice_is_publishing_once(lake: Broker, broker_calls: BrokerClient, topic: str) -> None:
    lake.create(topic)
    _fill(lake, topic)
    (task,) = broker_calls.plan(PlanRequest("twice", (topic,))).tasks
    publication = done_here([task])[0].publication
    assert publication is not None
    assert broker_calls.publish(publication) == broker_calls.publish(publication) == 50
    assert _progress(broker_calls, topic).partitions[0].parts == 1


def test_a_broker_killed_between_work_and_publishing_gets_it_when_it_is_back(
    tmp_path: Path, topic: str
) -> None:
    flags = ("--text", "off", "--lake-topics", "all")
    server = ServerProcess(tmp_path / "data", *flags).wait_ready()
    restarted: list[ServerProcess] = []
    try:
        broker = Broker(server)
        broker.create(topic)
        _fill(broker, topic)
        before = _read(broker, topic)
        address = str(server.address("http"))

        def killed(tasks: Sequence[Task]) -> list[TaskOutcome]:
            outcomes = done_here(tasks)
            server.kill()
            restarted.append(ServerProcess(tmp_path / "data", *flags, "--http", address))
            return outcomes

        with BrokerClient(broker.url, timeout_s=10.0) as calls:
            driver, progress = _driver(calls, topic, killed, lease_ms=120_000)
            driver.round()
            assert len(progress.named("published")) == 1
        assert _read(broker, topic) == before
        broker.client.close()
    finally:
        for process in (server, *restarted):
            if process.running:
                process.kill()


def test_a_driver_without_a_broker_waits_and_ends_when_told(topic: str) -> None:
    stop = threading.Event()
    progress = Watched()
    with BrokerClient("http://127.0.0.1:9", timeout_s=0.2) as calls:
        driver = Driver(calls, done_here, DriverOptions(holder=topic), progress, stop=stop)
        thread = threading.Thread(target=driver.run)
        thread.start()
        progress.wait_for("broker away")
        assert thread.is_alive()
        stop.set()
        thread.join(WAIT_S)
        assert not thread.is_alive()
        with pytest.raises(Unreachable):
            driver.run_once()


def test_the_loop_goes_on_with_what_comes(lake: Broker, broker_calls: BrokerClient, topic: str) -> None:
    lake.create(topic)
    _fill(lake, topic)
    stop = threading.Event()
    progress = Watched()
    options = DriverOptions(holder=topic, topics=(topic,), wait_for_bytes=0, wait_for_ms=0)
    thread = threading.Thread(target=Driver(broker_calls, done_here, options, progress, stop=stop).run)
    thread.start()
    try:
        progress.wait_for("published")
        _fill(lake, topic)
        with progress._changed:
            assert progress._changed.wait_for(
                lambda: sum(f["records"] for f in progress.named("published")) == 100, WAIT_S
            )
    finally:
        stop.set()
        thread.join(WAIT_S)
    assert not thread.is_alive()


def test_a_report_that_is_no_report_is_refused(lake: Broker) -> None:
    answer = lake.client.post("/v0/lake/report", json={"state": 7})
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "invalid_request"


def test_damage_that_a_task_met_is_a_loss_that_the_next_one_passes(tmp_path: Path, topic: str) -> None:
    flags = ("--text", "off", "--lake-topics", "all", "--tail-cache-bytes", "0")
    with (
        ServerProcess(tmp_path / "data", *flags) as server,
        BrokerClient(f"http://{server.address('http')}") as calls,
    ):
        broker = Broker(server)
        with broker.client:
            broker.create(topic)
            _fill(broker, topic)
            damage(calls.sources(topic, 0, 0, 50).wal[0], row=2)
            driver, progress = _driver(calls, topic)
            assert [failure.topic for failure in driver.run_once().failing()] == [topic]
            assert "[20, 30)" in progress.named("failed")[0]["error"]
            driver, progress = _driver(calls, topic)
            driver.run_once()
            assert [(f["base"], f["end"], f["records"]) for f in progress.named("published")] == [(0, 50, 40)]
            lost = broker.client.get(f"/v0/topics/{topic}/batches", params={"from": 20})
            assert lost.json()["error"]["detail"] == {"start": 20, "end": 30, "reason": "damaged"}


def damage(extents: WalExtents, row: int) -> None:
    path = local_path(extents.url)
    assert path is not None
    start = int(np.frombuffer(extents.rows, EXTENT)["start"][row])
    with path.open("r+b") as file:
        file.seek(start + 100)
        byte = file.read(1)[0]
        file.seek(start + 100)
        file.write(bytes([byte ^ 0xFF]))
