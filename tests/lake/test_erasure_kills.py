"""An erasure resumes wherever broker and driver are killed while tables are rewritten.

One erasure runs to its end. Before and after every step of it that others could see, the data directory is copied as a
`kill -9` would leave it: with all that was written, and nothing that is only in memory. A new broker and a new driver
then finish each copy.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mainstem.api.lake import PlanRequest
from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.broker.erasures.matching import ErasureRequest
from mainstem.errors import MainstemError
from mainstem.ledger.config import TopicConfig
from mainstem.log.log import Log
from mainstem.ports.objectstore.local import LocalObjectStore
from mainstem.records.parquet import RowFileWriter
from mainstem.tables.garbage import LAKE_GARBAGE_GRACE_MS
from mainstem.tables.parts.materialise import materialise
from tests.support.byte_scan import directory_contents, files_with
from tests.support.clock import ManualClock

from .inside import Inside
from .test_erasures import _COLUMNS, KEY, SECRET, numbers, snapshots, write

_RECORDS = 30
_STEPS_IN_SUITE = 6
_HOUR_MS = 3_600_000
_LEASE_MS = 300_000


class Kills:
    """Copies of the data directory, one for each moment at which everything could have been killed."""

    def __init__(self, data: Path, copies: Path) -> None:
        self._data = data
        self._copies = copies
        self.moments: list[str] = []
        self.on = False

    def moment(self, name: str) -> None:
        if self.on:
            shutil.copytree(
                self._data, self._copies / str(len(self.moments)), ignore=_vanishing, copy_function=_copy
            )
            self.moments.append(name)

    def around(self, owner: type, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Before and after each call of an async method."""
        whole: Callable[..., Any] = getattr(owner, name)

        @functools.wraps(whole)
        async def watched(*arguments: Any, **named: Any) -> Any:
            what = f"{name} {arguments[1]!r}"[:120]
            self.moment(f"before {what}")
            result = await whole(*arguments, **named)
            self.moment(f"after {what}")
            return result

        monkeypatch.setattr(owner, name, watched)

    def in_file(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """In the middle of each file of a table."""
        whole = RowFileWriter.write

        def watched(writer: RowFileWriter, rows: Any) -> None:
            whole(writer, rows)
            self.moment("in the middle of a file")

        monkeypatch.setattr(RowFileWriter, "write", watched)

    def put_in_place(self, number: int) -> None:
        shutil.rmtree(self._data)
        (self._copies / str(number)).rename(self._data)


def _vanishing(_folder: str, names: list[str]) -> list[str]:
    return [name for name in names if name.endswith((".sock", ".lock"))]


def _copy(source: str, target: str) -> None:
    """A file that another thread moves meanwhile may be in neither place, as after a crash."""
    with contextlib.suppress(FileNotFoundError):
        shutil.copy2(source, target)


def _options(data: Path) -> BrokerOptions:
    return BrokerOptions(data, segment_bytes=1 << 16)


async def _begin(broker: Broker, inside: Inside) -> str:
    """A table with two snapshots, records that are only in the log, and a file of these that a killed driver left.

    Returns the erasure."""
    await broker.create_topic("t", config=TopicConfig(table=True))
    await broker.topic_tables.put("t", enabled=True, schema=_COLUMNS, delta=None)
    for first in range(0, _RECORDS - 10, 10):
        await write(broker, *range(first, first + 10))
        await inside.work("materialise")
        await inside.publish()
    await write(broker, *range(_RECORDS - 10, _RECORDS))
    (task,) = (await broker.lake.plan(PlanRequest("killed", kinds=("materialise",)))).tasks
    await asyncio.to_thread(materialise, task)
    return (await broker.erasures.accept(broker.topic("t"), ErasureRequest.of_key(KEY))).id


async def _finish(inside: Inside, id: str) -> str:
    """Broker, driver and time go on until the erasure ends. Returns its problem."""
    broker = inside.broker
    give_up_at = time.monotonic() + 60
    while time.monotonic() < give_up_at:
        await broker.erasures.round()
        one = broker.erasures.get(id)
        if one.phase in ("done", "failed"):
            return one.problem
        waits_for = broker.erasures.waits_for(one)
        if "driver" in waits_for:
            if not await inside.work("rewrite"):
                inside.clock.advance(_LEASE_MS)  # of a driver that was killed
            assert (await inside.publish()).problems == {}
        elif "readers" in waits_for:
            await broker.lake.collect()
            inside.clock.advance(LAKE_GARBAGE_GRACE_MS)
        elif "hour" in waits_for or "unfinished" in waits_for:
            inside.clock.advance(_HOUR_MS)
            await broker.lake.collect()
            await inside.publish()
        await asyncio.sleep(0.005)  # a checkpoint is made by another process
    raise AssertionError(broker.erasures.waits_for(broker.erasures.get(id)))


async def test_an_erasure_of_a_table_resumes_wherever_it_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chaos: bool
) -> None:
    data = tmp_path / "data"
    kills = Kills(data, tmp_path / "kills")
    kills.around(Log, "propose", monkeypatch)
    for name in ("put", "delete"):
        kills.around(LocalObjectStore, name, monkeypatch)
    kills.in_file(monkeypatch)
    clock = ManualClock(time.time_ns() // 1_000_000)  # files have the system's time
    broker = await Broker.open(_options(data), clock=clock)
    try:
        inside = Inside(broker, clock)
        id = await _begin(broker, inside)
        kills.on = True
        assert await _finish(inside, id) == ""
        kills.on = False
    finally:
        await broker.close()
    every = 1 if chaos else max(1, len(kills.moments) // _STEPS_IN_SUITE)
    for number in range(0, len(kills.moments), every):
        kills.put_in_place(number)
        await _resumes(data, clock, f"{number}: {kills.moments[number]}")


async def _resumes(data: Path, clock: ManualClock, moment: str) -> None:
    broker = await Broker.open(_options(data), clock=clock)
    try:
        inside = Inside(broker, clock)
        await broker.erasures.tidy()
        (one,) = broker.erasures.all()
        assert await _finish(inside, one.id) == "", moment
        assert files_with(directory_contents(data), SECRET.encode()) == [], moment
        assert files_with(directory_contents(data), KEY) == [], moment
        kept = [n for n in range(_RECORDS) if n % 3]
        assert await numbers(broker, "t") == [(n, n) for n in kept], moment
        assert (await snapshots(broker))[-1] == [n for n in kept if n < _RECORDS - 10], moment
    except (MainstemError, AssertionError) as error:
        raise AssertionError(f"killed at {moment}") from error
    finally:
        await broker.close()
