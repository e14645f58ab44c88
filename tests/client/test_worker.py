"""Workers: jobs come, are settled once, and are given back when something goes wrong."""

from __future__ import annotations

import threading
import time

import pytest

import mainstem
from mainstem.client.worker import WorkerOptions
from mainstem.errors import InvalidInput, LeaseLost, NotAQueue, TopicNotFound
from mainstem.testing.broker import ThrowAwayBroker


@pytest.fixture
def queue(client: mainstem.Client, topic: str) -> str:
    client.create_topic(topic, type="queue")
    return topic


def _left(client: mainstem.Client, queue: str) -> tuple[int, int]:
    counts = client.topic(queue).queue
    assert counts is not None
    return counts.ready, counts.in_flight


def test_claim_ack_nack_extend(client: mainstem.Client, queue: str) -> None:
    client.produce_many(queue, ["a", b"\xff", "c"], keys=["k", None, None])
    first, second = client.claim(queue, node="n", max=2)
    assert (first.value, first.key, first.deliveries, second.value) == ("a", "k", 1, b"\xff")
    assert client.ack(queue, [first.seq], node="n", lease_ids=[first.lease_id]).acked == 1
    assert client.ack(queue, [second.seq], node="other").skipped == [second.seq]
    extended = client.extend(queue, [second.seq], node="n", lease_ms=60_000)
    assert extended.deadlines[str(second.seq)] > second.deadline_ms
    assert client.nack(queue, [second.seq], node="n").nacked == 1
    assert _left(client, queue) == (2, 0)


def test_jobs_are_iterated_and_settled_by_their_blocks(client: mainstem.Client, queue: str) -> None:
    client.produce_many(queue, [1, 2, 3])
    seen: list[tuple[object, int]] = []
    with client.worker(queue) as worker:
        for job in worker:
            with pytest.raises(ZeroDivisionError) if job.value == 2 and job.deliveries == 1 else job:
                seen.append((job.value, job.deliveries))
                if job.value == 2 and job.deliveries == 1:
                    with job:
                        1 / 0  # noqa: B018 - a job that fails is given back
            assert job.settled
            if len(seen) == 4:
                worker.stop()
    assert sorted(seen) == [(1, 1), (2, 1), (2, 2), (3, 1)]
    assert _left(client, queue) == (0, 0)


def test_what_is_unsettled_goes_back_when_the_worker_ends(client: mainstem.Client, queue: str) -> None:
    client.produce_many(queue, [*range(5)])
    with client.worker(queue, concurrency=3) as worker:
        jobs = iter(worker)
        kept = [next(jobs), next(jobs)]
        assert _left(client, queue) == (2, 3)
        kept[0].ack()
        with pytest.raises(LeaseLost):
            kept[0].ack()
    deadline = time.monotonic() + 60
    while _left(client, queue) != (4, 0) and time.monotonic() < deadline:
        continue  # the server hears of it in a moment
    assert _left(client, queue) == (4, 0)
    with pytest.raises(LeaseLost):
        kept[1].ack()


def test_a_decorated_function_works_on_many_jobs_at_a_time(client: mainstem.Client, queue: str) -> None:
    client.produce_many(queue, [*range(40)])
    together = threading.Barrier(4)
    done: list[int] = []
    finished = threading.Event()

    @client.worker(queue, concurrency=4)
    def work(job: mainstem.client.Job) -> None:
        """Counts."""
        if job.value < 4:
            together.wait(20)  # passes only if four are worked on at once
        if job.value == 7 and job.deliveries == 1:
            raise ValueError("not the first time")
        done.append(job.value)
        if len(done) == 40:
            finished.set()

    running = threading.Thread(target=work.run)
    running.start()
    assert finished.wait(30)
    work.stop()
    running.join(30)
    assert not running.is_alive()
    assert sorted(done) == [*range(40)]
    assert work.__doc__ == "Counts."


def test_leases_are_extended_while_a_job_is_worked_on(client: mainstem.Client, queue: str) -> None:
    client.produce(queue, "long")
    pace = threading.Event()
    with client.worker(queue, lease_ms=5_000) as worker:
        job = next(iter(worker))
        first_deadline = job.deadline_ms
        while job.deadline_ms < first_deadline + 5_000:  # it is kept for longer than its lease
            assert client.claim(queue, node="thief") == []
            pace.wait(0.05)
        job.ack()
    assert _left(client, queue) == (0, 0)


def test_a_lease_that_is_not_extended_is_lost(client: mainstem.Client, queue: str) -> None:
    client.produce(queue, "slow")
    with client.worker(queue, lease_ms=100, auto_extend=False) as worker:
        job = next(iter(worker))
        stolen: list[object] = []
        while not stolen:
            stolen += client.claim(queue, node="thief", lease_ms=60_000)
        with pytest.raises(LeaseLost):
            job.ack()


def test_a_worker_of_no_queue_is_told(client: mainstem.Client, topic: str) -> None:
    with pytest.raises(TopicNotFound):
        next(iter(client.worker(topic)))
    client.create_topic(topic)
    with pytest.raises(NotAQueue):
        next(iter(client.worker(topic)))


async def test_an_asynchronous_worker(async_client: mainstem.AsyncClient, topic: str) -> None:
    await async_client.create_topic(topic, type="queue")
    await async_client.produce_many(topic, [1, 2, 3])
    done: list[object] = []

    @async_client.worker(topic, concurrency=2)
    async def work(job: mainstem.client.AsyncJob) -> None:
        done.append(job.value)
        if len(done) == 3:
            work.stop()

    await work.run()
    assert sorted(done) == [1, 2, 3]  # type: ignore[type-var]


def test_a_worker_comes_back_after_a_kill(own_broker: ThrowAwayBroker) -> None:
    client = own_broker.client
    client.create_topic("q", type="queue", durability="fsync")
    client.produce_many("q", [1, 2])
    with client.worker("q") as worker:
        jobs = iter(worker)
        held = next(jobs)
        own_broker.kill()
        own_broker.restart()
        again = next(jobs)
        assert (held.value, held.settled) == (1, True)
        assert again.value == 1
        again.ack()
        last = next(jobs)
        assert last.value == 2
        last.ack()
    assert _left(client, "q") == (0, 0)


def test_a_dead_letter_says_why_its_job_failed(client: mainstem.Client, topic: str) -> None:
    client.create_topic(topic, type="queue", max_deliveries=1, dead_letter=f"{topic}.dead")
    client.produce(topic, {"n": 1})
    with client.worker(topic) as worker:
        job = next(iter(worker))
        with pytest.raises(ValueError, match="boom"), job:
            raise ValueError("boom")
    assert client.claim(topic, node="n") == []
    (dead,) = client.read(f"{topic}.dead")
    assert isinstance(dead, mainstem.client.Record)
    assert dead.meta["$dead_letter_error"] == "ValueError: boom"


def test_failed_jobs_wait_longer_each_time() -> None:
    options = WorkerOptions("n", 1, None, True, 1_000, 2.0, 10_000, 0)
    assert [options.retry_after_ms(deliveries) for deliveries in (1, 2, 3, 4, 5, 9_999)] == [
        1_000,
        2_000,
        4_000,
        8_000,
        10_000,
        10_000,
    ]
    with pytest.raises(InvalidInput, match="retry_backoff"):
        WorkerOptions("n", 1, None, True, 1_000, 0.5, 10_000, 0)
