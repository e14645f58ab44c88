"""Watching: one read for all watchers at the same offset, no watcher delays another, nothing is lost or duplicated."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from mainstem.broker.broker import Broker
from mainstem.broker.diff import DiffPage, DiffQuery, Diffs
from mainstem.broker.eager_tasks import run_eagerly
from mainstem.broker.watch import (
    WATCH_HANDED_PER_TURN,
    WATCH_PAGES_MAX,
    WatchOptions,
    WatchPage,
    WatchPosition,
)
from mainstem.broker.watch_sessions import WatchSessions
from mainstem.errors import Throttled
from mainstem.ledger.config import TopicConfig
from mainstem.records.decoding import StoredRecord
from tests.support.clock import ManualClock
from tests.support.machine import CountingRandom, Machine


class Watcher:
    """Takes everything while it is ready."""

    def __init__(self) -> None:
        self.ready = True
        self.send_buffer = self  # says whether it is ready
        self.seqs: list[int] = []
        self.gaps: list[tuple[int, int, bool]] = []
        self.caught_up = 0
        self.pages: list[WatchPage] = []
        self.lost: list[str] = []
        self.failures: list[Exception] = []
        self._moved = asyncio.Event()

    def take(self, place: WatchPosition, watch_page: WatchPage) -> None:
        assert self.ready
        page = watch_page.page
        self.pages.append(watch_page)
        if page.tombstone is not None:
            self.gaps.append((page.tombstone.gap_from, page.tombstone.gap_to, place.first))
        for part in page.chosen:
            offsets = (
                [part.offset] if isinstance(part, StoredRecord) else part.index.fields[0][part.rows].tolist()
            )
            self.seqs += [offset + 1 for offset in offsets]
        self.caught_up += page.caught_up and not place.tailing
        self._moved.set()

    def lose(self, place: WatchPosition) -> None:
        self.lost.append(place.topic)
        self._moved.set()

    def fail(self, place: WatchPosition, error: Exception) -> None:
        self.failures.append(error)
        self._moved.set()

    async def until(self, condition: Any) -> None:
        async with asyncio.timeout(60):
            while not condition():
                self._moved.clear()
                await self._moved.wait()


class CountingDiffs:
    """The broker's diffs, with every read counted and delayed as long as a test wants."""

    def __init__(self, diffs: Diffs) -> None:
        self._diffs = diffs
        self.reads: list[DiffQuery] = []
        self.at_once = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self._begun = asyncio.Event()

    async def reading(self, count: int) -> None:
        """Wait until `count` reads are in progress."""
        async with asyncio.timeout(60):
            while self.at_once < count:
                self._begun.clear()
                await self._begun.wait()

    async def read(self, topic: Any, wanted: DiffQuery, partition: int = 0) -> DiffPage:
        self.reads.append(wanted)
        self.at_once += 1
        self._begun.set()
        try:
            await self.gate.wait()
            return await self._diffs.read(topic, wanted, partition)
        finally:
            self.at_once -= 1


async def opened(machine: Machine, **config: Any) -> Broker:
    broker = await machine.open()
    await broker.create_topic("t", config=TopicConfig(durability="disk", **config))
    return broker


def enter(
    broker: Broker, watcher: Watcher, from_seq: int = 0, watch_options: WatchOptions | None = None
) -> WatchPosition:
    return broker.watching.enter(
        watcher, broker.streams.topic("t"), from_seq, watch_options or WatchOptions()
    )


async def append(broker: Broker, count: int = 1) -> None:
    await broker.append_values("t", [b"1"] * count)


async def test_watchers_at_the_same_offset_share_one_read(machine: Machine) -> None:
    broker = await opened(machine)
    diffs = broker.watching.diffs = CountingDiffs(broker.diffs)  # type: ignore[assignment]
    watchers = [Watcher() for _ in range(3 * WATCH_HANDED_PER_TURN)]
    for watcher in watchers:
        enter(broker, watcher)
    for watcher in watchers:
        await watcher.until(lambda watcher=watcher: watcher.caught_up)
    assert len(diffs.reads) == 1
    for number in range(1, 6):
        await append(broker)
        for watcher in watchers:
            await watcher.until(lambda watcher=watcher, number=number: len(watcher.seqs) == number)
    assert len(diffs.reads) == 6
    assert len({id(watcher.pages[-1]) for watcher in watchers}) == 1
    assert all(watcher.seqs == [1, 2, 3, 4, 5] and watcher.caught_up == 1 for watcher in watchers)


async def test_watchers_with_other_options_get_their_own_reads(machine: Machine) -> None:
    broker = await opened(machine)
    await append(broker, 10)
    small, large = Watcher(), Watcher()
    enter(broker, small, watch_options=WatchOptions(limit=3))
    enter(broker, large)
    await small.until(lambda: small.caught_up)
    await large.until(lambda: large.caught_up)
    assert [watch_page.page.count for watch_page in small.pages] == [3, 3, 3, 1]
    assert [watch_page.page.count for watch_page in large.pages] == [10]


class Choir:
    """Sends to every second watcher itself, while it can."""

    def __init__(self) -> None:
        self.told = 0
        self.broken = False

    def tell(
        self, places: list[WatchPosition], watch_page: WatchPage
    ) -> tuple[list[WatchPosition], list[WatchPosition]]:
        if self.broken:
            raise RuntimeError("no voice")
        told = [place for place in places[::2] if place.tailing]
        for place in told:
            place.watcher.take(place, watch_page)
        self.told += len(told)
        return told, [place for place in places if place not in told]


async def test_watchers_that_the_shared_stream_leaves_out_are_sent_pages_one_by_one(machine: Machine) -> None:
    broker = await opened(machine)
    choir = Choir()
    watchers = [Watcher() for _ in range(2 * WATCH_HANDED_PER_TURN)]
    for watcher in watchers:
        enter(broker, watcher, watch_options=WatchOptions(watcher_group=choir))
    for number in range(1, 4):
        await append(broker)
        for watcher in watchers:
            await watcher.until(lambda watcher=watcher, number=number: len(watcher.seqs) == number)
    assert choir.told
    assert all(watcher.seqs == [1, 2, 3] and watcher.caught_up == 1 for watcher in watchers)


async def test_a_shared_stream_that_fails_fails_only_its_own_watchers(machine: Machine) -> None:
    broker = await opened(machine)
    choir, singing, alone = Choir(), Watcher(), Watcher()
    enter(broker, singing, watch_options=WatchOptions(watcher_group=choir))
    enter(broker, alone)
    for watcher in (singing, alone):
        await watcher.until(lambda watcher=watcher: watcher.caught_up)
    choir.broken = True
    await append(broker)
    await alone.until(lambda: alone.seqs == [1])
    await singing.until(lambda: singing.failures)
    assert broker.watching.places == 1


async def test_a_watcher_that_is_not_ready_delays_nobody_and_misses_nothing(machine: Machine) -> None:
    broker = await opened(machine)
    slow, fast = Watcher(), Watcher()
    place = enter(broker, slow)
    enter(broker, fast)
    await slow.until(lambda: slow.caught_up)
    slow.ready = False
    for number in range(1, 21):
        await append(broker)
        await fast.until(lambda number=number: len(fast.seqs) == number)
    assert slow.seqs == []
    slow.ready = True
    broker.watching.resume([place])
    await slow.until(lambda: len(slow.seqs) == 20)
    assert slow.seqs == fast.seqs == list(range(1, 21))


async def test_a_watcher_that_falls_behind_retention_gets_a_gap(machine: Machine) -> None:
    broker = await opened(machine, cap_records=3)
    slow = Watcher()
    place = enter(broker, slow)
    await slow.until(lambda: slow.caught_up)
    slow.ready = False
    await append(broker, 10)
    slow.ready = True
    broker.watching.resume([place])
    await slow.until(lambda: slow.seqs)
    assert slow.gaps == [(1, 7, False)]
    assert slow.seqs == [8, 9, 10]


async def test_a_resume_during_a_delivery_duplicates_nothing(machine: Machine) -> None:
    broker = await opened(machine)
    await broker.create_topic("u", config=TopicConfig(durability="disk"))
    watcher = Watcher()
    places = [
        broker.watching.enter(watcher, broker.streams.topic(name), 0, WatchOptions()) for name in ("t", "u")
    ]
    await watcher.until(lambda: watcher.caught_up == 2)
    for _ in range(20):
        await broker.append_values("u", [b"1"])
        await append(broker)
        broker.watching.resume(places)
        await asyncio.sleep(0)
        broker.watching.resume(places)
    await watcher.until(lambda: len(watcher.seqs) == 40)
    for name in ("t", "u"):
        pages = [
            watch_page for watch_page in watcher.pages if watch_page.topic == name and watch_page.page.count
        ]
        assert [watch_page.from_seq for watch_page in pages] == [
            0,
            *(watch_page.page.next_from_seq for watch_page in pages[:-1]),
        ]


async def test_leaving_ends_a_watch_whatever_is_in_flight(machine: Machine) -> None:
    broker = await opened(machine)
    diffs = broker.watching.diffs = CountingDiffs(broker.diffs)  # type: ignore[assignment]
    watcher, other = Watcher(), Watcher()
    place = enter(broker, watcher)
    enter(broker, other)
    await watcher.until(lambda: watcher.caught_up)
    diffs.gate.clear()
    await append(broker)
    await diffs.reading(1)
    broker.watching.leave(place)
    broker.watching.leave(place)
    diffs.gate.set()
    await other.until(lambda: other.seqs == [1])
    assert watcher.seqs == []
    assert broker.watching.places == 1


async def test_pages_in_memory_are_bounded(machine: Machine) -> None:
    broker = await opened(machine)
    await append(broker, 200)
    diffs = broker.watching.diffs = CountingDiffs(broker.diffs)  # type: ignore[assignment]
    diffs.gate.clear()
    watchers = [Watcher() for _ in range(100)]
    for number, watcher in enumerate(watchers):
        enter(broker, watcher, from_seq=number)
    await diffs.reading(WATCH_PAGES_MAX)
    for _ in range(100):
        await asyncio.sleep(0)
    assert diffs.at_once == WATCH_PAGES_MAX
    diffs.gate.set()
    for number, watcher in enumerate(watchers):
        await watcher.until(lambda watcher=watcher: watcher.caught_up)
        assert watcher.seqs == list(range(number + 1, 201))


async def test_watchers_that_catch_up_do_not_delay_those_at_the_end(machine: Machine) -> None:
    broker = await opened(machine)
    await append(broker, 500)
    tail = Watcher()
    enter(broker, tail, from_seq=500)
    await tail.until(lambda: tail.caught_up)
    diffs = broker.watching.diffs = CountingDiffs(broker.diffs)  # type: ignore[assignment]
    late = [Watcher() for _ in range(400)]
    for number, watcher in enumerate(late):
        enter(broker, watcher, from_seq=number, watch_options=WatchOptions(limit=1))
    await diffs.reading(1)
    await append(broker)
    before = len(diffs.reads)
    await tail.until(lambda: tail.seqs == [501])
    assert len(diffs.reads) - before < 10 * WATCH_PAGES_MAX
    assert not all(watcher.caught_up for watcher in late)


async def test_every_watcher_learns_that_its_topic_was_deleted(machine: Machine) -> None:
    broker = await opened(machine)
    ready, busy = Watcher(), Watcher()
    enter(broker, ready)
    enter(broker, busy)
    await busy.until(lambda: busy.caught_up)
    busy.ready = False
    await append(broker)
    await ready.until(lambda: ready.seqs)
    await broker.delete_topic("t")
    await ready.until(lambda: ready.lost)
    assert ready.lost == busy.lost == ["t"]
    assert broker.watching.places == 0


async def test_a_recreated_topic_is_a_different_topic(machine: Machine) -> None:
    broker = await opened(machine)
    old, new = Watcher(), Watcher()
    enter(broker, old)
    await old.until(lambda: old.caught_up)
    await broker.delete_topic("t")
    await broker.create_topic("t", config=TopicConfig(durability="disk"))
    enter(broker, new)
    await append(broker)
    await new.until(lambda: new.seqs)
    assert (old.lost, old.seqs, new.seqs) == (["t"], [], [1])


async def test_a_failed_read_is_reported_to_its_watchers(machine: Machine) -> None:
    broker = await opened(machine)
    watcher = Watcher()
    enter(broker, watcher)
    await watcher.until(lambda: watcher.caught_up)

    class Broken:
        async def read(self, *_: object) -> DiffPage:
            raise ValueError("broken")

    broker.watching.diffs = Broken()  # type: ignore[assignment]
    await append(broker)
    await watcher.until(lambda: watcher.failures)
    assert [type(error) for error in watcher.failures] == [ValueError]
    assert broker.watching.places == 0


async def test_a_watcher_that_raises_is_dropped_and_the_others_continue(machine: Machine) -> None:
    broker = await opened(machine)

    class Raising(Watcher):
        def take(self, place: WatchPosition, watch_page: WatchPage) -> None:
            raise RuntimeError("no")

    bad, good = Raising(), Watcher()
    enter(broker, bad)
    enter(broker, good)
    await append(broker)
    await good.until(lambda: good.seqs == [1])
    assert [str(error) for error in bad.failures] == ["no"]
    assert broker.watching.places == 1


@pytest.mark.parametrize("seed", range(12))
async def test_every_watcher_gets_every_record_once_and_in_order(machine: Machine, seed: int) -> None:
    broker = await opened(machine)
    choose = random.Random(seed)
    watchers: dict[Watcher, tuple[WatchPosition, int]] = {}
    gone: list[tuple[Watcher, int]] = []
    appended = 0
    for _ in range(300):
        action = choose.random()
        if action < 0.4:
            count = choose.randint(1, 5)
            await append(broker, count)
            appended += count
        elif action < 0.55:
            watcher, start = Watcher(), choose.randint(0, appended)
            watch_options = WatchOptions(limit=choose.choice((1, 3, 256)))
            watchers[watcher] = enter(broker, watcher, start, watch_options), start
        elif action < 0.75 and watchers:
            choose.choice(list(watchers)).ready = False
        elif action < 0.9 and watchers:
            watcher = choose.choice(list(watchers))
            watcher.ready = True
            broker.watching.resume([watchers[watcher][0]])
        elif watchers and action < 0.93:
            watcher = choose.choice(list(watchers))
            place, start = watchers.pop(watcher)
            broker.watching.leave(place)
            gone.append((watcher, start))
        for _ in range(choose.randint(0, 3)):
            await asyncio.sleep(0)
    for watcher, (place, start) in watchers.items():
        watcher.ready = True
        broker.watching.resume([place])
        await watcher.until(lambda watcher=watcher, start=start: len(watcher.seqs) == appended - start)
        assert watcher.seqs == list(range(start + 1, appended + 1)), f"seed {seed}"
        assert watcher.caught_up >= 1 or not watcher.pages
    for watcher, start in gone:
        assert watcher.seqs == list(range(start + 1, start + 1 + len(watcher.seqs))), f"seed {seed}"


# Sessions


def sessions(clock: ManualClock, bound: int = 0) -> WatchSessions:
    return WatchSessions(clock, bound, CountingRandom())


def test_a_session_idles_only_while_nobody_is_connected() -> None:
    clock = ManualClock()
    kept = sessions(clock)
    session = kept.create(b"key", {"t": 0}, WatchOptions())
    clock.advance(200_000)
    kept.connect(session)
    kept.connect(session)
    clock.advance(1_000_000)
    kept.disconnect(session)
    clock.advance(1_000_000)
    assert kept.find(session.wid) is session
    kept.disconnect(session)
    clock.advance(299_999)
    assert kept.find(session.wid) is session
    clock.advance(1)
    assert kept.find(session.wid) is None
    assert len(kept) == 0


def test_sessions_are_evicted_in_the_order_they_became_idle() -> None:
    clock = ManualClock()
    kept = sessions(clock)
    first = kept.create(b"", {}, WatchOptions())
    clock.advance(100_000)
    second = kept.create(b"", {}, WatchOptions())
    kept.connect(first)
    kept.disconnect(first)
    clock.advance(250_000)
    third = kept.create(b"", {}, WatchOptions())
    clock.advance(50_000)
    assert [kept.find(session.wid) for session in (first, second, third)] == [None, None, third]


def test_a_limit_counts_the_remaining_sessions() -> None:
    clock = ManualClock()
    kept = sessions(clock, bound=1)
    session = kept.create(b"", {}, WatchOptions())
    with pytest.raises(Throttled) as refused:
        kept.create(b"", {}, WatchOptions())
    assert (refused.value.limit, refused.value.bound) == ("max_watch_sessions", 1)
    kept.remove(session)
    kept.disconnect(session)
    kept.create(b"", {}, WatchOptions())


def test_rewinding_takes_the_lowest_known_cursor_of_each_topic() -> None:
    cursors = {("a", 0): 5, ("a", 1): 5, ("b", 0): 5, ("d", 0): 5, ("d", 1): 5}
    session = sessions(ManualClock()).create(b"", cursors, WatchOptions())
    session.rewind({"a": 3, "b": 9, "c": 0, "d": {"1": 2}})
    assert session.cursors == {("a", 0): 3, ("a", 1): 3, ("b", 0): 5, ("d", 0): 5, ("d", 1): 2}


# Coroutines that seldom wait


async def test_a_coroutine_that_never_waits_needs_no_task() -> None:
    async def quick() -> int:
        return 7

    assert run_eagerly(quick()) == 7


async def test_a_coroutine_that_waits_continues_in_a_task() -> None:
    gate: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def slow() -> int:
        first = await gate
        await asyncio.sleep(0)
        return first + await asyncio.to_thread(lambda: 1)

    task = run_eagerly(slow())
    assert isinstance(task, asyncio.Task)
    gate.set_result(1)
    assert await task == 2


async def test_a_timeout_that_begins_before_there_is_a_task_ends_the_wait() -> None:
    outcome: list[object] = []

    async def limited() -> None:
        assert asyncio.current_task() is not None
        try:
            async with asyncio.timeout(0.001):
                await asyncio.get_running_loop().create_future()
        except TimeoutError:
            outcome.append("timeout")
        outcome.append(type(asyncio.current_task()))

    # As a transport calls it: not within a task.
    asyncio.get_running_loop().call_soon(lambda: run_eagerly(limited()))
    async with asyncio.timeout(60):
        while len(outcome) < 2:  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0)
    assert outcome == ["timeout", asyncio.Task]


async def test_errors_and_cancellation_reach_the_coroutine_where_it_waits() -> None:
    seen: list[str] = []

    async def guarded(gate: asyncio.Future[None]) -> str:
        try:
            await gate
        except ValueError:
            seen.append("error")
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise
        return "never"

    gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    task = run_eagerly(guarded(gate))
    assert isinstance(task, asyncio.Task)
    gate.set_exception(ValueError())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen == ["error", "cancelled"]


async def test_an_error_before_the_first_wait_is_raised_at_once() -> None:
    async def wrong() -> None:
        raise ValueError("at once")

    with pytest.raises(ValueError, match="at once"):
        run_eagerly(wrong())
