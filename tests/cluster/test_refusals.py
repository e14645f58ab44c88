"""Refusals of a store or a disk that worked before: expired credentials, a read-only bucket, a full disk."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.broker.storage import opening
from mainstem.errors import StoreRefused, Unavailable
from mainstem.ports.commitlog.shared import open as places
from mainstem.ports.commitlog.shared.open import SharedPlace
from tests.support.memory_store import MemoryObjectStore


class Guarded(MemoryObjectStore):
    """Refuses some kinds of calls while set to."""

    def __init__(self) -> None:
        super().__init__()
        self.refused: set[str] = set()
        self.before = self._check

    async def _check(self, call: str, key: str) -> None:
        if call in self.refused:
            raise StoreRefused(f"{key}: access is refused (403 AccessDenied): check the credentials")


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Guarded:
    """The store of every URL."""
    made = Guarded()
    for module in (places, opening):
        monkeypatch.setattr(module, "open_store", lambda url: made)
    return made


@pytest.fixture
async def brokers(store: Guarded, tmp_path: Path) -> AsyncIterator[list[Broker]]:
    async with AsyncExitStack() as stack:
        opened = []
        for name in ("one", "two"):
            opened.append(await Broker.open(BrokerOptions(tmp_path / name, place=SharedPlace("memory"))))
            stack.push_async_callback(opened[-1].close)
            await opened[-1].cluster.join({})
            stack.push_async_callback(opened[-1].cluster.leave)
        yield opened


@pytest.mark.parametrize("refused", [{"put", "delete"}, {"put", "get", "get_ranges", "list", "delete"}])
async def test_brokers_survive_refusals_and_report_them(
    store: Guarded, brokers: list[Broker], refused: set[str]
) -> None:
    await brokers[0].create_topic("t")
    await brokers[0].append_values("t", [b"before"])
    await brokers[1].log.barrier()
    store.refused = refused
    for broker in brokers:
        with pytest.raises(Unavailable):
            await broker.append_values("t", [b"meanwhile"])
    for broker in brokers:
        await _eventually(lambda: "403 AccessDenied" in str(broker.cluster.refusal))  # noqa: B023
        assert broker.log.sharing is not None
        assert broker.log.sharing.failure is None
    store.refused = set()
    for number, broker in enumerate(brokers):
        await _eventually(lambda: broker.cluster.refusal is None)  # noqa: B023
        await broker.append_values("t", [b"after %d" % number])


async def _eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - heartbeats tell nobody
            await asyncio.sleep(0.02)


async def test_a_refusal_at_the_start_is_reported_at_once(store: Guarded, tmp_path: Path) -> None:
    store.refused = {"get", "put", "list"}
    with pytest.raises(StoreRefused, match="403 AccessDenied"):
        await Broker.open(BrokerOptions(tmp_path / "one", place=SharedPlace("memory")))


async def test_a_broker_that_cannot_store_its_number_serves(
    store: Guarded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its directory is a cache, and the disk may be full."""

    def full(path: Path, *_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "no space left on device", str(path))

    monkeypatch.setattr(Path, "write_text", full)
    broker = await Broker.open(BrokerOptions(tmp_path / "one", place=SharedPlace("memory")))
    await broker.create_topic("t")
    await broker.close()
