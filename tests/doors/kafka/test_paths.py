"""How many files of the package one produce and one fetch cross: ARCHITECTURE.md names the bounds."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest

import mainstem
from mainstem.broker.broker import Broker, BrokerOptions
from tests.support.batches import batch

from .conftest import opened
from .requests import fetch, produce

PRODUCE_FILES_MAX = 14
FETCH_FILES_MAX = 12
PRODUCE_VERSION = 9
FETCH_VERSION = 12

PACKAGE = Path(mainstem.__file__).parent


class Crossed:
    """The package's files in which a function was called, in order of the first call, on every thread."""

    def __init__(self) -> None:
        self.files: dict[str, str] = {}  # and the function that was called first
        self._until: object = None
        self._on = False

    def trace(self, frame: FrameType, event: str, called: object) -> None:
        if not self._on:
            if event == "call" and self._until is not None and frame.f_code.co_name == "buffer_updated":
                self._on = Path(frame.f_code.co_filename).is_relative_to(PACKAGE)
            if not self._on:
                return
        if event == "c_call" and called is self._until:
            self._on, self._until = False, None
        elif event == "call" and Path(frame.f_code.co_filename).is_relative_to(PACKAGE):
            path = Path(frame.f_code.co_filename).relative_to(PACKAGE)
            self.files.setdefault(str(path), frame.f_code.co_name)

    @contextmanager
    def recording(self, until: object) -> Iterator[None]:
        """From the first bytes that the door receives to the first call of a built-in function."""
        self.files = {}
        self._until = until
        yield
        self._on, self._until = False, None


@pytest.fixture
def crossed() -> Iterator[Crossed]:
    """Before the broker starts its threads: only threads that start later are traced."""
    found = Crossed()
    before = sys.getprofile()
    threading.setprofile(found.trace)
    sys.setprofile(found.trace)
    yield found
    sys.setprofile(before)
    threading.setprofile(None)


@pytest.mark.parametrize("records", [1, 20_000])
async def test_a_produce_crosses_few_files_from_the_socket_to_pwritev(
    crossed: Crossed, tmp_path: Path, records: int
) -> None:
    """The first request of a connection and one like it, small and large."""
    broker = await Broker.open(BrokerOptions(tmp_path))
    try:
        async with opened(broker) as stage:
            await broker.create_topic("t")
            wire = await stage.connect()
            for _ in range(3):
                request = produce(PRODUCE_VERSION, "t", batch(*[b"value"] * records)[0])
                with crossed.recording(os.pwritev):
                    await wire.ask(request)
                assert "ports/files.py" in crossed.files, "the trace sees the write"
                assert len(crossed.files) <= PRODUCE_FILES_MAX, crossed.files
    finally:
        await broker.close()


async def test_a_fetch_from_memory_crosses_few_files(crossed: Crossed, tmp_path: Path) -> None:
    broker = await Broker.open(BrokerOptions(tmp_path))
    try:
        async with opened(broker) as stage:
            await broker.create_topic("t")
            await broker.append_values("t", [b"value"])
            wire = await stage.connect()
            for _ in range(2):
                with crossed.recording(None):
                    crossed._until = object()
                    await wire.ask(fetch(FETCH_VERSION, "t", (0, 0)))
                assert "log/tail.py" in crossed.files, "the trace sees the read"
                assert len(crossed.files) <= FETCH_FILES_MAX, crossed.files
    finally:
        await broker.close()
