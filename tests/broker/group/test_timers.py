from __future__ import annotations

import asyncio

import pytest

from mainstem.broker.groups.timers import Timers
from mainstem.ports.clock import SystemClock
from tests.support.clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def test_due_timers_run_once_and_in_order(clock: ManualClock) -> None:
    timers, ran = Timers(clock), list[str]()
    for name, ms in (("b", 20), ("a", 10), ("c", 30)):
        timers.timer(lambda name=name: ran.append(name)).start(ms)  # type: ignore[misc]
    clock.advance(20)
    timers.fire()
    timers.fire()
    assert ran == ["a", "b"]


def test_a_rescheduled_timer_runs_only_at_its_last_time(clock: ManualClock) -> None:
    timers, ran = Timers(clock), list[int]()
    timer = timers.timer(lambda: ran.append(clock.now_ms()))
    start = clock.now_ms()
    for ms in (50, 500, 20, 100):
        timer.start(ms)
    for _ in range(60):
        clock.advance(10)
        timers.fire()
    assert ran == [start + 100]


def test_rescheduling_leaves_one_entry(clock: ManualClock) -> None:
    timers = Timers(clock)
    timer = timers.timer(lambda: None)
    for _ in range(1_000):
        timer.start(100)
        clock.advance(1)
    assert len(timers) == 1


def test_cancelled_timers_do_not_pile_up(clock: ManualClock) -> None:
    timers, ran = Timers(clock), list[int]()
    kept = timers.timer(lambda: ran.append(1))
    kept.start(1_000)
    for _ in range(10_000):
        timer = timers.timer(lambda: ran.append(0))
        timer.start(1_000)
        timer.cancel()
    assert len(timers) < 2_100
    timer.start(1_000)  # a timer that was removed from the heap can run again
    clock.advance(1_000)
    timers.fire()
    assert sorted(ran) == [0, 1]


def test_a_failing_action_does_not_stop_the_others(clock: ManualClock) -> None:
    timers, ran = Timers(clock), list[int]()
    timers.timer(lambda: ran.append(1 // 0)).start(1)
    timers.timer(lambda: ran.append(2)).start(1)
    clock.advance(1)
    with pytest.raises(ZeroDivisionError):
        timers.fire()
    timers.fire()
    assert ran == [2]


async def test_the_loop_wakes_the_earliest_of_them() -> None:
    timers, woken = Timers(SystemClock()), asyncio.Event()
    timers.timer(lambda: None).start(60_000)
    timers.start()
    timers.timer(woken.set).start(1)
    async with asyncio.timeout(30):
        await woken.wait()
    timers.stop()
