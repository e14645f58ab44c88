"""How many files of the package one produce and one fetch cross. ARCHITECTURE.md names the bounds.

A file counts once a function of it is called, on whatever thread: from the first byte that the connection receives to
the system call that writes the batch, or to the answer of a fetch. Two files do not count, because no data passes
through them: errors.py, whose `invariant` only asserts, and ports/clock.py, which only tells the time.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest

import mainstem
from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.ports.commitlog.local import log
from tests.support.batches import batch

from .conftest import KafkaStage, opened
from .requests import fetch, produce

FIRST_PRODUCE_FILES_MAX = 16  # the first request of a connection is parsed
PRODUCE_FILES_MAX = 14  # those that begin like the one before are not
FETCH_FILES_MAX = 12

PRODUCE_VERSION = 9
FETCH_VERSION = 12
PACKAGE = str(Path(mainstem.__file__).parent) + os.sep
NOT_COUNTED = frozenset((f"{PACKAGE}errors.py", f"{PACKAGE}ports{os.sep}clock.py"))
ANSWER = object()  # no function: record until the answer is there


class Crossed:
    """The package's files in which a function was called, each with the first one."""

    def __init__(self) -> None:
        self.files: dict[str, str] = {}
        self._until: object = None
        self._on = False

    def trace(self, frame: FrameType, event: str, called: object) -> None:
        if self._until is None:
            return
        path = frame.f_code.co_filename
        if event == "call" and path.startswith(PACKAGE) and path not in NOT_COUNTED:
            self._on = self._on or frame.f_code.co_name == "buffer_updated"
            if self._on:
                self.files.setdefault(path.removeprefix(PACKAGE), frame.f_code.co_name)
        elif event == "c_call" and called is self._until:
            self._on, self._until = False, None

    @contextmanager
    def until(self, called: object) -> Iterator[None]:
        """Record from the first bytes that the door receives to a call of a built-in function."""
        self.files, self._until = {}, called
        yield
        self._on, self._until = False, None


@pytest.fixture
def crossed() -> Iterator[Crossed]:
    """Traces threads that start later: ask for it before the broker."""
    found = Crossed()
    before = sys.getprofile()
    threading.setprofile(found.trace)
    sys.setprofile(found.trace)
    yield found
    sys.setprofile(before)
    threading.setprofile(None)


@pytest.fixture
async def stage(
    crossed: Crossed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[KafkaStage]:
    # The path while the disk is fast: after a slow write, a thread writes for a while.
    monkeypatch.setattr(log, "SHORTCUT_SLOW_S", float("inf"))
    broker = await Broker.open(BrokerOptions(tmp_path))
    await broker.create_topic("t")
    await broker.append_values("t", [b"value"])
    async with opened(broker) as stage:
        yield stage
    await broker.close()


def fewest(found: list[dict[str, str]]) -> dict[str, str]:
    """Leaves out what the broker happens to do in its background meanwhile."""
    return min(found, key=len)


async def test_a_produce_crosses_few_files_from_the_socket_to_pwritev(
    crossed: Crossed, stage: KafkaStage
) -> None:
    firsts, laters = [], []
    for _ in range(3):
        wire = await stage.connect()
        for found in (firsts, laters, laters):
            request = produce(PRODUCE_VERSION, "t", batch(b"value")[0])
            with crossed.until(os.pwritev):
                await wire.ask(request)
            assert "ports/files.py" in crossed.files, "the trace sees the write"
            found.append(crossed.files)
    assert len(fewest(firsts)) <= FIRST_PRODUCE_FILES_MAX, "\n".join(fewest(firsts))
    assert len(fewest(laters)) <= PRODUCE_FILES_MAX, fewest(laters)


async def test_a_fetch_from_memory_crosses_few_files(crossed: Crossed, stage: KafkaStage) -> None:
    wire = await stage.connect()
    found = []
    for _ in range(3):
        with crossed.until(ANSWER):
            await wire.ask(fetch(FETCH_VERSION, "t", (0, 0), rack=""))
        assert "log/read/tail.py" in crossed.files, "the trace sees the read"
        found.append(crossed.files)
    assert len(fewest(found)) <= FETCH_FILES_MAX, fewest(found)
